"""Who might move: wishes, the pods behind them, and what each promises per eviction cost."""

from __future__ import annotations

from collections.abc import Container, Sequence

import numpy as np

from rebalancer.cost.term import View
from rebalancer.planner.judge import TOLERANCE, Weighted
from rebalancer.planner.pool import Pair, Pool, Wish
from rebalancer.snapshot.columns import Floats, Int32s

# A promise is looked at before what is known only if it is larger by more than this share of it.
_CLEARLY = 0.05
# Up to so many classes are asked about again at once after a move.
_MANY = 64

Key = tuple[float, float, float]
"""Gain per cost, entry by entry; the smallest key goes first."""
Entry = tuple[Key, Pair]


def is_behind(key: Key, other: Key) -> bool:
    """Tell whether ``other`` promises more than ``key``.

    Imbalance is compared only where nothing else is at stake: its promises are optimistic by nature, and
    judging every candidate anew for a thousandth of a squared share would cost most of a plan's time.
    """
    for mine, theirs in zip(key[:2], other[:2], strict=True):
        if abs(mine - theirs) > TOLERANCE:
            return mine - theirs > _CLEARLY * abs(mine)
    return not any(key[:2]) and key[2] * (1 + _CLEARLY) > other[2]


class Candidates:
    """The pairs that terms want to see gone, kept current while pods move.

    ``order`` (P,) is what evicting each pod costs when candidates are compared; owners in ``cooling`` (refs)
    have a wish, but no pod that may go.
    """

    def __init__(
        self, view: View, terms: Sequence[Weighted], order: Floats, cooling: Container[str]
    ) -> None:
        self._view, self._terms, self._order, self._cooling = view, terms, order, cooling
        self._pool = Pool(terms)
        self._pods: dict[Pair, list[int]] = {}
        self._asked: dict[Pair | int, int] = {}
        """Pair or class -> moves made when the terms were last asked about its imbalance."""
        self._moved = 0
        self._stale: set[int] = set()
        """Classes that moves have concerned since the terms were asked about them."""

    @property
    def seen(self) -> set[Pair]:
        """Every pair that was ever wished for."""
        return self._pool.seen

    def wish(self, pair: Pair) -> Wish | None:
        """Return what is wished for a pair, None if nothing is any more."""
        return self._pool.get(pair)

    def pods(self, pair: Pair) -> list[int]:
        """Return the movable pods of a pair that are left, cheapest first."""
        found = self._pods.get(pair)
        if found is None:
            pods = self._view.state.pods_on(*pair)
            pods = pods[self._view.movable[pods] & (not self.rests(pair[0]))]
            order = np.lexsort((pods, self._order[pods]))
            found = self._pods[pair] = pods[order].tolist()
        return found

    def rests(self, cls: int) -> bool:
        """Tell whether the owner is in a cool-down: its wish is told, not carried out."""
        owner = self._view.snapshot.classes[cls].owner
        return owner >= 0 and self._view.snapshot.owners[owner].ref in self._cooling

    # -- what they promise -------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """Return an entry for each pair with pods, after asking about all that has changed."""
        if self._stale:
            self._ask(np.array(sorted(self._stale), np.int32))
        return [entry for pair in self._pool.pairs() if (entry := self.entry(pair)) is not None]

    def entry(self, pair: Pair) -> Entry | None:
        """Return what a pair promises at most; None if nothing is wished for, or no pod is left."""
        wish = self.wish(pair)
        pods = self.pods(pair) if wish is not None else ()
        if wish is None or not pods:
            return None
        hard, soft, imbalance = wish.gains
        return self.key((hard, soft, imbalance), pods[0]), pair

    def key(self, gain: tuple[float, float, float], pod: int) -> Key:
        """Return the place in the queue of a pod that gains so much."""
        cost = float(self._order[pod])
        return (-gain[0] / cost, -gain[1] / cost, -gain[2] / cost)

    def lower(self, pair: Pair, gain: tuple[float, float, float]) -> None:
        """Note that a closer look found this gain, until the terms are asked again."""
        wish = self.wish(pair)
        if wish is not None:
            wish.gains = list(gain)

    # -- while pods move ---------------------------------------------------------------------------

    def take(self, pod: int, pair: Pair) -> None:
        """Note that a pod has moved."""
        self.pods(pair).remove(pod)
        self._moved += 1

    def refresh(self, pair: Pair) -> list[Pair]:
        """Ask the terms anew about every class that a move from ``pair`` concerns; return their pairs."""
        cls = pair[0]
        related = self.related(cls)
        if len(related) > _MANY:
            # A rule over a whole namespace: asking about all of it after each move would take longer than
            # all else. Who comes next is asked about then, the others before the next wave.
            self._stale.update(related.tolist())
            replacement = self._view.snapshot.classes[cls].replacement
            related = np.unique(np.array([cls, replacement], np.int32))
        return self._ask(related)

    def refresh_stale(self, pair: Pair) -> list[Pair] | None:
        """Return the pairs of a class that is due to be asked about again; None if it is not."""
        return self._ask(np.array([pair[0]], np.int32)) if pair[0] in self._stale else None

    def renew(self, pair: Pair) -> bool:
        """Ask again about a pair that is only about imbalance: any move may have ended the reason for it."""
        wish = self.wish(pair)
        if wish is None or wish.gains[0] or wish.gains[1]:
            return False
        # Where a rule wants pods of the class gone as well, what a closer look has found of it is outdated, too.
        of_class = self._pool.has_rules(pair[0])
        asked = pair[0] if of_class else pair
        if self._asked.get(asked, 0) == self._moved:
            return False
        self._asked[asked] = self._moved
        if of_class:
            self._pool.refresh(np.array([pair[0]], np.int32))
        else:
            self._pool.renew(pair)
        return True

    def related(self, cls: int) -> Int32s:
        """Return the classes that a move of ``cls`` concerns."""
        replacement = self._view.snapshot.classes[cls].replacement
        found = [weighted.term.related(k) for weighted in self._terms for k in {cls, replacement}]
        return np.unique(np.concatenate(found))

    def _ask(self, classes: Int32s) -> list[Pair]:
        """Ask the terms anew about ``classes``, and return the pairs they name."""
        self._stale.difference_update(classes.tolist())
        return self._pool.refresh(classes)
