"""Inter-pod affinity, required and preferred: pods that are no longer near the pods that they ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rebalancer.api import (
    Domains,
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
        for cls, of_class in view.replaceable():
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


def _group(view: View, rule: _Rule, own: list[int]) -> NearGroup:
    what = "required" if rule.entry is Entry.HARD else f"preferred, weight {rule.weight}"
    label = f"{view.snapshot.owners[rule.owner].ref} near over {rule.key} ({what})"
    matched = np.frombuffer(rule.matched, np.int32)
    return NearGroup(view, label, rule.key, np.array(own, np.int32), matched, rule.weight / 100)


@dataclass(slots=True)
class _Counts:
    """Pods per domain; the last entry is for nodes without the topology key, where no affinity is satisfied."""

    others: NDArray[np.int64]
    """(D + 1,) that declare the affinity, and do not match it themselves."""
    both: NDArray[np.int64]
    """(D + 1,) that declare and match it: one alone is not near another."""
    matched: NDArray[np.int64]
    """(D + 1,) that match it."""

    @property
    def total(self) -> int:
        """The number of matching pods in all domains; nodes without the key do not count (satisfyPodAffinity)."""
        return int(self.matched[:-1].sum())

    def apart(self, total: int) -> NDArray[np.int64]:
        """Return per domain (D + 1,) the pods without a matching pod there; ``total``: matching pods in all domains."""
        # The first of pods that ask for their own kind may be in any domain.
        alone = (self.both == 1) & (self.matched == 1) & (total > 1)
        apart = np.where(self.matched == 0, self.others, 0) + alone
        apart[-1] = self.others[-1] + self.both[-1]
        return apart

    def with_one(self, at: int | slice, amount: int, *, declares: bool, matches: bool) -> _Counts:
        """Return the counts with ``amount`` pods added in the domain ``at``; a slice adds to each domain separately."""
        changed = _Counts(self.others.copy(), self.both.copy(), self.matched.copy())
        changed.others[at] += amount * (declares and not matches)
        changed.both[at] += amount * (declares and matches)
        changed.matched[at] += amount * matches
        return changed


def _entering(left: _Counts, entered: _Counts, total: int) -> NDArray[np.int64]:
    """Return the total number of unsatisfied pods (D + 1,) for each domain that one more pod could enter.

    ``left``: the counts after the pod has left; ``entered``: the counts of each domain if the pod enters that
    domain.
    """
    before, after = left.apart(total), entered.apart(total)
    every: NDArray[np.int64] = int(before.sum()) - before + after
    return every


class NearGroup:
    """Pods of one owner, each of which needs a matching pod in its domain.

    A :class:`rebalancer.api.Group`. The potential is the number of pods without a match; it is 0 if no node could
    take one to a matching pod when the group was created.
    """

    def __init__(
        self,
        view: View,
        label: str,
        key: str,
        own: NDArray[np.int32],
        matched: NDArray[np.int32],
        weight: float,
    ) -> None:
        self.label, self.weight = label, weight
        self.movers = own
        self.members = np.union1d(own, matched).astype(np.int32)
        self.fixed_by = self.members
        self._view = view
        self.domains = Domains.of(view, key, np.ones(len(view.snapshot.nodes), bool))
        self._own, self._matched = set(own.tolist()), set(matched.tolist())
        both = np.intersect1d(own, matched).astype(np.int32)
        self._parts = (np.setdiff1d(own, both).astype(np.int32), both, matched)
        self._known: tuple[object, _Counts, NDArray[np.int64]] | None = None
        self._hopeless = self._count_hopeless() if self._now()[1].any() else 0

    def _count_hopeless(self) -> int:
        """Return the pods without a match whose replacements no node near a matching pod takes."""
        now, (_, both, _) = self._now()[0], self._parts
        hopeless = 0
        for classes in self._view.split_by_landing(self.movers.tolist()):
            if not self._some_place_is_near(classes):
                of = np.array(classes, np.int32)
                others, alike = np.setdiff1d(of, both), np.intersect1d(of, both)
                counts = _Counts(self._per_domain(others), self._per_domain(alike), now.matched)
                hopeless += int(counts.apart(now.total).sum())
        return hopeless

    def _some_place_is_near(self, classes: Sequence[int]) -> bool:
        near, of_node = self._now()[0].matched[:-1] > 0, self.domains.of_node
        replacements = dict.fromkeys(self._view.snapshot.classes[of].replacement for of in classes)
        rooms = map(self._view.with_room, replacements)
        return any(bool(near[of_node[room & (of_node >= 0)]].any()) for room in rooms)

    def _now(self) -> tuple[_Counts, NDArray[np.int64]]:
        """Return the current counts, and the pods without a match per domain (D + 1,)."""
        stamp = self._view.state.stamp(self.members)
        if self._known is None or self._known[0] != stamp:
            counts = _Counts(*(self._per_domain(part) for part in self._parts))
            self._known = stamp, counts, counts.apart(counts.total)
        return self._known[1], self._known[2]

    def _per_domain(self, classes: NDArray[np.int32]) -> NDArray[np.int64]:
        per_node = self._view.state.counts(classes)
        of_node = np.where(self.domains.of_node < 0, len(self.domains.names), self.domains.of_node)
        size = len(self.domains.names) + 1
        return np.bincount(of_node, per_node, minlength=size).astype(np.int64)

    def potential(self) -> float:
        """Return the number of pods without a matching pod in their domain."""
        return float(max(0, int(self._now()[1].sum()) - self._hopeless))

    def minimum(self) -> float:
        """Return a lower bound on the moves: one move can satisfy all pods of at most two domains."""
        if self.potential() <= 0:
            return 0.0
        apart = self._now()[1]
        outside, inside = int(apart[-1]), int(np.count_nonzero(apart[:-1]))
        return float(max(outside - self._hopeless, -(-max(0, inside - self._hopeless) // 2)))

    def unsatisfiable(self) -> str | None:
        """Return why no placement can satisfy the pods; None if one can."""
        if not self._hopeless:
            return None
        return f"no node near a matching pod takes {self._hopeless} of its pods"

    def gains(self) -> NDArray[np.float64]:
        """Return per node (N,) the maximum gain of moving one pod off the node.

        A pod without a match gains 1, plus its effect on the unsatisfied pods in the domain that it enters.
        """
        if (left := self.potential()) <= 0:
            return np.zeros(len(self.domains.of_node))
        counts, apart = self._now()
        joined = counts.with_one(slice(None), 1, declares=True, matches=True).apart(counts.total)
        helped = int((apart - joined)[:-1].max(initial=0))
        gains = np.where(apart > 0, min(left, 1.0 + max(0, helped)), 0.0)
        return gains[self.domains.of_node]

    def delta(
        self, cls: int, node: int, replacement: int, destinations: NDArray[np.int32]
    ) -> NDArray[np.float64]:
        """Return the change of the potential (K,) if a pod moves from ``node`` to each destination."""
        counts, apart = self._now()
        source, targets = int(self.domains.of_node[node]), self.domains.of_node[destinations]
        leaves = {"declares": cls in self._own, "matches": cls in self._matched}
        enters = {"declares": replacement in self._own, "matches": replacement in self._matched}
        left = counts.with_one(source, -1, **leaves)
        entered = left.with_one(slice(None), 1, **enters)
        then = np.where(
            targets >= 0,
            _entering(left, entered, left.total + enters["matches"])[targets],
            _entering(left, entered, left.total)[-1],
        )
        now = int(apart.sum())
        change: NDArray[np.float64] = np.maximum(0, then - self._hopeless) - float(
            max(0, now - self._hopeless)
        )
        return change

    def describe(self, node: int) -> str:
        """Return the matching pods in the node's domain, and the number of pods without a match."""
        domain = int(self.domains.of_node[node])
        where = self.domains.names[domain] if domain >= 0 else "a node without the label"
        matched = int(self._now()[0].matched[domain]) if domain >= 0 else 0
        return f"{self.label}: {matched} matching pods in {where}, {self.standing()}"

    def requirement(self) -> str:
        """Describe which pods must be near which others, in a few words."""
        return "each in a domain with a matching pod"

    def standing(self) -> str:
        """Return the number of pods without a match, out of all pods of the group."""
        counts, apart = self._now()
        pods = int(counts.others.sum() + counts.both.sum())
        return f"{int(apart.sum())} of {pods} pods apart"
