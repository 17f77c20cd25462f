"""Waves of pods that move first: once no candidate can go by itself, chains may help some of them."""

from __future__ import annotations

from functools import partial

from rebalancer.plan.plan import Code
from rebalancer.planner.candidates import Candidates
from rebalancer.planner.chains import Chains
from rebalancer.planner.commit import Commit
from rebalancer.planner.draft import Draft
from rebalancer.planner.examination import Examination
from rebalancer.planner.promises import Pair
from rebalancer.planner.rendering import Chosen

# What another pod that goes first can change; the other refusals are about the pod itself.
_ALONE = (Code.NO_GAIN, Code.COMES_BACK, Code.UNSURE, Code.LOW_GAIN)


class ChainWaves:
    """Finds and makes the moves of such waves."""

    def __init__(
        self,
        draft: Draft,
        chains: Chains,
        candidates: Candidates,
        examination: Examination,
        commit: Commit,
    ) -> None:
        self._allowance, self._chains, self._candidates = draft.allowance, chains, candidates
        self._examination, self._commit = examination, commit
        self._helped: set[int] = set()
        """Pods for which another has gone first: none is helped twice."""

    def wave(self, wave: int) -> list[Chosen]:
        """Return moves that bring little by themselves, but let others go in the next wave."""
        chosen: list[Chosen] = []
        in_vain: set[int] = set()
        helped: set[int] = set()
        for pair in [] if self._chains.exhausted else self._stuck():
            if self._chains.exhausted:
                break
            # One chain for a rule at a time: the move that it is made for may be all that the rule needs.
            if pair[0] in in_vain or pair[0] in helped:
                continue
            move = self._move_before(pair, wave, len(chosen))
            if isinstance(move, Chosen):
                chosen.append(move)
                self._candidates.refresh((move.cls, move.node))
                helped.update(self._candidates.related(pair[0]).tolist())
                in_vain.clear()
            elif move:
                in_vain.add(pair[0])
        return chosen

    def _move_before(self, pair: Pair, wave: int, made: int) -> Chosen | bool:
        """Make a move that helps a pod of ``pair``; else return whether no such move exists.

        ``made``: so many moves are in the wave already.
        """
        promise = self._candidates.promise(pair)
        pods = self._candidates.pods(pair)
        if promise is None or not pods or pods[0] in self._helped:
            return False
        # A chain needs the budget of two moves.
        if self._allowance.left(promise.strategy) < made + 2:
            return False
        strategy = promise.strategy
        may_go = partial(self._examination.may_go_first, strategy)
        step = self._chains.first(pods[0], *pair, may_go)
        if step is None:
            return True
        self._helped.add(pods[0])
        return self._commit.first(step, pods[0], pair, strategy, wave)

    def _stuck(self) -> list[Pair]:
        """Return the pairs, most gain first, that break a rule and gain nothing by going alone."""
        entries = [
            entry
            for pair, refusal in self._examination.refusals.items()
            if refusal.code in _ALONE and (entry := self._candidates.entry(pair)) is not None
        ]
        return [pair for key, pair in sorted(entries) if key[0] or key[1]]
