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

    eviction: float = 0.02
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
        """Return the pace of an earlier run, which took ``seconds`` for its waves."""
        usual = Pace()
        if evictions <= 0 or waves <= 0 or not math.isfinite(seconds) or seconds <= 0:
            return usual
        waiting = seconds - evictions * usual.eviction
        if waiting < 0:
            return Pace(eviction=seconds / evictions, wave=0.0)
        return Pace(wave=waiting / waves)


class RunTime:
    """The time of one run, used up by the moves and waves of its plan."""

    def __init__(self, seconds: float = math.inf, pace: Pace | None = None) -> None:
        self._seconds, self._pace = seconds, pace or Pace()
        self._used = 0.0

    def over(self) -> str | None:
        """Return that no further move can be carried out in the run's time, if so."""
        # The first move always fits: a run whose time is too short for its pace would never do anything.
        if self._used == 0 or self._used + self._pace.eviction <= self._seconds:
            return None
        return f"what a run can carry out in its {self._seconds:g} s is planned"

    def evict(self) -> None:
        """Count an eviction."""
        self._used += self._pace.eviction

    def next_wave(self) -> None:
        """Count the wait for the replacements of a wave."""
        self._used += self._pace.wave
