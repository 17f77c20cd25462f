"""InterPodAffinity: affinity and anti-affinity terms of a class, and those of other pods towards it.

Source: ``plugins/interpodaffinity`` (``filtering.go``, ``scoring.go``). Terminating pods count until they are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.columns import Int32s, Same
from rebalancer.snapshot.model import PodClass, Snapshot
from rebalancer.wire.objects import PodAffinity, PodAffinityTerm

_NONE = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class Relation:
    """The terms between a class and other pods, as topology keys and sets of classes."""

    affinity_keys: tuple[str, ...]
    """Keys of its required affinity terms."""
    affinity: Int32s
    """Classes that match all of its required affinity terms."""
    matches_itself: bool
    """Whether a pod of the class matches all of its own required affinity terms."""
    anti: tuple[tuple[str, Int32s], ...]
    """The required anti-affinity of the class: (key, classes)."""
    refused_by: tuple[tuple[str, Int32s], ...]
    """Classes whose required anti-affinity matches it, by key."""
    weighted: tuple[tuple[str, int, Int32s], ...]
    """(key, weight per pod, classes): preferences of both directions, required affinity of others."""


@dataclass(slots=True)
class _Group:
    """Owners of terms that match the same classes, with one topology key and one weight."""

    key: str
    weight: int
    """0: required anti-affinity."""
    matched: Int32s
    owners: list[int]


class InterPod:
    """Finds the terms that concern a class. Built on first use, in time linear in the matches."""

    def __init__(self, snapshot: Snapshot, profile: SchedulerProfile) -> None:
        self._snapshot = snapshot
        self._hard_weight = profile.hard_pod_affinity_weight
        self._ignores_preferred = profile.ignores_preferred_terms
        self._resolved: dict[object, Int32s] = {}
        self._relations: dict[int, Relation] = {}
        self._concerning: dict[int, list[_Group]] | None = None

    def relation(self, cls: int) -> Relation:
        """Return the terms between a class and other classes. Cached."""
        relation = self._relations.get(cls)
        if relation is None:
            relation = self._relations[cls] = self._make(cls)
        return relation

    def _make(self, cls: int) -> Relation:
        affinity = self._snapshot.classes[cls].spec.affinity
        own = affinity.pod_affinity if affinity else None
        anti = affinity.pod_anti_affinity if affinity else None
        required = (own.required if own else None) or ()
        together = self._together(cls, required)
        if self._concerning is None:
            self._concerning = self._index()
        groups = self._concerning.get(cls, [])
        return Relation(
            affinity_keys=tuple(dict.fromkeys(term.topology_key for term in required)),
            affinity=together,
            matches_itself=bool(np.isin(cls, together)),
            anti=_by_key(
                (term.topology_key, self._classes(cls, term).tolist())
                for term in (anti.required if anti else None) or ()
            ),
            refused_by=_by_key((g.key, g.owners) for g in groups if g.weight == 0),
            weighted=() if self._skips(own, anti) else self._weights(cls, own, anti, groups),
        )

    def _skips(self, own: PodAffinity | None, anti: PodAffinity | None) -> bool:
        """Return whether the plug-in does not score a pod without preferences; then no term of others counts."""
        preferring = any(affinity is not None and affinity.preferred for affinity in (own, anti))
        return self._ignores_preferred and not preferring

    def _together(self, cls: int, required: Sequence[PodAffinityTerm]) -> Int32s:
        common: Int32s | None = None
        for term in required:
            matched = self._classes(cls, term)
            common = matched if common is None else np.intersect1d(common, matched)
        return _NONE if common is None else common

    def _weights(
        self, cls: int, own: PodAffinity | None, anti: PodAffinity | None, groups: list[_Group]
    ) -> tuple[tuple[str, int, Int32s], ...]:
        of_key: dict[str, dict[int, int]] = {}
        for sign, affinity in ((1, own), (-1, anti)):
            for weighted in (affinity.preferred if affinity else None) or ():
                term = weighted.pod_affinity_term
                of_class = of_key.setdefault(term.topology_key, {})
                for other in self._classes(cls, term).tolist():
                    of_class[other] = of_class.get(other, 0) + sign * weighted.weight
        for group in groups:
            if group.weight:
                of_class = of_key.setdefault(group.key, {})
                for owner in group.owners:
                    of_class[owner] = of_class.get(owner, 0) + group.weight
        weights: list[tuple[str, int, Int32s]] = []
        for key, of_class in sorted(of_key.items()):
            by_weight: dict[int, list[int]] = {}
            for other, weight in of_class.items():
                by_weight.setdefault(weight, []).append(other)
            for weight, others in sorted(by_weight.items()):
                weights.append((key, weight, np.array(sorted(others), np.int32)))
        return tuple(weights)

    def _index(self) -> dict[int, list[_Group]]:
        groups: dict[tuple[str, int, Same], _Group] = {}
        for cls, of_class in enumerate(self._snapshot.classes):
            for term, weight in self._existing(of_class):
                matched = self._classes(cls, term)
                if not len(matched):
                    continue
                # Equal matches are one array, kept by the class index.
                name = (term.topology_key, weight, Same(matched))
                if name not in groups:
                    groups[name] = _Group(term.topology_key, weight, matched, [])
                groups[name].owners.append(cls)
        concerning: dict[int, list[_Group]] = {}
        for group in groups.values():
            for cls in group.matched.tolist():
                concerning.setdefault(cls, []).append(group)
        return concerning

    def _existing(self, of_class: PodClass) -> Iterator[tuple[PodAffinityTerm, int]]:
        """Yield (term, weight) for the terms of existing pods that affect other pods."""
        affinity = of_class.spec.affinity
        own = affinity.pod_affinity if affinity else None
        anti = affinity.pod_anti_affinity if affinity else None
        for term in (anti.required if anti else None) or ():
            yield term, 0
        for sign, part in ((-1, anti), (1, own)):
            for weighted in (part.preferred if part else None) or ():
                if weighted.weight:
                    yield weighted.pod_affinity_term, sign * weighted.weight
        if self._hard_weight > 0:
            for term in (own.required if own else None) or ():
                yield term, self._hard_weight

    def _classes(self, cls: int, term: PodAffinityTerm) -> Int32s:
        of_class = self._snapshot.classes[cls]
        merged = (*(term.match_label_keys or ()), *(term.mismatch_label_keys or ()))
        values = tuple((key, of_class.labels.get(key)) for key in merged)
        name = (of_class.namespace, values, msgspec.json.encode(term, order="sorted"))
        resolved = self._resolved.get(name)
        if resolved is None:
            resolved = self._resolved[name] = self._snapshot.affinity_classes(cls, term)
        return resolved


def _by_key(rules: Iterable[tuple[str, list[int]]]) -> tuple[tuple[str, Int32s], ...]:
    of_key: dict[str, set[int]] = {}
    for key, classes in rules:
        of_key.setdefault(key, set()).update(classes)
    return tuple(
        (key, np.array(sorted(classes), np.int32)) for key, classes in sorted(of_key.items())
    )
