"""Manifests of ServiceAccounts and their rights, and a check whether the server applies these."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.controlplane.api import ApiClient, ApiError

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


def is_allowed(api: ApiClient, account: str, namespace: str, what: Mapping[str, str]) -> bool:
    """Whether the server would let a ServiceAccount do something; ``what`` are resourceAttributes.

    It learns of roles and bindings by watches, a moment after they were written.
    """
    spec = {"user": f"system:serviceaccount:{namespace}:{account}", "resourceAttributes": what}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def is_known(client: ApiClient) -> bool:
    """Whether the server takes the token of a client: of a recreated account it may know the last one only."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    except ApiError as error:
        if error.status != 401:
            raise
        return False
    return True
