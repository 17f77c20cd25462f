"""The loss if a zone fails: how many of a workload's serving pods are in each zone, with or without rules over zones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.base.plain_text import and_more, count
from rebalancer.snapshot.columns import Ints
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope, in_scope
from rebalancer.snapshot.selected import select_pods
from rebalancer.snapshot.zones import Zone, closed_nodes, list_zones

_ALL = Scope()
_SEVERAL = 2
_NAMED = 3


@dataclass(frozen=True, slots=True)
class WorkloadZones:
    """The serving pods of one workload."""

    workload: str
    """The workload as ``Kind/namespace/name``."""
    serving: Mapping[str, int]
    """Zone -> serving pods, by name; only zones with some."""
    elsewhere: int
    """Serving pods on nodes without a zone."""
    below: Mapping[str, Sequence[str]]
    """Zone -> PodDisruptionBudgets whose pods would be too few without it, ``namespace/name``."""

    @property
    def pods(self) -> int:
        """All serving pods."""
        return sum(self.serving.values()) + self.elsewhere

    @property
    def lost_with(self) -> str | None:
        """The zone with all of its serving pods; None if they are in several."""
        return next(iter(self.serving)) if len(self.serving) == 1 and not self.elsewhere else None


@dataclass(frozen=True, slots=True)
class ZoneLoss:
    """What is lost if one zone fails."""

    zone: str
    lost: Sequence[WorkloadZones]
    """Workloads with several serving pods, all of them in the zone; the largest first."""
    below: Sequence[WorkloadZones]
    """Other workloads of which a PodDisruptionBudget would have too few pods."""

    def __str__(self) -> str:
        parts = [
            (self.lost, "loses all pods", "lose all pods"),
            (
                self.below,
                "falls below its PodDisruptionBudget",
                "fall below their PodDisruptionBudgets",
            ),
        ]
        texts = (
            f"{count(len(of), 'workload')} {one if len(of) == 1 else more}"
            f" ({and_more([each.workload for each in of], _NAMED)})"
            for of, one, more in parts
            if of
        )
        return f"{self.zone}: {'; '.join(texts)}"


@dataclass(frozen=True, slots=True)
class ZoneReport:
    """All zones with their states, and the losses with each."""

    zones: Sequence[Zone]
    workloads: Sequence[WorkloadZones]
    """The workloads, sorted by name."""

    @property
    def losses(self) -> tuple[ZoneLoss, ...]:
        """The losses with each zone, by name; none if all nodes are in one zone."""
        names = [zone.name for zone in self.zones if zone.nodes]
        return tuple(map(self._loss, names)) if len(names) > 1 else ()

    def _loss(self, zone: str) -> ZoneLoss:
        lost = [one for one in self.workloads if one.lost_with == zone and one.pods >= _SEVERAL]
        every = [one for one in self.workloads if zone in one.below]
        below = [one for one in every if one.lost_with != zone]
        return ZoneLoss(zone, sorted(lost, key=_largest), sorted(below, key=_largest))

    @property
    def notable(self) -> tuple[ZoneLoss, ...]:
        """The losses that are worth reporting."""
        return tuple(loss for loss in self.losses if loss.lost or loss.below)


def _largest(one: WorkloadZones) -> tuple[int, str]:
    return -one.pods, one.workload


def report_zones(snapshot: Snapshot, scope: Scope = _ALL) -> ZoneReport:
    """Return the zones of a cluster, and what is lost with each; only of workloads with pods that flags in ``scope`` select.

    A pod serves if it is Ready, does not end, and is not in a closed zone. Pods that run to completion, that are bound to
    their node, or that have no controller are not counted.
    """
    table, names = _count_serving(snapshot)
    below = _find_below(snapshot, table, names)
    of_owner: dict[int, Ints] = {}
    asked = _owners_in(snapshot, scope) if scope.flags else None
    for cls in np.flatnonzero(table.any(axis=1)).tolist():
        if asked is not None and snapshot.classes[cls].owner not in asked:
            continue
        if (owner := _serving_owner(snapshot, cls)) >= 0:
            of_owner[owner] = of_owner[owner] + table[cls] if owner in of_owner else table[cls]
    made = [
        WorkloadZones(
            snapshot.owners[owner].ref,
            {zone: number for zone, number in zip(names, row[:-1].tolist(), strict=True) if number},
            int(row[-1]),
            below.get(owner, {}),
        )
        for owner, row in of_owner.items()
    ]
    return ZoneReport(list_zones(snapshot), sorted(made, key=lambda one: one.workload))


def _owners_in(snapshot: Snapshot, scope: Scope) -> set[int]:
    """Return the owners of pods that flags select."""
    picked = select_pods(snapshot, scope.select)
    cls = snapshot.pods.cls if picked is None else snapshot.pods.cls[picked.pods(snapshot)]
    classes = (snapshot.classes[one] for one in np.unique(cls).tolist())
    return {one.owner for one in classes if in_scope(scope, one)}


def _count_serving(snapshot: Snapshot) -> tuple[Ints, list[str]]:
    """Return the number of serving pods (C, Z + 1) by class and zone, without a zone last; and the zones, by name."""
    zone_of, names = snapshot.nodes.labels.zones()
    order = sorted(range(len(names)), key=names.__getitem__)
    # A node without a zone has -1, which is the last column.
    column = np.argsort([*order, len(order)])[zone_of]
    pods = snapshot.pods
    serves = pods.living & pods.ready
    serves[serves] = ~closed_nodes(snapshot)[pods.node[serves]]
    table = np.zeros((len(snapshot.classes), len(names) + 1), np.int64)
    np.add.at(table, (pods.cls[serves], column[pods.node[serves]]), 1)
    return table, [names[zone] for zone in order]


def _serving_owner(snapshot: Snapshot, cls: int) -> int:
    of_class = snapshot.classes[cls]
    ends = of_class.spec.restart_policy != "Always"
    return -1 if of_class.per_node or ends else of_class.owner


def _find_below(
    snapshot: Snapshot, table: Ints, names: Sequence[str]
) -> dict[int, dict[str, list[str]]]:
    """Return owner -> zone -> budgets with enough serving pods now, and too few without the zone."""
    found: dict[int, dict[str, list[str]]] = {}
    for budget in snapshot.budgets:
        row = table[budget.classes].sum(axis=0)
        left = row.sum() - row[:-1]
        short = (left < budget.desired) & (row[:-1] > 0) & (row.sum() >= budget.desired)
        owners = {snapshot.classes[cls].owner for cls in budget.classes.tolist()} - {-1}
        for owner in sorted(owners):
            for zone in np.flatnonzero(short).tolist():
                found.setdefault(owner, {}).setdefault(names[zone], []).append(budget.ref)
    return found


def zone_data(report: ZoneReport) -> list[dict[str, object]]:
    """Return the JSON data of each zone."""
    losses = {loss.zone: loss for loss in report.losses}
    made: list[dict[str, object]] = []
    for zone in report.zones:
        loss = losses.get(zone.name, ZoneLoss(zone.name, (), ()))
        made.append(
            {
                "zone": zone.name,
                "state": zone.state.value,
                "why": zone.why,
                "nodes": zone.nodes,
                "pods": zone.pods,
                "lost": [one.workload for one in loss.lost],
                "belowBudget": [one.workload for one in loss.below],
            }
        )
    return made


def workload_data(report: ZoneReport) -> Iterator[dict[str, object]]:
    """Yield the JSON data of each workload."""
    for one in report.workloads:
        yield {
            "workload": one.workload,
            "serving": dict(one.serving),
            "withoutZone": one.elsewhere,
            "lostWith": one.lost_with,
            "belowBudgetWithout": {zone: list(of) for zone, of in one.below.items()},
        }
