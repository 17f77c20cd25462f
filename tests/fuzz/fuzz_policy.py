"""Policies: one file, as YAML or JSON."""

from __future__ import annotations

from rebalancer.base.errors import PolicyError
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from tests.fuzz.target import Target

_KNOWN = Registry.installed()


def _read(data: bytes) -> None:
    load_text(data, "policy.yaml", _KNOWN)


TARGET = Target(_read, (PolicyError,))
