"""Whether nodes can be emptied together: each of their pods is moved in the draft's state, where it would land."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rebalancer.cost.guards import guard_term
from rebalancer.planner.draft import Draft
from rebalancer.planner.judge import Judge
from rebalancer.planner.leaving_pods import LeavingPods
from rebalancer.snapshot.columns import Int32s

# Judgements of one choice.
_TRIES = 6000


class EmptyingTrial:
    """Tries out choices of nodes on a draft, whose state it leaves as it was, until its judgements are used up."""

    def __init__(
        self, draft: Draft, pods: LeavingPods, others: Int32s, *, removes: bool = False
    ) -> None:
        """``others``: nodes that take no pod either, since something else empties them.

        ``removes``: the nodes are cordoned and tainted by scale-in before they are emptied; else they are marked.
        """
        self._keeping_off = draft.scheduler.removing if removes else draft.scheduler.marking
        self._draft, self._pods, self._others = draft, pods, others
        self._judge = Judge(
            draft.view, draft.enforced, guard_term(draft.view), draft.settings.threshold
        )
        self._left = _TRIES
        self._moved: list[int] = []

    @property
    def exhausted(self) -> bool:
        """Whether no judgement is left."""
        return self._left <= 0

    def failing(self, nodes: Sequence[int], *, one_will_do: bool = False) -> Mapping[int, str]:
        """Return the nodes whose pods have no landings while all of ``nodes`` are marked, each with the reason.

        One node is tried after the other, with the pods of those before it where they would land.
        """
        marked = np.array(sorted(nodes), np.int32)
        failing: dict[int, str] = {}
        with self._keeping_off(marked):
            for node in nodes:
                before = len(self._moved)
                if (why := self._leave(node, marked)) is not None:
                    self._undo(before)
                    failing[node] = why
                    if one_will_do:
                        break
            self._undo(0)
        return failing

    def _leave(self, node: int, marked: Int32s) -> str | None:
        """Move the pods of ``node`` in the state; return which one has no landing, and why, if one has none."""
        closed = np.union1d(marked, self._others)
        for pod in self._pods.on(node).tolist():
            self._left -= 1
            if (why := self._move(pod, node, closed)) is not None:
                return f"{self._draft.snapshot.pod_ref(pod)}: {why}"
        return None

    def _move(self, pod: int, node: int, closed: Int32s) -> str | None:
        """Move ``pod`` off ``node`` in the state; return why it cannot go where none of ``closed`` is, if so."""
        draft, state = self._draft, self._draft.state
        if self._left < 0:
            return "whether it has a landing elsewhere takes too long to say in one run"
        verdict = self._judge.harmless(pod, node)
        if verdict.refused is not None:
            return verdict.refused[1]
        landings = verdict.prediction
        if landings.takers:
            return "pods that are pending would take the room that it leaves"
        if (again := np.intersect1d(landings.nodes, closed)).size:
            return f"would land on {draft.snapshot.nodes.names[int(again[0])]}, which is to be empty, too"
        replacement = draft.snapshot.classes[int(state.cls_of[pod])].replacement
        state.evict(pod)
        state.hide_newest_victim()
        state.place(pod, replacement, int(landings.nodes[0]))
        self._moved.append(pod)
        return None

    def _undo(self, left: int) -> None:
        """Take moves back until only so many are left."""
        state = self._draft.state
        while len(self._moved) > left:
            pod = self._moved.pop()
            state.unplace(pod)
            state.show_newest_victim()
            state.unevict(pod)
