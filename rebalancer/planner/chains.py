"""Chains: move one pod first so that the move of another pod gains; and the waves of such first moves.

A greedy search stops when no single move gains anything. Example: the emptiest node attracts the replacement of
every pod, and it already has a replica of this one. If another pod takes that place first, the replacement lands on
the next node. Chains are searched by trial: a pod qualifies if it would land on the attracting node, do no harm there,
and improve the landing of the other pod enough. Work is counted in judgements, not in seconds, so that the same snapshot
gives the same plan on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from rebalancer.cost.view import View
from rebalancer.plan.plan import Code
from rebalancer.planner.candidates import CandidateRows
from rebalancer.planner.commit import Commit, FirstMove, Wave
from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.examination import Examination
from rebalancer.planner.judge import Judge
from rebalancer.planner.problem import Pair
from rebalancer.planner.rendering import Chosen
from rebalancer.planner.trial import Trial
from rebalancer.planner.verdict import TOLERANCE
from rebalancer.snapshot.columns import Bools, Floats
from rebalancer.snapshot.labels import ZONE_KEYS

# What another pod that goes first can change; the other refusals are about the pod itself.
_ALONE = (Code.NO_GAIN, Code.COMES_BACK, Code.UNSURE, Code.LOW_GAIN)


class ChainWaves:
    """Finds and makes the first moves of chains."""

    def __init__(
        self,
        draft: Draft,
        chains: Chains,
        candidates: CandidateRows,
        examination: Examination,
        commit: Commit,
    ) -> None:
        self._allowance, self._chains, self._candidates = draft.allowance, chains, candidates
        self._examination, self._commit = examination, commit
        self._helped: set[int] = set()
        """Pods for which another has gone first: none is helped twice."""

    def wave(self, wave: Wave) -> tuple[list[Chosen], list[Pair]]:
        """Return moves with little gain of their own, and the pairs whose moves they enable in the next wave."""
        chosen: list[Chosen] = []
        in_vain: set[int] = set()
        helped: set[int] = set()
        freed: list[Pair] = []
        for pair in [] if self._chains.exhausted else self._examination.stuck(_ALONE):
            if self._chains.exhausted:
                break
            # One chain for a rule at a time: the move that it is made for may be all that the rule needs.
            if pair[0] in in_vain or pair[0] in helped:
                continue
            move = self._move_before(pair, wave, len(chosen))
            if isinstance(move, Chosen):
                chosen.append(move)
                freed.append(pair)
                nodes = move.node, int(move.landings.nodes[0])
                self._candidates.move(move.cls, nodes)
                helped.update(self._candidates.related(pair[0]).tolist())
                in_vain.clear()
            elif move:
                in_vain.add(pair[0])
        return chosen, freed

    def _move_before(self, pair: Pair, wave: Wave, made: int) -> Chosen | bool:
        """Make a move that enables a move of ``pair``; else return whether no such move exists.

        ``made``: the number of moves already in the wave.
        """
        promise = self._candidates.promise(pair)
        if promise is None or promise.pod in self._helped:
            return False
        # A chain needs the budget of two moves.
        if self._allowance.left(promise.strategy) < made + 2:
            return False
        strategy = promise.strategy
        may_go = partial(self._examination.may_go_first, strategy)
        step = self._chains.first(promise.pod, pair[1], may_go)
        if step is None:
            return True
        self._helped.add(promise.pod)
        return self._commit.first(step, promise.pod, pair, strategy, wave)


# Least probability with which the pod that moves first lands where it is meant to.
_CERTAIN = 0.75
_LOADS = ("cpu", "memory")

MayGo = Callable[[int, int], bool]


class Chains:
    """Finds first moves of chains; leaves the state unchanged."""

    def __init__(self, view: View, judge: Judge, cost: Floats, effort: Effort) -> None:
        self._view, self._judge, self._cost, self._effort = view, judge, cost, effort
        self._left = effort.chains

    @property
    def exhausted(self) -> bool:
        """Whether the plan's work limit for chains is reached."""
        return self._left <= 0

    def first(self, pod: int, node: int, may_go: MayGo) -> FirstMove | None:
        """Return the move that enables a move of ``pod``, on ``node``; None if there is none.

        ``may_go`` returns whether budgets allow a move of a (class, node) pair now.
        """
        self._left -= 1
        alone = self._judge.judge(pod, node, float(self._cost[pod]))
        if alone.refused is None:
            return None
        tries = min(self._effort.chain, self._left)
        for draws in alone.vain:
            for other in self._landing_on(draws, pod, may_go):
                if tries <= 0:
                    return None
                tries -= 1
                self._left -= 1
                step = self._step(other, draws)
                if step is not None and self.helps(step, pod, node):
                    return step
        return None

    def _step(self, pod: int, draws: int) -> FirstMove | None:
        """Return the move of ``pod`` if it lands on ``draws`` and does no harm there."""
        cls, node = int(self._view.state.cls_of[pod]), int(self._view.state.node_of[pod])
        verdict = self._judge.harmless(pod, node)
        if verdict.refused is not None:
            return None
        lands = verdict.prediction
        if int(lands.nodes[0]) != draws or float(lands.probability[0]) < _CERTAIN:
            return None
        return FirstMove(pod, cls, node, verdict)

    def helps(self, step: FirstMove, pod: int, node: int) -> bool:
        """Return whether ``pod`` can move after ``step``, with a gain that is worth both evictions."""
        both = float(self._cost[pod]) + float(self._cost[step.pod])
        state, prediction = self._view.state, step.verdict.prediction
        with Trial(state) as trial:
            trial.move(step.pod, int(prediction.nodes[0]))
            with self._view.scheduler.pending.placed(state, prediction.takers):
                verdict = self._judge.judge(pod, node, both)
        return verdict.refused is None and max(verdict.gain[:2]) > TOLERANCE

    # -- which pods might -------------------------------------------------------------------------------------

    def _landing_on(self, draws: int, pod: int, may_go: MayGo) -> Iterator[int]:
        """Yield movable pods that would land on ``draws``, from the fullest nodes of its zone.

        Only one pod per class: the others of the class would land alike.
        """
        view = self._view
        pods = view.snapshot.pods
        free = view.state.unmoved()
        free = free[view.movable[free]]
        tried, rank = set[int](), view.rank_equals()
        for node in self._giving(draws):
            here = free[pods.node[free] == node]
            for other in here[np.argsort(rank[here], kind="stable")].tolist():
                cls = int(pods.cls[other])
                replacement = view.snapshot.classes[cls].replacement
                if other == pod or cls in tried or not may_go(cls, node):
                    continue
                if view.scheduler.static_mask(replacement)[draws]:
                    tried.add(cls)
                    yield other

    def _giving(self, draws: int) -> list[int]:
        load = self._load()
        load[draws] = -1.0
        order = np.lexsort((-load, ~self._same_zone(draws)))
        return [node for node in order[: self._effort.chain_nodes].tolist() if node != draws]

    def _load(self) -> Floats:
        """Return per node (N,) the larger of its requested shares of cpu and memory."""
        snapshot, state = self._view.snapshot, self._view.state
        rows = [snapshot.resources.index(name) for name in _LOADS if name in snapshot.resources]
        capacity = snapshot.nodes.allocatable[rows].astype(float)
        used = state.lasting[rows].astype(float)
        share = np.divide(used, capacity, out=np.zeros_like(used), where=capacity > 0)
        load: Floats = share.max(axis=0, initial=0.0)
        return load

    def _same_zone(self, node: int) -> Bools:
        """Return which nodes (N,) are in the zone of ``node``; pods with zone spread do not leave their zone."""
        labels = self._view.snapshot.nodes.labels
        same = np.zeros(len(self._view.snapshot.nodes), bool)
        for key in ZONE_KEYS:
            column = labels.column(key)
            if column[node] >= 0:
                same |= column == column[node]
        return same
