"""How sure the landings of a plan are, where earlier moves of it may land elsewhere.

The search predicts each landing with the earlier moves on one of their landings. If nodes score equally (a zone that
comes back has equal, empty nodes), the result may differ: an earlier replacement lands on another node, and a later
one finds its own occupied. So the moves of the plan are played again in a few scenarios, each with other landings of
the same predictions, and reports show the mean over the plan and its scenarios: stratified sampling, with the
conditional distribution counted instead of the drawn node (Rao-Blackwell). A wave that is too large to be executed in
order is played backwards in every other scenario.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from rebalancer.plan.plan import IN_ORDER
from rebalancer.planner.draft import Draft, make_move
from rebalancer.planner.effort import Effort
from rebalancer.planner.rendering import SHOWN_LANDINGS, Chosen
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.state import ClusterState

# Fractional parts of multiples of these fill the unit square evenly (Roberts' R2 sequence, from the plastic number).
_STEPS = 0.7548776662466927, 0.5698402909980532


@dataclass(frozen=True, slots=True)
class PredictedMove:
    """A move of a plan as it was predicted."""

    pod: int
    cls: int
    wave: int
    prediction: Prediction
    """Its most probable landings, or all."""
    marks: tuple[int, ...] = ()
    gang: bool = False
    """Whether it is predicted together with the other pods of a gang."""

    @property
    def is_open(self) -> bool:
        """Whether several landings are possible."""
        return len(self.prediction.nodes) > 1

    @property
    def is_narrow(self) -> bool:
        """Whether it has so few possible landings that their probabilities depend much on where earlier moves land.

        False for a pod of a gang: it is predicted together with the others.
        """
        return not self.gang and 0 < len(self.prediction.nodes) < SHOWN_LANDINGS


def with_scenarios(draft: Draft, chosen: Sequence[Chosen], effort: Effort) -> list[Chosen]:
    """Return the moves of a plan, which are in ``draft``, with their expected landings.

    Where room is made for pending pods, each move waits until the one before it has landed. So nothing is simulated.
    """
    if any(one.room is not None for one in chosen):
        return list(chosen)
    steps = [
        PredictedMove(one.pod, one.cls, one.wave, one.landings, one.marks, bool(one.gang))
        for one in chosen
    ]
    expected = expect(draft, steps, effort)
    return [replace(one, landings=of) for one, of in zip(chosen, expected, strict=True)]


def expect(draft: Draft, steps: Sequence[PredictedMove], effort: Effort) -> list[Prediction]:
    """Return the expected landings of each step, in order. ``draft`` contains the moves.

    A prediction that no earlier step can change is returned as it is.
    """
    result = [step.prediction for step in steps]
    asked = _find_open(steps)
    if not asked:
        return result
    scenarios = max(1, min(effort.scenarios, effort.scenario_moves // len(steps)))
    played = _Played(draft, steps[: max(asked) + 1], asked, scenarios)
    seen = {n: [steps[n].prediction] for n in asked}
    for scenario in range(scenarios):
        for n, prediction in played.play(scenario):
            seen[n].append(prediction)
    for n, predictions in seen.items():
        goes_on = int(draft.state.node_of[steps[n].pod])
        result[n] = _mean(predictions, goes_on)
    return result


def _find_open(steps: Sequence[PredictedMove]) -> frozenset[int]:
    """Return the numbers of the narrow steps whose landing others of the plan may change."""
    size = Counter(step.wave for step in steps)
    found: set[int] = set()
    opened = False
    for n, step in enumerate(steps):
        unordered = size[step.wave] > IN_ORDER
        if step.is_narrow and (opened or unordered):
            found.add(n)
        opened |= step.is_open or unordered
    return frozenset(found)


class _Played:
    """The moves of a plan, made in scenarios on a state of their own."""

    def __init__(
        self, draft: Draft, steps: Sequence[PredictedMove], asked: Container[int], scenarios: int
    ) -> None:
        """``asked``: the numbers of the steps to predict again."""
        self._draft, self._steps, self._asked = draft, steps, asked
        self._scenarios = scenarios
        self._state = ClusterState(draft.snapshot)
        self._state.keep_inverses()

    def play(self, scenario: int) -> Iterator[tuple[int, Prediction]]:
        """Yield the prediction of each asked step that has one in a scenario, by its number."""
        state = self._state
        state.rewind()
        for _, of_wave in groupby(enumerate(self._steps), key=lambda one: one[1].wave):
            moves = list(of_wave)
            if len(moves) > IN_ORDER and scenario % 2 == 0:
                moves.reverse()
            for n, step in moves:
                prediction = self._predict(step) if n in self._asked else step.prediction
                if prediction.unmodelled or not len(prediction.nodes):
                    continue
                if n in self._asked:
                    yield n, prediction
                lands = self._draw(n, prediction, scenario)
                make_move(state, step.pod, step.cls, prediction, lands)
            state.reap()

    def _predict(self, step: PredictedMove) -> Prediction:
        scheduler = self._draft.scheduler
        with scheduler.marking(np.array(step.marks, np.int32)) if step.marks else nullcontext():
            return scheduler.pending.foresee(self._state, step.pod)

    def _draw(self, n: int, prediction: Prediction, scenario: int) -> int:
        """Return the index of the landing of step ``n`` in a scenario.

        The unit interval has a stratum for each scenario, and one for the plan, which has the most probable landing. Who
        has which of them, and where in it the number lies, changes from step to step.
        """
        if len(prediction.nodes) == 1:
            return 0
        turn, within = (((n + 1) * step) % 1.0 for step in _STEPS)
        stratum = 1 + (scenario + int(turn * self._scenarios)) % self._scenarios
        drawn = (stratum + within) / (self._scenarios + 1)
        shares = np.cumsum(prediction.probability)
        return min(int(np.searchsorted(shares, drawn * shares[-1], "right")), len(shares) - 1)


def _mean(predictions: Sequence[Prediction], goes_on: int) -> Prediction:
    """Return the mean of predictions, of which the first is the plan's; of equally probable nodes ``goes_on`` is first."""
    nodes, place = np.unique(
        np.concatenate([one.nodes for one in predictions]), return_inverse=True
    )
    shares = np.concatenate([one.probability for one in predictions]) / len(predictions)
    probability = np.asarray(np.bincount(place, shares), np.float64).round(12)
    order = np.lexsort((nodes, nodes != goes_on, -probability))
    return replace(predictions[0], nodes=nodes[order], probability=probability[order])
