"""Failed-pods: finished pods that are no longer read, and that no controller deletes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Literal

import numpy as np
from pydantic import Field

from rebalancer.api import (
    Duration,
    Ended,
    Params,
    PodState,
    Snapshot,
    Strategy,
    Term,
    View,
)
from strategies.pod_conditions import ConditionParams, matching


class FailedPodsParams(Params):
    """Options of failed-pods. A pod must match all given options; for a list, one of its entries."""

    phases: tuple[Literal["Failed", "Succeeded"], ...] = Field(
        default=("Failed",), min_length=1, description="Pods that have ended in such a phase."
    )
    min_pod_lifetime: Duration = Field(
        default=timedelta(hours=1),
        description="Only pods that were created at least this time ago.",
    )
    reasons: tuple[str, ...] = Field(
        default=(),
        description="Only pods of such a reason, or with a container that waits or ended for one.",
    )
    exit_codes: tuple[int, ...] = Field(
        default=(), description="Only pods with a container that ended with such a code."
    )
    conditions: tuple[ConditionParams, ...] = Field(
        default=(), description="Only pods with such a condition."
    )
    including_init_containers: bool = Field(
        default=False, description="Init containers count for reasons and exitCodes."
    )
    exclude_owner_kinds: tuple[str, ...] = Field(
        default=(), description="Not pods of such a controller, or top owner, like Job."
    )


class FailedPods(Strategy):
    """Deletes failed pods that are no longer needed; their controllers have created others.

    The oldest go first.
    """

    Params = FailedPodsParams

    def terms(self, view: View, params: FailedPodsParams) -> Sequence[Term]:  # noqa: ARG002  # it moves nothing
        """Return no terms: a finished pod has no cost."""
        return ()

    def phases(self, params: FailedPodsParams) -> frozenset[str]:
        """Return the phases of the pods to delete."""
        return frozenset(params.phases)

    def ended(self, finished: Snapshot, params: FailedPodsParams) -> Ended:
        """Return the finished pods that match the options, oldest first.

        The planner keeps those that their controllers still need.
        """
        pods = finished.pods
        age = np.floor(finished.captured_at - pods.created)
        asked = pods.where(lambda state: _matches(params, state, finished.captured_at))
        asked &= age >= params.min_pod_lifetime.total_seconds()
        if params.exclude_owner_kinds:
            kept = [_is_of(finished, cls, params) for cls in range(len(finished.classes))]
            asked &= ~np.array(kept, bool)[pods.cls]
        rows = np.flatnonzero(asked)
        return Ended(
            rows[np.lexsort((rows, -age[rows]))].astype(np.int32),
            lambda pod: _reason(finished, params, pod),
        )


def _matches(params: FailedPodsParams, state: PodState, now: float) -> bool:
    codes = set(state.exit_codes(init=params.including_init_containers))
    return (
        state.phase in params.phases
        and (not params.reasons or not set(_reasons(params, state)).isdisjoint(params.reasons))
        and (not params.exit_codes or not codes.isdisjoint(params.exit_codes))
        and (not params.conditions or any(matching(params.conditions, state, now)))
    )


def _reasons(params: FailedPodsParams, state: PodState) -> Iterator[str]:
    yield from filter(None, (state.reason,))
    yield from state.reasons(init=params.including_init_containers)


def _is_of(finished: Snapshot, cls: int, params: FailedPodsParams) -> bool:
    owner = finished.owner_of(cls)
    kinds = {finished.classes[cls].controller_kind, owner.kind if owner is not None else ""}
    return not kinds.isdisjoint(params.exclude_owner_kinds)


def _reason(finished: Snapshot, params: FailedPodsParams, pod: int) -> str:
    state = finished.pods.states[int(finished.pods.state[pod])]
    codes = (f"exit code {code}" for code in state.exit_codes(init=True))
    words = dict.fromkeys((*_reasons(params, state), *codes))
    why = f" ({', '.join(words)})" if words else ""
    old = finished.time_since(finished.pods.created[pod])
    return f"{finished.pod_ref(pod)} is {state.phase}{why}, {old} old"
