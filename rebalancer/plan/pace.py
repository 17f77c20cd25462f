"""How fast a run carries moves out, as earlier runs measured it."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast evictions are carried out, in seconds."""

    eviction: float = 0.1
    """For one eviction and what replaces it, of many at once.

    The ReplicaSet controller sends at most 20 requests a second (``--kube-api-qps`` of kube-controller-manager, the
    default), and a replacement takes two or more: the pod, and the status of its ReplicaSet. So ten a second are
    replaced, and more only where that limit is raised. On two loaded processors with it lifted, one took 0.2 to 0.25 s, of
    ours and of the peer's (benchmarks/scale/RESULTS.md, "The pace of a first run"). What a cluster can do more, the run
    after its first one knows.
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
