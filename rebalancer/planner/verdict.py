"""The verdict on one possible move, and whether its landing is uncertain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.core import effects as core
from rebalancer.core.views import view_of
from rebalancer.planner.refusal import Refusal
from rebalancer.scheduler.prediction import Prediction

# Differences below this are rounding, not gain.
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Verdict:
    """The expected result of moving one pod of a class off a node."""

    prediction: Prediction
    gain: tuple[float, float, float]
    """Expected gain per entry; positive is better."""
    best: tuple[float, float, float]
    """Gain per entry at the landing that is best for it."""
    by_strategy: dict[str, float]
    """Expected gain of each strategy in the entry that decides."""
    refused: Refusal | None
    vain: tuple[int, ...] = ()
    """Where it is refused: a few nodes of its landings where no rule is fixed, the most probable first."""
    marks: tuple[int, ...] = ()
    """Nodes that are to be marked for this landing, ascending; without marks it would be another one."""


def is_gamble(gain: Sequence[float], best: Sequence[float]) -> bool:
    """Return whether some of the landings are clearly worse than the best one in a hard or soft rule."""
    return core.is_gamble(view_of(np.array(gain)), view_of(np.array(best)))
