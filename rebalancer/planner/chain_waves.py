"""Waves of pods that move first: once no candidate can go by itself, chains may help some of them."""

from __future__ import annotations

from functools import partial

from rebalancer.plan.plan import Code
from rebalancer.planner.book import Book
from rebalancer.planner.chains import Chains
from rebalancer.planner.commit import Commit
from rebalancer.planner.draft import Draft
from rebalancer.planner.examination import Examination
from rebalancer.planner.looks import Looks
from rebalancer.planner.problem import Pair
from rebalancer.planner.rendering import Chosen

# What another pod that goes first can change; the other refusals are about the pod itself.
_ALONE = (Code.NO_GAIN, Code.COMES_BACK, Code.UNSURE, Code.LOW_GAIN)


class ChainWaves:
    """Finds and makes the moves of such waves."""

    def __init__(
        self,
        draft: Draft,
        chains: Chains,
        book: Book,
        examination: Examination,
        commit: Commit,
        looks: Looks,
    ) -> None:
        self._allowance, self._chains, self._book = draft.allowance, chains, book
        self._examination, self._commit, self._looks = examination, commit, looks
        self._helped: set[int] = set()
        """Pods for which another has gone first: none is helped twice."""

    def wave(self, wave: int) -> list[Chosen]:
        """Return moves that bring little by themselves, but let others go in the next wave."""
        chosen: list[Chosen] = []
        in_vain: set[int] = set()
        helped: set[int] = set()
        freed: list[Pair] = []
        for pair in [] if self._chains.exhausted else self._stuck():
            if self._chains.exhausted:
                break
            # One chain for a rule at a time: the move that it is made for may be all that the rule needs.
            if pair[0] in in_vain or pair[0] in helped:
                continue
            move = self._move_before(pair, wave, len(chosen))
            if isinstance(move, Chosen):
                chosen.append(move)
                freed.append(pair)
                self._book.moved([move.cls])
                helped.update(self._book.related(pair[0]).tolist())
                in_vain.clear()
            elif move:
                in_vain.add(pair[0])
        self._looks.free(freed)
        return chosen

    def _move_before(self, pair: Pair, wave: int, made: int) -> Chosen | bool:
        """Make a move that helps a pod of ``pair``; else return whether no such move exists.

        ``made``: so many moves are in the wave already.
        """
        promise = self._book.promise(pair)
        if promise is None or promise.pod in self._helped:
            return False
        # A chain needs the budget of two moves.
        if self._allowance.left(promise.strategy) < made + 2:
            return False
        strategy = promise.strategy
        may_go = partial(self._examination.may_go_first, strategy)
        step = self._chains.first(promise.pod, *pair, may_go)
        if step is None:
            return True
        self._helped.add(promise.pod)
        return self._commit.first(step, promise.pod, pair, strategy, wave)

    def _stuck(self) -> list[Pair]:
        """Return the pairs, most gain first, that break a rule and gain nothing by going alone."""
        refusals = self._examination.refusals.items()
        return self._book.ranked([pair for pair, why in refusals if why.code in _ALONE])
