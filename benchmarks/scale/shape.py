"""Where the pods of a drifted cluster stand: most apps well spread, some squeezed into two zones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.scale.objects import KINDS

ZONES = ("zone-a", "zone-b", "zone-c")


@dataclass(frozen=True, slots=True)
class Shape:
    """A cluster's size and drift."""

    nodes: int
    pods: int
    replicas: int = 10
    apps_per_namespace: int = 30
    drifted: float = 0.12
    """Share of the apps that have no pod in the last zone, as after its outage."""
    doubled: float = 0.02
    """Share of the apps of which two pods share a node."""
    old_sets: int = 2
    """ReplicaSets without pods that each Deployment keeps."""
    budgets: float = 0.2
    """Share of the apps that have a PodDisruptionBudget."""
    lean: bool = False
    seed: int = 1

    @property
    def apps(self) -> int:
        """How many Deployments there are."""
        return max(1, self.pods // self.replicas)

    @property
    def namespaces(self) -> int:
        """How many namespaces hold them."""
        return -(-self.apps // self.apps_per_namespace)


@dataclass(frozen=True, slots=True)
class App:
    """One Deployment with the nodes of its pods."""

    number: int
    kind: str
    namespace: int
    nodes: tuple[int, ...]
    budget: bool


def zone_of(node: int) -> str:
    """Return the zone of a node: in turn."""
    return ZONES[node % len(ZONES)]


def apps(shape: Shape) -> Iterator[App]:
    """Yield all apps; the same for the same seed."""
    rng = random.Random(shape.seed)
    for number in range(shape.apps):
        zones = 2 if rng.random() < shape.drifted else 3
        nodes = _spread(shape, zones, rng)
        if shape.nodes > 3 and rng.random() < shape.doubled:
            nodes[-1] = nodes[0]
        yield App(
            number=number,
            kind=KINDS[number % len(KINDS)],
            namespace=number // shape.apps_per_namespace,
            nodes=tuple(nodes),
            budget=rng.random() < shape.budgets,
        )


def _spread(shape: Shape, zones: int, rng: random.Random) -> list[int]:
    """Return a node for each replica, zone by zone in turn, no node twice while there are others."""
    per_zone = [range(zone, shape.nodes, len(ZONES)) for zone in range(min(zones, shape.nodes))]
    need = -(-shape.replicas // len(per_zone))
    columns = [
        rng.sample(nodes, need) if len(nodes) >= need else rng.choices(nodes, k=need)
        for nodes in per_zone
    ]
    return [
        columns[replica % len(columns)][replica // len(columns)]
        for replica in range(shape.replicas)
    ]
