"""The candidates: pairs that terms name, the pods behind them, and what each gains per eviction cost at most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rebalancer.cost.term import Judging
from rebalancer.planner.draft import Draft
from rebalancer.planner.eviction_cost import reluctance
from rebalancer.planner.problem import WeightedTerm, concern_of
from rebalancer.planner.promises import Pair, Promise, Promises
from rebalancer.snapshot.columns import Floats, Int32s

# Up to so many classes are asked about again at once after a move.
_MANY = 64

# The last of the pods that a term judges costs so much more than the first, when candidates are compared.
_LATER = 0.05

Key = tuple[float, float, float]
"""Gain per cost, entry by entry, negative; the smallest key goes first."""
Ranked = tuple[Key, Pair]


class CandidateList:
    """The pairs that terms name, kept current while pods move."""

    def __init__(self, draft: Draft, terms: Sequence[WeightedTerm]) -> None:
        self._draft = draft
        self._concerns = [(weighted.term, concern_of(weighted.term)) for weighted in terms]
        later = _later(terms, len(draft.snapshot.pods))
        self._order = (
            draft.problem.costs
            * reluctance(draft.snapshot)
            * (1.0 + _LATER * np.where(later < 1.0, later, 0.0))
        )
        """(P,) what evicting each pod costs when candidates are compared."""
        first = np.lexsort((np.arange(len(later)), self._order, later >= 1.0))
        self._place = np.empty(len(first), np.int64)
        """(P,) the place of each pod where all are in the order of :meth:`pods`."""
        self._place[first] = np.arange(len(first))
        self._promises = Promises(terms)
        self._pods: dict[int, dict[int, list[int]]] = {}
        self._asked: dict[Pair | int, int] = {}
        """Pair or class -> moves made when the terms were last asked about its imbalance."""
        self._moves = 0
        self._stale: set[int] = set()
        """Classes that moves have concerned since the terms were asked about them."""

    @property
    def seen(self) -> set[Pair]:
        """Every pair that was ever a candidate."""
        return self._promises.seen

    def promise(self, pair: Pair) -> Promise | None:
        """Return what is promised for a pair, None if nothing is any more."""
        return self._promises.get(pair)

    def pods(self, pair: Pair) -> list[int]:
        """Return the movable pods of a pair that are left; none of an owner in a cool-down.

        First those that a term judges by themselves, then the cheapest.
        """
        of_class = self._pods.get(pair[0])
        if of_class is None:
            self._list([pair[0]])
            of_class = self._pods[pair[0]]
        return of_class.get(pair[1], [])

    def _list(self, classes: Iterable[int]) -> None:
        """List the pods of ``classes`` that have no lists yet; :meth:`take` keeps these current."""
        new = [cls for cls in classes if cls not in self._pods]
        self._pods.update((cls, {}) for cls in new)
        some = np.array([cls for cls in new if not self.is_cooling(cls)], np.int32)
        state = self._draft.state
        _, pods = state.pods_of_many(some)
        pods = pods[state.at_home(pods) & self._draft.movable[pods]]
        pods = pods[np.argsort(self._place[pods])]
        columns = (pods, state.cls_of[pods], state.node_of[pods])
        for pod, cls, node in zip(*(column.tolist() for column in columns), strict=True):
            self._pods[cls].setdefault(node, []).append(pod)

    def is_cooling(self, cls: int) -> bool:
        """Return whether the owner is in a cool-down: its pods are reported, not moved."""
        if not self._draft.settings.cooling:
            return False
        owner = self._draft.snapshot.owner_of(cls)
        return owner is not None and owner.ref in self._draft.settings.cooling

    # -- what they promise -------------------------------------------------------------------------

    def entries(self) -> list[Ranked]:
        """Return an entry for each pair with pods, after asking about all that has changed."""
        if self._stale:
            self._ask(np.array(sorted(self._stale), np.int32))
        self._list(self._promises.classes())
        return [entry for pair in self._promises.pairs() if (entry := self.entry(pair)) is not None]

    def entry(self, pair: Pair) -> Ranked | None:
        """Return what a pair promises at most; None if nothing is promised, or no pod is left."""
        promise = self.promise(pair)
        pods = self.pods(pair) if promise is not None else ()
        if promise is None or not pods:
            return None
        hard, soft, imbalance = promise.gains
        return self.key((hard, soft, imbalance), pods[0]), pair

    def key(self, gain: tuple[float, float, float], pod: int) -> Key:
        """Return the place in the queue of a pod that gains so much."""
        cost = float(self._order[pod])
        return (-gain[0] / cost, -gain[1] / cost, -gain[2] / cost)

    def lower(self, pair: Pair, gain: tuple[float, float, float]) -> None:
        """Note that a closer look has shown this gain, until the terms are asked again."""
        promise = self.promise(pair)
        if promise is not None:
            promise.gains = list(gain)

    # -- while pods move ---------------------------------------------------------------------------

    def take(self, pod: int, pair: Pair) -> None:
        """Note that a pod has moved."""
        self.pods(pair).remove(pod)
        self._moves += 1

    def refresh(self, pair: Pair) -> list[Pair]:
        """Ask the terms again about every class that a move from ``pair`` concerns; return their pairs."""
        cls = pair[0]
        related = self.related(cls)
        if len(related) > _MANY:
            # A rule over a whole namespace: asking about all of it after each move would take longer than
            # all else. What comes next is asked about then, the others before the next wave.
            self._stale.update(related.tolist())
            replacement = self._draft.snapshot.classes[cls].replacement
            related = np.unique(np.array([cls, replacement], np.int32))
        return self._ask(related)

    def refresh_stale(self, pair: Pair) -> list[Pair] | None:
        """Return the pairs of a class that is due to be asked about again; None if it is not."""
        return self._ask(np.array([pair[0]], np.int32)) if pair[0] in self._stale else None

    def renew(self, pair: Pair) -> bool:
        """Ask again about a pair that is only about imbalance: any move may have ended the reason for it."""
        promise = self.promise(pair)
        if promise is None or promise.gains[0] or promise.gains[1]:
            return False
        # Where a rule names pairs of the class as well, what a closer look has shown of it is outdated, too.
        of_class = self._promises.has_rules(pair[0])
        asked = pair[0] if of_class else pair
        if self._asked.get(asked, 0) == self._moves:
            return False
        self._asked[asked] = self._moves
        if of_class:
            self._promises.refresh(np.array([pair[0]], np.int32))
        else:
            self._promises.renew(pair)
        return True

    def related(self, cls: int) -> Int32s:
        """Return the classes that a move of ``cls`` concerns."""
        replacement = self._draft.snapshot.classes[cls].replacement
        related = {cls, replacement}
        for term, concerns in self._concerns:
            if concerns(cls, replacement):
                for of_class in {cls, replacement}:
                    related.update(term.related(of_class).tolist())
        return np.array(sorted(related), np.int32)

    def _ask(self, classes: Int32s) -> list[Pair]:
        """Ask the terms again about ``classes``, and return the pairs they name."""
        self._stale.difference_update(classes.tolist())
        return self._promises.refresh(classes)


def _later(terms: Sequence[WeightedTerm], size: int) -> Floats:
    """Return how late each pod (P,) is among those that a term judges by themselves: from 0 to below 1, 1 for the others."""
    later = np.ones(size)
    for weighted in terms:
        if isinstance(weighted.term, Judging) and len(judged := weighted.term.judged()):
            place = np.arange(len(judged)) / len(judged)
            later[judged] = np.minimum(later[judged], place)
    return later
