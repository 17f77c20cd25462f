"""Waves for moves that are chosen already: the one in which budgets let each go, or why none does."""

from __future__ import annotations

from collections.abc import Sequence

from rebalancer.plan.plan import Code, Move
from rebalancer.planner.draft import Draft
from rebalancer.planner.quota import QuotaLedger

ReachedLimit = tuple[Code, str]
"""Which limit keeps a move from this run, in words."""


class Waves:
    """Takes moves one by one, in their order. Uses up the draft's allowance."""

    def __init__(self, draft: Draft, moves: Sequence[Move]) -> None:
        """``moves``: all that will be placed; each of a pod that the snapshot has."""
        self._draft, self._allowance = draft, draft.allowance
        self._snapshot = draft.snapshot
        self._rows = draft.problem.rows_by_uid([move.uid for move in moves])
        self._quota = QuotaLedger(self._snapshot)
        self._wave, self._taken = 1, 0
        self._planned = 0
        """Wave that the last move was planned in."""

    def place(self, move: Move) -> int | ReachedLimit:
        """Return the wave of ``move``; it is a later one than that of moves planned in an earlier one."""
        pod = self._rows[move.uid]
        cls, node = int(self._snapshot.pods.cls[pod]), int(self._snapshot.pods.node[pod])
        ready = self._snapshot.pods.is_ready(pod)
        if (forbidden := self._draft.forbidden(pod)) is not None:
            return forbidden
        if (limit := self._allowance.over(move.strategy, cls)) is not None:
            return Code.BUDGET, limit
        if move.wave != self._planned:
            self._next()
        self._planned = move.wave
        if self._waits(cls, node, move.strategy, ready=ready) is not None:
            self._next()
            if (why := self._waits(cls, node, move.strategy, ready=ready)) is not None:
                return why
        self._spend(cls, node, move.strategy, ready=ready)
        return self._wave

    def _next(self) -> None:
        """Begin another wave, unless this one is empty: what is in flight already is in flight then, too."""
        if self._taken:
            self._wave, self._taken = self._wave + 1, 0
            self._allowance.next_wave()
            self._quota.reset()

    def _waits(self, cls: int, node: int, strategy: str, *, ready: bool) -> ReachedLimit | None:
        if (limit := self._allowance.waits(cls, node, strategy, ready=ready)) is not None:
            return Code.BUDGET, limit
        if not self._snapshot.waits(cls) and (lack := self._quota.lacks(cls)) is not None:
            return Code.QUOTA, lack
        return None

    def _spend(self, cls: int, node: int, strategy: str, *, ready: bool) -> None:
        self._taken += 1
        self._allowance.spend(cls, node, strategy, ready=ready)
        if not self._snapshot.waits(cls):
            self._quota.take(cls)
