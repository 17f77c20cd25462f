"""Check between waves that all planned moves that make room are still possible and still make the room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from rebalancer.plan.plan import Move
from rebalancer.planner.draft import Draft
from rebalancer.planner.gangs import going, is_unit, unit_of, why_fails, why_unfit
from rebalancer.planner.judge import Judge
from rebalancer.planner.room.gangs import TogetherJudge, TogetherLanding
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
        """``is_now``: whether a move goes next, within what budgets allow now."""
        self._draft, self._judge, self._together, self._is_now = draft, judge, together, is_now
        self._of_gangs: dict[str, Verdict] = {}
        """Uid of a pod that leaves with its gang -> the verdict."""
        self._moves = [move for move in moves if move.room is not None]
        uids = [uid for move in self._moves for uid in (move.uid, move.makes_way_for) if uid]
        self._rows = draft.problem.rows_by_uid(uids) if uids else {}
        self._refused: dict[str, str | None] = {}

    def verdict(self, move: Move) -> Verdict | str:
        """Return the verdict on a move, or why it should not be made."""
        unit = move.unit
        if unit not in self._refused:
            self._refused[unit] = self._why_not(unit)
        if (why := self._refused[unit]) is not None:
            return why
        return self._of_gang(move) if move.of_gang else self._verdict(move)

    def _of_gang(self, move: Move) -> Verdict | str:
        """Return the verdict on a move of a gang; they are judged all together when the first of them is asked about."""
        if move.uid not in self._of_gangs:
            of = [one for one in self._moves if one.gang == move.gang]
            landing = self._landing(of)
            if isinstance(landing, str):
                return landing
            marks = tuple(self._marks_of(move).tolist())
            for one, prediction in zip(of, landing.predictions, strict=True):
                self._of_gangs[one.uid] = Verdict(
                    prediction, landing.gain, landing.gain, {}, None, marks=marks
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

    def _why_not(self, unit: str) -> str | None:
        """Return why nothing of a unit need leave any more, or why it would not help those for which it makes room."""
        state, moves = self._draft.state, [move for move in self._moves if move.unit == unit]
        waits = list(dict.fromkeys(move.makes_way_for for move in moves if move.makes_way_for))
        outside = [row for uid in waits if (row := self._rows.get(uid, -1)) >= 0]
        if len(outside) < len(waits):
            return "the pod that it makes room for is gone"
        outside = [row for row in outside if state.node_of[row] < 0]
        if waits and not outside:
            return "the pod that it makes room for has its node"
        what = (
            "the pod that it makes room for would stay outside"
            if waits
            else "no room would be made"
        )
        gone: list[int] = []
        """The pods that have moved in the state, and those that have been let in, in order."""
        try:
            left = list(moves)
            for gang, of in groupby(moves, key=lambda move: move.gang or move.uid):
                some = list(of)
                left, move = left[len(some) :], some[0]
                why = (
                    self._leave_together(some, gone)
                    if gang == move.gang
                    else self._leave(move, gone)
                )
                if why is not None:
                    return f"{what}: {why}"
                if move.makes_way_for in {later.makes_way_for for later in left}:
                    continue
                # With the last of its moves a pod has its room, and those after it are planned with that taken.
                row = self._rows.get(move.makes_way_for, -1)
                if row in outside and not self._enter(row, gone):
                    return "the pod that it makes room for would not fit even then"
            return None
        finally:
            for pod in reversed(gone):
                state.unplace(pod)
                if self._draft.snapshot.pods.node[pod] >= 0:
                    state.show_newest_victim()
                    state.unevict(pod)

    def _enter(self, row: int, gone: list[int]) -> bool:
        """Place a pod that waits in the state for a moment; return whether a node takes it."""
        state = self._draft.state
        cls = int(state.cls_of[row])
        nodes = self._draft.scheduler.predict(state, cls).nodes
        if len(nodes):
            state.place(row, cls, int(nodes[0]))
            gone.append(row)
        return bool(len(nodes))

    def _leave(self, move: Move, gone: list[int]) -> str | None:
        """Move a pod in the state for a moment; return why it cannot go."""
        draft, pod = self._draft, self._rows.get(move.uid)
        if pod is None or draft.state.node_of[pod] < 0:
            return f"{move.ref} is gone"
        if protections := draft.protections(pod):
            return f"{move.ref} is protected now: {', '.join(protections)}"
        verdict = self._verdict(move)
        if verdict.refused is not None:
            return f"{move.ref}: {verdict.refused.text(draft.snapshot)}"
        self._put(pod, int(verdict.prediction.nodes[0]), gone)
        return None

    def _leave_together(self, moves: Sequence[Move], gone: list[int]) -> str | None:
        """Move the pods of a gang in the state for a moment; return why they cannot go."""
        landing = self._landing(moves)
        if isinstance(landing, str):
            return landing
        for move, prediction in zip(moves, landing.predictions, strict=True):
            self._put(self._rows[move.uid], int(prediction.nodes[0]), gone)
        return None

    def _landing(self, moves: Sequence[Move]) -> TogetherLanding | str:
        """Return where the pods of a gang would land now, or why they cannot go."""
        whole = [move for move in self._moves if move.gang == moves[0].gang]
        if whole != list(moves) or len({move.wave for move in moves}) > 1:
            return f"{moves[0].gang}: the plan does not move its pods one right after the other in one wave"
        pods = [self._rows[move.uid] for move in moves if move.uid in self._rows]
        if (why := self._why_no_gang(moves, pods)) is not None:
            return f"{moves[0].gang}: {why}"
        landing = self._together.landing(pods, self._marks_of(moves[0]), [-1] * len(pods))
        return (
            landing
            if isinstance(landing, TogetherLanding)
            else f"{moves[0].gang}: {landing.text(self._draft.snapshot)}"
        )

    def _why_no_gang(self, moves: Sequence[Move], pods: Sequence[int]) -> str | None:
        """Return why ``pods`` are not what would leave of a gang that has to stay whole; None if they are."""
        snapshot = self._draft.snapshot
        gang = next((gang for gang in snapshot.gangs if unit_of(gang) == moves[0].gang), None)
        if gang is None or len(pods) < len(moves):
            return "a pod of it is gone"
        if not is_unit(self._draft, gang):
            return "its pods are not kept together any more: left to the next run"
        if (why := why_unfit(self._draft, gang)) is not None:
            return why
        if (why := why_fails(snapshot, pods)) is not None:
            return why
        if set(going(snapshot, gang, pods)) != set(pods):
            return "other pods of it would go than planned"
        if not self._is_now(moves[0]):
            return None
        exceeded = self._together.exceeds(pods, moves[0].strategy)
        return None if exceeded is None else exceeded.text(snapshot)

    def _put(self, pod: int, node: int, gone: list[int]) -> None:
        state = self._draft.state
        replacement = self._draft.snapshot.classes[int(state.cls_of[pod])].replacement
        state.evict(pod)
        state.hide_newest_victim()
        state.place(pod, replacement, node)
        gone.append(pod)
