"""Make a move in the draft: update the state, budgets and quotas, and record the move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rebalancer.plan.plan import Cause
from rebalancer.planner.candidates import Promise
from rebalancer.planner.draft import Draft
from rebalancer.planner.problem import Pair, WeightedTerm
from rebalancer.planner.rendering import Chosen
from rebalancer.planner.verdict import TOLERANCE, Verdict
from rebalancer.scheduler.prediction import Prediction


@dataclass(frozen=True, slots=True)
class FirstMove:
    """The first move of a chain; pods and nodes are rows of the snapshot."""

    pod: int
    cls: int
    node: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Wave:
    """The data of one wave; its moves are in flight together."""

    number: int
    retried: set[int] = field(default_factory=set)
    """Classes that a move of this wave concerns."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Makes the moves of one search pass in a draft."""

    draft: Draft
    terms: Sequence[WeightedTerm]
    observed: bool
    """The moves are shown only."""
    most_landings: int | None
    """The largest number of landings to keep of each move; None: all."""

    def move(self, pair: Pair, promise: Promise, verdict: Verdict, wave: Wave) -> Chosen:
        """Move a pod that gains by itself."""
        pod = promise.pod
        shares = verdict.by_strategy
        strategy = max(shares, key=lambda name: (shares[name], name), default="")
        if shares.get(strategy, 0.0) <= TOLERANCE:
            strategy = promise.strategy
        judging = self.draft.judging(pod, strategy)
        reason = self.reason(strategy, pair) if judging is None else judging.reason(pod)
        cause = self.draft.cause(pod, shares, verdict.prediction, self.terms)
        return self.carry_out(pod, pair, verdict, strategy, reason, wave, cause=cause)

    def first(self, step: FirstMove, other: int, pair: Pair, strategy: str, wave: Wave) -> Chosen:
        """Move a pod so that the pod ``other`` of ``pair`` can move in a later wave."""
        ref = self.draft.snapshot.pod_ref(other)
        reason = f"goes first for {ref}: {self.reason(strategy, pair)}"
        where = step.cls, step.node
        return self.carry_out(step.pod, where, step.verdict, strategy, reason, wave, other)

    def carry_out(
        self,
        pod: int,
        pair: Pair,
        verdict: Verdict,
        strategy: str,
        reason: str,
        wave: Wave,
        other: int = -1,
        cause: Cause = Cause.PLACE,
    ) -> Chosen:
        """Move a pod; ``other``: the one that it makes way for, or changes places with."""
        cls, node = pair
        self.draft.move(pod, cls, verdict.prediction)
        ready = self.draft.snapshot.pods.is_ready(pod)
        self.draft.allowance.spend(cls, node, strategy, ready=ready)
        landings = self._keep_likely(verdict.prediction)
        return Chosen(
            pod,
            cls,
            node,
            verdict.gain,
            landings,
            strategy,
            reason,
            wave.number,
            self.observed,
            other,
            verdict.marks,
            cause,
        )

    def _keep_likely(self, prediction: Prediction) -> Prediction:
        """Return the most probable landings only: thousands of moves may have thousands of landings each."""
        most = self.most_landings
        if most is None or len(prediction.nodes) <= most:
            return prediction
        nodes, probability = prediction.nodes[:most].copy(), prediction.probability[:most].copy()
        return Prediction(nodes, probability, prediction.unmodelled, prediction.takers)

    def reason(self, strategy: str, pair: Pair) -> str:
        """Return the description by the strategy's first term that names the pair; empty if none does."""
        said = [
            (weighted, text)
            for weighted in self.terms
            if weighted.strategy == strategy and (text := weighted.term.describe(*pair))
        ]
        # A hard rule that holds is no reason beside the soft one that does not.
        naming = (text for weighted, text in said if len(said) > 1 and weighted.names(*pair))
        return next(naming, said[0][1] if said else strategy)
