"""Inter-pod anti-affinity, required and preferred, over any topology key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from pydantic import Field

from rebalancer.api import (
    ConflictGroup,
    Domains,
    DomainTerm,
    Entry,
    Group,
    Int32s,
    Params,
    SpreadGroup,
    Term,
    View,
    affinity_classes,
)


class AntiAffinityParams(Params):
    """Options of anti-affinity."""

    required: bool = Field(default=True, description="Mend required anti-affinity (hard).")
    preferred: bool = Field(
        default=True, description="Mend preferred anti-affinity (soft, by its weight)."
    )


@dataclass
class _Rule:
    """An anti-affinity term of some classes, all that declare the same."""

    entry: Entry
    key: str
    weight: float
    matched: Int32s
    label: str
    owners: list[int] = field(default_factory=list)
    """Classes that declare it."""


class AntiAffinity:
    """Moves pods away from pods they repel, by required and preferred anti-affinity.

    Terms hold in both directions: the pod that declares a term and a pod that it matches repel each other.
    The fewest pods are moved. A preferred term weighs weight / 100. Semantics:
    ``pkg/scheduler/framework/plugins/interpodaffinity``.
    """

    Params = AntiAffinityParams

    def terms(self, view: View, params: AntiAffinityParams) -> Sequence[Term]:
        """Return a hard term (required) and a soft one (preferred)."""
        rules: dict[tuple[object, ...], _Rule] = {}
        for cls, _ in view.replaceable():
            for rule in _declared(view, cls, params):
                identity = (rule.entry, rule.key, rule.weight, rule.matched.tobytes())
                rules.setdefault(identity, rule).owners.append(cls)
        return [
            DomainTerm(
                view,
                entry,
                [_group(view, rule) for rule in rules.values() if rule.entry == entry],
            )
            for entry in (Entry.HARD, Entry.SOFT)
        ]


def _declared(view: View, cls: int, params: AntiAffinityParams) -> Iterator[_Rule]:
    of_class = view.snapshot.classes[cls]
    affinity = of_class.spec.affinity
    anti_affinity = affinity.pod_anti_affinity if affinity is not None else None
    if anti_affinity is None:
        return
    owner = view.snapshot.owners[of_class.owner].ref
    for term in (anti_affinity.required or ()) if params.required else ():
        yield _Rule(
            Entry.HARD,
            term.topology_key,
            1.0,
            affinity_classes(view.snapshot, cls, term),
            f"{owner} apart over {term.topology_key} (required)",
        )
    for weighted in (anti_affinity.preferred or ()) if params.preferred else ():
        term = weighted.pod_affinity_term
        yield _Rule(
            Entry.SOFT,
            term.topology_key,
            weighted.weight / 100,
            affinity_classes(view.snapshot, cls, term),
            f"{owner} apart over {term.topology_key} (preferred, weight {weighted.weight})",
        )


def _group(view: View, rule: _Rule) -> Group:
    owners = np.array(rule.owners, np.int32)
    own_kind = np.array_equal(owners, rule.matched)
    members = owners if own_kind else np.union1d(owners, rule.matched).astype(np.int32)
    # The nodes that the pods may land on, and those they are on: a pod on a cordoned node still repels.
    eligible = view.eligible(rule.owners[0])
    if not eligible.all():
        occupied = view.state.occupied(members)
        if not eligible[occupied].all():
            eligible = eligible.copy()
            eligible[occupied] = True
    domains = Domains.of(view, rule.key, eligible)
    if rule.entry is Entry.SOFT and own_kind:
        # Preferred anti-affinity of pods to pods like themselves. With more pods than domains some must
        # share one; the fewest pairs that share a domain are in the most even spread.
        return SpreadGroup(
            view,
            label=rule.label,
            domains=domains,
            counted=rule.matched,
            movers=owners,
            max_skew=1,
            weight=rule.weight,
        )
    return ConflictGroup(
        view,
        label=rule.label,
        domains=domains,
        owners=owners,
        matched=rule.matched,
        weight=rule.weight,
    )
