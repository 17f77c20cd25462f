"""Nodes and workloads drawn from recorded clusters, instead of made-up ones.

Nodes: sizes of Alibaba's GPU cluster of 2023 (``openb``). Workloads: the services of its trace of
disaggregated recommendation models (``alibaba-gpu-v2025``): requests, instances at once, and
``max_instance_per_node``. GPUs, disks and times of creation are left out. Neither trace knows zones or
says where anything stood: zones are given in turn, and of three workloads one wants even zones, one must
have them. The data is read from a folder named at run time; its licence keeps it out of the repository.
"""

from __future__ import annotations

import csv
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.decisions.shapes import MOST, Manifest, Room, Rooms
from tests.controlplane import objects

NODES = Path("openb/openb_node_list_all_node.csv")
INSTANCES = Path("alibaba-gpu-v2025/disaggregated_DLRM_trace.csv")
_MIB_PER_GIB = 1024
_LOAD = 0.87
"""Of the load that a scenario asks of equal nodes: large pods on unequal nodes leave gaps that none fits."""
_MANY_DOMAINS = 10_000
"""More than there are nodes: Kubernetes then takes the least count for 0, and maxSkew is a plain cap."""
_HALVINGS = 40
Row = Mapping[str, str]


@dataclass(frozen=True)
class Size:
    """What a node has, or a pod asks for."""

    cpu: int
    """Millicores."""
    memory: int
    """MiB."""

    def fits(self, room: Size, share: float = 1.0) -> bool:
        """Whether so much fits a share of a room."""
        return self.cpu <= room.cpu * share and self.memory <= room.memory * share


@dataclass(frozen=True)
class App:
    """One role of a service in the trace."""

    name: str
    size: Size
    """Of one instance: its commonest."""
    instances: int
    """Most at once."""
    cap: int | None
    """Most on one node, as most of its instances say; None for no cap."""


@dataclass(frozen=True)
class Recorded:
    """Draws clusters from recorded nodes and services: `benchmarks.decisions.shapes.Shapes`."""

    nodes: tuple[Size, ...]
    """Of every recorded node, so that a draw keeps the sizes' proportions."""
    apps: tuple[App, ...]

    def make(
        self, every: Sequence[str], early: Sequence[str], *, seed: int, load: float
    ) -> tuple[list[Manifest], Rooms]:
        """Return a workload per node; the early nodes' cpu or memory sets how many replicas.

        Services whose instances ask for more than half of the median node drawn are left out.
        """
        rng = random.Random(seed)
        sizes = dict(zip(every, rng.choices(self.nodes, k=len(every)), strict=True))
        usual = Size(*(int(median(v)) for v in zip(*map(_pair, sizes.values()), strict=True)))
        fitting = [app for app in self.apps if app.size.fits(usual, 0.5)]
        chosen = rng.sample(fitting, min(len(every), len(fitting)))
        first = [sizes[name] for name in early]
        # The same pods on fewer nodes are a larger share of these.
        replicas = _scaled(chosen, first, _LOAD * load * len(every) / len(early))
        bag = [_deployment(i, app, n, first) for i, (app, n) in enumerate(replicas)]
        return bag, {name: Room(f"{s.cpu}m", f"{s.memory}Mi") for name, s in sizes.items()}


def recorded(folder: Path) -> Recorded:
    """Read the recorded clusters of ``folder``; ValueError says what is missing there."""
    for path in (NODES, INSTANCES):
        if not (folder / path).is_file():
            raise ValueError(f"no recorded cluster in this folder: {path} is missing")
    nodes = _rows(folder / NODES)
    return Recorded(
        nodes=tuple(Size(int(row["cpu_milli"]), int(row["memory_mib"])) for row in nodes),
        apps=tuple(apps(_rows(folder / INSTANCES))),
    )


def _rows(path: Path) -> list[Row]:
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def apps(instances: Iterable[Row]) -> list[App]:
    """Return the services of a trace, one per role, by name."""
    of: dict[str, list[Row]] = defaultdict(list)
    for row in instances:
        of[f"{row['app_name']}-{row['role']}".replace("_", "-").lower()].append(row)
    return [_app(name, of[name]) for name in sorted(of)]


def _app(name: str, rows: Sequence[Row]) -> App:
    shapes = Counter(
        (row["cpu_request"], row["memory_request"], row["max_instance_per_node"]) for row in rows
    )
    cpu, memory, cap = max(sorted(shapes), key=shapes.__getitem__)
    # The trace gives cores, and memory in GiB.
    size = Size(round(float(cpu) * 1000), round(float(memory) * _MIB_PER_GIB))
    return App(name, size, _at_once(rows), int(cap) if int(cap) > 0 else None)


def _at_once(rows: Sequence[Row]) -> int:
    """Return the most instances alive at a time; no time means before or after the trace."""
    events = [(float(row["creation_time"] or "-inf"), 1) for row in rows]
    events += [(float(row["deletion_time"]), -1) for row in rows if row["deletion_time"]]
    most = now = 0
    for _, change in sorted(events):
        now += change
        most = max(most, now)
    return most


def _scaled(chosen: Sequence[App], nodes: Sequence[Size], load: float) -> list[tuple[App, int]]:
    """Return replicas in proportion to the trace's, at least 2, that ask for up to ``load`` of the nodes."""

    def replicas(scale: float) -> list[tuple[App, int]]:
        return [
            (app, max(2, min(round(app.instances * scale), _most(app, nodes)))) for app in chosen
        ]

    def share(counted: Sequence[tuple[App, int]]) -> float:
        return max(
            sum(app.size.cpu * n for app, n in counted) / sum(node.cpu for node in nodes),
            sum(app.size.memory * n for app, n in counted) / sum(node.memory for node in nodes),
        )

    low, high = 0.0, float(len(nodes))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if share(replicas(middle)) <= load else (low, middle)
    return replicas(low)


def _most(app: App, nodes: Sequence[Size]) -> int:
    """Return how many replicas are sure to find room: half of what the cap lets onto nodes large enough."""
    if app.cap is None:
        return 10**9
    return max(2, app.cap * sum(app.size.fits(node) for node in nodes) // 2)


def _deployment(index: int, app: App, replicas: int, nodes: Sequence[Size]) -> Manifest:
    own = {"app": app.name}
    limit = {} if app.cap is None else {MOST: str(_most(app, nodes))}
    return objects.deployment(
        app.name,
        replicas,
        labels={**own, **limit},
        cpu=f"{app.size.cpu}m",
        memory=f"{app.size.memory}Mi",
        **_wishes(app.cap, index % 3, own),
    )


def _wishes(cap: int | None, zones: int, labels: dict[str, str]) -> dict[str, Any]:
    """Return the cap per node, and as ``zones`` is 1 or 2 the soft or the hard rule for even zones."""
    spreads = [objects.spread(labels, hard=zones == 2)] if zones else []
    rules: dict[str, Any] = {}
    if cap == 1:
        rules["affinity"] = objects.require_apart(labels)
    elif cap is not None:
        spreads.append(
            objects.spread(labels, objects.HOSTNAME, max_skew=cap, minDomains=_MANY_DOMAINS)
        )
    if spreads:
        rules["topologySpreadConstraints"] = spreads
    return rules


def _pair(size: Size) -> tuple[int, int]:
    return size.cpu, size.memory
