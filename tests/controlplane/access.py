"""Manifests of ServiceAccounts and what they may do."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Manifest = dict[str, Any]
_RBAC = "rbac.authorization.k8s.io"


def service_account(name: str, *, namespace: str = "default") -> Manifest:
    """Return a ServiceAccount."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def cluster_role(name: str, rules: Iterable[Mapping[str, Sequence[str]]]) -> Manifest:
    """Return a ClusterRole of these rules."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [dict(rule) for rule in rules],
    }


def cluster_role_binding(
    name: str, role: str, account: str, *, namespace: str = "default"
) -> Manifest:
    """Return a ClusterRoleBinding of a ClusterRole to a ServiceAccount."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }
