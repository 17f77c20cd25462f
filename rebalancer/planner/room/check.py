"""Check between waves that all planned moves that make room are still possible and still make the room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from rebalancer.plan.plan import Move
from rebalancer.planner.draft import Draft
from rebalancer.planner.gang_plan import PlannedUnits
from rebalancer.planner.gangs import exceeds_limits, going, why_fails, why_unfit
from rebalancer.planner.judge import Judge
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.together import TogetherJudge, TogetherLanding, TogetherRules
from rebalancer.planner.trial import Trial
from rebalancer.planner.verdict import Verdict
from rebalancer.snapshot.columns import Int32s


class RoomCheck:
    """Judges the moves that make room, all moves for one pending pod together."""

    def __init__(
        self,
        draft: Draft,
        judge: Judge,
        together: TogetherJudge,
        moves: Sequence[Move],
        is_now: Callable[[Move], bool],
    ) -> None:
        """``is_now``: whether a move is next, within what budgets allow now."""
        self._draft, self._judge, self._together, self._is_now = draft, judge, together, is_now
        self._moves = [move for move in moves if move.room is not None]
        self._units = PlannedUnits(draft, self._moves)
        self._of_gangs: dict[str, Verdict] = {}
        """Uid of a pod that leaves with its gang -> the verdict."""
        uids = [uid for move in self._moves for uid in (move.uid, move.makes_way_for) if uid]
        self._rows = draft.problem.rows_by_uid(uids) if uids else {}
        self._refused: dict[str, Refusal | None] = {}

    def verdict(self, move: Move) -> Verdict | Refusal:
        """Return the verdict on a move, or why it should not be made."""
        unit = move.unit
        if unit not in self._refused:
            self._refused[unit] = self._why_not(unit)
        if (why := self._refused[unit]) is not None:
            return why
        return self._of_gang(move) if move.of_gang else self._verdict(move)

    def _of_gang(self, move: Move) -> Verdict | Refusal:
        """Return the verdict on a move of a gang; the first call judges all of its moves together."""
        if move.uid not in self._of_gangs:
            with Trial(self._draft.state) as trial:
                landing = self._leave_together(move.gang, trial)
            if isinstance(landing, Refusal):
                return landing
            marks = tuple(self._marks_of(move).tolist())
            for one, prediction in zip(
                self._units.moves[move.gang], landing.predictions, strict=True
            ):
                self._of_gangs[one.uid] = Verdict(
                    prediction, landing.share, landing.share, {}, None, marks=marks
                )
        return self._of_gangs[move.uid]

    def _verdict(self, move: Move) -> Verdict:
        """Return the verdict on a move while the nodes are marked that it was planned with."""
        pod, state, marks = self._rows[move.uid], self._draft.state, self._marks_of(move)
        with self._draft.scheduler.marking(marks):
            verdict = self._judge.harmless(pod, int(state.node_of[pod]))
        return replace(verdict, marks=tuple(marks.tolist()))

    def _marks_of(self, move: Move) -> Int32s:
        index = self._draft.snapshot.nodes.index
        return np.array(sorted(index[name] for name in move.marks if name in index), np.int32)

    def _why_not(self, unit: str) -> Refusal | None:
        """Return why nothing of a unit need leave any more, or why it would not help those for which it makes room."""
        state, moves = self._draft.state, [move for move in self._moves if move.unit == unit]
        waits = list(dict.fromkeys(move.makes_way_for for move in moves if move.makes_way_for))
        outside = [row for uid in waits if (row := self._rows.get(uid, -1)) >= 0]
        if len(outside) < len(waits):
            return Refusal.of(Why.GONE, who="the pod that it makes room for")
        outside = [row for row in outside if state.node_of[row] < 0]
        if waits and not outside:
            return Refusal.of(Why.WAITING_HAS_NODE)
        left = list(moves)
        with Trial(state) as trial:
            for _, of in groupby(moves, key=lambda move: move.gang or move.uid):
                some = list(of)
                left, move = left[len(some) :], some[0]
                gone = (
                    self._leave_together(move.gang, trial)
                    if move.gang
                    else self._leave(move, trial)
                )
                if isinstance(gone, Refusal):
                    return Refusal.of(Why.STAYS_OUTSIDE if waits else Why.NO_ROOM_MADE, why=gone)
                if move.makes_way_for in {later.makes_way_for for later in left}:
                    continue
                # With the last of its moves a pod has its room, and those after it are planned with that taken.
                row = self._rows.get(move.makes_way_for, -1)
                if row in outside and not self._enter(row, trial):
                    return Refusal.of(Why.WAITING_WOULD_NOT_FIT)
        return None

    def _enter(self, row: int, trial: Trial) -> bool:
        """Place a waiting pod in the state, for this trial only; return whether it fits on a node."""
        cls = int(self._draft.state.cls_of[row])
        nodes = self._draft.scheduler.predict(self._draft.state, cls).nodes
        if len(nodes):
            trial.place(row, int(nodes[0]), cls)
        return bool(len(nodes))

    def _leave(self, move: Move, trial: Trial) -> Refusal | None:
        """Move a pod in the state, for this trial only; return why it cannot be moved."""
        draft, pod = self._draft, self._rows.get(move.uid)
        if pod is None or draft.state.node_of[pod] < 0:
            return Refusal.of(Why.GONE, who=move.ref)
        if protections := draft.protections(pod):
            return Refusal.of(Why.PROTECTED_NOW, who=move.ref, names=protections)
        verdict = self._verdict(move)
        if verdict.refused is not None:
            return Refusal.of(Why.OF_POD, pod=pod, why=verdict.refused)
        trial.move(pod, int(verdict.prediction.nodes[0]))
        return None

    def _leave_together(self, unit: str, trial: Trial) -> TogetherLanding | Refusal:
        """Move the pods of a gang in the state, for this trial only; return where they land, or why they cannot be moved."""
        landing = self._land_together(unit, trial)
        if isinstance(landing, Refusal):
            return Refusal.of(Why.UNIT_STAYS, unit=unit, why=landing)
        return landing

    def _land_together(self, unit: str, trial: Trial) -> TogetherLanding | Refusal:
        snapshot, moves = self._draft.snapshot, self._units.moves[unit]
        pods = [self._rows[move.uid] for move in moves if move.uid in self._rows]
        gang = self._units.gang_of(unit)
        if isinstance(gang, Refusal):
            return gang
        why = why_unfit(self._draft, gang) or why_fails(snapshot, pods)
        why = why or self._units.check_pods(unit, going(snapshot, gang, pods))
        if why is None and self._is_now(moves[0]):
            why = exceeds_limits(self._draft, pods, moves[0].strategy)
        if why is not None:
            return why
        marks = self._marks_of(moves[0])
        named = [pod for pod in pods if snapshot.pods.node[pod] in marks]
        rules = TogetherRules(named=named, marks=marks, feeds=True)
        return self._together.land_together(trial, pods, rules)
