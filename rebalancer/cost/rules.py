"""Spread constraints of pods as rules for groups, with Kubernetes' own eligibility of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.cost.term import Entry, View
from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.wire.objects import TopologySpreadConstraint


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """One constraint of one class, with all that distinguishes one group from another."""

    entry: Entry
    key: str
    max_skew: int
    min_domains: int | None
    counted: Int32s
    eligible: Bools
    """(N,) one array for all that are equal, see ``View.shared``."""
    what: str

    @staticmethod
    def of(view: View, cls: int) -> Sequence[SpreadRule]:
        """Return the topologySpreadConstraints of a class as rules. Cached, because strategies and guards ask.

        A node counts if it has all topology keys of the pod's constraints of that kind and passes the node inclusion
        policies (KEP-3094: affinity honoured, taints ignored, unless the constraint says otherwise). Source:
        ``pkg/scheduler/framework/plugins/podtopologyspread/common.go``.
        """
        constraints = view.snapshot.classes[cls].spec.topology_spread_constraints
        if not constraints:
            return ()
        made = view.made.get(identity := ("spread rules", cls))
        if not isinstance(made, tuple):
            made = view.made[identity] = tuple(_spread_rules(view, cls, constraints))
        return made

    def identity(self) -> tuple[object, ...]:
        """Return a key; classes with equal keys share one group."""
        return (
            self.entry,
            self.key,
            self.max_skew,
            self.min_domains,
            self.counted.tobytes(),
            id(self.eligible),
        )


def _spread_rules(
    view: View, cls: int, constraints: Sequence[TopologySpreadConstraint]
) -> Iterator[SpreadRule]:
    for when, entry, what in (
        ("DoNotSchedule", Entry.HARD, "hard"),
        ("ScheduleAnyway", Entry.SOFT, "soft"),
    ):
        of_kind = [c for c in constraints if c.when_unsatisfiable == when]
        keys = tuple(sorted({constraint.topology_key for constraint in of_kind}))
        for constraint in of_kind:
            eligible = view.eligible(
                cls,
                affinity=constraint.node_affinity_policy != "Ignore",
                taints=constraint.node_taints_policy == "Honor",
            )
            yield SpreadRule(
                entry=entry,
                key=constraint.topology_key,
                max_skew=constraint.max_skew,
                min_domains=constraint.min_domains if entry is Entry.HARD else None,
                counted=view.snapshot.spread_classes(cls, constraint),
                eligible=_with_keys(view, keys, eligible),
                what=what,
            )


def _with_keys(view: View, keys: tuple[str, ...], eligible: Bools) -> Bools:
    """Return which of the ``eligible`` nodes (N,) have all topology ``keys``; the array is shared."""
    made = view.made.get(identity := ("with keys", keys, id(eligible)))
    if not isinstance(made, np.ndarray):
        having = eligible.copy()
        for key in keys:
            having &= view.snapshot.nodes.labels.column(key) >= 0
        made = view.made[identity] = view.shared(having)
    return made
