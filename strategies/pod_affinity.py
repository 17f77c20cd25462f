"""Inter-pod affinity, required and preferred: pods that are no longer near the pods that their affinity selects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from pydantic import Field

from rebalancer.api import (
    DomainTerm,
    Entry,
    Params,
    PodClass,
    Strategy,
    Term,
    View,
)


class PodAffinityParams(Params):
    """Options of pod-affinity."""

    required: bool = Field(default=True, description="Fix required pod affinity (hard).")
    preferred: bool = Field(
        default=True, description="Fix preferred pod affinity (soft, by its weight)."
    )


class PodAffinityStrategy(Strategy):
    """Moves pods to the pods they ask to be near, by required and preferred inter-pod affinity.

    Only pods that declare the affinity are moved, never the pods that it matches. Preferred affinity with weight 100
    counts as one pod, and is satisfied by one matching pod in the domain; further ones matter only to the scheduler.
    Semantics: ``pkg/scheduler/framework/plugins/interpodaffinity`` (a pod that all required terms match counts for
    each).
    """

    Params = PodAffinityParams

    def terms(self, view: View, params: PodAffinityParams) -> Sequence[Term]:
        """Return a hard term (required) and a soft one (preferred)."""
        wanted = {Entry.HARD: params.required, Entry.SOFT: params.preferred}
        gathered: dict[_Rule, list[int]] = {}
        for cls, of_class in view.comparable():
            for rule in (
                *_rules_of_required(view, cls, of_class),
                *_rules_of_preferred(view, cls, of_class),
            ):
                if wanted[rule.entry]:
                    gathered.setdefault(rule, []).append(cls)
        return [
            DomainTerm(
                view,
                entry,
                [_group(view, rule, own) for rule, own in gathered.items() if rule.entry is entry],
            )
            for entry in (Entry.HARD, Entry.SOFT)
        ]


@dataclass(frozen=True)
class _Rule:
    """The affinity terms of one owner's pods; shared by all of its classes with equal terms."""

    entry: Entry
    owner: int
    key: str
    weight: int
    """Of 100."""
    matched: bytes
    """The classes that match it."""


def _rules_of_required(view: View, cls: int, of_class: PodClass) -> Iterator[_Rule]:
    affinity = of_class.spec.affinity
    terms = affinity.pod_affinity.required if affinity and affinity.pod_affinity else None
    if not terms:
        return
    matched = reduce(np.intersect1d, (view.snapshot.affinity_classes(cls, t) for t in terms))
    for key in dict.fromkeys(term.topology_key for term in terms):
        yield _Rule(Entry.HARD, of_class.owner, key, 100, matched.astype(np.int32).tobytes())


def _rules_of_preferred(view: View, cls: int, of_class: PodClass) -> Iterator[_Rule]:
    affinity = of_class.spec.affinity
    terms = affinity.pod_affinity.preferred if affinity and affinity.pod_affinity else None
    for weighted in terms or ():
        term = weighted.pod_affinity_term
        matched = view.snapshot.affinity_classes(cls, term).tobytes()
        yield _Rule(Entry.SOFT, of_class.owner, term.topology_key, weighted.weight, matched)


def _group(view: View, rule: _Rule, own: list[int]) -> DomainTerm.Near:
    what = "required" if rule.entry is Entry.HARD else f"preferred, weight {rule.weight}"
    label = f"{view.snapshot.owners[rule.owner].ref} near over {rule.key} ({what})"
    matched = np.frombuffer(rule.matched, np.int32)
    return DomainTerm.Near(
        view,
        label=label,
        key=rule.key,
        own=np.array(own, np.int32),
        matched=matched,
        weight=rule.weight / 100,
    )
