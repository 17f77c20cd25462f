"""How fast a run carries moves out, as earlier runs measured it."""

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
