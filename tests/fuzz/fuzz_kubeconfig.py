"""Kubeconfig files, up to the choice of a context, and of whom its user impersonates."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.credentials import choose
from rebalancer.kube.impersonation import AS_OURSELVES
from tests.fuzz.target import Target

_FILE = Path(tempfile.mkdtemp(prefix="fuzz-")) / "config"


def _read(data: bytes) -> None:
    _FILE.write_bytes(data)
    AS_OURSELVES.over(choose((_FILE,), None).of_user, "user").headers()
    choose((_FILE,), "other")


TARGET = Target(_read, (ClusterReadError,))
