"""The state of a pod, for strategies that judge single pods; only deviations from a healthy running pod."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import NamedTuple


class ContainerKind(enum.IntEnum):
    """The status list of a pod to which a container belongs."""

    REGULAR = 0
    INIT = 1
    EPHEMERAL = 2


class ContainerState(NamedTuple):
    """A container that is not ready, or has restarted."""

    kind: ContainerKind
    restarts: int
    waiting: str
    """Reason of its state waiting, empty if it has none."""
    terminated: str
    """Reason of its state terminated, empty if it has none."""
    exit_code: int | None
    """None unless its state is terminated."""


class PodCondition(NamedTuple):
    """A condition of a pod; conditions of healthy pods are dropped."""

    type: str
    status: str
    reason: str
    since: float
    """Unix seconds of its last transition, 0 if unknown."""


class PodState(NamedTuple):
    """The deviations of a pod from a healthy one. Most pods share one object."""

    phase: str
    reason: str
    """``status.reason``, empty for most."""
    containers: tuple[ContainerState, ...] = ()
    conditions: tuple[PodCondition, ...] = ()
    nominated: str = ""
    """The node that the scheduler has chosen for a pod without one, after it has preempted others there."""

    def unschedulable_since(self) -> float | None:
        """Return since when (Unix seconds) no node takes the pod, by the scheduler's own word; None if it does not say so."""
        for each in self.conditions:
            if each.type == "PodScheduled" and each.status == "False":
                return each.since if each.reason == "Unschedulable" else None
        return None

    def restarts(self, *, init: bool) -> int:
        """Return the number of container restarts; with ``init``, those of init containers count."""
        return sum(each.restarts for each in self._containers(init=init, ephemeral=False))

    def reasons(self, *, init: bool, ephemeral: bool = False) -> Iterator[str]:
        """Yield the reasons why containers are waiting or have terminated."""
        for each in self._containers(init=init, ephemeral=ephemeral):
            yield from filter(None, (each.waiting, each.terminated))

    def exit_codes(self, *, init: bool) -> Iterator[int]:
        """Yield the exit codes of terminated containers."""
        for each in self._containers(init=init, ephemeral=False):
            if each.exit_code is not None:
                yield each.exit_code

    def _containers(self, *, init: bool, ephemeral: bool) -> Iterator[ContainerState]:
        kinds = {ContainerKind.REGULAR}
        kinds |= {ContainerKind.INIT} if init else set()
        kinds |= {ContainerKind.EPHEMERAL} if ephemeral else set()
        yield from (each for each in self.containers if each.kind in kinds)


RUNNING = PodState("Running", "")
"""The state of a pod that runs and of which there is nothing to say."""

_OF_EVERY_POD = frozenset(
    {"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"}
)


def says_something(kind: str, status: str, reason: str) -> bool:
    """Return whether a condition differs from those that every healthy pod has."""
    return status != "True" or bool(reason) or kind not in _OF_EVERY_POD


def state_of(
    phase: str,
    reason: str,
    containers: tuple[ContainerState, ...],
    conditions: tuple[PodCondition, ...],
    nominated: str = "",
) -> PodState:
    """Return the state of a pod; the shared object if it is healthy."""
    if phase == RUNNING.phase and not (reason or containers or conditions or nominated):
        return RUNNING
    return PodState(phase, reason, containers, conditions, nominated)
