"""Restarts: pods whose containers restarted too often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from rebalancer.api import (
    Params,
    PodState,
    PodTerm,
    Strategy,
    Term,
    View,
)

_MAX_COUNT = 2**31 - 1
"""The API's counts are of 32 bits."""


class RestartsParams(Params):
    """Options of restarts."""

    pod_restart_threshold: int = Field(
        default=100,
        ge=1,
        le=_MAX_COUNT,
        description="Pods whose containers were restarted at least so often, all together.",
    )
    including_init_containers: bool = Field(
        default=False, description="Restarts of init containers count as well."
    )
    states: tuple[Literal["Running", "CrashLoopBackOff"], ...] = Field(
        default=(),
        description="Only pods of phase Running, or with a container that waits as CrashLoopBackOff; empty: all.",
    )


class Restarts(Strategy):
    """Replaces pods that restarted too often, wherever the replacement lands.

    Pods with most restarts go first. If replacements restart as often, the program is at fault: the memory then
    waits longer each time, and finally gives up.
    """

    Params = RestartsParams

    def terms(self, view: View, params: RestartsParams) -> Sequence[Term]:
        """Return one soft term: each matching pod still has to be replaced."""
        pods, least = view.snapshot.pods, params.pod_restart_threshold
        init = params.including_init_containers
        counts = [min(_MAX_COUNT, state.restarts(init=init)) for state in pods.states]
        of_state = np.array(counts or [0], np.int64)
        restarts = of_state[pods.state]
        often = restarts >= least
        if params.states:
            often &= pods.where(lambda state: _is_in(params, state))
        judged = np.flatnonzero(often).astype(np.int32)
        return [
            PodTerm(
                view,
                pods=judged,
                worth=restarts[judged].astype(float),
                reason=lambda pod: (
                    f"{view.snapshot.pod_ref(pod)} was restarted {restarts[pod]} times, "
                    f"podRestartThreshold {least}"
                ),
                by_state=True,
            )
        ]


def _is_in(params: RestartsParams, state: PodState) -> bool:
    reasons = set(state.reasons(init=params.including_init_containers))
    return state.phase in params.states or not reasons.isdisjoint(params.states)
