"""A term for strategies that judge single pods: each judged pod counts as 1 until it has moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import numpy as np

from rebalancer.core.rules import PodRule
from rebalancer.core.views import view_of
from rebalancer.cost.groups import Room, changes_of, class_set
from rebalancer.cost.term import Bound, Candidates, Entry, Term
from rebalancer.cost.view import View
from rebalancer.plan.plan import Cause
from rebalancer.snapshot.columns import Bools, Floats, Int32s

_NO_NODES = np.zeros(0, np.int32)
_LAST = np.iinfo(np.int32).max


class PodTerm(Term):
    """Pods that a strategy judges one by one, independent of other pods.

    Only living pods on nodes that the strategy may select are judged, and no pods that are bound to their node. A
    pod counts 1 until its replacement is placed, on any node, also the same one. With ``elsewhere``, the replacement
    must be on a node without judged pods of its class or of its siblings' classes.
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
        """``pods``: distinct rows of the snapshot. Pods with the largest ``worth`` (same length) are evicted first.

        ``reason`` returns for a pod a phrase with numbers on what is wrong. ``by_state``: pods are judged by their
        state, so they need not be Ready to be evicted, and their replacements are expected to be healthier.
        """
        kept = _judgeable(view)[pods]
        pods, worth = pods[kept], worth[kept]
        order = np.lexsort((view.rank_equals()[pods], -worth))
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
        self._mine = np.zeros(len(columns), bool)
        self._mine[self._pods] = True
        self._bad = self._nodes_of_judged() if elsewhere else {}

    def _nodes_of_judged(self) -> dict[int, Int32s]:
        """Return class -> nodes with judged pods of this class or of a sibling class."""
        siblings = self._view.snapshot.siblings
        of = siblings[self._cls]
        return {cls: np.unique(self._node[of == siblings[cls]]) for cls in self._of_class}

    # -- of single pods: see Term

    def judges(self, pod: int) -> bool:
        """Return whether ``pod`` is judged."""
        return bool(self._mine[pod])

    def judged(self) -> Int32s:
        """Return the judged pods in the order in which they should be evicted."""
        return self._pods

    def reason(self, pod: int) -> str:
        """Return a phrase with numbers on the problem of ``pod``."""
        return self._reason(pod)

    def delta_of(self, pod: int, destinations: Int32s) -> Floats:
        """Return the change of the cost (K,) if exactly this pod moves to each of K nodes."""
        cls, node = int(self._view.snapshot.pods.cls[pod]), int(self._view.snapshot.pods.node[pod])
        return changes_of(self._rule, cls, node, cls, destinations, pod)

    @cached_property
    def _rule(self) -> PodRule:
        view, state, classes = self._view, self._view.state, self._classes
        bad = [self._bad.get(cls, _NO_NODES) for cls in classes.tolist()]
        ends = np.cumsum([0, *map(len, bad)])
        by_class = np.argsort(self._cls, kind="stable")
        return PodRule(
            class_set(view, classes),
            view_of(np.searchsorted(self._cls[by_class], [*classes.tolist(), _LAST])),
            view_of(self._pods[by_class]),
            view_of(self._mine),
            view_of(view.snapshot.pods.node),
            view_of(state.node_of),
            view_of(state.moved),
            Room.of(view).tally,
            view_of(ends.astype(np.int64)),
            view_of(np.concatenate([_NO_NODES, *bad])),
        )

    # -- of classes and nodes: see Term ------------------------------------------------------------

    def _at_home(self) -> Bools:
        """Return which judged pods (in order) have not moved."""
        return self._view.state.at_home(self._pods)

    def _find_left(self) -> Bools:
        """Return which judged pods (in order) still have to move, including those with a bad landing."""
        left = self._at_home()
        for cls, bad in self._bad.items():
            left |= (self._cls == cls) & np.isin(self._view.state.node_of[self._pods], bad)
        return left

    def _first(self, cls: int, node: int) -> int | None:
        """Return the next judged pod of a (class, node) pair; None if none is left."""
        pair = cls * max(1, len(self._view.snapshot.nodes)) + node
        start, end = np.searchsorted(self._sorted_pairs, [pair, pair + 1])
        mine = self._pods[self._by_pair[start:end]]
        mine = mine[self._view.state.at_home(mine)]
        return int(mine[0]) if len(mine) else None

    def potential(self) -> float:
        """Return the number of pods that still have to move."""
        return float(np.count_nonzero(self._find_left()))

    def violated(self) -> int:
        """Return the number of pods that still have to move: each pod is a rule of its own."""
        return int(self.potential())

    def candidates(self, classes: Int32s | None = None) -> Candidates:
        """Return the pairs with a judged pod, each with a gain of 1."""
        left = self._at_home()
        if classes is not None:
            left &= np.isin(self._cls, classes)
        size = max(1, len(self._view.snapshot.nodes))
        pairs = np.unique(self._pair[left])
        cls, node = (pairs // size).astype(np.int32), (pairs % size).astype(np.int32)
        return Candidates(cls, node, np.ones(len(pairs)))

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:  # noqa: ARG002  # it is of its pod
        """Return the change (K,) if the next judged pod of the pair moves to each destination."""
        first = self._first(cls, node)
        return np.zeros(len(destinations)) if first is None else self.delta_of(first, destinations)

    def rules_of_move(self, cls: int, replacement: int) -> Sequence[tuple[PodRule, float]]:
        """Return the rule of the judged pods, with weight 1, if the move may concern one of them; else nothing."""
        return [(self._rule, 1.0)] if self.concerns(cls, replacement) else ()

    def bounds(self) -> Iterable[Bound]:
        """Yield one bound per pod: each pod needs its own move."""
        may_move = self._view.movable
        if self.cause is Cause.STATE and self._view.unready is not None:
            may_move = may_move | self._view.unready
        free = self._find_left() & may_move[self._pods]
        for cls in self._classes.tolist():
            if moves := int(np.count_nonzero(free & (self._cls == cls))):
                yield Bound(float(moves), np.array([cls], np.int32), 1.0)

    def describe(self, cls: int, node: int) -> str:
        """Return the reason of the next judged pod of the pair."""
        first = self._first(cls, node)
        return "" if first is None else self._reason(first)

    # -- what it knows of itself -------------------------------------------------------------------

    def concerns(self, cls: int, replacement: int) -> bool:  # noqa: ARG002  # it is of its pod
        """Return whether moving a pod of ``cls`` may change the term."""
        return cls in self._of_class


def _judgeable(view: View) -> Bools:
    """Return which pods (P,) a strategy may judge."""
    pods, classes = view.snapshot.pods, view.snapshot.classes
    replaceable = np.zeros(len(classes), bool)
    replaceable[[cls for cls, _ in view.replaceable()]] = True
    judgeable: Bools = pods.living
    if len(pods):
        judgeable &= replaceable[pods.cls]
    if view.selected is not None:
        judgeable &= view.selected.pods(view.snapshot)
    return judgeable
