"""Simulate how a run would make room: wave by wave, within budgets, each pod with its predicted landing.

The nodes that are being made free are marked meanwhile, and further ones where the scheduler would choose another
node. Another pending pod may take the freed room first. So a plan is accepted only if the intended pod has its node
at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.base.plain_text import count
from rebalancer.cost.guards import guard_term
from rebalancer.cost.room_term import Ask
from rebalancer.planner.draft import Draft
from rebalancer.planner.gangs import RoomGangs, exceeds_budgets, exceeds_limits, unit_of
from rebalancer.planner.judge import Judge
from rebalancer.planner.problem import Contribution
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.rendering import Chosen
from rebalancer.planner.room.items import Item, Placing
from rebalancer.planner.room.made import (
    MadeRooms,
    RoomEntry,
    RoomStep,
    end_wave,
    enter,
    gang_of,
    kind_of,
    move,
)
from rebalancer.planner.together import TogetherJudge, TogetherRules
from rebalancer.planner.trial import Trial
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.columns import Int32s
from rebalancer.snapshot.labels import MISSING

_SURE = 0.95
"""Least probability of landings that leave the places of others spare; the rest may be on nodes about to be removed."""


_TRIES = 8
"""So many times further nodes are marked, so that no replacement lands where others need the place."""


@dataclass(frozen=True, slots=True)
class _Landing:
    """Where pods that leave at once land while some nodes are marked."""

    predictions: tuple[Prediction, ...]
    gain: tuple[float, float, float]
    """Of each of them."""
    marks: Collection[int]
    refused: Refusal | None = None


class RoomWalk:
    """Simulates the moves of one placing, each pod with its predicted landing."""

    def __init__(
        self,
        draft: Draft,
        of: Contribution,
        made: MadeRooms,
        asks: Sequence[Ask],
        placing: Placing,
        gangs: RoomGangs,
    ) -> None:
        """``draft``: ``made`` is done in it, and its last wave is in flight; ``of``: the strategy."""
        self._of, self._made, self._asks, self._draft = of, made, asks, draft
        terms = draft.terms if of.observed else draft.enforced
        guard = guard_term(draft.view)
        self._judge = Judge(draft.view, terms, guard, draft.settings.threshold)
        self._together = TogetherJudge(draft, self._judge, terms, guard)
        self._gangs = gangs
        self._targets = {item.pod: node for item, node in placing.nodes}
        self._left = self._at_once([item for item, _ in placing.moves])
        """What is left to move: pods that leave at once, those of a gang, or one."""
        self._waiting = [item for item, _ in placing.nodes if item.source < 0]
        self._sources = {item.source for of in self._left for item in of if not _may_return(item)}
        self._open = made.open_rooms()
        """The nodes that are being made free for others in the wave that is in flight."""
        self._most_marks = draft.settings.budgets.marks_of(len(draft.snapshot.nodes))
        self.steps: list[RoomStep] = []
        self.entries: list[RoomEntry] = []
        self._ask_of = dict(enumerate(asks))

    def go(self) -> Refusal | None:
        """Make all moves, beginning in the wave that is in flight; return why that is impossible, or None."""
        wave, of_wave = max(self._made.last_wave, self._made.first_wave), len(self._made.steps)
        why = Refusal.of(Why.NO_ORDER)
        full = self._made.ends_with_gang
        while self._left:
            steps: list[RoomStep] = []
            if not full:
                steps, why = self._next(wave, why, begun=of_wave > 0)
            if steps:
                self.steps += steps
                of_wave += len(steps)
                full = bool(steps[0].chosen.gang)
                continue
            if not of_wave:
                return why
            self._end_wave(wave)
            wave, of_wave, full = wave + 1, 0, False
        self._end_wave(wave)
        self._assign()
        return self._enter(wave)

    def _assign(self) -> None:
        """Say of rooms for pods that are alike whom each is for: the room that is there first is for the pod that is first."""
        created = self._draft.snapshot.pods.created
        complete = dict.fromkeys(range(len(self._asks)), 0)
        for step in self.steps:
            complete[step.root] = step.chosen.wave
        alike: dict[object, list[int]] = {}
        for root, ask in enumerate(self._asks):
            if ask.pod >= 0:
                alike.setdefault(kind_of(ask), []).append(root)
        for roots in alike.values():
            asks = sorted(
                (self._asks[root] for root in roots),
                key=lambda ask: (float(created[ask.pod]), ask.pod),
            )
            for root, ask in zip(sorted(roots, key=lambda r: (complete[r], r)), asks, strict=True):
                self._ask_of[root] = ask
        last = {step.root: place for place, step in enumerate(self.steps)}
        for place, step in enumerate(self.steps):
            ask = self._ask_of[step.root]
            reason = f"makes room for {ask.text} on {self._node_of(step.root)}"
            if step.chosen.gang:
                number = sum(one.chosen.gang == step.chosen.gang for one in self.steps)
                gang = self._draft.snapshot.classes[step.chosen.cls].gang
                reason += f"; {count(number, 'pod')} of {gang} leave together"
            hard, soft, balance = step.chosen.gain
            # With the last of its moves an ask has its room.
            if ask.pod >= 0:
                soft += self._of.weight * (place == last[step.root])
            chosen = replace(
                step.chosen,
                makes_way_for=ask.pod,
                reason=reason,
                gain=(hard, soft, balance),
                unit=self._unit_of(ask, step.root),
            )
            self.steps[place] = replace(step, chosen=chosen)

    def _unit_of(self, ask: Ask, root: int) -> str:
        """Return the name of the unit of moves that make room for ``ask``.

        It is the gang of the request if it has one, else the uid of the waiting pod. For room without a pod it names the
        amount of room, and the node.
        """
        if (gang := gang_of(self._draft, ask)) is not None:
            return unit_of(gang)
        if ask.pod >= 0:
            return self._draft.snapshot.pods.uid[ask.pod]
        return f"{self._of.strategy}: {ask.text} on {self._node_of(root)}"

    def _at_once(self, items: Sequence[Item]) -> list[tuple[Item, ...]]:
        """Return ``items`` by what leaves at once, the largest first."""
        of_unit: dict[object, list[Item]] = {}
        most = np.maximum(1, self._draft.snapshot.nodes.allocatable.max(axis=1, initial=1))
        size = {item: float((item.requests / most).max(initial=0.0)) for item in items}
        for item in sorted(items, key=lambda item: (-size[item], item.pod)):
            of_unit.setdefault(self._gangs.unit_of(item.pod) or item.pod, []).append(item)
        return [tuple(of) for of in of_unit.values()]

    def _next(self, wave: int, why: Refusal, *, begun: bool) -> tuple[list[RoomStep], Refusal]:
        """Make the first moves that can be made now; if none can, return why the last one cannot. ``begun``: the wave has others."""
        result: list[RoomStep] | Refusal
        for of in self._left:
            if begun and self._gangs.unit_of(of[0].pod):
                continue
            result = self._step(of, wave)
            if isinstance(result, list):
                self._left.remove(of)
                return result, why
            why = result
        return [], why

    def _end_wave(self, wave: int) -> None:
        end_wave(self._draft)
        if wave == self._made.last_wave:
            self._open = set()
            for entry in self._made.entries:
                if entry.wave == wave:
                    enter(self._draft, entry.ask, entry.node)

    def _enter(self, wave: int) -> Refusal | None:
        """Place the asks; return why one of them has no room in the end."""
        draft = self._draft
        for item in self._waiting:
            ask = self._asks[item.root]
            node = self._targets[item.pod]
            if ask.pod >= 0 and ask.cls >= 0:
                taken = int(draft.state.node_of[ask.pod])
                nodes = (
                    draft.scheduler.predict(draft.state, ask.cls).nodes if taken < 0 else [taken]
                )
                if not len(nodes):
                    return Refusal.of(Why.ROOM_TAKEN)
                node = int(nodes[0])
            enter(draft, ask, node)
            self.entries.append(RoomEntry(ask, node, wave))
        return None

    def _step(self, of: Sequence[Item], wave: int) -> list[RoomStep] | Refusal:
        """Move pods that leave at once in the draft, one pod or those of a gang, or return why they cannot leave now."""
        pods, unit = [item.pod for item in of], self._gangs.unit_of(of[0].pod)
        exceeds = exceeds_limits if unit else exceeds_budgets
        landing = exceeds(self._draft, pods, self._of.strategy) or self._land(of)
        if not isinstance(landing, Refusal) and not unit:
            rival = self._find_rival(of[0], landing.predictions[0], wave)
            landing = landing if rival is None else Refusal.of(Why.RIVAL, pod=rival)
        if isinstance(landing, Refusal):
            who = unit or self._draft.snapshot.pod_ref(pods[0])
            return Refusal.of(Why.WOULD_LEAVE, who=who, why=landing)
        return self._make(of, landing, wave, unit)

    def _find_rival(self, item: Item, prediction: Prediction, wave: int) -> int | None:
        """Return a pod that moves in the same wave and may land where ``item`` would, if both have no room there; None if none may.

        In the state it is on another of its landings. Between waves moves are judged again, within one they are not.
        """
        for step in (*self._made.steps, *self.steps):
            others = step.prediction.nodes[step.prediction.probability > 1 - _SURE].tolist()
            if step.chosen.wave != wave or len(others) < 2:
                continue
            here = int(self._draft.state.node_of[step.chosen.pod])
            others = [node for node in others if node != here]
            shared = set(others) & set(prediction.nodes.tolist())
            full = any(not self._holds_both(item, step, node) for node in shared)
            if full or self._are_kept_apart(item, step, prediction.nodes, others):
                return step.chosen.pod
        return None

    def _are_kept_apart(
        self, item: Item, step: RoomStep, nodes: Int32s, others: Sequence[int]
    ) -> bool:
        """Return whether ``item`` on one of ``nodes`` and the pod of an earlier move on one of ``others`` exclude each other."""
        other = self._draft.snapshot.classes[step.chosen.cls].replacement
        for domains in self._draft.scheduler.filters_of(item.cls).keep_apart(item.cls, other):
            mine = domains[nodes]
            if np.isin(mine[mine != MISSING], domains[others]).any():
                return True
        return False

    def _holds_both(self, item: Item, step: RoomStep, node: int) -> bool:
        """Return whether a node has room for ``item`` and for the pod of an earlier move."""
        snapshot, state = self._draft.snapshot, self._draft.state
        both = item.requests + snapshot.requests[:, snapshot.classes[step.chosen.cls].replacement]
        free = snapshot.nodes.allocatable[:, node] - state.lasting[:, node]
        return bool((free[both > 0] >= both[both > 0]).all())

    def _make(
        self,
        of: Sequence[Item],
        landing: _Landing,
        wave: int,
        gang: str,
    ) -> list[RoomStep]:
        """Move items in the draft, each with the same gain; all moves of a ``gang`` are one unit with the other moves for one of the asks."""
        draft, pods, ask = self._draft, self._draft.snapshot.pods, self._asks[of[0].root]
        room, steps = tuple(sorted(self._open_without(of))), list[RoomStep]()
        for item, prediction in zip(of, landing.predictions, strict=True):
            chosen = Chosen(
                item.pod,
                int(pods.cls[item.pod]),
                item.source,
                landing.gain,
                prediction,
                self._of.strategy,
                f"makes room for {ask.text}",
                wave,
                self._of.observed,
                makes_way_for=ask.pod,
                marks=tuple(sorted(landing.marks)),
                room=room,
                gang=gang,
            )
            at = np.flatnonzero(prediction.nodes == self._targets[item.pod])
            lands, ready = int(at[0]) if len(at) else 0, pods.is_ready(item.pod)
            move(draft, chosen, prediction, lands, ready=ready)
            steps.append(RoomStep(chosen, prediction, lands, ready, of[0].root))
        return steps

    def _marks_of(self, of: Sequence[Item]) -> set[int]:
        """Return the nodes that are marked while the replacements of ``of`` are placed."""
        leave = {item.source for item in of if not _may_return(item)}
        return (self._open_without(of) | leave) - {self._targets[item.pod] for item in of}

    def _land(self, of: Sequence[Item]) -> _Landing | Refusal:
        """Return where pods that leave at once land; further nodes are marked where they would do harm, or take the place of others."""
        marks, targets = self._marks_of(of), {self._targets[item.pod] for item in of}
        refused: Refusal | None = None
        for _ in range(_TRIES):
            landing = self._judge_with(of, marks)
            bad = self._find_bad(of, landing)
            refused = refused or landing.refused
            if landing.refused is None and not bad:
                return landing
            more = (marks | bad) - targets
            if more == marks or not self._draft.settings.steer or len(more) > self._most_marks:
                break
            marks = more
        return refused or Refusal.of(Why.DISTURBS)

    def _judge_with(self, of: Sequence[Item], marks: set[int]) -> _Landing:
        """Return where pods land while these nodes are marked, or why they must not."""
        marked = np.array(sorted(marks), np.int32)
        if not self._gangs.unit_of(of[0].pod):
            with self._draft.scheduler.marking(marked):
                one = self._judge.harmless(of[0].pod, of[0].source)
            return _Landing((one.prediction,), one.gain, marks, one.refused)
        rules = TogetherRules(
            named=[item.pod for item in of if not _may_return(item)],
            marks=marked,
            wanted={item.pod: self._targets[item.pod] for item in of},
            feeds=True,
        )
        with Trial(self._draft.state) as trial:
            all_ = self._together.land_together(trial, [item.pod for item in of], rules)
        if isinstance(all_, Refusal):
            return _Landing((), (0.0, 0.0, 0.0), marks, all_)
        return _Landing(all_.predictions, all_.share, marks)

    def _node_of(self, root: int) -> str:
        item = next(one for one in self._waiting if one.root == root)
        return self._draft.snapshot.nodes.names[self._targets[item.pod]]

    def _open_without(self, items: Sequence[Item]) -> set[int]:
        """Return the nodes that are being made free, and still wait for what they are meant for, once ``items`` have landed."""
        waiting = self._others(items)
        return self._open | (self._sources & {self._targets[one.pod] for one in waiting})

    def _others(self, items: Sequence[Item]) -> list[Item]:
        """Return what is left to be placed beside ``items``."""
        here = {item.pod for item in items}
        left = [item for of in self._left for item in of if item.pod not in here]
        return left + self._waiting

    def _find_bad(self, of: Sequence[Item], landing: _Landing) -> set[int]:
        """Return the nodes where pods may land and do harm, or that others need, if that is not rare."""
        targets = {self._targets[item.pod] for item in of}
        if landing.refused is not None:
            return {node for one in landing.predictions for node in one.nodes.tolist()} - targets
        others = {self._targets[one.pod] for one in self._others(of)}
        comes: dict[int, list[Item]] = {}
        """Node that others need -> the pods that may land there."""
        for item, prediction in zip(of, landing.predictions, strict=True):
            for node in set(prediction.nodes.tolist()) & (others - targets):
                comes.setdefault(node, []).append(item)
        bad = {node for node, items in comes.items() if not self._has_spare(items, node)}
        shares = [
            float(one.probability[np.isin(one.nodes, sorted(bad))].sum())
            for one in landing.predictions
        ]
        return bad if max(shares) > 1 - _SURE else set()

    def _has_spare(self, items: Sequence[Item], node: int) -> bool:
        """Return whether a node has room for everything that is planned for it beside ``items``."""
        nodes, state = self._draft.snapshot.nodes, self._draft.state
        left = [one for of in self._left for one in of]
        meant = [one for one in [*left, *self._waiting] if self._targets[one.pod] == node]
        going = [one for one in left if one.source == node]
        requests = self._draft.snapshot.requests
        free = nodes.allocatable[:, node] - state.lasting[:, node]
        for one in (*items, *meant):
            free = free - one.requests
        for one in going:
            free = free + requests[:, self._draft.snapshot.pods.cls[one.pod]]
        asked = np.any([item.requests > 0 for item in items], axis=0)
        return bool((free[asked] >= 0).all())


def _may_return(item: Item) -> bool:
    """Return whether a pod leaves only because others of its gang do."""
    return bool(item.nodes[item.source])
