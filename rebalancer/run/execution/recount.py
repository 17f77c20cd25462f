"""Waits until PodDisruptionBudgets were counted again after a wave."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from rebalancer.base.stop import Backoff, Stop
from rebalancer.plan.plan import Move
from rebalancer.snapshot.model import Snapshot

_FIRST_WAIT, _MAX_WAIT = 0.05, 0.8
_TIMEOUT = 5.0
"""The disruption controller counts within a fraction of a second, unless it is under pressure."""


class Recount:
    """Looks at the cluster between waves, and once more while budgets are about to be counted.

    The replacements of a wave are ready before the controller has counted them, so a budget may allow
    nothing for a moment. Judged in that moment, its pods would pass for immovable, and the remaining plan
    for useless. A budget that stayed at nothing once is not waited for again: others use it up.
    """

    def __init__(
        self,
        look: Callable[[], Snapshot],
        exhausted: Callable[[], Collection[str]],
        stop: Stop,
    ) -> None:
        """``look`` returns the cluster as it is now, ``exhausted`` the budgets in it that allow nothing.

        The latter is asked many times, and takes no snapshot.
        """
        self._look, self._exhausted = look, exhausted
        self._stop = stop
        self._given_up: set[str] = set()

    def snapshot(self, moves: Sequence[Move]) -> Snapshot:
        """Return the cluster once the budgets of the next wave of ``moves`` allow something again.

        After five seconds, or once the run must end, it is returned as it is.
        """
        next_wave = {ref for m in moves if m.wave == moves[0].wave for ref in m.budgets}
        until = self._stop.now() + _TIMEOUT
        backoff = Backoff(_FIRST_WAIT, _MAX_WAIT)
        # Where nothing is waited for, nothing is asked: a list that cannot be watched would be read for it.
        while (waited := next_wave - self._given_up) and (
            missing := waited & set(self._exhausted())
        ):
            if self._stop.now() + backoff.pause > until:
                self._given_up |= missing
                break
            if backoff.wait(self._stop) is not None:
                break
        return self._look()
