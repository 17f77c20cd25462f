"""Exchanges: two pods that can only move by swapping their nodes; or one pod and two smaller ones of another node.

On full nodes no single move lands, even if a hard rule forbids a pod on its own node: its replacement would stay pending.
So all pods of an exchange are evicted in one wave, one after the other. The first pod's replacement must fit on no node,
not even on the one that it left. The others land in the room that it left; then its replacement lands in theirs. A first pod
that its own node accepts would return there at once: a mark is only a preference, and the only node with room wins
against it. Only for the others a mark may decide where they land. Work is counted in judgements, not in seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, islice

import numpy as np

from rebalancer.cost.guards import Guard
from rebalancer.plan.plan import Code, Move
from rebalancer.planner.candidates import CandidateRows, Promise
from rebalancer.planner.chains import MayGo
from rebalancer.planner.commit import Commit, Wave
from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.examination import Examination
from rebalancer.planner.gangs import BACK, exceeds_limits
from rebalancer.planner.judge import Judge, signs
from rebalancer.planner.problem import Pair, WeightedTerm
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.rendering import Chosen
from rebalancer.planner.together import TogetherJudge, TogetherLanding, TogetherRules, share_on
from rebalancer.planner.trial import Trial
from rebalancer.planner.verdict import TOLERANCE, Verdict
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.columns import Bools, Floats, Int32s, Ints

# Least probability with which each of them lands where another leaves room.
_CERTAIN = 0.75
# To look through so many pods takes about as long as one judgement.
_PODS_OF_JUDGEMENT = 10_000
# So many pods of a node are tried two by two.
_PAIRED = 6
_NO_MARKS = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class Exchange:
    """Pods that change places, in the order of their evictions."""

    pods: tuple[int, ...]
    """The first pod fits on no node before the others leave; these are on one node."""
    landing: TogetherLanding
    """Where all of them land, in this order."""
    strategy: str
    """The strategy with the largest share in the gain."""
    marks: tuple[int, ...]
    """Nodes that are marked until all pods have landed: the others would return otherwise."""


class ExchangeJudge:
    """Judges exchanges in the state of a draft, which it leaves unchanged."""

    def __init__(
        self, draft: Draft, terms: Sequence[WeightedTerm], judge: Judge, guard: Guard
    ) -> None:
        self._draft, self._terms = draft, terms
        self._together = TogetherJudge(draft, judge, terms, guard)

    def judge(self, first: int, others: Sequence[int]) -> Exchange | Refusal:
        """Return how a pod changes places with ``others``, which are on one node, or why it does not."""
        pods, marks = (first, *others), _NO_MARKS
        foreseen = self._foresee(pods, marks)
        if self._draft.settings.steer and not isinstance(foreseen, list):
            marks = self._draft.state.node_of[[others[0]]]
            foreseen = self._foresee(pods, marks)
        if isinstance(foreseen, Refusal):
            return foreseen
        rules = TogetherRules(for_gain=True, marks=marks)
        with Trial(self._draft.state) as trial:
            together = self._together.land_together(trial, pods, rules)
        if isinstance(together, Refusal):
            return together
        for pod, node, landing in zip(pods, foreseen, together.predictions, strict=True):
            if self._lands(pod, landing) != node:
                return Refusal.of(Why.MAY_MISS, pod=pod, landing=landing)
        return self._pay(pods, together, tuple(marks.tolist()))

    def _foresee(self, pods: Sequence[int], marks: Int32s) -> list[int] | Refusal:
        """Return where each pod lands with these marks if the first one waits until all others have left; or why it does not.

        Each of the others may be scheduled while it still terminates, or once it is gone, and before the first one or after it.
        """
        draft, state = self._draft, self._draft.state
        first, *others = pods
        fed_anyway = {one.pod for one in draft.scheduler.pending.takers(state)}
        nodes: list[int] = []
        with (
            Trial(state) as trial,
            draft.scheduler.marking(marks) if len(marks) else nullcontext(),
        ):
            trial.evict(first, gone=True)
            for pod in others:
                waiting = self._predict(first)
                if len(waiting.nodes) or waiting.unmodelled:
                    return Refusal.of(Why.LANDS_BEFORE, pod=first)
                trial.evict(pod, gone=False)
                early = self._predict(pod)
                trial.hide()
                for taker in draft.scheduler.pending.takers(state):
                    if taker.pod not in fed_anyway:
                        return Refusal.of(Why.FEEDS_OTHERS, pod=taker.pod)
                late, then = self._predict(pod), self._predict(first)
                if (node := self._lands_either(pod, early, late)) < 0:
                    return Refusal.of(Why.MAY_MISS, pod=pod, landing=late)
                trial.place(pod, node)
                nodes.append(node)
        if (node := self._lands(first, then)) < 0:
            return Refusal.of(Why.MAY_MISS, pod=first, landing=then)
        return [node, *nodes]

    def _predict(self, pod: int) -> Prediction:
        snapshot = self._draft.snapshot
        replacement = snapshot.classes[int(snapshot.pods.cls[pod])].replacement
        return self._draft.scheduler.predict(self._draft.state, replacement)

    def _lands_either(self, pod: int, early: Prediction, late: Prediction) -> int:
        """Return where a replacement is likely enough to land, ``early`` (its victim still occupies its room) or ``late``; or -1.

        Both are possible, so that their mean counts: late, a tie with its own node is enough, but not if its own node scores higher.
        """
        if not len(early.nodes) or self._draft.snapshot.waits(int(self._draft.state.cls_of[pod])):
            return self._lands(pod, late)
        node = self._lands(pod, early)
        likely = (share_on(early, node) + share_on(late, node)) / 2
        return node if likely >= _CERTAIN and not late.unmodelled else -1

    def _lands(self, pod: int, landing: Prediction) -> int:
        """Return the node where a replacement is likely enough to land, and does not come back; -1 if there is none."""
        home = int(self._draft.snapshot.pods.node[pod])
        if landing.unmodelled or not len(landing.nodes) or share_on(landing, home) > BACK:
            return -1
        return int(landing.nodes[0]) if float(landing.probability[0]) >= _CERTAIN else -1

    def _pay(
        self, pods: tuple[int, ...], landing: TogetherLanding, marks: tuple[int, ...]
    ) -> Exchange | Refusal:
        """Return the exchange, or why it does not pay."""
        cost = float(self._draft.problem.costs[list(pods)].sum())
        strategy = landing.pay(cost, self._draft.settings.threshold)
        if isinstance(strategy, Refusal):
            return strategy
        if max(landing.gain[:2]) <= TOLERANCE:
            return Refusal.of(Why.GANG_GAINS_NOTHING)
        for pod in pods:
            pair = place_of(self._draft, pod)
            of_strategy = (one for one in self._terms if one.strategy == strategy)
            if not any(one.may_move(*pair) for one in of_strategy):
                return Refusal.of(Why.SELECT_WITHOUT_POD, strategy=strategy, pod=pod)
        return Exchange(pods, landing, strategy, marks)


def place_of(draft: Draft, pod: int) -> Pair:
    """Return (class, node) of a pod of the snapshot."""
    return int(draft.snapshot.pods.cls[pod]), int(draft.snapshot.pods.node[pod])


def unit_of(draft: Draft, pods: Sequence[int]) -> str:
    """Return the name of an exchange for ``Move.unit``."""
    return f"exchange of {' and '.join(map(draft.snapshot.pod_ref, pods))}"


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
        """Pods without a partner; tried again after the next exchange."""

    def wave(self, wave: Wave) -> list[Chosen]:
        """Return the moves of the best exchange; none if there is none."""
        stuck = self._examination.stuck((Code.NO_ROOM,))
        nodes = len(self._draft.snapshot.nodes)
        codes = {cls * nodes + node for cls, node in stuck}
        for pair in stuck:
            promise = self._candidates.promise(pair)
            if promise is None or promise.pod in self._in_vain:
                continue
            if (exchange := self._exchange(promise, codes)) is not None:
                self._in_vain.clear()
                return self._make(exchange, wave)
            self._in_vain.add(promise.pod)
            if self._left <= 0:
                break
        return []

    def _exchange(self, promise: Promise, stuck: Collection[int]) -> Exchange | None:
        """Return an exchange of the pod of a promise; None if there is none, or none is looked for any more."""
        first, strategy = promise.pod, promise.strategy
        # All pods are looked at for partners: on many, that takes as long as some judgements.
        self._left -= 1 + len(self._draft.snapshot.pods) // _PODS_OF_JUDGEMENT
        may_go = partial(self._examination.may_go_first, strategy)
        if not may_go(*place_of(self._draft, first)):
            return None
        tries = min(self._effort.exchange, self._left)
        partners = Partners(self._draft, self._examination.judge, stuck, may_go).of(first)
        for others in islice(partners, max(0, tries)):
            self._left -= 1
            exchange = self._judge.judge(first, others)
            if isinstance(exchange, Refusal):
                continue
            if exceeds_limits(self._draft, exchange.pods, exchange.strategy) is None:
                return exchange
        return None

    def _make(self, exchange: Exchange, wave: Wave) -> list[Chosen]:
        pods, unit = exchange.pods, unit_of(self._draft, exchange.pods)
        pairs = [place_of(self._draft, pod) for pod in pods]
        reasons = [self._reason(exchange, pod, pair) for pod, pair in zip(pods, pairs, strict=True)]
        verdicts, made = verdicts_of(exchange), []
        for pod, pair, reason, verdict in zip(pods, pairs, reasons, verdicts, strict=True):
            other = pods[0] if pod != pods[0] else pods[1]
            one = self._commit.carry_out(
                pod, pair, verdict, next(iter(verdict.by_strategy)), reason, wave, other
            )
            made.append(replace(one, unit=unit, gang=unit))
        for pair, verdict in zip(pairs, verdicts, strict=True):
            self._candidates.move(pair[0], (pair[1], int(verdict.prediction.nodes[0])))
            self._examination.forget(pair)
        return made

    def _reason(self, exchange: Exchange, pod: int, pair: Pair) -> str:
        """Return the reason of one of the moves; called before the first of them is made."""
        first, *others = exchange.pods
        partners = others if pod == first else [first]
        what = f"changes places with {' and '.join(map(self._draft.snapshot.pod_ref, partners))}"
        promise = self._candidates.promise(pair)
        if pod != first and (promise is None or not promise.for_rules):
            return what
        strategy = exchange.strategy if promise is None else promise.strategy
        return f"{what}: {self._commit.reason(strategy, pair)}"


class Partners:
    """The pods whose place another one could take, and which could take its place; by room and rules, before any is judged."""

    def __init__(self, draft: Draft, judge: Judge, stuck: Collection[int], may_go: MayGo) -> None:
        """``stuck``: codes of the pairs that violate a rule and have no landing themselves; ``may_go``: see Chains."""
        self._draft, self._judge, self._stuck, self._may_go = draft, judge, stuck, may_go
        classes = draft.snapshot.classes
        self._alone = np.array([not (of.gang or of.restarts) for of in classes], bool)
        """(C,) the classes whose pods are evicted each by itself."""
        self._owner = np.array([of.owner for of in classes], np.int64)
        """(C,)"""
        self._replacement = np.array([of.replacement for of in classes], np.int64)
        """(C,) the class of the replacements."""

    def of(self, first: int) -> Iterator[tuple[int, ...]]:
        """Yield the partners of a pod: single pods, one of each class and node, beginning with those that must move themselves; then pairs."""
        draft, pods = self._draft, self._draft.snapshot.pods
        gain = self._gains(first)
        others = draft.state.unmoved()
        others = others[draft.view.movable[others] & self._alone[pods.cls[others]]]
        others = others[gain[pods.node[others]] < 0]
        others = others[self._takes(first, others)]
        codes = pods.cls[others].astype(np.int64) * len(draft.snapshot.nodes) + pods.node[others]
        stays = ~np.isin(codes, list(self._stuck))
        keys = draft.view.rank_equals()[others], draft.problem.costs[others]
        order = np.lexsort((*keys, gain[pods.node[others]], stays))
        places, is_first = others[order], np.zeros(len(others), bool)
        is_first[np.unique(codes[order], return_index=True)[1]] = True
        enough = self._leaves(first, places, draft.snapshot.requests[:, pods.cls[places]])
        alone = places[enough & is_first].tolist()
        yield from ((pod,) for pod in alone if self._may_leave(first, pod))
        yield from self._pairs(first, places[~enough])

    def _pairs(self, first: int, places: Int32s) -> Iterator[tuple[int, ...]]:
        """Yield pairs on one node, of those that leave too little room by themselves; few of each node, in the order of ``places``."""
        draft, node_of = self._draft, self._draft.snapshot.pods.node
        for node in dict.fromkeys(node_of[places].tolist()):
            here = places[node_of[places] == node][:_PAIRED].tolist()
            here = [pod for pod in here if self._may_leave(first, pod)]
            for pair in combinations(here, 2):
                one, other = place_of(draft, pair[0])[0], place_of(draft, pair[1])[0]
                both = draft.snapshot.requests[:, [one]] + draft.snapshot.requests[:, [other]]
                if self._leaves(first, np.array(pair[:1], np.int32), both).all():
                    yield pair

    def _gains(self, first: int) -> Floats:
        """Return per node (N,) below 0 where the rules get better with the pod on it, the lower the more; else 0 or more."""
        draft, cls = self._draft, int(self._draft.state.cls_of[first])
        replacement = draft.snapshot.classes[cls].replacement
        nodes = np.flatnonzero(draft.scheduler.static_mask(replacement)).astype(np.int32)
        home = int(draft.state.node_of[first])
        nodes = nodes[nodes != home]
        changes = self._judge.on_nodes(first, home, nodes)[:2]
        # Hard rules before soft ones.
        each, rank = np.unique(np.round(changes, 9), axis=1, return_inverse=True)
        gain = np.zeros(len(draft.snapshot.nodes))
        gain[nodes] = np.where(signs(changes) < 0, np.ravel(rank) - each.shape[1], 0)
        return gain

    def _takes(self, first: int, others: Int32s) -> Bools:
        """Return which of ``others`` (K,), of other owners, have room on the node of ``first`` once it is gone."""
        snapshot = self._draft.snapshot
        own, theirs = int(snapshot.pods.cls[first]), snapshot.pods.cls[others]
        room = self._free()[:, [int(snapshot.pods.node[first])]] + snapshot.requests[:, [own]]
        return _fits(snapshot.requests[:, self._replacement[theirs]], room) & (
            self._owner[theirs] != self._owner[own]
        )

    def _leaves(self, first: int, others: Int32s, requests: Ints) -> Bools:
        """Return on which nodes of ``others`` (K,) there is room for ``first`` once so much of each (R, K) is gone."""
        snapshot = self._draft.snapshot
        asked = snapshot.requests[:, [self._replacement[int(snapshot.pods.cls[first])]]]
        return _fits(asked, self._free()[:, snapshot.pods.node[others]] + requests)

    def _free(self) -> Ints:
        return self._draft.snapshot.nodes.allocatable - self._draft.state.lasting

    def _may_leave(self, first: int, pod: int) -> bool:
        """Return whether budgets allow the move of ``pod`` now, and no satisfied hard rule forbids it on the node of ``first``."""
        draft, pair = self._draft, place_of(self._draft, pod)
        there = draft.state.node_of[[first]]
        replacement = draft.snapshot.classes[pair[0]].replacement
        if not (self._may_go(*pair) and draft.scheduler.static_mask(replacement)[there[0]]):
            return False
        return bool(np.isfinite(self._judge.on_nodes(pod, pair[1], there)[0, 0]))


def _fits(asked: Ints, room: Ints) -> Bools:
    """Return per column (K,) whether the requests (R, K) fit into the room."""
    fits: Bools = ((asked == 0) | (room >= asked)).all(axis=0)
    return fits


def verdicts_of(exchange: Exchange) -> list[Verdict]:
    """Return the verdict on each of the moves: each has an equal share in the gain."""
    share = exchange.landing.share
    shares = {exchange.strategy: max(share)}
    return [
        Verdict(landing, share, share, shares, None, marks=exchange.marks)
        for landing in exchange.landing.predictions
    ]


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

    def judge(self, unit: str, *, now: bool) -> Mapping[str, Verdict] | Refusal:
        """Return uid -> verdict for the moves of an exchange, or why they must not be made; ``now``: within the present budgets."""
        moves = self._moves[unit]
        first, *others = moves
        same = {(one.wave, one.node, one.makes_way_for) for one in others}
        if same != {(first.wave, others[0].node if others else "", first.uid)}:
            return Refusal.of(Why.TORN)
        if (why := next(filter(None, map(self._why_stays, moves)), None)) is not None:
            return why
        rows = [self._rows[move.uid] for move in moves]
        exchange = self._judge.judge(rows[0], rows[1:])
        if isinstance(exchange, Refusal):
            return exchange
        if now and (limit := exceeds_limits(self._draft, rows, exchange.strategy)):
            return limit
        return dict(zip([move.uid for move in moves], verdicts_of(exchange), strict=True))

    def _why_stays(self, move: Move) -> Refusal | None:
        """Return why the pod of one of the two moves cannot be moved; None if it can."""
        draft, pod = self._draft, self._rows.get(move.uid)
        if pod is None:
            return Refusal.of(Why.GONE, who=move.ref)
        if protections := draft.protections(pod):
            return Refusal.of(Why.PROTECTED_NOW, who=move.ref, names=protections)
        node = int(draft.state.node_of[pod])
        if node < 0 or draft.snapshot.nodes.names[node] != move.node:
            return Refusal.of(Why.FROM_NODE)
        return None if draft.view.movable[pod] else Refusal.of(Why.NOT_SELECTED_NOW)
