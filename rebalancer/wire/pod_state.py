"""How a pod fares, for strategies that judge single pods: only what is not as it is with a healthy running pod."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import NamedTuple


class ContainerKind(enum.IntEnum):
    """Which list of a pod's status a container is in."""

    REGULAR = 0
    INIT = 1
    EPHEMERAL = 2


class ContainerState(NamedTuple):
    """A container that is not ready, or was restarted."""

    kind: ContainerKind
    restarts: int
    waiting: str
    """Reason of its state waiting, empty if it has none."""
    terminated: str
    """Reason of its state terminated, empty if it has none."""
    exit_code: int | None
    """None unless its state is terminated."""


class PodCondition(NamedTuple):
    """A condition of a pod, kept only if healthy pods do not have it."""

    type: str
    status: str
    reason: str
    since: float
    """Unix seconds of its last transition, 0 if unknown."""


class PodState(NamedTuple):
    """How a pod fares. Most pods share one."""

    phase: str
    reason: str
    """``status.reason``, empty for most."""
    containers: tuple[ContainerState, ...] = ()
    conditions: tuple[PodCondition, ...] = ()

    def restarts(self, *, init: bool) -> int:
        """Return how often its containers were restarted; ``init``: those of init containers count."""
        return sum(each.restarts for each in self._containers(init=init, ephemeral=False))

    def reasons(self, *, init: bool, ephemeral: bool = False) -> Iterator[str]:
        """Yield why its containers wait or have ended."""
        for each in self._containers(init=init, ephemeral=ephemeral):
            yield from filter(None, (each.waiting, each.terminated))

    def exit_codes(self, *, init: bool) -> Iterator[int]:
        """Yield with which codes its containers have ended."""
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
    """Return whether a condition is not one that every healthy pod has."""
    return status != "True" or bool(reason) or kind not in _OF_EVERY_POD


def state_of(
    phase: str,
    reason: str,
    containers: tuple[ContainerState, ...],
    conditions: tuple[PodCondition, ...],
) -> PodState:
    """Return the state of a pod, the shared one where there is nothing to say."""
    if phase == RUNNING.phase and not (reason or containers or conditions):
        return RUNNING
    return PodState(phase, reason, containers, conditions)
