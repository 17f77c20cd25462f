"""Random clusters that have shrunk: full ones, placed by the scheduler model, of which many replicas are gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.model import Snapshot
from rebalancer.testing.snapshots import (
    HOSTNAME,
    ZONE,
    Manifest,
    apart,
    node,
    snapshot_of,
    spread,
    workload,
)
from rebalancer.whatif.world import SimulatedCluster

_SIZES = (("4", "16Gi"), ("8", "32Gi"))
_CPU = (50, 100, 100, 250, 250, 500, 500, 1000, 2000)
_MEMORY = (128, 256, 512, 1024, 2048, 4096)


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload, before and after it shrank."""

    name: str
    cpu: str
    memory: str
    spec: dict[str, Any]
    full: int
    left: int
    rule: str
    """Empty, ``apart`` or ``spread``."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster as API objects, and as the snapshot of them."""

    objects: Sequence[Manifest]
    snapshot: Snapshot
    workloads: Sequence[Workload]


def cluster(seed: int) -> Cluster:
    """Return the cluster of a seed: 8 to 30 nodes, at most a third of their pods gone or two thirds."""
    random = np.random.default_rng(seed)
    count = int(random.integers(8, 31))
    mixed = bool(random.random() < 0.5)
    nodes = [
        node(f"n{i:02}", f"z{i % 3}", cpu=cpu, memory=memory)
        for i in range(count)
        for cpu, memory in [_SIZES[int(random.integers(2)) if mixed else 0]]
    ]
    workloads = list(_workloads(random, count))
    full = [*nodes, *_daemons(count)]
    for one in workloads:
        full += workload(one.name, [""] * one.full, cpu=one.cpu, memory=one.memory, spec=one.spec)
    world = SimulatedCluster(
        snapshot_of(full), lambda of: SchedulerProfile.for_version(of.version), random
    )
    world.schedule()
    placed = world.snapshot
    objects = [*nodes, *_daemons(count)]
    for one in workloads:
        owner = next(i for i, of in enumerate(placed.owners) if of.name == one.name)
        mine = [
            i
            for i, cls in enumerate(placed.pods.cls.tolist())
            if placed.classes[cls].owner == owner
        ]
        on = [int(placed.pods.node[pod]) for pod in mine if placed.pods.node[pod] >= 0]
        stays = random.permutation(on)[: one.left].tolist()
        objects += workload(
            one.name,
            [placed.nodes.names[n] for n in sorted(stays)],
            cpu=one.cpu,
            memory=one.memory,
            spec=one.spec,
        )
    return Cluster(objects, snapshot_of(objects), workloads)


def _workloads(random: np.random.Generator, nodes: int) -> list[Workload]:
    """Return workloads that fill about 60 to 85 % of the nodes, and how many replicas each is left with."""
    workloads: list[Workload] = []
    room = nodes * 4000 * random.uniform(0.6, 0.85)
    keeps = random.uniform(0.33, 0.67)
    while room > 0:
        name = f"w{len(workloads)}"
        cpu, memory = int(random.choice(_CPU)), int(random.choice(_MEMORY))
        replicas = int(random.integers(3, 13))
        kind = random.random()
        spec: dict[str, Any] = {}
        rule = ""
        if kind < 0.15:
            spec, rule, replicas = apart(name, HOSTNAME), "apart", min(replicas, nodes // 2)
        elif kind < 0.3:
            spec, rule = spread(name, ZONE, hard=True), "spread"
        elif kind < 0.36:
            spec = {"volumes": [{"name": "data", "emptyDir": {}}]}
        left = max(2, round(replicas * keeps))
        workloads.append(
            Workload(name, f"{cpu}m", f"{memory}Mi", spec, max(replicas, left), left, rule)
        )
        room -= cpu * replicas
    return workloads


def _daemons(nodes: int) -> list[Manifest]:
    objects = workload("agent", [f"n{i:02}" for i in range(nodes)], kind="StatefulSet", cpu="100m")
    owner = {
        "kind": "DaemonSet",
        "apiVersion": "apps/v1",
        "name": "agent",
        "uid": "DaemonSet/agent",
        "controller": True,
    }
    pods = [one for one in objects if one["kind"] == "Pod"]
    for pod in pods:
        pod["metadata"]["ownerReferences"] = [owner]
    return pods
