"""Actions of administrators on nodes and pods: cordon, drain, evict, remove a node."""

import contextlib
import time
from collections.abc import Iterable, Sequence
from typing import Any

from tests.controlplane.api import ApiClient, ApiError
from tests.controlplane.waiting import wait_until

_PAUSE = 0.2


def pods(api: ApiClient, namespace: str | None = None, selector: str = "") -> list[dict[str, Any]]:
    """Return all pods, or those of a namespace, or those that a label selector matches."""
    where = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
    return api.list_all(f"{where}?labelSelector={selector}" if selector else where)


def is_ready(obj: dict[str, Any]) -> bool:
    """Whether a node or a pod is Ready; a pod that terminates is not."""
    conditions = obj.get("status", {}).get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and "deletionTimestamp" not in obj["metadata"]


def wait_nodes_ready(api: ApiClient, count: int, timeout: float = 30.0) -> None:
    """Wait until there are so many Ready nodes that no not-ready taint keeps pods away from."""

    def ready() -> bool:
        usable = [n for n in api.list_all("/api/v1/nodes") if is_ready(n) and not _is_tainted(n)]
        return len(usable) >= count

    wait_until(ready, timeout, f"{count} nodes Ready")


def wait_nodes_labelled(api: ApiClient, timeout: float = 30.0) -> None:
    """Wait until no node's labels change any more of themselves.

    KWOK labels its nodes with OS and architecture, and some time later the controller manager copies these to
    labels of older names (nodelifecycle: ``labelReconcileInfo``).
    """

    def labelled() -> bool:
        all_labels = [node["metadata"].get("labels", {}) for node in api.list_all("/api/v1/nodes")]
        return all(
            f"beta.kubernetes.io/{what}" in labels
            for labels in all_labels
            for what in ("os", "arch")
        )

    wait_until(labelled, timeout, "nodes labelled")


def wait_pods_ready(
    api: ApiClient,
    count: int,
    timeout: float = 30.0,
    *,
    namespace: str | None = None,
    selector: str = "",
) -> list[dict[str, Any]]:
    """Wait until there are exactly so many pods, all of them Ready, and return them."""

    listed: list[dict[str, Any]] = []

    def settled() -> bool:
        listed[:] = pods(api, namespace, selector)
        return len(listed) == count and all(is_ready(pod) for pod in listed)

    try:
        wait_until(settled, timeout, f"{count} pods Ready")
    except TimeoutError as error:
        waiting = [_state(pod) for pod in listed if not is_ready(pod)]
        seen = f"{len(listed)} pods, of which not Ready: {', '.join(waiting[:10]) or 'none'}"
        raise TimeoutError(f"{error}: {seen}") from None
    return listed


def _state(pod: dict[str, Any]) -> str:
    where = pod["spec"].get("nodeName", "no node")
    ending = ", terminating" if "deletionTimestamp" in pod["metadata"] else ""
    return f"{pod['metadata']['name']} ({pod['status'].get('phase')} on {where}{ending})"


def evict(api: ApiClient, namespace: str, name: str) -> None:
    """Evict a pod by the Eviction API; ApiError with status 429 where a budget forbids it."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    }
    api.post(f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", eviction)


def cordon(api: ApiClient, names: Iterable[str], on: bool = True) -> None:
    """Make nodes unschedulable, or schedulable again."""
    for name in names:
        api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": on or None}})


def drain(api: ApiClient, names: Sequence[str], timeout: float = 60.0) -> None:
    """Cordon nodes and evict their pods (DaemonSets' aside), waiting for budgets if need be."""
    cordon(api, names)
    deadline = time.monotonic() + timeout
    while victims := [pod for pod in pods(api) if _leaves(pod, names)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(victims)} pods still stand on the drained nodes")
        for pod in victims:
            _try_to_evict(api, pod)
        time.sleep(_PAUSE)


def remove_node(api: ApiClient, name: str) -> None:
    """Delete a node and, at once, its pods, as a cloud does; Kubernetes itself takes a minute."""
    api.delete(f"/api/v1/nodes/{name}")
    for pod in api.list_all(f"/api/v1/pods?fieldSelector=spec.nodeName={name}"):
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        with contextlib.suppress(ApiError):
            # One that was on its way out may be gone by now; whatever else is wrong, it will be missed.
            api.delete(path, {"gracePeriodSeconds": 0})


def _try_to_evict(api: ApiClient, pod: dict[str, Any]) -> None:
    if "deletionTimestamp" in pod["metadata"]:
        return
    try:
        evict(api, pod["metadata"]["namespace"], pod["metadata"]["name"])
    except ApiError as error:
        # Gone already, or not yet allowed: the caller looks again.
        if error.status not in (404, 429):
            raise


def _leaves(pod: dict[str, Any], nodes: Sequence[str]) -> bool:
    owners = pod["metadata"].get("ownerReferences", [])
    stays = any(owner["kind"] == "DaemonSet" for owner in owners)
    return pod["spec"].get("nodeName") in nodes and not stays


def _is_tainted(node: dict[str, Any]) -> bool:
    taints = node["spec"].get("taints", [])
    return any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints)
