"""Gangs that leave for what waits: which of their pods have to, and where all of them land when they leave at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.cost.guards import Guard
from rebalancer.cost.term import Entry
from rebalancer.planner.draft import Draft
from rebalancer.planner.evicted import Evicted
from rebalancer.planner.gangs import (
    BACK,
    exceeds_budgets,
    exceeds_disruptions,
    going,
    has_broken,
    leaders_first,
    potentials,
    unit_of,
    units_of,
    why_unsure,
)
from rebalancer.planner.judge import Judge
from rebalancer.planner.problem import WeightedTerm
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.verdict import TOLERANCE
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.model import GangKey


class RoomGangs:
    """The gangs that may leave as a whole for what waits."""

    def __init__(self, draft: Draft, mine: Bools) -> None:
        """``mine`` (P,): the pods that the strategy may move. Why other gangs stay is recorded in the draft."""
        self._snapshot = draft.snapshot
        self._units = units_of(draft, mine)

    @property
    def pods(self) -> list[int]:
        """The pods of these gangs."""
        return list(self._units)

    def unit_of(self, pod: int) -> str:
        """Return the name of the gang of ``pod``; empty for a pod that leaves by itself."""
        return unit_of(self._gang(pod)) if pod in self._units else ""

    def are_whole(self, pods: Int32s) -> Bools:
        """Return which of ``pods`` (K,) may still leave: those of a gang only if all of it are among them."""
        here = frozenset(pods.tolist())
        broken = {pod for pod, unit in self._units.items() if not here.issuperset(unit.tolist())}
        return np.array([pod not in broken for pod in pods.tolist()], bool)

    def others(self, victims: Sequence[int], gone: Collection[int], limit: int) -> list[int] | None:
        """Return the pods that have to leave with ``victims``, where those ``gone`` have left already.

        None if one of them has a higher priority than ``limit``.
        """
        others: list[int] = []
        if not (gangs := {self._gang(pod) for pod in victims if pod in self._units}):
            return others
        for gang in sorted(gangs):
            members = self._snapshot.gangs[gang].tolist()
            named = [pod for pod in members if pod in gone or pod in victims]
            others += going(self._snapshot, gang, named)[len(named) :]
        classes = self._snapshot.pods.cls[others].tolist()
        too_high = any(self._snapshot.classes[cls].priority > limit for cls in classes)
        return None if too_high else others

    def _gang(self, pod: int) -> GangKey:
        of = self._snapshot.classes[int(self._snapshot.pods.cls[pod])]
        return of.namespace, of.gang


@dataclass(frozen=True, slots=True)
class TogetherLanding:
    """Where the pods of a gang land that leave at once."""

    predictions: tuple[Prediction, ...]
    """Of each pod, in order; the last one has the pending pods that get a node by all of them."""
    gain: tuple[float, float, float]
    """The share of each pod in what they gain, per entry."""


class TogetherJudge:
    """Judges the moves of pods of a gang that make room for others."""

    def __init__(
        self, draft: Draft, judge: Judge, terms: Sequence[WeightedTerm], guard: Guard
    ) -> None:
        self._draft, self._judge, self._terms, self._guard = draft, judge, terms, guard

    def exceeds(self, pods: Sequence[int], strategy: str) -> Refusal | None:
        """Return the limit that keeps ``pods`` from leaving at once; None if there is none."""
        if (why := exceeds_disruptions(self._draft, pods)) is not None:
            return Refusal.of(Why.PDBS_TOGETHER, limit=why)
        why = exceeds_budgets(self._draft, pods, strategy)
        return None if why is None else Refusal.of(Why.BUDGET, limit=why)

    def landing(
        self, pods: Sequence[int], marks: Int32s, wanted: Sequence[int]
    ) -> TogetherLanding | Refusal:
        """Return where ``pods`` land while ``marks`` are marked, or why they must not leave; the state stays as it is.

        None may come back to a node that is marked, and no rule may get worse. ``wanted``: see ``Evicted.place``.
        """
        draft, landing_of = self._draft, dict[int, Prediction]()
        wanted_of = dict(zip(pods, wanted, strict=True))
        terms = [one.term for one in self._terms]
        before, kept = potentials(draft, terms, self._guard, pods)
        with draft.scheduler.marking(marks), Evicted(draft, pods) as away:
            for pod in leaders_first(draft.snapshot, pods):
                landing_of[pod] = away.place(pod, wanted_of[pod])
                if (why := self._refusal(pod, landing_of[pod], marks)) is not None:
                    return why
            predictions = [landing_of[pod] for pod in pods]
            after, left = potentials(draft, terms, self._guard, pods)
            takers = away.takers()
        if has_broken(kept, left):
            return Refusal.of(Why.GANG_BREAKS_HARD)
        gain = [0.0, 0.0, 0.0]
        for one, was, then in zip(self._terms, before, after, strict=True):
            gain[one.term.entry] += one.weight * (was - then)
        if min(gain[Entry.HARD], gain[Entry.SOFT]) < -TOLERANCE:
            return Refusal.of(Why.GANG_BREAKS_RULE)
        predictions[-1] = replace(predictions[-1], takers=takers)
        hard, soft, balance = (of / len(pods) for of in gain)
        return TogetherLanding(tuple(predictions), (hard, soft, balance))

    def _refusal(self, pod: int, prediction: Prediction, marks: Int32s) -> Refusal | None:
        if prediction.unmodelled:
            return Refusal.of(Why.UNPREDICTED, parts=prediction.unmodelled)
        if not len(prediction.nodes):
            return Refusal.of(Why.GANG_WITHOUT_NODE)
        if (unsure := why_unsure(self._draft.snapshot, pod, prediction)) is not None:
            return Refusal.of(Why.LEADER_UNSURE, where=unsure)
        home = int(self._draft.snapshot.pods.node[pod])
        back = float(prediction.probability[prediction.nodes == home].sum())
        if home in marks and back > BACK:
            return Refusal.of(Why.OFTEN_BACK)
        return self._judge.unwanted(pod, prediction)
