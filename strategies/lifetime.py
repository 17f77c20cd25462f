"""Lifetime: pods that are too old, or in a state in which they should be replaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from rebalancer.api import (
    Duration,
    Params,
    PodState,
    PodTerm,
    Snapshot,
    Strategy,
    Term,
    View,
)
from strategies.pod_conditions import ConditionParams, matching

State = Literal[
    "Running",
    "Pending",
    "Unknown",
    "NodeAffinity",
    "NodeLost",
    "Shutdown",
    "UnexpectedAdmissionError",
    "PodInitializing",
    "ContainerCreating",
    "ImagePullBackOff",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "ErrImagePull",
    "CreateContainerError",
    "InvalidImageName",
    "OOMKilled",
    "Error",
    "Completed",
    "DeadlineExceeded",
    "Evicted",
    "ContainerCannotRun",
    "StartError",
]
"""Phases of pods that have not ended, reasons of pods, and reasons why containers wait or ended."""


_OF_ENDED = frozenset(
    {"NodeAffinity", "Shutdown", "UnexpectedAdmissionError", "DeadlineExceeded", "Evicted"}
)
"""States of pods that have ended: no other pod has them."""


class LifetimeParams(Params):
    """Options of lifetime. A pod must match all given options; for a list, one of its entries."""

    max_pod_life_time: Duration | None = Field(
        default=None, description="Only pods older than this."
    )
    states: tuple[State, ...] = Field(
        default=(),
        description="Only pods of such a phase, of such a reason, or with a container that waits or ended for one.",
    )
    conditions: tuple[ConditionParams, ...] = Field(
        default=(), description="Only pods with such a condition."
    )
    exit_codes: tuple[int, ...] = Field(
        default=(), description="Only pods with a container that ended with such a code."
    )
    including_init_containers: bool = Field(
        default=False, description="Init containers count for states and exitCodes."
    )
    including_ephemeral_containers: bool = Field(
        default=False, description="Ephemeral containers count for states."
    )

    @model_validator(mode="after")
    def _asks_for_something(self) -> LifetimeParams:
        if self.max_pod_life_time is None and not (
            self.states or self.conditions or self.exit_codes
        ):
            raise ValueError("lifetime needs maxPodLifeTime, states, conditions or exitCodes")
        if self.states and _OF_ENDED.issuperset(self.states):
            text = f"only pods that have ended are {', '.join(self.states)}, and lifetime is about pods that run"
            raise ValueError(f"{text}; use failed-pods, with reasons")
        return self


class Lifetime(Strategy):
    """Replaces pods that are too old, or in a given state, wherever the replacement lands.

    The oldest go first.
    """

    Params = LifetimeParams

    def terms(self, view: View, params: LifetimeParams) -> Sequence[Term]:
        """Return one soft term: each matching pod still has to be replaced."""
        age = np.floor(view.snapshot.captured_at - view.snapshot.pods.created)
        pods = np.flatnonzero(_select_pods(view.snapshot, params, age)).astype(np.int32)
        by_state = bool(params.conditions or params.exit_codes or set(params.states) - {"Running"})
        return [
            PodTerm(
                view,
                pods=pods,
                worth=age[pods],
                reason=lambda pod: _reason(view.snapshot, params, pod),
                by_state=by_state,
            )
        ]


def _select_pods(
    snapshot: Snapshot, params: LifetimeParams, age: NDArray[np.float64]
) -> NDArray[np.bool_]:
    asked = np.ones(len(snapshot.pods), bool)
    if params.max_pod_life_time is not None:
        asked &= age > params.max_pod_life_time.total_seconds()
    if params.states:
        asked &= snapshot.pods.where(lambda state: any(_states(params, state)))
    if params.exit_codes:
        asked &= snapshot.pods.where(lambda state: any(_exit_codes(params, state)))
    if params.conditions:
        asked &= _by_conditions(snapshot, params)
    return asked


def _states(params: LifetimeParams, state: PodState) -> Iterator[str]:
    """Yield the parts of a pod's state that the option ``states`` lists."""
    init, ephemeral = params.including_init_containers, params.including_ephemeral_containers
    reasons = (state.phase, state.reason, *state.reasons(init=init, ephemeral=ephemeral))
    yield from (reason for reason in reasons if reason in params.states)


def _exit_codes(params: LifetimeParams, state: PodState) -> Iterator[str]:
    """Yield the exit codes of a pod's containers that the option ``exitCodes`` lists."""
    for code in state.exit_codes(init=params.including_init_containers):
        if code in params.exit_codes:
            yield f"exit code {code}"


def _by_conditions(snapshot: Snapshot, params: LifetimeParams) -> NDArray[np.bool_]:
    pods, now = snapshot.pods, snapshot.captured_at
    asked = pods.where(lambda state: any(matching(params.conditions, state, now)))
    for wanted in params.conditions:
        # That a pod is Ready is no part of its state.
        if wanted.matches("Ready", "True", ""):
            lasted = now - pods.ready_since >= wanted.least()
            asked |= (pods.ready_since > 0) & lasted
    return asked


def _reason(snapshot: Snapshot, params: LifetimeParams, pod: int) -> str:
    state = snapshot.pods.states[int(snapshot.pods.state[pod])]
    words = [*_states(params, state), *_exit_codes(params, state)]
    words += matching(params.conditions, state, snapshot.captured_at)
    text = f"{snapshot.pod_ref(pod)} is {snapshot.time_since(snapshot.pods.created[pod])} old"
    if params.max_pod_life_time is not None:
        text += f", maxPodLifeTime {params.model_dump(mode='json')['max_pod_life_time']}"
    return ", ".join([text, *dict.fromkeys(words)])
