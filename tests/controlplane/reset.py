"""Empties a control plane for the next test."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.controlplane.api import ApiClient, ApiError
from tests.controlplane.waiting import wait_until

_SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")

# Owners before their dependents, which controllers would create again.
_OWNERS = (
    "/apis/batch/v1/cronjobs",
    "/apis/batch/v1/jobs",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/replicasets",
    "/api/v1/replicationcontrollers",
)
_PODS = "/api/v1/pods"
_NAMESPACES = "/api/v1/namespaces"
_NAMESPACED = (
    "/apis/policy/v1/poddisruptionbudgets",
    "/apis/autoscaling/v2/horizontalpodautoscalers",
    "/apis/networking.k8s.io/v1/networkpolicies",
    "/api/v1/services",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/resourcequotas",
    "/api/v1/limitranges",
    "/api/v1/configmaps",
    "/api/v1/secrets",
    "/api/v1/serviceaccounts",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/coordination.k8s.io/v1/leases",
    "/api/v1/events",
)
_ADMISSION = (
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
)
_CLUSTER = (
    "/api/v1/nodes",
    "/api/v1/persistentvolumes",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/storage.k8s.io/v1/csinodes",
    "/apis/storage.k8s.io/v1/volumeattachments",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
)
# Names of objects that the control plane creates itself.
_OWN_NAMES = {
    "kubernetes",
    "kube-root-ca.crt",
    "cluster-admin",
    "extension-apiserver-authentication",
    "kube-apiserver-legacy-service-account-token-tracking",
}
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_NOW = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}


def reset(api: ApiClient, timeout: float) -> None:
    """Delete all nodes, workloads, namespaces and objects that a test can have made."""
    # First the admission webhooks, which might refuse deletions; then no objects can be added to namespaces.
    for path in _ADMISSION:
        _clear(api, path)
    namespaces = _user_namespaces(api)
    _delete_all(api, _NAMESPACES, namespaces)
    for path in (*_OWNERS, _PODS):
        _clear(api, path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda path: _clear(api, path), (*_NAMESPACED, *_CLUSTER)))
        list(pool.map(lambda obj: _finish(api, _name(obj)), namespaces))
    wait_until(lambda: _empty(api), timeout, "the control plane empty again")


def _user_namespaces(api: ApiClient) -> list[dict[str, Any]]:
    obj = api.list_all(_NAMESPACES)
    return [namespace for namespace in obj if _name(namespace) not in _SYSTEM_NAMESPACES]


def _finish(api: ApiClient, namespace: str) -> None:
    """Do the namespace controller's work on a deleted namespace: it would begin in five seconds."""
    for prefix, plural in _deletable(api):
        _ignoring_absence(api, "DELETE", f"{prefix}/namespaces/{namespace}/{plural}", _NOW)
    metadata = {"name": namespace}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "spec": {}}
    _ignoring_absence(api, "PUT", f"{_NAMESPACES}/{namespace}/finalize", body)


def _deletable(api: ApiClient) -> Iterator[tuple[str, str]]:
    """Yield path prefix and plural of all namespaced kinds that can be deleted as collections."""
    for root in ("/api", "/apis"):
        for group in api.request("GET", root, accept=_DISCOVERY)["items"]:
            name = group["metadata"].get("name", "")
            for version in group["versions"]:
                prefix = f"{root}/{name}/{version['version']}" if name else f"{root}/v1"
                for resource in version.get("resources", ()):
                    if (
                        resource["scope"] == "Namespaced"
                        and "deletecollection" in resource["verbs"]
                    ):
                        yield prefix, resource["resource"]


def _empty(api: ApiClient) -> bool:
    """Delete everything again, as controllers may have created objects; return whether it was empty."""
    remaining = 0
    for path in (*_OWNERS, _PODS, "/api/v1/nodes", "/api/v1/persistentvolumes"):
        remaining += _clear(api, path)
    for path in ("/api/v1/persistentvolumeclaims", "/apis/policy/v1/poddisruptionbudgets"):
        remaining += _clear(api, path)
    remaining += len(_user_namespaces(api))
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    return remaining == 0 and api.find(account) is not None


def _clear(api: ApiClient, path: str) -> int:
    """Delete all objects of a kind, and return how many there were."""
    try:
        objects = [obj for obj in api.list_all(path) if not _is_own(obj)]
    except ApiError as error:
        if error.status == 404:
            return 0
        raise
    _delete_all(api, path, objects)
    return len(objects)


def _delete_all(api: ApiClient, path: str, objects: list[dict[str, Any]]) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda obj: _delete(api, path, obj), objects))


def _delete(api: ApiClient, path: str, obj: dict[str, Any]) -> None:
    """Delete one object at once: without grace, and without waiting for any finalizer."""
    prefix, plural = path.rsplit("/", 1)
    namespace = obj["metadata"].get("namespace")
    where = f"{prefix}/namespaces/{namespace}/{plural}" if namespace else path
    where += f"/{_name(obj)}"
    if obj["metadata"].get("finalizers"):
        _ignoring_absence(api, "PATCH", where, {"metadata": {"finalizers": None}})
    _ignoring_absence(api, "DELETE", where, _NOW)


def _ignoring_absence(api: ApiClient, method: str, path: str, body: dict[str, Any]) -> None:
    """Make a request; an object that is deleted or being deleted is no error."""
    try:
        if method == "PATCH":
            api.patch(path, body)
        else:
            api.request(method, path, body)
    except ApiError as error:
        if error.status not in (404, 409):
            raise


def _is_own(obj: dict[str, Any]) -> bool:
    metadata = obj["metadata"]
    name = metadata["name"]
    if name in _OWN_NAMES or name.startswith(("system:", "system-")):
        return True
    if "kubernetes.io/bootstrapping" in metadata.get("labels", {}):
        return True
    if name == "default" and metadata.get("namespace"):
        return True
    # Leases of API servers and controllers; those of nodes go with their nodes.
    in_system = metadata.get("namespace") == "kube-system"
    return in_system and str(name).startswith(("kube-", "apiserver-"))


def _name(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["name"])
