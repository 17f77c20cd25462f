"""The verdict on one possible move, and whether its landing is uncertain."""

from __future__ import annotations

from dataclasses import dataclass

from rebalancer.plan.plan import Code
from rebalancer.scheduler.prediction import Prediction

# Differences below this are rounding, not gain.
TOLERANCE = 1e-9
# Expected loss, in pods, against the best landing, from which on a move counts as a gamble. A move that
# fixes so much less than was hoped for breaks one rule as it fixes another.
GAMBLE = 0.05


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
    refused: tuple[Code, str] | None
    vain: tuple[int, ...] = ()
    """Where it is refused: a few nodes of its landings where no rule is fixed, the most probable first."""
    marks: tuple[int, ...] = ()
    """Nodes that are to be marked for this landing, ascending; without marks it would be another one."""


def is_gamble(verdict: Verdict) -> bool:
    """Return whether some of the landings are clearly worse than the best one in a hard or soft rule."""
    best, expected = verdict.best[:2], verdict.gain[:2]
    return min(expected) < -GAMBLE or any(
        most - mean > GAMBLE for most, mean in zip(best, expected, strict=True)
    )
