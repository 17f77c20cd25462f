"""Drifted states: the distribution of pods after nodes were added and removed.

Every function waits until the state is settled.
"""

import random
from collections.abc import Callable
from typing import Any, Literal

from tests.controlplane import objects, operations, workloads
from tests.controlplane.cluster import ControlPlane

Rule = Literal["prefer-apart", "spread"]

_ZONES = ("zone-a", "zone-b", "zone-c")
_WORKLOADS_PER_NODE = 2
_CPU = "16"
_MEMORY = "64Gi"
_SETTLE_SECONDS = 180.0


def article(
    plane: ControlPlane,
    *,
    seed: int = 0,
    nodes: int = 3,
    zone_label: str = objects.DEPRECATED_ZONE,
    rule: Rule = "prefer-apart",
) -> None:
    """Three replicas are 2/1 in two zones; then the nodes of a third zone join.

    `nodes` is the number in all three zones together; with 6 the two replicas of the crowded zone
    are on different nodes. The state does not depend on the seed.
    """
    del seed
    per_zone = max(1, nodes // len(_ZONES))
    names = {zone: [f"{zone}-{i}" for i in range(per_zone)] for zone in _ZONES}
    for zone in _ZONES[:2]:
        _add(plane, names[zone], zone, zone_label)
    operations.wait_nodes_ready(plane.api, 2 * per_zone)
    labels = {"app": "nginx"}
    if rule == "prefer-apart":
        spec: dict[str, Any] = {"affinity": objects.prefer_apart(labels, zone_label)}
    else:
        spec = {"topologySpreadConstraints": [objects.spread(labels, zone_label)]}
    plane.apply([objects.deployment("nginx", 3, labels=labels, **spec)])
    operations.wait_pods_ready(plane.api, 3, selector="app=nginx")
    _add(plane, names[_ZONES[2]], _ZONES[2], zone_label)
    operations.wait_nodes_ready(plane.api, 3 * per_zone)


def zone_back(plane: ControlPlane, *, seed: int = 0, nodes: int = 30) -> None:
    """Many workloads were created while one zone of three was away; now it is back."""
    names = _names(nodes)
    early = [name for name in names if _zone(name) != _ZONES[2]]
    _populate(plane, early, nodes, seed)
    _add_all(plane, [name for name in names if name not in early])
    operations.wait_nodes_ready(plane.api, nodes)


def new_nodes(plane: ControlPlane, *, seed: int = 0, nodes: int = 30) -> None:
    """Two thirds of the nodes have all pods; the last third has just joined, empty."""
    names = _names(nodes)
    early = names[: nodes * 2 // 3]
    _populate(plane, early, nodes, seed)
    _add_all(plane, names[len(early) :])
    operations.wait_nodes_ready(plane.api, nodes)


def drained_return(plane: ControlPlane, *, seed: int = 0, nodes: int = 30) -> None:
    """A fifth of the nodes were drained for maintenance, and are schedulable again."""
    names = _names(nodes)
    count = _populate(plane, names, nodes, seed)
    drained = random.Random(seed).sample(names, max(1, nodes // 5))
    operations.drain(plane.api, drained, _SETTLE_SECONDS)
    operations.wait_pods_ready(plane.api, count, _SETTLE_SECONDS)
    operations.cordon(plane.api, drained, on=False)
    operations.wait_nodes_ready(plane.api, nodes)


DRIFTS: dict[str, Callable[..., None]] = {
    "article": article,
    "zone-back": zone_back,
    "new-nodes": new_nodes,
    "drained-return": drained_return,
}
"""By name; each takes the control plane, `seed` and `nodes`."""


def add_nodes(plane: ControlPlane, nodes: int) -> None:
    """Add so many empty nodes, in three zones in turn."""
    _add_all(plane, _names(nodes))
    operations.wait_nodes_ready(plane.api, nodes)


def _populate(plane: ControlPlane, present: list[str], nodes: int, seed: int) -> int:
    """Add nodes, fill them with workloads in proportion to all nodes, and count the pods."""
    _add_all(plane, present)
    operations.wait_nodes_ready(plane.api, len(present))
    bag = workloads.mixed(nodes * _WORKLOADS_PER_NODE, seed)
    plane.apply(bag)
    count = workloads.replicas(bag)
    operations.wait_pods_ready(plane.api, count, _SETTLE_SECONDS)
    return count


def _names(nodes: int) -> list[str]:
    return [f"node-{i:03d}-{_ZONES[i % len(_ZONES)]}" for i in range(nodes)]


def _zone(name: str) -> str:
    return name.split("-", 2)[2]


def _add_all(plane: ControlPlane, names: list[str]) -> None:
    for name in names:
        _add(plane, [name], _zone(name), objects.ZONE)


def _add(plane: ControlPlane, names: list[str], zone: str, zone_label: str) -> None:
    made = (
        objects.node(name, zone=zone, zone_label=zone_label, cpu=_CPU, memory=_MEMORY)
        for name in names
    )
    plane.apply(made)
