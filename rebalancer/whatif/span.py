"""A duration that varies between a minimum and a maximum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rebalancer.base.durations import parse_seconds
from rebalancer.base.errors import PolicyError

_MAX_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Span:
    """A duration from ``least`` to ``most`` seconds."""

    least: float
    most: float

    @staticmethod
    def parse(text: str, flag: str) -> Span:
        """Parse ``10s``, ``5s-1m`` or plain seconds; ``flag`` is the name in error messages.

        Raises:
            PolicyError: the text has another form, or exceeds an hour.
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
        """Draw a duration from the uniform distribution; without ``random`` return the middle."""
        if random is None or self.least == self.most:
            return (self.least + self.most) / 2
        return float(random.uniform(self.least, self.most))
