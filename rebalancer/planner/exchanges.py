"""Exchanges: two pods that can only move if they take each other's place.

On full nodes no single move lands, though a hard rule keeps a pod from its own node: its replacement would wait for ever. So
both go, one after the other, in one wave. The first one goes, and its replacement must find no node, not even the one it left. Its
room lets the second one land there; and the room of that lets the first one's replacement in. What is not kept from its own node
would go back as soon as it is gone: a mark is a preference, and the only node with room wins against it. Of the second
one alone a mark may decide where it lands. Work is counted in judgements, not in seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.cost.guards import Guard
from rebalancer.plan.plan import Code, Move
from rebalancer.planner.candidates import CandidateRows, Promise
from rebalancer.planner.commit import Commit, Wave
from rebalancer.planner.draft import Draft
from rebalancer.planner.effects import signs
from rebalancer.planner.effort import Effort
from rebalancer.planner.examination import Examination
from rebalancer.planner.gangs import BACK, exceeds_limits
from rebalancer.planner.judge import Judge
from rebalancer.planner.problem import Pair, WeightedTerm
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.rendering import Chosen
from rebalancer.planner.together import TogetherJudge, TogetherLanding, TogetherRules, back_share
from rebalancer.planner.trial import Trial
from rebalancer.planner.verdict import TOLERANCE, Verdict
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.columns import Bools, Floats, Int32s

# Least probability with which each of the two lands where the other leaves room.
_CERTAIN = 0.75
_NO_MARKS = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class Exchange:
    """Two pods that change places, in the order of their evictions."""

    first: int
    """The pod that no node would take while the other stays."""
    second: int
    landing: TogetherLanding
    """Of both, in this order."""
    strategy: str
    """The strategy with the largest share in the gain."""
    marks: tuple[int, ...]
    """Nodes that are marked until both have landed: the second one would go back otherwise."""


class ExchangeJudge:
    """Judges exchanges in the state of a draft, which it leaves unchanged."""

    def __init__(
        self, draft: Draft, terms: Sequence[WeightedTerm], judge: Judge, guard: Guard
    ) -> None:
        self._draft, self._terms = draft, terms
        self._together = TogetherJudge(draft, judge, terms, guard)

    def judge(self, first: int, second: int) -> Exchange | Refusal:
        """Return how two pods change places, or why they do not."""
        marks, home = _NO_MARKS, int(self._draft.state.node_of[second])
        foreseen = self._foresee(first, second, marks)
        if isinstance(foreseen, Refusal):
            return foreseen
        if self._draft.settings.steer and not _lands(foreseen[0], home):
            marks = np.array([home], np.int32)
            foreseen = self._foresee(first, second, marks)
        if isinstance(foreseen, Refusal):
            return foreseen
        rules = TogetherRules(for_gain=True, marks=marks)
        with Trial(self._draft.state) as trial:
            together = self._together.land_together(trial, (first, second), rules)
        if isinstance(together, Refusal):
            return together
        for pod, before, landing in zip(
            (second, first), foreseen, reversed(together.predictions), strict=True
        ):
            if not (
                _lands(landing, int(self._draft.state.node_of[pod])) and _agree(before, landing)
            ):
                return Refusal.of(Why.MAY_MISS, pod=pod, landing=landing)
        return self._pay(first, second, together, tuple(marks.tolist()))

    def _foresee(
        self, first: int, second: int, marks: Int32s
    ) -> tuple[Prediction, Prediction] | Refusal:
        """Return where the second pod and the first one land, with these marks, each before the other; or why they must not go.

        The second one may be scheduled while it still terminates, or once it is gone: where that matters, it lands nowhere.
        """
        draft, state = self._draft, self._draft.state
        classes, cls_of = draft.snapshot.classes, state.cls_of
        fed_anyway = {one.pod for one in draft.scheduler.pending.takers(state)}
        of_first, of_second = (classes[int(cls_of[pod])].replacement for pod in (first, second))
        with (
            Trial(state) as trial,
            draft.scheduler.marking(marks) if len(marks) else nullcontext(),
        ):
            trial.evict(first, gone=True)
            waiting = draft.scheduler.predict(state, of_first)
            if len(waiting.nodes) or waiting.unmodelled:
                return Refusal.of(Why.LANDS_BEFORE, pod=first)
            trial.evict(second, gone=False)
            early = draft.scheduler.predict(state, of_second)
            trial.hide()
            late = draft.scheduler.predict(state, of_second)
            waits = draft.snapshot.waits(int(cls_of[second]))
            then = draft.scheduler.predict(state, of_first)
            for taker in draft.scheduler.pending.takers(state):
                if taker.pod not in fed_anyway:
                    return Refusal.of(Why.FEEDS_OTHERS, pod=taker.pod)
        if not waits and len(early.nodes) and not _agree(early, late):
            late = replace(late, nodes=late.nodes[:0], probability=late.probability[:0])
        return late, then

    def _pay(
        self, first: int, second: int, landing: TogetherLanding, marks: tuple[int, ...]
    ) -> Exchange | Refusal:
        """Return the exchange, or why it does not pay."""
        cost = float(self._draft.problem.costs[[first, second]].sum())
        strategy = landing.pay(cost, self._draft.settings.threshold)
        if isinstance(strategy, Refusal):
            return strategy
        if max(landing.gain[:2]) <= TOLERANCE:
            return Refusal.of(Why.GANG_GAINS_NOTHING)
        for pod in (first, second):
            pair = place_of(self._draft, pod)
            of_strategy = (one for one in self._terms if one.strategy == strategy)
            if not any(one.may_move(*pair) for one in of_strategy):
                return Refusal.of(Why.SELECT_WITHOUT_POD, strategy=strategy, pod=pod)
        return Exchange(first, second, landing, strategy, marks)


def _lands(landing: Prediction, home: int) -> bool:
    """Return whether a replacement has a node that is likely enough, and does not come back."""
    if landing.unmodelled or not len(landing.nodes) or back_share(landing, home) > BACK:
        return False
    return float(landing.probability[0]) >= _CERTAIN


def _agree(one: Prediction, other: Prediction) -> bool:
    """Return whether two predictions have the same most probable node."""
    return bool(len(one.nodes) and len(other.nodes) and one.nodes[0] == other.nodes[0])


def place_of(draft: Draft, pod: int) -> Pair:
    """Return (class, node) of a pod of the snapshot."""
    return int(draft.snapshot.pods.cls[pod]), int(draft.snapshot.pods.node[pod])


def unit_of(draft: Draft, first: int, second: int) -> str:
    """Return the name of an exchange for ``Move.unit``."""
    return f"exchange of {draft.snapshot.pod_ref(first)} and {draft.snapshot.pod_ref(second)}"


class ExchangeWaves:
    """Looks for exchanges once no other move is left, and makes them, each in a wave of its own."""

    def __init__(
        self,
        draft: Draft,
        judge: ExchangeJudge,
        candidates: CandidateRows,
        examination: Examination,
        commit: Commit,
        effort: Effort,
    ) -> None:
        self._draft, self._judge, self._candidates = draft, judge, candidates
        self._examination, self._commit, self._effort = examination, commit, effort
        self._left = effort.exchanges
        self._in_vain: set[int] = set()
        """Pods that had no partner; asked again once an exchange is made."""

    def wave(self, wave: Wave) -> list[Chosen]:
        """Return the moves of the best exchange; none if there is none."""
        stuck = self._stuck()
        codes = {self._code(pair) for pair in stuck}
        for pair in stuck:
            promise = self._candidates.promise(pair)
            if promise is None or promise.pod in self._in_vain:
                continue
            if (exchange := self._exchange(promise, codes, wave)) is not None:
                self._in_vain.clear()
                return self._make(exchange, wave)
            self._in_vain.add(promise.pod)
            if self._left <= 0:
                break
        return []

    def _stuck(self) -> list[Pair]:
        """Return the pairs that violate a rule, and whose replacements no node takes; largest gain first."""
        refusals = self._examination.refusals.items()
        return self._candidates.ranked(
            [pair for pair, why in refusals if why.refusal.code is Code.NO_ROOM]
        )

    def _code(self, pair: Pair) -> int:
        return pair[0] * len(self._draft.snapshot.nodes) + pair[1]

    def _exchange(self, promise: Promise, stuck: Collection[int], wave: Wave) -> Exchange | None:
        """Return an exchange of the pod of a promise; None if there is none, or none is looked for any more."""
        first, strategy = promise.pod, promise.strategy
        self._left -= 1
        may_go = self._examination.may_go_first
        if not may_go(strategy, wave, *place_of(self._draft, first)):
            return None
        tries = min(self._effort.exchange, self._left)
        for second in Partners(self._draft, self._examination.judge, stuck).of(first):
            if tries <= 0:
                break
            if not may_go(strategy, wave, *place_of(self._draft, second)):
                continue
            tries -= 1
            self._left -= 1
            exchange = self._judge.judge(first, second)
            if isinstance(exchange, Refusal):
                continue
            if exceeds_limits(self._draft, (first, second), exchange.strategy) is None:
                return exchange
        return None

    def _make(self, exchange: Exchange, wave: Wave) -> list[Chosen]:
        pods = exchange.first, exchange.second
        pairs = [place_of(self._draft, pod) for pod in pods]
        reasons = [
            self._reason(exchange, pod, other, pair)
            for pod, other, pair in zip(pods, pods[::-1], pairs, strict=True)
        ]
        verdicts = verdicts_of(exchange)
        made = [
            self._commit.exchanged(verdict, pod, other, pair, reason, wave)
            for verdict, pod, other, pair, reason in zip(
                verdicts, pods, pods[::-1], pairs, reasons, strict=True
            )
        ]
        unit = unit_of(self._draft, *pods)
        for pair, verdict in zip(pairs, verdicts, strict=True):
            self._candidates.move(pair[0], (pair[1], int(verdict.prediction.nodes[0])))
            self._examination.refusals.pop(pair, None)
        return [replace(one, unit=unit, gang=unit) for one in made]

    def _reason(self, exchange: Exchange, pod: int, other: int, pair: Pair) -> str:
        """Return the reason of one of the two moves; asked before the first of them is made."""
        what = f"changes places with {self._draft.snapshot.pod_ref(other)}"
        promise = self._candidates.promise(pair)
        if pod != exchange.first and (promise is None or not promise.for_rules):
            return what
        strategy = exchange.strategy if promise is None else promise.strategy
        return f"{what}: {self._commit.reason(strategy, pair)}"


class Partners:
    """The pods whose places another one could take, and which could take its place; by room and rules, before any is judged."""

    def __init__(self, draft: Draft, judge: Judge, stuck: Collection[int]) -> None:
        """``stuck``: codes of the pairs that violate a rule and have no landing themselves."""
        self._draft, self._judge, self._stuck = draft, judge, stuck

    def of(self, first: int) -> Iterator[int]:
        """Yield the partners of a pod, one of each class and node: first those that have to go themselves."""
        draft, pods = self._draft, self._draft.snapshot.pods
        home, gain = int(pods.node[first]), self._gains(first)
        others = draft.state.unmoved()
        others = others[draft.view.movable[others] & self._alone()[pods.cls[others]]]
        others = others[gain[pods.node[others]] < 0]
        others = others[self._fits(first, others)]
        codes = pods.cls[others].astype(np.int64) * len(draft.snapshot.nodes) + pods.node[others]
        stays = ~np.isin(codes, list(self._stuck))
        keys = draft.view.rank_equals()[others], draft.problem.costs[others]
        order = np.lexsort((*keys, gain[pods.node[others]], stays))
        seen: set[int] = set()
        for at in order.tolist():
            second = int(others[at])
            if codes[at] in seen or not self._may_take(second, home):
                continue
            seen.add(int(codes[at]))
            yield second

    def _alone(self) -> Bools:
        """Return the classes (C,) whose pods are evicted each by itself."""
        classes = self._draft.snapshot.classes
        return np.array([not (of.gang or of.restarts) for of in classes], bool)

    def _gains(self, first: int) -> Floats:
        """Return per node (N,) below 0 where the rules get better with the pod on it, the lower the more; else 0 or more."""
        draft, cls = self._draft, int(self._draft.state.cls_of[first])
        replacement = draft.snapshot.classes[cls].replacement
        nodes = np.flatnonzero(draft.scheduler.static_mask(replacement)).astype(np.int32)
        home = int(draft.state.node_of[first])
        nodes = nodes[nodes != home]
        changes = self._judge.effects.on_nodes(first, home, nodes)[:2]
        # Hard rules before soft ones.
        each, rank = np.unique(np.round(changes, 9), axis=1, return_inverse=True)
        gain = np.zeros(len(draft.snapshot.nodes))
        gain[nodes] = np.where(signs(changes) < 0, np.ravel(rank) - each.shape[1], 0)
        return gain

    def _fits(self, first: int, others: Int32s) -> Bools:
        """Return which of ``others`` (K,) have room on the node of ``first`` once it is gone, and leave it theirs."""
        snapshot, state = self._draft.snapshot, self._draft.state
        free = snapshot.nodes.allocatable - state.lasting
        replaced = np.array([of.replacement for of in snapshot.classes], np.int64)
        own, theirs = int(snapshot.pods.cls[first]), snapshot.pods.cls[others]
        home, nodes = int(snapshot.pods.node[first]), snapshot.pods.node[others]
        asked = snapshot.requests[:, replaced[own], None]
        left = free[:, nodes] + snapshot.requests[:, theirs]
        here = free[:, home, None] + snapshot.requests[:, own, None]
        needed = snapshot.requests[:, replaced[theirs]]
        fits = ((asked == 0) | (left >= asked)) & ((needed == 0) | (here >= needed))
        owner = np.array([of.owner for of in snapshot.classes], np.int64)
        result: Bools = fits.all(axis=0) & (owner[theirs] != owner[own])
        return result

    def _may_take(self, second: int, node: int) -> bool:
        """Return whether no hard rule that holds keeps a pod off ``node``."""
        draft, cls = self._draft, int(self._draft.state.cls_of[second])
        if not draft.scheduler.static_mask(draft.snapshot.classes[cls].replacement)[node]:
            return False
        there = np.array([node], np.int32)
        changes = self._judge.effects.on_nodes(second, int(draft.state.node_of[second]), there)
        return bool(np.isfinite(changes[0, 0]))


def verdicts_of(exchange: Exchange) -> tuple[Verdict, Verdict]:
    """Return the verdicts on the two moves: each has an equal share in the gain."""
    share = exchange.landing.share
    shares = {exchange.strategy: max(share)}
    first, second = (
        Verdict(landing, share, share, shares, None, marks=exchange.marks)
        for landing in exchange.landing.predictions
    )
    return first, second


class ExchangeCheck:
    """Judges the exchanges of a plan again on a newer snapshot."""

    def __init__(
        self, draft: Draft, judge: ExchangeJudge, moves: Sequence[Move], rows: Mapping[str, int]
    ) -> None:
        """``rows``: uid -> pod of the snapshot."""
        self._draft, self._judge, self._rows = draft, judge, rows
        self._moves: dict[str, list[Move]] = {}
        for move in moves:
            if move.exchanges:
                self._moves.setdefault(move.gang, []).append(move)
        self._known: dict[str, Mapping[str, Verdict] | Refusal] = {}

    def verdict(self, move: Move, *, now: bool) -> Verdict | Refusal:
        """Return the verdict on a move of an exchange, or why it must not be made; ``now``: within what budgets allow now."""
        unit = move.gang
        if unit not in self._known:
            known = self._judge_again(self._moves[unit], now=now)
            self._known[unit] = (
                Refusal.of(Why.UNIT_STAYS, unit=unit, why=known)
                if isinstance(known, Refusal)
                else known
            )
        judged = self._known[unit]
        return judged if isinstance(judged, Refusal) else judged[move.uid]

    def _judge_again(self, moves: Sequence[Move], *, now: bool) -> Mapping[str, Verdict] | Refusal:
        if len(moves) != 2 or {one.makes_way_for for one in moves} != {one.uid for one in moves}:  # a pair
            return Refusal.of(Why.TORN)
        if (why := next(filter(None, map(self._why_stays, moves)), None)) is not None:
            return why
        first, second = (self._rows[move.uid] for move in moves)
        exchange = self._judge.judge(first, second)
        if isinstance(exchange, Refusal):
            return exchange
        if now and (limit := exceeds_limits(self._draft, (first, second), exchange.strategy)):
            return limit
        return dict(zip([move.uid for move in moves], verdicts_of(exchange), strict=True))

    def _why_stays(self, move: Move) -> Refusal | None:
        """Return why the pod of one of the two moves stays; None if nothing keeps it."""
        draft, pod = self._draft, self._rows.get(move.uid)
        if pod is None:
            return Refusal.of(Why.GONE, who=move.ref)
        if protections := draft.protections(pod):
            return Refusal.of(Why.PROTECTED_NOW, who=move.ref, names=protections)
        node = int(draft.state.node_of[pod])
        if node < 0 or draft.snapshot.nodes.names[node] != move.node:
            return Refusal.of(Why.FROM_NODE)
        return None if draft.view.movable[pod] else Refusal.of(Why.NOT_SELECTED_NOW)
