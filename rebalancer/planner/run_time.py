"""How much one run can carry out in its time, so that no more than that is planned.

An estimate from the run's configured time and the pace of earlier runs, never from a clock: the same input
gives the same plan on every machine.
"""

from __future__ import annotations

import math

from rebalancer.plan.outcome import Pace

# What comes before the evictions is in the time of a run, too: lists of 150,000 pods take 7 to 10 s, and a move
# among 5,000 nodes takes 4 to 7 ms to plan, in proportion to the nodes or less.
_READING = 5e-5
"""Seconds per pod."""
_PLANNING = 1e-6
"""Seconds per move and node."""


class RunTime:
    """The time of one run, used up by its lists, and by the moves and waves of its plan."""

    def __init__(
        self,
        seconds: float = math.inf,
        pace: Pace | None = None,
        *,
        nodes: int = 0,
        pods: int = 0,
    ) -> None:
        """``nodes`` and ``pods``: the size of the cluster."""
        self._seconds, self._pace = seconds, pace or Pace()
        self._reading, self._of_move = pods * _READING, nodes * _PLANNING + self._pace.eviction
        self._used = 0.0

    def over(self) -> str | None:
        """Return that no further move can be carried out in the run's time, if so."""
        # The first move always fits: a run whose time is too short for its pace would never do anything.
        if self._used == 0 or self._reading + self._used + self._of_move <= self._seconds:
            return None
        return f"what a run can carry out in its {self._seconds:g} s is planned"

    def evict(self) -> None:
        """Count a move: planned, and evicted."""
        self._used += self._of_move

    def next_wave(self) -> None:
        """Count the wait for the replacements of a wave."""
        self._used += self._pace.wave
