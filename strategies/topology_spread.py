"""Topology spread: pods spread over domains by their topologySpreadConstraints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from pydantic import Field

from rebalancer.api import (
    Domains,
    DomainTerm,
    Entry,
    LabelKey,
    LabelsField,
    Params,
    SpreadGroup,
    SpreadRule,
    Strategy,
    Term,
    View,
)


class DefaultConstraint(Params):
    """A constraint for workloads without a constraint for its topology key."""

    namespaces: tuple[str, ...] = Field(
        default=(), description="Namespaces of the workloads; empty: all."
    )
    labels: LabelsField | None = Field(
        default=None, description="Labels that the pods must have; empty: all pods."
    )
    topology_key: LabelKey = Field(description="Node label whose values are the domains.")
    max_skew: int = Field(default=1, ge=1, description="Largest allowed difference in pods.")


class TopologySpreadParams(Params):
    """Options of topology-spread."""

    constraints: tuple[Literal["hard", "soft"], ...] = Field(
        default=("hard", "soft"),
        description="Which constraints count: hard (DoNotSchedule), soft (ScheduleAnyway).",
    )
    defaults: tuple[DefaultConstraint, ...] = Field(
        default=(),
        description="Constraints for workloads without one for this topology key.",
    )


@dataclass
class _Constraint:
    """A rule and the classes that declare it."""

    rule: SpreadRule
    label: str
    movers: list[int] = field(default_factory=list)


class TopologySpread(Strategy):
    """Spreads pods over zones (or other domains) by their topologySpreadConstraints.

    All matching pods count; only pods that declare the constraint are moved. Rules of eligibility:
    ``pkg/scheduler/framework/plugins/podtopologyspread`` (all topology keys of the pod's constraints of that kind
    present, nodeAffinityPolicy, nodeTaintsPolicy, minDomains, matchLabelKeys).
    """

    Params = TopologySpreadParams

    def terms(self, view: View, params: TopologySpreadParams) -> Sequence[Term]:
        """Return a hard and a soft term."""
        constraints: dict[tuple[object, ...], _Constraint] = {}
        for cls, of_class in view.comparable():
            for rule in _rules(view, cls, params):
                constraint = constraints.get(rule.identity())
                if constraint is None:
                    owner = view.snapshot.owners[of_class.owner]
                    label = f"{owner.ref} over {rule.key} ({rule.what})"
                    constraint = constraints[rule.identity()] = _Constraint(rule, label)
                constraint.movers.append(cls)
        return [
            DomainTerm(
                view,
                entry,
                [_group(view, g) for g in constraints.values() if g.rule.entry == entry],
            )
            for entry in (Entry.HARD, Entry.SOFT)
        ]


def _rules(view: View, cls: int, params: TopologySpreadParams) -> Iterator[SpreadRule]:
    declared = list(SpreadRule.of(view, cls))
    wanted = {"hard": Entry.HARD, "soft": Entry.SOFT}
    yield from (r for r in declared if any(r.entry is wanted[name] for name in params.constraints))
    yield from _default_rules(view, cls, params, {rule.key for rule in declared})


def _default_rules(
    view: View, cls: int, params: TopologySpreadParams, declared: set[str]
) -> Iterator[SpreadRule]:
    of_class = view.snapshot.classes[cls]
    for default in params.defaults:
        if default.topology_key in declared:
            continue
        if default.namespaces and of_class.namespace not in default.namespaces:
            continue
        if default.labels and not of_class.matches(default.labels):
            continue
        having = view.snapshot.nodes.labels.column(default.topology_key) >= 0
        eligible = view.shared(having & view.eligible(cls))
        yield SpreadRule(
            entry=Entry.SOFT,
            key=default.topology_key,
            max_skew=default.max_skew,
            min_domains=None,
            counted=view.classes_of_owner(of_class.owner),
            eligible=eligible,
            what="policy default",
        )


def _group(view: View, constraint: _Constraint) -> SpreadGroup:
    rule = constraint.rule
    return SpreadGroup(
        view,
        label=constraint.label,
        domains=Domains.of(view, rule.key, rule.eligible),
        counted=rule.counted,
        movers=np.array(constraint.movers, np.int32),
        max_skew=rule.max_skew,
        min_domains=rule.min_domains,
        key=rule.key,
        without_nodes=view.domains_without_nodes(rule.key, constraint.movers[0]),
    )
