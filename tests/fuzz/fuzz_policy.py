"""Policies, as YAML or JSON: of a cluster, and of a namespace."""

from __future__ import annotations

from rebalancer.base.errors import PolicyError
from rebalancer.policy.load import load_text
from rebalancer.policy.model import Policy
from rebalancer.policy.namespace import read_namespace_policy
from rebalancer.registry import Registry
from tests.fuzz.target import Target

_KNOWN = Registry.installed()


def _read(data: bytes) -> None:
    # What a tenant writes has to be readable whatever it is, and its problems have to be printable.
    read = read_namespace_policy(data.decode("utf-8", "replace"), "shop", Policy(), _KNOWN)
    read.describe().encode()
    load_text(data, "policy.yaml", _KNOWN)


TARGET = Target(_read, (PolicyError,))
