"""Enforce landings: if the scheduler's own choice fixes nothing, marks on other nodes make it choose a better node.

Marks are used for rules, and for balance by what the scheduler does not see: by requests alone it puts a pod back on the node that
is hot by use. Of all feasible nodes the one that fixes most is chosen, and among equal ones the one that needs the fewest marks; for balance
the one that is least used. Decisive is the scheduler model's prediction with the marks,
including pending pods that take freed room; it is judged like any other landing.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np

from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.judge import Judge, signs
from rebalancer.planner.verdict import TOLERANCE, Verdict
from rebalancer.scheduler.steering import Steering
from rebalancer.snapshot.columns import Bools, Int32s


class LandingSteer:
    """Finds landings to enforce; leaves the state unchanged."""

    def __init__(self, draft: Draft, judge: Judge, effort: Effort) -> None:
        self._view, self._judge, self._effort = draft.view, judge, effort
        self._left = effort.steered_pods
        self._most = draft.settings.budgets.marks_of(len(draft.snapshot.nodes))
        self.standing: tuple[int, ...] = ()
        """The marks of the move before, which exist anyway: they are used again if they serve as well."""

    def landing(
        self, pod: int, cls: int, node: int, cost: float, *, for_balance: bool = False
    ) -> Verdict | None:
        """Return the verdict on moving ``pod``, of class ``cls``, off ``node`` to the best node that marks can enforce.

        None if no node fixes a rule, or with ``for_balance`` balances better, if marks cannot enforce it, or if too many marks are needed.
        """
        if self._left <= 0:
            return None
        self._left -= 1
        view = self._view
        replacement = view.snapshot.classes[cls].replacement
        with view.scheduler.pending.before_landing(view.state, pod):
            steering = view.scheduler.steering(view.state, replacement)
        if steering is None:
            return None
        entries = 3 if for_balance else 2
        open_ = self._open(steering.nodes, node, view.snapshot.foreign_nodes(replacement))
        sets = (
            marks
            for place in self._best(steering, pod, node, open_, entries)
            for marks in self._sets(steering, place)
        )
        worst = [self._worst(steering.nodes, pod, node, open_)] if for_balance else []
        for marks in chain(sets, worst):
            with view.scheduler.marking(marks):
                prediction = view.scheduler.pending.foresee(view.state, pod)
            verdict = self._judge.judge_landing(pod, node, cost, prediction)
            if verdict.refused is None and max(verdict.gain[:entries]) > TOLERANCE:
                return replace(verdict, marks=tuple(marks.tolist()))
        return None

    def _open(self, nodes: Int32s, node: int, foreign: Bools | None) -> Bools:
        """Return which of ``nodes`` (K,) may be chosen for a pod of ``node``; ``foreign`` (N,): see :meth:`Snapshot.foreign_nodes`."""
        all_nodes = self._view.snapshot.nodes
        open_: Bools = (nodes != node) & ~all_nodes.leaving[nodes]
        for excluded in (all_nodes.avoided, foreign):
            if excluded is not None:
                open_ &= ~excluded[nodes]
        return open_

    def _worst(self, nodes: Int32s, pod: int, node: int, open_: Bools) -> Int32s:
        """Return the nodes to mark where marks are too few to leave one only: those on which a pod balances least, its own first."""
        changes = self._judge.on_nodes(pod, node, nodes)
        change = np.where(open_ & (changes[0] <= 0), np.round(changes[2], 9), np.inf)
        order = np.lexsort((nodes, -change, nodes != node))[: self._most]
        return np.sort(nodes[order[change[order] > change.min(initial=np.inf)]])

    def _best(
        self, steering: Steering, pod: int, node: int, open_: Bools, entries: int
    ) -> list[int]:
        """Return positions in ``steering.nodes``: those that fix most, then need fewest marks, then balance most.

        ``open_`` (K,): which of the nodes may be chosen; ``entries``: so many of the cost decide.
        """
        nodes, marks = steering.nodes, steering.marks
        places = np.flatnonzero(open_ & (marks <= self._most))
        if not len(places):
            return []
        changes = np.round(self._judge.on_nodes(pod, node, nodes[places]), 9)
        decisive = changes[:entries][::-1]
        order = np.lexsort((nodes[places], changes[2], marks[places], *decisive))
        fixes = signs(changes[:entries])[order] < 0
        return [int(place) for place in places[order[fixes]][: self._effort.landings]]

    def _sets(self, steering: Steering, place: int) -> list[Int32s]:
        """Return the sets of marks to try: the existing marks, if they include all needed; then the smallest set."""
        fewest = steering.to_mark(place)
        standing = np.array(self.standing, np.int32)
        shared = np.isin(fewest, standing).all() and steering.nodes[place] not in standing
        if shared and len(standing) > len(fewest):
            return [standing, fewest]
        return [fewest]
