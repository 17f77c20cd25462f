"""Random clusters in which pods wait: what each workload asks, where its pods are, which of them may not move."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rebalancer.testing.snapshots import OLD, apart, disruption_budget, node, workload

_GI = 2**30
_SINCE = "2027-01-15T07:00:00Z"


@dataclass(slots=True)
class Machine:
    """A node."""

    name: str
    pool: str
    room: tuple[int, int, int, int]
    """Milli-CPUs, Mi of memory, GPUs, pods."""


@dataclass(slots=True)
class Work:
    """A workload."""

    name: str
    asks: tuple[int, int, int]
    """Of one pod, as of a machine."""
    pool: str | None = None
    """Only nodes of this pool; None: any."""
    apart: bool = False
    """No two of its pods on a node."""
    priority: int = 0
    fixed: str = ""
    """Why its pods may not move; empty: they may."""
    stateful: bool = False
    on: list[int] = field(default_factory=list)
    """The node of each pod."""
    waiting: int = 0
    """So many pods that no node takes."""
    gang: bool = False
    """All of its pods leave at once, or none."""


@dataclass(frozen=True, slots=True)
class RoomCluster:
    """A cluster, by its seed."""

    seed: int
    machines: Sequence[Machine]
    works: Sequence[Work]

    def free(self, n: int) -> list[int]:
        """Return what a node has left."""
        left = list(self.machines[n].room)
        for work in self.works:
            pods = work.on.count(n)
            for row, ask in enumerate((*work.asks, 1)):
                left[row] -= pods * ask
        return left

    def takes(self, work: Work, n: int) -> bool:
        """Return whether a node takes one more pod of a workload."""
        fits = all(
            left >= ask for left, ask in zip(self.free(n), (*work.asks, 1), strict=True) if ask
        )
        rules = not (work.apart and n in work.on)
        return fits and rules and work.pool in (None, self.machines[n].pool)

    def objects(self) -> list[dict[str, Any]]:
        """Return its objects."""
        made: list[dict[str, Any]] = []
        for machine in self.machines:
            cpu, memory, gpus, pods = machine.room
            one = node(
                machine.name,
                cpu=f"{cpu}m",
                memory=f"{memory}Mi",
                pods=pods,
                labels={"pool": machine.pool},
            )
            if gpus:
                one["status"]["allocatable"]["nvidia.com/gpu"] = str(gpus)
            made.append(one)
        for work in self.works:
            made += self._of(work)
        return made

    def _of(self, work: Work) -> list[dict[str, Any]]:
        cpu, memory, gpus = work.asks
        requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
        if gpus:
            requests["nvidia.com/gpu"] = str(gpus)
        spec: dict[str, Any] = {
            "containers": [
                {"name": "main", "image": work.name, "resources": {"requests": requests}}
            ]
        }
        if work.pool is not None:
            spec["nodeSelector"] = {"pool": work.pool}
        if work.apart:
            spec |= apart(work.name, "kubernetes.io/hostname")
        if work.fixed == "data":
            spec["volumes"] = [{"name": "data", "hostPath": {"path": "/data"}}]
        objects = workload(
            work.name,
            [*(self.machines[n].name for n in work.on), *[""] * work.waiting],
            kind="StatefulSet" if work.stateful else "Deployment",
            spec=spec,
            priority=work.priority,
            annotations=_annotations(work),
        )
        for pod in objects:
            if pod["kind"] == "Pod" and not pod["spec"]["nodeName"]:
                refused = {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "lastTransitionTime": _SINCE,
                }
                pod["status"] = {"phase": "Pending", "conditions": [refused]}
        if work.fixed == "budget":
            objects.append(disruption_budget(work.name, work.name, allowed=0, healthy=len(work.on)))
        return objects


def _annotations(work: Work) -> dict[str, str]:
    kept = {"rebalancer/evict": "false"} if work.fixed == "opted out" else {}
    return kept | ({"pod-group-name": work.name} if work.gang else {})


def with_gangs(made: RoomCluster) -> RoomCluster:
    """Make a third of the workloads that run gangs; all else of the cluster stays as it is."""
    draw = random.Random(-1 - made.seed)
    for work in made.works:
        work.gang = len(work.on) > 1 and draw.random() < 1 / 3
    return made


def cluster(seed: int) -> RoomCluster:
    """Return the cluster of a seed; a third of them is made so full, or so held, that hardly anything can be let in."""
    draw = random.Random(seed)
    hard = seed % 3 == 2
    machines = [_machine(draw, n) for n in range(draw.randint(6, 20))]
    made = RoomCluster(seed, machines, [])
    works: list[Work] = made.works  # type: ignore[assignment]
    full = draw.uniform(0.82, 0.95) if hard else draw.uniform(0.55, 0.85)
    held = draw.uniform(0.3, 0.7) if hard else draw.uniform(0.0, 0.3)
    while _used(made) < full and len(works) < 60:
        work = _work(draw, len(works), held)
        works.append(work)
        for _ in range(draw.choice([2, 2, 3, 4, 6])):
            able = [n for n in range(len(machines)) if made.takes(work, n)]
            if able:
                work.on.append(draw.choice(able))
        if len(work.on) < 2:
            works.pop()
            full -= 0.01
    waiting = draw.randint(1, 5)
    while waiting > 0:
        work = _waiter(draw, made, hard)
        work.waiting = draw.randint(1, waiting)
        waiting -= work.waiting
        works.append(work)
    return made


def _machine(draw: random.Random, n: int) -> Machine:
    cpu = draw.choice([4, 8, 8, 16])
    gpus = draw.choice([0, 0, 0, 0, 4])
    pool = draw.choice(["a", "a", "b"])
    return Machine(f"n{n:02}", pool, (cpu * 1000, cpu * draw.choice([2, 4]) * 1024, gpus, 60))


def _work(draw: random.Random, number: int, held: float) -> Work:
    cpu = draw.choice([250, 500, 500, 1000, 1000, 2000, 3000])
    memory = draw.choice([256, 512, 1024, 2048, 4096])
    fixed = draw.choice(["data", "opted out", "budget"]) if draw.random() < held else ""
    return Work(
        f"w{number}",
        (cpu, memory, 1 if draw.random() < 0.1 else 0),
        pool=draw.choice(["a", "b"]) if draw.random() < 0.2 else None,
        apart=draw.random() < 0.2,
        priority=1000 if draw.random() < 0.15 else 0,
        fixed=fixed,
        stateful=draw.random() < 0.2,
    )


def _waiter(draw: random.Random, made: RoomCluster, hard: bool) -> Work:
    """Return a workload that no node takes: larger than what is free on any node, by not too much."""
    work = Work(
        f"wait{len(made.works)}",
        (500, 512, draw.choice([0, 0, 0, 1, 2])),
        pool=draw.choice([None, None, "a"]),
        apart=draw.random() < 0.2,
        priority=draw.choice([0, 0, 1000]),
    )
    step = draw.choice([250, 500, 1000])
    if work.asks[2] and not any(one.room[2] for one in made.machines):
        work.asks = (500, 512, 0)
    while any(made.takes(work, n) for n in range(len(made.machines))):
        work.asks = (work.asks[0] + step, work.asks[1] + 512, work.asks[2])
    if hard:
        work.asks = (work.asks[0] + draw.choice([1000, 4000, 8000]), work.asks[1], work.asks[2])
    return work


def _used(made: RoomCluster) -> float:
    total = sum(one.room[0] for one in made.machines)
    return 1 - sum(made.free(n)[0] for n in range(len(made.machines))) / total


def pods_of(made: RoomCluster) -> Counter[str]:
    """Return workload -> its pods on nodes."""
    return Counter({work.name: len(work.on) for work in made.works})


__all__ = ["OLD", "Machine", "RoomCluster", "Work", "cluster", "pods_of", "with_gangs"]
