"""Whether the cluster is settled: no object will change without a new cause."""

from __future__ import annotations

from rebalancer.embedded.apiserver import kinds
from rebalancer.embedded.apiserver.conditions import condition, is_ready
from rebalancer.embedded.apiserver.kinds import Json
from rebalancer.embedded.apiserver.store import Store
from rebalancer.embedded.controllers.kubelets import NODE_LOST, NODE_NOT_READY
from rebalancer.embedded.controllers.pods import is_terminating


def in_motion(store: Store) -> list[str]:
    """Return the nodes and pods that are starting, pending or terminating, as ``pod namespace/name``.

    Nodes broken by annotation with their pods, and pods that fit on no node, count as settled.
    """
    nodes = [
        f"node {node['metadata']['name']}"
        for node in store.items(kinds.NODE)
        if not is_ready(node) and not _is_broken(node)
    ]
    return nodes + [
        f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in store.items(kinds.POD)
        if not _is_settled(store, pod)
    ]


def _is_settled(store: Store, pod: Json) -> bool:
    name = pod["spec"].get("nodeName", "")
    node = store.find(kinds.NODE, "", name)
    if name and (node is None or not is_ready(node)):
        return True
    if is_terminating(pod):
        return False
    if pod["status"]["phase"] != "Pending":
        return True
    return (condition(pod["status"], "PodScheduled") or {}).get("status") == "False"


def _is_broken(node: Json) -> bool:
    annotations = node["metadata"].get("annotations") or {}
    return "true" in (annotations.get(NODE_NOT_READY), annotations.get(NODE_LOST))
