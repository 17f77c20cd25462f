"""Why no remaining node takes the replacement of a pod, in the scheduler's words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from rebalancer.machines.drain.preflight import NodeCheck, PodCheck
from rebalancer.plan.plan import Code, Move
from rebalancer.planner.problem import Problem
from rebalancer.scheduler.messages import reasons
from rebalancer.snapshot.columns import Bools
from rebalancer.snapshot.state import ClusterState


def with_refusals(
    checks: Sequence[NodeCheck], problem: Problem, moves: Sequence[Move], stays: Bools
) -> list[NodeCheck]:
    """Return ``checks`` with the scheduler's reason for each pod that no node takes after ``moves``.

    ``stays`` (N,): the nodes that are not emptied.
    """
    if not any(_lacks(one) for of in checks for one in of.pods):
        return list(checks)
    state = _after(problem, moves)
    refusals = _Refusals(problem, state, stays)
    return [
        replace(of, pods=tuple(refusals.named(one) if _lacks(one) else one for one in of.pods))
        for of in checks
    ]


def _lacks(check: PodCheck) -> bool:
    return check.code == Code.NO_ROOM.value and check.move is None


def _after(problem: Problem, moves: Sequence[Move]) -> ClusterState:
    """Return the state with the pods of ``moves`` on their most probable nodes."""
    snapshot, state = problem.snapshot, ClusterState(problem.snapshot)
    rows = {
        snapshot.pods.uid[row]: row for row in snapshot.pods.uid.rows_of({m.uid for m in moves})
    }
    for move in moves:
        if (row := rows.get(move.uid)) is not None and move.landings:
            likely = max(move.landings, key=lambda one: one.probability).node
            state.evict(row)
            cls = snapshot.classes[int(snapshot.pods.cls[row])].replacement
            state.place(row, cls, snapshot.nodes.index[likely])
    state.reap()
    return state


class _Refusals:
    """Runs the scheduler's filters for single pods."""

    def __init__(self, problem: Problem, state: ClusterState, stays: Bools) -> None:
        self._problem, self._state, self._stays = problem, state, stays

    def named(self, check: PodCheck) -> PodCheck:
        """Return the check with the scheduler's reason, and with the nodes where only other pods prevent it."""
        names = self._problem.snapshot.nodes.names
        model = self._problem.scheduler
        with self._landing(check.pod) as cls:
            evaluation = model.evaluate(self._state, cls)
            why = list(reasons(model, self._state, cls, evaluation))
            full = model.filters_of(cls).full(self._state, cls) & self._stays
        counts = Counter(text for node in np.flatnonzero(self._stays) for text in why[node])
        said = ", ".join(f"{number} {text}" for text, number in counts.most_common())
        message = f"{check.message}: {said}" if said else check.message
        return replace(check, message=message, full=tuple(names[n] for n in np.flatnonzero(full)))

    @contextmanager
    def _landing(self, pod: int) -> Iterator[int]:
        snapshot = self._problem.snapshot
        with self._problem.scheduler.pending.before_landing(self._state, pod):
            yield snapshot.classes[int(snapshot.pods.cls[pod])].replacement
