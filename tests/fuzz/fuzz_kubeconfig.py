"""Kubeconfig files, up to the choice of a context."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.credentials import choose
from tests.fuzz.target import Target

_FILE = Path(tempfile.mkdtemp(prefix="fuzz-")) / "config"


def _read(data: bytes) -> None:
    _FILE.write_bytes(data)
    choose((_FILE,), None)
    choose((_FILE,), "other")


TARGET = Target(_read, (ClusterReadError,))
