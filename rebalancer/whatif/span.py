"""A time that is not the same for all: from the least to the most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rebalancer.base.durations import parse_seconds
from rebalancer.base.errors import PolicyError

_MAX_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds from ``least`` to ``most``."""

    least: float
    most: float

    @staticmethod
    def parse(text: str, flag: str) -> Span:
        """Return the span of ``10s``, ``5s-1m`` or plain seconds; ``flag`` names it in errors.

        Raises:
            PolicyError: it is something else, or beyond an hour.
        """
        first, dash, second = text.partition("-")
        try:
            least, most = parse_seconds(first), parse_seconds(second if dash else first)
        except ValueError:
            raise PolicyError(
                [f"{flag} {text}: write for example 10s, or 5s-1m for FROM-TO"]
            ) from None
        if not 0 <= least <= most <= _MAX_SECONDS:
            raise PolicyError(
                [f"{flag} {text}: the time goes from 0 up to {_MAX_SECONDS:g} seconds"]
            )
        return Span(least, most)

    def draw(self, random: np.random.Generator | None) -> float:
        """Return a time of the span, all equally likely; the middle without ``random``."""
        if random is None or self.least == self.most:
            return (self.least + self.most) / 2
        return float(random.uniform(self.least, self.most))
