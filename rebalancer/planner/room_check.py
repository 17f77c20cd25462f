"""Check between waves that all planned moves that make room are still possible and still make the room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rebalancer.plan.plan import Move
from rebalancer.planner.draft import Draft
from rebalancer.planner.judge import Judge
from rebalancer.planner.verdict import Verdict


class RoomCheck:
    """Judges the moves that make room, all moves for one pending pod together."""

    def __init__(self, draft: Draft, judge: Judge, moves: Sequence[Move]) -> None:
        self._draft, self._judge = draft, judge
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
        return self._verdict(move)

    def _verdict(self, move: Move) -> Verdict:
        """Return the verdict on a move while the nodes are marked that it was planned with."""
        index, state = self._draft.snapshot.nodes.index, self._draft.state
        pod = self._rows[move.uid]
        marks = np.array(sorted(index[name] for name in move.marks if name in index), np.int32)
        with self._draft.scheduler.marking(marks):
            verdict = self._judge.harmless(pod, int(state.node_of[pod]))
        return replace(verdict, marks=tuple(marks.tolist()))

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
            for place, move in enumerate(moves):
                if (why := self._leave(move, gone)) is not None:
                    return f"{what}: {why}"
                if move.makes_way_for in {later.makes_way_for for later in moves[place + 1 :]}:
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
            return f"{move.ref}: {verdict.refused[1]}"
        replacement = draft.snapshot.classes[int(draft.state.cls_of[pod])].replacement
        draft.state.evict(pod)
        draft.state.hide_newest_victim()
        draft.state.place(pod, replacement, int(verdict.prediction.nodes[0]))
        gone.append(pod)
        return None
