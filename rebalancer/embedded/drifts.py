"""How a cluster drifts: in the two parts of the demo, and on request while one is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.embedded.manifests import (
    HOSTNAME,
    ZONE,
    deployment,
    pdb,
    prefer_apart,
    require_apart,
    spread,
    statefulset,
)

ZONES = ("zone-a", "zone-b", "zone-c")
SHOP = "shop"
_NODES_PER_ZONE = 4
_SET_UP_SECONDS = 300.0
_QUIET_SECONDS = 600.0

RULES: Mapping[str, str] = {
    "api": "spread over zones, soft",
    "cart": "apart by zone, preferred",
    "checkout": "spread over zones, hard",
    "images": "apart by host, required",
    "ledger": "StatefulSet, spread, soft",
    "mail": "nothing",
    "metrics": "apart by host, preferred",
    "payments": "spread, soft; PDB: 3 of 4",
    "search": "apart by zone, preferred",
}
"""Placement rules of each workload of the second drift, in few words."""


def two_zones(cluster: EmbeddedCluster) -> None:
    """Three replicas with preferred anti-affinity by zone, and only two zones."""
    for zone in ZONES[:2]:
        _join(cluster, zone, 2)
    cluster.advance(_SET_UP_SECONDS)
    cluster.apply(deployment(SHOP, 3, affinity=prefer_apart({"app": SHOP})))
    cluster.advance(_SET_UP_SECONDS)


def third_zone(cluster: EmbeddedCluster) -> None:
    """A node of the third zone joins; some minutes pass."""
    _join(cluster, ZONES[2], 1)
    cluster.advance(_QUIET_SECONDS)


def many_workloads(cluster: EmbeddedCluster) -> None:
    """Twelve nodes in three zones, nine workloads, all rules met."""
    for zone in ZONES:
        _join(cluster, zone, _NODES_PER_ZONE)
    cluster.advance(_SET_UP_SECONDS)
    cluster.apply(*_workloads())
    cluster.advance(_SET_UP_SECONDS)


def zone_lost(cluster: EmbeddedCluster) -> None:
    """The third zone is lost with its pods; their replacements are in the other two."""
    for number in range(_NODES_PER_ZONE):
        cluster.remove_node(_name(ZONES[2], number))
    cluster.advance(_QUIET_SECONDS)


def zone_back(cluster: EmbeddedCluster) -> None:
    """The third zone is back, empty; some minutes pass."""
    _join(cluster, ZONES[2], _NODES_PER_ZONE)
    cluster.advance(_QUIET_SECONDS)


def _join(cluster: EmbeddedCluster, zone: str, nodes: int) -> None:
    for number in range(nodes):
        cluster.add_node(_name(zone, number), zone)


def _name(zone: str, number: int) -> str:
    return f"node-{zone[-1]}{number + 1}"


def _workloads() -> list[dict[str, Any]]:
    def labels(name: str) -> dict[str, str]:
        return {"app": name}

    def soft(name: str) -> list[dict[str, Any]]:
        return [spread(labels(name), hard=False)]

    return [
        deployment("api", 6, topologySpreadConstraints=soft("api")),
        deployment("cart", affinity=prefer_apart(labels("cart"))),
        deployment("checkout", topologySpreadConstraints=[spread(labels("checkout"))]),
        deployment("images", affinity=require_apart(labels("images"))),
        deployment("mail", 2),
        deployment("metrics", affinity=prefer_apart(labels("metrics"), HOSTNAME)),
        deployment("payments", 4, topologySpreadConstraints=soft("payments")),
        deployment("search", affinity=prefer_apart(labels("search"))),
        statefulset("ledger", topologySpreadConstraints=soft("ledger")),
        pdb("payments", labels("payments"), minAvailable=3),
    ]


# -- of a cluster that lives on: nothing is advanced, pods start and stop meanwhile -------------------------


def _lose_zone(cluster: EmbeddedCluster) -> None:
    for node in cluster.objects("Node"):
        if node["metadata"]["labels"].get(ZONE) == ZONES[2]:
            cluster.remove_node(node["metadata"]["name"])
    cluster.settle()


def _bring_zone_back(cluster: EmbeddedCluster) -> None:
    _lose_zone(cluster)
    _join(cluster, ZONES[2], _NODES_PER_ZONE)
    cluster.settle()


def _add_nodes(cluster: EmbeddedCluster) -> None:
    there = len(cluster.objects("Node"))
    for zone in ZONES:
        cluster.add_node(f"node-{zone[-1]}{there + 1}", zone)
    cluster.settle()


def _drain_and_return(cluster: EmbeddedCluster) -> None:
    names = [f"node-{zone[-1]}1" for zone in ZONES if _is_there(cluster, f"node-{zone[-1]}1")]
    cluster.cordon(names)
    for pod in cluster.objects("Pod"):
        if pod["spec"].get("nodeName") in names:
            cluster.delete("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
    cluster.settle()
    cluster.cordon(names, on=False)


def _is_there(cluster: EmbeddedCluster, node: str) -> bool:
    return any(each["metadata"]["name"] == node for each in cluster.objects("Node"))


LIVE: Mapping[str, tuple[str, Callable[[EmbeddedCluster], None]]] = {
    "zone-lost": (f"{ZONES[2]} is lost with its nodes", _lose_zone),
    "zone-back": (f"{ZONES[2]} was lost and is back, empty", _bring_zone_back),
    "new-nodes": ("a node has joined in each zone, empty", _add_nodes),
    "drained-return": ("a node of each zone was emptied and is back", _drain_and_return),
}
"""Name -> what has happened then, and how it is done."""
