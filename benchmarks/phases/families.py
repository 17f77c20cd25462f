"""Clusters of random shapes: each is drawn anew by its seed, so that no code can be tuned to one of them.

A seed draws the distributions first (sizes of owners, how uneven nodes are filled, zones, share and kinds of
rules, number of templates), then the cluster from them. Some draws are extreme on purpose: one owner of all
pods, a drift that is all in balance, a drift that is all in affinity.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.decisions.recorded import recorded
from benchmarks.phases.shapes import HOSTNAME, ZONE

Manifest = dict[str, Any]

CAPACITY = "example.com/capacity"
_RECORDED_PODS = Path("openb/openb_pod_list_default.csv")
_OLD = "2026-01-01T00:00:00Z"
_CAPTURED = "2026-06-01T00:00:00Z"
_MOST_PODS = 105
_TRIES = 30
RULES = (
    "zone-hard",
    "zone-soft",
    "host-soft",
    "both-soft",
    "apart-host",
    "apart-host-preferred",
    "apart-zone-preferred",
    "pinned",
)
_OF_BALANCE: tuple[str, ...] = ("pinned",)
_OF_AFFINITY = ("apart-host", "apart-host-preferred", "apart-zone-preferred")


@dataclass(frozen=True, slots=True)
class Family:
    """The distributions that a cluster is drawn from."""

    sizes: str
    """How many pods owners have: ``pareto``, ``even``, ``large`` or ``one`` (one owner has all pods)."""
    shape: float
    """Of ``pareto``: the smaller, the longer the tail; of ``even``: the size."""
    zones: tuple[float, ...]
    """Share of the nodes in each zone; pods stand in other shares."""
    fills: tuple[float, ...]
    """How willingly nodes are filled; each has one of these."""
    ruled: float
    """Share of the owners that have a rule."""
    rules: tuple[str, ...]
    """Kinds of rules, each as likely as it is often."""
    templates: int
    """How many different requests there are."""
    stuck: float
    """Share of the pods that stand on the node of a sibling."""


def family(seed: int) -> Family:
    """Return the distributions of a seed."""
    draw = random.Random(f"family {seed}")  # clusters, not secrets
    kind = draw.choices(("mixed", "balance", "affinity", "one owner"), (7, 1, 1, 1))[0]
    sizes = "one" if kind == "one owner" else draw.choice(("pareto", "pareto", "even", "large"))
    zones = tuple(draw.uniform(0.2, 1.0) for _ in range(draw.choice((1, 2, 3, 3, 3, 4))))
    weights = [draw.choice((0, 1, 1, 2, 4)) for _ in RULES]
    rules = tuple(rule for rule, times in zip(RULES, weights, strict=True) for _ in range(times))
    ruled = draw.choice((0.2, 0.5, 0.8, 1.0))
    if kind == "balance":
        ruled, rules = 0.2, _OF_BALANCE
    elif kind == "affinity":
        ruled, rules = 1.0, _OF_AFFINITY
    uneven = draw.choice((1.5, 5.0, 50.0))
    return Family(
        sizes=sizes,
        shape=draw.uniform(0.9, 1.6) if sizes == "pareto" else draw.choice((2, 5, 12, 40)),
        zones=zones,
        fills=tuple(uneven ** -draw.random() for _ in range(6)),
        ruled=1.0 if sizes == "one" else ruled,
        rules=rules or RULES,
        templates=draw.choice((3, 12, 50, 300)),
        stuck=draw.choice((0.0, 0.0, 0.05, 0.2)),
    )


@dataclass(frozen=True, slots=True)
class Trace:
    """What was recorded in a real cluster: (millicores, MiB) of nodes and of pods, and instances of services."""

    nodes: tuple[tuple[int, int], ...]
    pods: tuple[tuple[int, int], ...]
    instances: tuple[int, ...]


def trace_of(folder: Path) -> Trace:
    """Read the recorded clusters of ``folder``, see :mod:`benchmarks.decisions.recorded`; ValueError says what is missing."""
    of = recorded(folder)
    with (folder / _RECORDED_PODS).open(newline="") as lines:
        pods = [(int(row["cpu_milli"]), int(row["memory_mib"])) for row in csv.DictReader(lines)]
    return Trace(
        nodes=tuple((node.cpu, node.memory) for node in of.nodes),
        pods=tuple(pods),
        instances=tuple(app.instances for app in of.apps),
    )


def cluster_of(seed: int, nodes: int, pods: int, trace: Trace | None = None) -> bytes:
    """Return the cluster of a seed as a snapshot file holds it; the same for the same arguments.

    ``trace``: sizes of nodes, requests of pods and replicas are drawn from it, the rest from the seed's family. Where the
    nodes are full, there are fewer than ``pods``.
    """
    annotations = {
        "rebalancer/captured-at": _CAPTURED,
        "rebalancer/server-version": "1.36",
        "rebalancer/kinds": "Pod,Node,ReplicaSet",
    }
    items = list(_Cluster(family(seed), seed, nodes, trace).objects(pods))
    head: Manifest = {"apiVersion": "v1", "kind": "List", "metadata": {"annotations": annotations}}
    return msgspec.json.encode({**head, "items": items})


class _Node:
    def __init__(
        self, number: int, zone: int, fill: float, size: tuple[int, int], *, spot: bool
    ) -> None:
        self.name, self.zone, self.fill = f"node-{number:05d}", zone, fill
        self.cpu, self.memory = size
        self.free = [self.cpu, self.memory, _MOST_PODS]
        self.capacity = "spot" if spot else "on-demand"

    def take(self, cpu: int, memory: int) -> bool:
        """Take a pod if there is room."""
        left = [free - asked for free, asked in zip(self.free, (cpu, memory, 1), strict=True)]
        if min(left) < 0:
            return False
        self.free = left
        return True

    def manifest(self) -> Manifest:
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "labels": {HOSTNAME: self.name, ZONE: f"zone-{self.zone}", CAPACITY: self.capacity},
                "creationTimestamp": _OLD,
            },
            "status": {
                "allocatable": {"cpu": f"{self.cpu}m", "memory": f"{self.memory}Mi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"kubeletVersion": "v1.36.3"},
            },
        }


class _Cluster:
    """Draws one cluster of a family."""

    def __init__(self, of: Family, seed: int, nodes: int, trace: Trace | None) -> None:
        self._of, self._draw, self._trace = of, random.Random(f"cluster {seed}"), trace
        draw = self._draw
        zones = range(len(of.zones))
        self._nodes = [
            _Node(
                number,
                draw.choices(zones, of.zones)[0],
                draw.choice(of.fills),
                self._size(),
                spot=draw.random() < 0.5,
            )
            for number in range(nodes)
        ]
        self._where_pods_stand = [draw.uniform(0.1, 1.0) for _ in zones]
        self._templates = (
            list(trace.pods)
            if trace is not None
            else [
                (
                    draw.choice((25, 50, 100, 250, 500, 1000)),
                    draw.choice((64, 128, 256, 512, 1024, 2048)),
                )
                if number < 20
                else (draw.randrange(10, 800), draw.randrange(32, 2048))
                for number in range(of.templates)
            ]
        )

    def _size(self) -> tuple[int, int]:
        if self._trace is not None:
            return self._draw.choice(self._trace.nodes)
        return (31_800, 128_000) if self._draw.random() < 0.3 else (15_800, 62_000)

    def objects(self, pods: int) -> Iterator[Manifest]:
        """Yield nodes, then the pods of one owner after the other with their ReplicaSet."""
        yield from (node.manifest() for node in self._nodes)
        number = 0
        while pods > 0:
            replicas = min(pods, self._replicas(pods))
            yield from self._owner(number, replicas)
            pods, number = pods - replicas, number + 1

    def _replicas(self, pods: int) -> int:
        of, draw = self._of, self._draw
        if of.sizes == "one":
            return pods
        if self._trace is not None:
            return max(1, draw.choice(self._trace.instances))
        if of.sizes == "pareto":
            return max(1, min(400, int(draw.paretovariate(of.shape))))
        return int(of.shape) if of.sizes == "even" else draw.choice((20, 50, 100, 200))

    def _owner(self, number: int, replicas: int) -> Iterator[Manifest]:
        of, draw = self._of, self._draw
        name = f"app{number:05d}"
        rule = draw.choice(of.rules) if draw.random() < of.ruled else ""
        cpu, memory = draw.choice(self._templates)
        requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
        spec = {
            "containers": [{"name": "main", "image": "app", "resources": {"requests": requests}}]
        }
        spec |= _spec(rule, name, draw.choice((1, 1, 2)))
        uid, labels = f"{number:08d}-rs", {"app": name, "pod-template-hash": "5d4f"}
        meta = {"namespace": f"ns{number // 30:04d}"}
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{name}-5d4f", "uid": uid}
        placed, last = 0, None
        for _ in range(replicas):
            node = self._node(cpu, memory, last, pinned=rule == "pinned")
            if node is None:
                continue
            last, placed = node, placed + 1
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    **meta,
                    "name": f"{name}-5d4f-{placed:05d}",
                    "uid": f"{number:08d}-{placed:05d}",
                    "creationTimestamp": _OLD,
                    "labels": labels,
                    "ownerReferences": [{**owner, "controller": True}],
                },
                "spec": {**spec, "nodeName": node.name},
                "status": {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": _OLD}],
                },
            }
        yield {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {**meta, "name": f"{name}-5d4f", "uid": uid},
            "spec": {
                "replicas": placed,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
            "status": {"replicas": placed, "readyReplicas": placed},
        }

    def _node(self, cpu: int, memory: int, last: _Node | None, *, pinned: bool) -> _Node | None:
        """Return the node of one more pod; None if none of those that are tried has room."""
        draw = self._draw
        if last is not None and draw.random() < self._of.stuck and last.take(cpu, memory):
            return last
        zone = draw.choices(range(len(self._of.zones)), self._where_pods_stand)[0]
        for attempt in range(_TRIES):
            node = draw.choice(self._nodes)
            willing = attempt > _TRIES // 2 or (node.zone == zone and draw.random() < node.fill)
            allowed = not pinned or node.capacity == "on-demand"
            if willing and allowed and node.take(cpu, memory):
                return node
        return None


def _spec(rule: str, app: str, skew: int) -> Manifest:
    mine = {"matchLabels": {"app": app}}
    hard, soft = "DoNotSchedule", "ScheduleAnyway"
    spreads = {
        "zone-hard": ((ZONE, hard),),
        "zone-soft": ((ZONE, soft),),
        "host-soft": ((HOSTNAME, soft),),
        "both-soft": ((ZONE, soft), (HOSTNAME, soft)),
    }
    if rule in spreads:
        of_rule = [
            {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": mine}
            for key, when in spreads[rule]
        ]
        return {"topologySpreadConstraints": of_rule}
    if rule == "pinned":
        return {"nodeSelector": {CAPACITY: "on-demand"}}
    if not rule:
        return {}
    term: Manifest = {"labelSelector": mine, "topologyKey": ZONE if "zone" in rule else HOSTNAME}
    if "preferred" not in rule:
        anti: Manifest = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    else:
        weighted = [{"weight": 100, "podAffinityTerm": term}]
        anti = {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
    return {"affinity": {"podAntiAffinity": anti}}
