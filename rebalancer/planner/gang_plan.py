"""Gangs move as one unit: their pods leave in one wave, and only if every one of them has a landing.

A plan moves a gang for a hard rule, such as a node that must be empty, or in order to empty a node. It then moves all of
its pods, also those on other nodes, unless enough pods remain. The pods of a rollout are replaced in turn,
each once another is Ready.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np

from rebalancer.base.plain_text import count
from rebalancer.cost.guards import guard_term
from rebalancer.cost.term import Entry
from rebalancer.plan.plan import Move
from rebalancer.planner.draft import Draft
from rebalancer.planner.gangs import (
    BACK,
    exceeds_budgets,
    exceeds_disruptions,
    going,
    is_unit,
    method_of,
    unit_of,
    why_fails,
    why_moved,
    why_unfit,
)
from rebalancer.planner.judge import Judge
from rebalancer.planner.problem import Pair, WeightedTerm
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.rendering import Chosen
from rebalancer.planner.together import TogetherJudge, TogetherLanding, TogetherRules, share_on
from rebalancer.planner.trial import Trial
from rebalancer.planner.verdict import TOLERANCE, Verdict
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.columns import Int32s
from rebalancer.snapshot.model import GangKey


@dataclass(frozen=True, slots=True)
class GangMove:
    """The move of a gang: its pods that move, their landings, and the gain."""

    pods: tuple[int, ...]
    """The pods in the order of their evictions: those that the rule names first."""
    landings: tuple[Prediction, ...]
    share: tuple[float, float, float]
    """The gain of each pod, per entry; positive is better."""
    strategy: str
    """The strategy with the largest share in it."""
    named: frozenset[int] = frozenset()
    """The pods that the rule names."""


class GangPlan:
    """Plans the moves of gangs that certain terms request."""

    def __init__(
        self, draft: Draft, terms: Sequence[WeightedTerm], *, observed: bool = False
    ) -> None:
        self._draft, self._observed = draft, observed
        self._all = terms

    # What follows is made for clusters with gangs only.

    @cached_property
    def _asking(self) -> list[WeightedTerm]:
        """The terms for which gangs move: hard rules, and nodes that are emptied."""
        return [
            one
            for one in self._all
            if one.term.entry is Entry.HARD or one.term.packed() is not None
        ]

    @cached_property
    def _together(self) -> TogetherJudge:
        """Judges by these terms and those of soft rules."""
        draft, asking = self._draft, {id(one) for one in self._asking}
        terms = [one for one in self._all if id(one) in asking or one.term.entry is Entry.SOFT]
        guard = guard_term(draft.view)
        judge = Judge(draft.view, self._all, guard, draft.settings.threshold)
        return TogetherJudge(draft, judge, terms, guard)

    def run(self, first_wave: int) -> list[Chosen]:
        """Move in the draft the gangs that rules name, each in its own wave; record in the draft why other gangs are not moved."""
        chosen: list[Chosen] = []
        wave = first_wave
        for gang, named in self._find_named().items():
            move = self.move_of(gang, named)
            if isinstance(move, Refusal):
                self._draft.gangs_that_stay[gang] = move
                continue
            chosen += self._make(gang, move, wave)
            wave += 1
            self._draft.state.reap()
            self._draft.allowance.next_wave()
        return chosen

    def move_of(
        self, gang: GangKey, named: Collection[int] | None = None, *, now: bool = True
    ) -> GangMove | Refusal:
        """Return how a gang moves, or why it is not moved. ``now``: only within what the budgets allow now.

        ``named``: its pods that must leave their nodes because of rules; None: they are determined here.
        """
        if named is None:
            members = self._draft.snapshot.gangs[gang]
            classes = np.unique(self._draft.snapshot.pods.cls[members])
            named = self._among(members, self._pairs(classes))
        pods = going(self._draft.snapshot, gang, named)
        why = why_unfit(self._draft, gang) or why_moved(self._draft, pods)
        why = why or why_fails(self._draft.snapshot, pods)
        if why is None and now:
            why = exceeds_disruptions(self._draft, pods)
        move = why or self._move(pods, named)
        if isinstance(move, Refusal):
            return move
        why = self._unselected_pod(move)
        if why is None and now:
            why = exceeds_budgets(self._draft, move.pods, move.strategy)
        return why or move

    # -- which gangs, and which of their pods -----------------------------------------------------------

    def _find_named(self) -> dict[GangKey, list[int]]:
        """Return gang that moves as a unit -> its pods that rules ask to move; gangs with most such pods first."""
        snapshot = self._draft.snapshot
        units = [gang for gang in snapshot.gangs if is_unit(self._draft, gang)]
        if not units:
            return {}
        classes = np.unique(
            snapshot.pods.cls[np.concatenate([snapshot.gangs[gang] for gang in units])]
        )
        pairs = self._pairs(classes)
        named = {gang: self._among(snapshot.gangs[gang], pairs) for gang in units}
        named = {gang: pods for gang, pods in named.items() if pods}
        return dict(sorted(named.items(), key=lambda item: (-len(item[1]), item[0])))

    def _pairs(self, classes: Int32s) -> set[Pair]:
        """Return the pairs of ``classes`` that hard rules ask to move: no gang is interrupted for less."""
        rows = (one.selected_rows(one.term.candidates(classes)) for one in self._asking)
        return {pair for of in rows for pair in zip(of.cls.tolist(), of.node.tolist(), strict=True)}

    def _among(self, pods: Int32s, pairs: Collection[Pair]) -> list[int]:
        columns = self._draft.snapshot.pods
        return [
            pod for pod in pods.tolist() if (int(columns.cls[pod]), int(columns.node[pod])) in pairs
        ]

    def _unselected_pod(self, move: GangMove) -> Refusal | None:
        """Return which of the pods the strategy of the move must not move; None if it may move all."""
        snapshot, problem = self._draft.snapshot, self._draft.problem
        for pod in move.pods:
            pair = int(snapshot.pods.cls[pod]), int(snapshot.pods.node[pod])
            if not problem.may_move(move.strategy, *pair):
                return Refusal.of(Why.SELECT_WITHOUT_POD, strategy=move.strategy, pod=pod)
        return None

    # -- where they land --------------------------------------------------------------------------------

    def _move(self, pods: Sequence[int], named: Collection[int]) -> GangMove | Refusal:
        """Return the move with a landing for each of ``pods``, or why there is none that pays.

        A pod that a rule names may land on its own node again if that is as good, as where the rule is about the gang as a
        whole, such as its spread over zones.
        """
        rules = TogetherRules(named=named, for_gain=True)
        landing = self._land(pods, rules)
        if isinstance(landing, Refusal):
            return landing
        move = self._pay(pods, named, landing)
        if isinstance(move, Refusal):
            return move
        home = self._draft.snapshot.pods.node
        for pod, prediction in zip(pods, landing.predictions, strict=True):
            if pod in move.named and share_on(prediction, int(home[pod])) > BACK:
                other = self._land(pods, replace(rules, stays=pod))
                if isinstance(other, Refusal) or any(
                    gain < best - TOLERANCE
                    for gain, best in zip(other.gain, landing.gain, strict=True)
                ):
                    return Refusal.of(Why.OF_POD, pod=pod, why=Refusal.of(Why.OFTEN_BACK))
        return move

    def _land(self, pods: Sequence[int], rules: TogetherRules) -> TogetherLanding | Refusal:
        with Trial(self._draft.state) as trial:
            return self._together.land_together(trial, pods, rules)

    def _pay(
        self, pods: Sequence[int], named: Collection[int], landing: TogetherLanding
    ) -> GangMove | Refusal:
        """Return the move, or why it does not pay."""
        if max(landing.gain[0], landing.gain[2]) <= TOLERANCE:
            return Refusal.of(Why.GANG_GAINS_NOTHING)
        cost = float(self._draft.problem.costs[list(pods)].sum())
        strategy = landing.pay(cost, self._draft.settings.threshold)
        if isinstance(strategy, Refusal):
            return strategy
        return GangMove(tuple(pods), landing.predictions, landing.share, strategy, frozenset(named))

    # -- make -------------------------------------------------------------------------------------------

    def _make(self, gang: GangKey, move: GangMove, wave: int) -> Iterator[Chosen]:
        """Make the moves of a gang in the draft, and yield them; each has an equal share in the gain."""
        draft, snapshot = self._draft, self._draft.snapshot
        reasons = self._reasons(gang, move)
        for pod, prediction, reason in zip(move.pods, move.landings, reasons, strict=True):
            cls, node = int(snapshot.pods.cls[pod]), int(snapshot.pods.node[pod])
            draft.move(pod, cls, prediction)
            ready = snapshot.pods.is_ready(pod)
            draft.allowance.spend(cls, node, move.strategy, ready=ready)
            yield Chosen(
                pod,
                cls,
                node,
                move.share,
                prediction,
                move.strategy,
                reason,
                wave,
                self._observed,
                unit=unit_of(gang),
                gang=unit_of(gang),
            )

    def _reasons(self, gang: GangKey, move: GangMove) -> list[str]:
        """Return the reason of each move; called before the first of them is made."""
        pods = self._draft.snapshot.pods
        how = "in turn" if self._draft.snapshot.surge_of(move.pods) else "together"
        whole = f"{count(len(move.pods), 'pod')} of {gang[1]} leave {how}"
        reasons = []
        for pod in move.pods:
            pair = int(pods.cls[pod]), int(pods.node[pod])
            terms = self._together.terms if pod in move.named else ()
            texts = (one.term.describe(*pair) for one in terms)
            with_first = f"goes with {self._draft.snapshot.pod_ref(move.pods[0])}"
            reasons.append(f"{next(filter(None, texts), with_first)}; {whole}")
        return reasons


class PlannedUnits:
    """The moves of gangs in a plan that is judged again, all moves of one gang together."""

    def __init__(self, draft: Draft, moves: Sequence[Move]) -> None:
        self._draft = draft
        self.moves: dict[str, list[Move]] = {}
        """Gang -> the moves of its pods."""
        self._torn: set[str] = set()
        """Gangs with moves in two waves, or with others between them."""
        for (unit, _), together in groupby(moves, key=lambda move: (move.gang, move.wave)):
            if unit in self.moves:
                self._torn.add(unit)
            if unit:
                self.moves.setdefault(unit, []).extend(together)

    def gang_of(self, unit: str) -> GangKey | Refusal:
        """Return the gang with this name, or why it no longer matches the plan."""
        snapshot = self._draft.snapshot
        gang = next((gang for gang in snapshot.gangs if unit_of(gang) == unit), None)
        if gang is None:
            return Refusal.of(Why.GONE, who="it")
        if not is_unit(self._draft, gang):
            return Refusal.of(Why.NOT_KEPT_TOGETHER)
        if unit in self._torn:
            return Refusal.of(Why.TORN)
        how = method_of(snapshot, snapshot.gangs[gang])
        if other := next((one.method for one in self.moves[unit] if one.method is not how), None):
            return Refusal.of(Why.OTHER_METHOD, planned=other, now=how)
        return gang

    def check_pods(self, unit: str, pods: Sequence[int]) -> Refusal | None:
        """Return a refusal if other pods than ``pods`` would be moved; else None."""
        uids = {self._draft.snapshot.pods.uid[pod] for pod in pods}
        same = uids == {one.uid for one in self.moves[unit]}
        return None if same else Refusal.of(Why.OTHER_PODS)


class GangCheck:
    """Judges the moves of gangs again on a newer snapshot, but those that make room for others."""

    def __init__(self, draft: Draft, moves: Sequence[Move]) -> None:
        self._draft = draft
        self._units = PlannedUnits(draft, [move for move in moves if move.room is None])

    def judge(self, unit: str, *, now: bool) -> Mapping[str, Verdict] | Refusal:
        """Return uid -> verdict of the moves of a gang, or why it must not move. ``now``: see :meth:`GangPlan.move_of`."""
        gang = self._units.gang_of(unit)
        if isinstance(gang, Refusal):
            return gang
        move = GangPlan(self._draft, self._draft.enforced).move_of(gang, now=now)
        if isinstance(move, Refusal):
            return move
        if (why := self._units.check_pods(unit, move.pods)) is not None:
            return why
        uids = [self._draft.snapshot.pods.uid[pod] for pod in move.pods]
        shares = {move.strategy: max(move.share)}
        return {
            uid: Verdict(landing, move.share, move.share, shares, None)
            for uid, landing in zip(uids, move.landings, strict=True)
        }
