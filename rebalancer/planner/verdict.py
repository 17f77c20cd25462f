"""The verdict on one possible move, and whether its landing is uncertain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rebalancer.planner.refusal import Refusal
from rebalancer.scheduler.prediction import Prediction

# Differences below this are rounding, not gain.
TOLERANCE = 1e-9
# Expected loss, in pods, against the best landing, from which on a move counts as a gamble. A move that
# fixes so much less than was hoped for breaks one rule as it fixes another.
GAMBLE = 0.05
# The same for soft rules, of a move that fixes a hard rule: it is not put off for less than half a pod.
GAMBLE_BESIDE_HARD = 0.5


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
    return gains_less(gain, best) or gains_less(gain, (0.0, 0.0))


def gains_less(gain: Sequence[float], most: Sequence[float]) -> bool:
    """Return whether the expected gain in hard or soft rules is clearly below ``most``; both per entry of the cost."""
    hard, soft = gain[:2]
    if most[0] - hard > GAMBLE:
        return True
    return most[1] - soft > (GAMBLE_BESIDE_HARD if hard > 1 - GAMBLE else GAMBLE)
