"""Pauses between attempts: each twice as long as the one before, up to a maximum."""

from __future__ import annotations

from dataclasses import dataclass

from rebalancer.base.stop import Stop

_MAX_DOUBLINGS = 60
"""Beyond any maximum, and far below where a float overflows."""


def pause_after(failures: int, first: float, maximum: float) -> float:
    """Return the seconds to wait after so many failures in a row, at least one: ``first`` after the first."""
    return min(first * 2.0 ** min(failures - 1, _MAX_DOUBLINGS), maximum)


@dataclass(slots=True)
class Backoff:
    """The pauses of one loop that tries something again."""

    first: float
    """Seconds after the first failure."""
    maximum: float
    """Seconds."""
    _failures: int = 0

    @property
    def pause(self) -> float:
        """The seconds of the next pause."""
        return pause_after(self._failures + 1, self.first, self.maximum)

    def take(self) -> float:
        """Return the seconds of the next pause, and double the one after it."""
        self._failures += 1
        return pause_after(self._failures, self.first, self.maximum)

    def wait(self, stop: Stop) -> str | None:
        """Wait for the next pause, at most until ``stop``; return why that came, or None."""
        return stop.wait(self.take())

    def reset(self) -> None:
        """Begin anew: an attempt has succeeded."""
        self._failures = 0
