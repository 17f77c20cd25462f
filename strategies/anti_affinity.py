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
class _Gathered:
    entry: Entry
    key: str
    weight: float
    matched: Int32s
    label: str
    owners: list[int] = field(default_factory=list)


class AntiAffinity:
    """Moves pods away from pods they repel, by required and preferred anti-affinity.

    Both directions count: the pod that declares a term and the pod that it matches repel each other, and
    the fewest pods that have to go are moved. A preferred term weighs weight / 100. Semantics:
    ``pkg/scheduler/framework/plugins/interpodaffinity``.
    """

    Params = AntiAffinityParams

    def terms(self, view: View, params: AntiAffinityParams) -> Sequence[Term]:
        """Return a hard term (required) and a soft one (preferred)."""
        gathered: dict[tuple[object, ...], _Gathered] = {}
        for cls, _ in view.replaceable():
            for found in _declared(view, cls, params):
                identity = (found.entry, found.key, found.weight, found.matched.tobytes())
                gathered.setdefault(identity, found).owners.append(cls)
        return [
            DomainTerm(
                view,
                entry,
                [_group(view, found) for found in gathered.values() if found.entry == entry],
            )
            for entry in (Entry.HARD, Entry.SOFT)
        ]


def _declared(view: View, cls: int, params: AntiAffinityParams) -> Iterator[_Gathered]:
    of_class = view.snapshot.classes[cls]
    affinity = of_class.spec.affinity
    declared = affinity.pod_anti_affinity if affinity is not None else None
    if declared is None:
        return
    owner = view.snapshot.owners[of_class.owner].ref
    for term in (declared.required or ()) if params.required else ():
        yield _Gathered(
            Entry.HARD,
            term.topology_key,
            1.0,
            affinity_classes(view.snapshot, cls, term),
            f"{owner} apart over {term.topology_key} (required)",
        )
    for weighted in (declared.preferred or ()) if params.preferred else ():
        term = weighted.pod_affinity_term
        yield _Gathered(
            Entry.SOFT,
            term.topology_key,
            weighted.weight / 100,
            affinity_classes(view.snapshot, cls, term),
            f"{owner} apart over {term.topology_key} (preferred, weight {weighted.weight})",
        )


def _group(view: View, found: _Gathered) -> Group:
    owners = np.array(found.owners, np.int32)
    itself = np.array_equal(owners, found.matched)
    members = owners if itself else np.union1d(owners, found.matched).astype(np.int32)
    # Where the pods may go, and where they are: a pod on a cordoned node still repels.
    eligible = view.eligible(found.owners[0])
    if not eligible.all():
        occupied = view.state.occupied(members)
        if not eligible[occupied].all():
            eligible = eligible.copy()
            eligible[occupied] = True
    domains = Domains.of(view, found.key, eligible)
    if found.entry is Entry.SOFT and itself:
        # Pods that would rather not meet their own kind: with more pods than domains some must, and
        # the fewest meetings are the most even spread.
        return SpreadGroup(
            view,
            label=found.label,
            domains=domains,
            counted=found.matched,
            movers=owners,
            max_skew=1,
            weight=found.weight,
        )
    return ConflictGroup(
        view,
        label=found.label,
        domains=domains,
        owners=owners,
        matched=found.matched,
        weight=found.weight,
    )
