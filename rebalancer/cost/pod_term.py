"""Rules about single pods: each pod that is judged by itself counts as one that still has to move, until it has."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

import numpy as np

from rebalancer.cost.term import Bound, Candidates, Entry, Term, View
from rebalancer.plan.plan import Cause
from rebalancer.snapshot.columns import Bools, Floats, Int32s


class PodTerm(Term):
    """Pods that a strategy judges by themselves, whatever else is where.

    Judged are the living pods on nodes that the strategy may select, but for those that belong to their node. A pod
    counts one, and counts no more once its replacement is placed: on any node, the same one as well, unless
    ``elsewhere`` asks for a node that has no judged pod of its class, nor of its siblings'.
    """

    entry = Entry.SOFT

    def __init__(
        self,
        view: View,
        *,
        pods: Int32s,
        worth: Floats,
        reason: Callable[[int], str],
        by_state: bool,
        elsewhere: bool = False,
    ) -> None:
        """``pods`` are rows of the snapshot, each once; those of the largest ``worth`` (same length) go first.

        ``reason`` says of one of them, in a phrase with numbers, what is wrong with it. ``by_state``: they are judged by
        how they fare, so that they need not be Ready to be evicted, and their replacements should fare better.
        """
        kept = _judgeable(view)[pods]
        pods, worth = pods[kept], worth[kept]
        order = np.lexsort((pods, -worth))
        self._pods: Int32s = pods[order].astype(np.int32)
        self._view, self._reason = view, reason
        self.cause = Cause.STATE if by_state else Cause.AGE
        self.in_place = not elsewhere
        columns = view.snapshot.pods
        self._cls, self._node = columns.cls[self._pods], columns.node[self._pods]
        self._pair = self._cls.astype(np.int64) * max(1, len(view.snapshot.nodes)) + self._node
        self._by_pair = np.argsort(self._pair, kind="stable")
        self._sorted_pairs = self._pair[self._by_pair]
        self._classes = np.unique(self._cls)
        self._of_class = set(self._classes.tolist())
        self._mine = set(self._pods.tolist())
        self._bad = self._nodes_of_judged() if elsewhere else {}

    def _nodes_of_judged(self) -> dict[int, Int32s]:
        """Return class -> the nodes where pods of it, or siblings of another class, are judged."""
        siblings = self._view.snapshot.siblings
        of = siblings[self._cls]
        return {cls: np.unique(self._node[of == siblings[cls]]) for cls in self._of_class}

    # -- of single pods: see Term

    def judges(self, pod: int) -> bool:
        """See Term."""
        return pod in self._mine

    def judged(self) -> Int32s:
        """See Term."""
        return self._pods

    def reason(self, pod: int) -> str:
        """See Term."""
        return self._reason(pod)

    def delta_of(self, pod: int, destinations: Int32s) -> Floats:
        """See Term."""
        if pod not in self._mine or not self._view.state.at_home(np.array([pod], np.int32))[0]:
            return np.zeros(len(destinations))
        return self._change(int(self._view.snapshot.pods.cls[pod]), destinations)

    def _change(self, cls: int, destinations: Int32s) -> Floats:
        fixed = ~np.isin(destinations, self._bad.get(cls, ()))
        return -fixed.astype(float)

    # -- of classes and nodes: see Term ------------------------------------------------------------

    def _at_home(self) -> Bools:
        """Return which judged pods (in order) have not been moved."""
        return self._view.state.at_home(self._pods)

    def _left(self) -> Bools:
        """Return which judged pods (in order) still have to move, those that landed badly among them."""
        left = self._at_home()
        for cls, bad in self._bad.items():
            left |= (self._cls == cls) & np.isin(self._view.state.node_of[self._pods], bad)
        return left

    def _first(self, cls: int, node: int) -> int | None:
        """Return the judged pod of a pair that goes first, None if none is left."""
        pair = cls * max(1, len(self._view.snapshot.nodes)) + node
        start, end = np.searchsorted(self._sorted_pairs, [pair, pair + 1])
        mine = self._pods[self._by_pair[start:end]]
        mine = mine[self._view.state.at_home(mine)]
        return int(mine[0]) if len(mine) else None

    def potential(self) -> float:
        """Return how many pods still have to move."""
        return float(np.count_nonzero(self._left()))

    def violated(self) -> int:
        """Return the same: each pod is a rule of its own."""
        return int(self.potential())

    def candidates(self, classes: Int32s | None = None) -> Candidates:
        """See Term: a pair with a judged pod gains one."""
        left = self._at_home()
        if classes is not None:
            left &= np.isin(self._cls, classes)
        size = max(1, len(self._view.snapshot.nodes))
        pairs = np.unique(self._pair[left])
        cls, node = (pairs // size).astype(np.int32), (pairs % size).astype(np.int32)
        return Candidates(cls, node, np.ones(len(pairs)))

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:  # noqa: ARG002  # it is of its pod
        """See Term: of the judged pod of the pair that goes first."""
        if cls not in self._of_class or self._first(cls, node) is None:
            return np.zeros(len(destinations))
        return self._change(cls, destinations)

    def bounds(self) -> Iterable[Bound]:
        """See Term: each pod needs a move of its own."""
        may_move = self._view.movable
        if self.cause is Cause.STATE and self._view.unready is not None:
            may_move = may_move | self._view.unready
        free = self._left() & may_move[self._pods]
        for cls in self._classes.tolist():
            if moves := int(np.count_nonzero(free & (self._cls == cls))):
                yield Bound(float(moves), np.array([cls], np.int32), 1.0)

    def describe(self, cls: int, node: int) -> str:
        """See Term: of the judged pod of the pair that goes first."""
        first = self._first(cls, node)
        return "" if first is None else self._reason(first)

    # -- what it knows of itself -------------------------------------------------------------------

    def concerns(self, cls: int, replacement: int) -> bool:  # noqa: ARG002  # it is of its pod
        """See Term."""
        return cls in self._of_class

    def stamp(self, cls: int, node: int, replacement: int, destinations: Int32s) -> int:  # noqa: ARG002  # it is of its pod
        """See Term."""
        return self._view.state.newest_stamp(np.array([cls], np.int32))

    def seen_from(self, cls: int, node: int, replacement: int) -> Hashable:  # noqa: ARG002  # it is of its pod
        """See Term."""
        return cls in self._of_class and self._first(cls, node) is not None


def _judgeable(view: View) -> Bools:
    """Return the pods (P,) that a strategy may judge."""
    pods, classes = view.snapshot.pods, view.snapshot.classes
    replaceable = np.zeros(len(classes), bool)
    replaceable[[cls for cls, _ in view.replaceable()]] = True
    judgeable: Bools = pods.living
    if len(pods):
        judgeable &= replaceable[pods.cls]
    if view.selected is not None:
        judgeable &= view.selected.pods(view.snapshot)
    return judgeable
