"""How much one run can carry out in its time, so that no more than that is planned.

An estimate from the run's configured time and the pace of earlier runs, never from a clock: the same input
gives the same plan on every machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast evictions are carried out, in seconds."""

    eviction: float = 0.025
    """For one eviction, of eight at once.

    On a real control plane one took 0.2 s in the median (0.05 to 0.6; 95 evictions of 27 undisturbed runs of
    ``make storm``, 2 shared cores), a look at the pod and the wait until its replacement has a node included. Eight
    at once are taken to need an eighth of that. Waves of up to 50 go one by one, and are too short to matter.
    """
    wave: float = 2.0
    """For the replacements of a wave to be Ready, once the last one is evicted.

    Hardly any container starts in less: where nothing is remembered, a plan rather holds a few waves too many,
    which the deadline then cuts off, than too few.
    """

    @staticmethod
    def measured(evictions: int, waves: int, seconds: float) -> Pace:
        """Return the pace of an earlier run, which took ``seconds`` for its waves; for its evictions alone if no wave ended."""
        usual = Pace()
        if evictions <= 0 or waves < 0 or not math.isfinite(seconds) or seconds <= 0:
            return usual
        if waves == 0:
            return Pace(eviction=seconds / evictions)
        waiting = seconds - evictions * usual.eviction
        if waiting < 0:
            return Pace(eviction=seconds / evictions, wave=0.0)
        return Pace(wave=waiting / waves)


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
