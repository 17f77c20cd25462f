"""The two drifts of the demo: a zone joins, and a zone is lost and comes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.embedded.manifests import (
    HOSTNAME,
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
