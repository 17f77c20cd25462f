"""Pods that leave at once: check that all land, none on its own or a closed node, and that no rule gets worse.

Gangs that a rule names, gangs on nodes that are emptied, and gangs that leave for pods that wait are judged here alike.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import numpy as np

from rebalancer.cost.guards import Guard
from rebalancer.cost.term import Entry
from rebalancer.planner.draft import Draft
from rebalancer.planner.gangs import BACK, leaders_first, why_unsure
from rebalancer.planner.judge import Judge
from rebalancer.planner.problem import WeightedTerm
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.rollout import foresee_rollout
from rebalancer.planner.settings import Threshold
from rebalancer.planner.trial import Trial
from rebalancer.planner.verdict import TOLERANCE
from rebalancer.scheduler.prediction import Prediction, uniform
from rebalancer.snapshot.columns import Int32s

_NONE = np.zeros(0, np.int32)

_Potentials = tuple[Sequence[float], Sequence[float]]
"""Of each term, and of each group of the guard."""
_Landed = tuple[tuple[Prediction, ...], _Potentials]
"""Where pods land, and the potentials then."""


@dataclass(frozen=True, slots=True)
class TogetherLanding:
    """The landings of pods that leave at once, and their gain."""

    predictions: tuple[Prediction, ...]
    """The landing of each pod, in order; the last one includes the pending pods that get a node by all of them."""
    gain: tuple[float, float, float]
    """The gain of all pods together, per entry; positive is better."""
    by_strategy: Mapping[str, Sequence[float]]
    """Strategy -> its share in the gain, per entry."""

    @property
    def share(self) -> tuple[float, float, float]:
        """The gain per pod: the gain of all, divided equally."""
        hard, soft, balance = (gain / len(self.predictions) for gain in self.gain)
        return hard, soft, balance

    def pay(self, cost: float, threshold: Threshold) -> str | Refusal:
        """Return the strategy with the largest share in the gain; or why that is not worth evictions of this ``cost``."""
        entry = next((e for e in range(3) if abs(self.gain[e]) > TOLERANCE), 0)
        gain = self.gain[entry]
        if gain <= TOLERANCE:
            return Refusal.of(Why.GANG_GAINS_NOTHING)
        least = threshold.imbalance if entry == Entry.IMBALANCE else threshold.pods
        if gain / cost + TOLERANCE < least:
            return Refusal.of(Why.GANG_LOW_GAIN, gain=gain, cost=cost, least=least)
        shares = {name: of[entry] for name, of in self.by_strategy.items()}
        return max(shares, key=lambda name: (shares[name], name))


@dataclass(frozen=True, slots=True, kw_only=True)
class TogetherRules:
    """Rules for the landings of pods that leave at once, beside those of the cluster."""

    named: Collection[int] = ()
    """The pods that have to leave their nodes; the others leave with them."""
    closed: Int32s = field(default_factory=lambda: _NONE)
    """Nodes that none may land on, however improbable."""
    marks: Int32s = field(default_factory=lambda: _NONE)
    """Nodes that are marked while the replacements land: none may come back to one of these."""
    wanted: Mapping[int, int] = field(default_factory=dict)
    """Pod -> the node that it is placed on if it may land there; else it is placed on its most probable one."""
    stays: int = -1
    """A pod whose replacement is assumed to land on the same node."""
    feeds: bool = False
    """Pending pods may take the room that they leave: it is left for them."""
    for_gain: bool = False
    """Rules may get worse: whether the gain is worth it decides. Else no rule may, in sum."""


class TogetherJudge:
    """Judges pods that leave at once, in the state of a draft."""

    def __init__(
        self, draft: Draft, judge: Judge, terms: Sequence[WeightedTerm], guard: Guard
    ) -> None:
        """``terms``: the rules that count."""
        self._draft, self._judge, self.terms, self._guard = draft, judge, terms, guard

    def land_together(
        self, trial: Trial, pods: Sequence[int], rules: TogetherRules
    ) -> TogetherLanding | Refusal:
        """Return where ``pods`` land when they leave at once, or why they must not leave; the landings are applied to the trial.

        Victims terminate, and occupy their room until a replacement needs it; those whose owners wait for them are gone at
        once. The pods of a rollout are replaced in turn instead.
        """
        draft, start = self._draft, trial.here()
        foreseen: Mapping[int, Prediction] | Refusal = {}
        if draft.snapshot.surge_of(pods):
            foreseen = foresee_rollout(draft, pods, rules.named)
        if isinstance(foreseen, Refusal):
            return foreseen
        before = self._potentials(pods)
        marks = rules.marks
        with draft.scheduler.marking(marks) if len(marks) else nullcontext():
            landed = self._place(_Leaving(draft, trial, pods, foreseen), rules)
        result = landed if isinstance(landed, Refusal) else self._weigh(landed, before, rules)
        if isinstance(result, Refusal):
            trial.undo(start)
        return result

    def _place(self, leaving: _Leaving, rules: TogetherRules) -> _Landed | Refusal:
        if not rules.feeds and (fed := leaving.find_fed()):
            return Refusal.of(Why.FEEDS_OTHERS, pod=fed[0])
        landing_of: dict[int, Prediction] = {}
        for pod in leaders_first(self._draft.snapshot, leaving.pods):
            if pod == rules.stays:
                own = np.array([self._draft.snapshot.pods.node[pod]], np.int32)
                landing_of[pod] = uniform(own)
            else:
                landing_of[pod] = leaving.predict(pod)
                if (why := self._refuse(pod, landing_of[pod], rules)) is not None:
                    return Refusal.of(Why.OF_POD, pod=pod, why=why)
            leaving.place(pod, landing_of[pod], rules.wanted.get(pod, -1))
        after = self._potentials(leaving.pods)
        leaving.end()
        if not rules.feeds and (fed := leaving.find_fed()):
            return Refusal.of(Why.FEEDS_OTHERS, pod=fed[0])
        predictions = [landing_of[pod] for pod in leaving.pods]
        if rules.feeds:
            takers = self._draft.scheduler.pending.takers(self._draft.state)
            predictions[-1] = replace(predictions[-1], takers=takers)
        return tuple(predictions), after

    def _refuse(self, pod: int, landing: Prediction, rules: TogetherRules) -> Refusal | None:
        """Return why a pod does not land where it should once all of its gang are gone; None if it does."""
        if landing.unmodelled:
            return Refusal.of(Why.UNPREDICTED, parts=landing.unmodelled)
        if not len(landing.nodes):
            return Refusal.of(Why.GANG_WITHOUT_NODE)
        if (again := np.intersect1d(landing.nodes, rules.closed)).size:
            return Refusal.of(Why.ON_CLOSED_NODE, node=int(again[0]))
        home = int(self._draft.snapshot.pods.node[pod])
        if home in rules.marks and share_on(landing, home) > BACK:
            return Refusal.of(Why.OFTEN_BACK)
        return why_unsure(self._draft.snapshot, pod, landing) or self._judge.unwanted(pod, landing)

    def _potentials(self, pods: Sequence[int]) -> _Potentials:
        """Return the potential of each term, of all that moves of ``pods`` may change, and of each group of the guard."""
        snapshot = self._draft.snapshot
        pairs = {
            (cls, snapshot.classes[cls].replacement)
            for cls in snapshot.pods.cls[list(pods)].tolist()
        }
        for one in self.terms:
            for pair in sorted(pairs):
                # A term makes the groups of a class once it is asked about it.
                one.term.concerns(*pair)
        return [one.term.potential() for one in self.terms], self._guard.of_each()

    def _weigh(
        self, landed: _Landed, before: _Potentials, rules: TogetherRules
    ) -> TogetherLanding | Refusal:
        """Return what the landings gain, or that a rule gets worse by them."""
        predictions, after = landed
        if any(then > was + TOLERANCE for was, then in zip(before[1], after[1], strict=True)):
            return Refusal.of(Why.GANG_BREAKS_HARD)
        by_strategy: dict[str, list[float]] = {}
        for one, was, then in zip(self.terms, before[0], after[0], strict=True):
            of_strategy = by_strategy.setdefault(one.strategy, [0.0, 0.0, 0.0])
            of_strategy[one.term.entry] += one.weight * (was - then)
        hard, soft, balance = (sum(of) for of in zip([0.0] * 3, *by_strategy.values(), strict=True))
        if min(hard, soft) < -TOLERANCE and not rules.for_gain:
            return Refusal.of(Why.GANG_BREAKS_RULE)
        return TogetherLanding(predictions, (hard, soft, balance), by_strategy)


def share_on(landing: Prediction, node: int) -> float:
    """Return the probability of landing on a node."""
    return float(landing.probability[landing.nodes == node].sum())


class _Leaving:
    """Pods that are evicted at once in a trial; their replacements are placed one after the other."""

    def __init__(
        self,
        draft: Draft,
        trial: Trial,
        pods: Sequence[int],
        foreseen: Mapping[int, Prediction],
    ) -> None:
        """``foreseen``: where a rollout places the replacements; then none of ``pods`` occupies its room any more."""
        self.pods = pods
        self._draft, self._trial, self._foreseen = draft, trial, foreseen
        self._fed_anyway = {one.pod for one in draft.scheduler.pending.takers(draft.state)}
        waits = {
            pod: bool(foreseen) or draft.snapshot.waits(int(draft.snapshot.pods.cls[pod]))
            for pod in pods
        }
        for pod in sorted(pods, key=waits.__getitem__):
            trial.evict(pod, gone=False)
        trial.hide(sum(waits.values()))
        self._holding = len(pods) - sum(waits.values())
        """Number of them that still occupy their room."""

    def predict(self, pod: int) -> Prediction:
        """Return the landing of the replacement of ``pod``; without a node if it fits on none."""
        if pod in self._foreseen:
            return self._foreseen[pod]
        scheduler, snapshot = self._draft.scheduler, self._draft.snapshot
        replacement = snapshot.classes[int(snapshot.pods.cls[pod])].replacement
        prediction = scheduler.predict(self._draft.state, replacement)
        if not len(prediction.nodes) and self._holding:
            self.end()
            prediction = scheduler.predict(self._draft.state, replacement)
        return prediction

    def place(self, pod: int, landing: Prediction, wanted: int) -> None:
        """Place a replacement on the node ``wanted`` if it may land there, else on its most probable one."""
        self._trial.place(pod, wanted if wanted in landing.nodes else int(landing.nodes[0]))

    def end(self) -> None:
        """Remove all of the pods, so that none occupies its room any more."""
        self._trial.hide(self._holding)
        self._holding = 0

    def find_fed(self) -> list[int]:
        """Return the pending pods that get a node only because the pods have left."""
        takers = self._draft.scheduler.pending.takers(self._draft.state)
        return [one.pod for one in takers if one.pod not in self._fed_anyway]
