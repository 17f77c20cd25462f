"""The loop of a drain: read, evict, wait, until the nodes are empty or no progress is possible."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.plain_text import and_more
from rebalancer.base.stop import Stop, pause_after
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.node_pods import NodePods
from rebalancer.machines.drain.triage import Fate, FateReason, Orders, Triaged, triage_pods
from rebalancer.snapshot.model import Snapshot

_PAUSE = 5.0
"""Seconds between two looks, as kubectl waits after a 429."""
_MAX_PAUSE = 30.0
"""Between rounds in which nothing could go: each reads the whole cluster."""
_FAILURES = 10
"""So many looks or rounds in a row may fail: an API server that is restarted comes back."""


@dataclass(frozen=True, slots=True)
class RemainingPods:
    """Pods that are still on the nodes, as ``node: namespace/name``."""

    to_evict: tuple[str, ...] = ()
    batch: tuple[str, ...] = ()
    """Their work comes to an end by itself, as does the time of an annotation."""
    terminating: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    """Finished, and their result is not read yet."""
    refused: tuple[str, ...] = ()
    """Evicted only if a flag says so; they came after the pre-flight."""

    @property
    def pods(self) -> int:
        """The number of pods."""
        every = (self.to_evict, self.batch, self.terminating, self.unread, self.refused)
        return sum(map(len, every))

    def __bool__(self) -> bool:
        return self.pods > 0

    def text(self) -> str:
        """Return the remaining pods as text."""
        parts = [
            ("to evict", self.to_evict),
            ("batch", self.batch),
            ("terminating", self.terminating),
            ("finished, not read yet", self.unread),
            ("refused", self.refused),
        ]
        return "; ".join(f"{len(pods)} {what}: {_few(pods)}" for what, pods in parts if pods)


def _few(pods: Sequence[str]) -> str:
    return and_more(pods, 3)


def list_remaining(pods: NodePods, orders: Orders) -> RemainingPods:
    """Return the pods that are still on nodes.

    A deleted pod counts until its object is gone, even if its containers have ended. kubectl waits for that, too,
    except for pods whose end is overdue for longer than the order allows.
    """
    longest = orders.skip_wait_for_delete or math.inf
    given_up = {ref for ref, seconds in pods.overdue.items() if seconds > longest}
    unread = {
        f"{one.node}: {one.namespace}/{one.name}": one.unread
        for one in pods.finished
        if one.unread is not None
    }
    every = list(_name_awaited(pods.living, orders, given_up))
    ended = (
        ()
        if pods.living.finished is None
        else _name_awaited(pods.living.finished, orders, given_up)
    )

    def of(fate: Fate, *why: FateReason) -> Iterator[str]:
        return (pod for one, pod in every if one.fate is fate and (not why or one.why in why))

    return RemainingPods(
        to_evict=tuple(of(Fate.EVICT)),
        # What waits for a rollout is no batch, but keeps its node as batch does.
        batch=tuple(of(Fate.WAIT, FateReason.BATCH, FateReason.OPTED_OUT, FateReason.ROLLOUT)),
        terminating=(
            *of(Fate.WAIT, FateReason.TERMINATING),
            *(pod for one, pod in ended if one.why is FateReason.TERMINATING and pod not in unread),
        ),
        unread=tuple(f"{pod} ({by})" for pod, by in unread.items()),
        refused=tuple(of(Fate.REFUSE)),
    )


def _name_awaited(
    snapshot: Snapshot, orders: Orders, given_up: Collection[str]
) -> Iterator[tuple[Triaged, str]]:
    """Yield (pod and its fate, ``node: namespace/name``), without pods that are no longer awaited."""
    for one in triage_pods(snapshot, np.ones(len(snapshot.nodes), bool), orders):
        node = snapshot.nodes.names[int(snapshot.pods.node[one.pod])]
        if one.why is not FateReason.TERMINATING or snapshot.pod_ref(one.pod) not in given_up:
            yield one, f"{node}: {snapshot.pod_ref(one.pod)}"


class DrainSteps(Protocol):
    """The operations of a drain; the process may be killed after each."""

    def look(self) -> RemainingPods:
        """Return the pods still on the nodes; raises ClusterReadError."""

    def evict(self) -> str | None:
        """Plan and evict once; return what prevents progress, or None; raises ClusterReadError."""

    def end_of_batch(self) -> bool:
        """End the wait for batch work; return whether it is evicted from now on."""

    def report_remaining(self, left: RemainingPods, why: str | None) -> None:
        """Receive the remaining pods, and what prevented progress in the last round."""


def empty(steps: DrainSteps, stop: Stop, batch_until: float) -> str | None:
    """Empty the nodes; return None once they are empty, else why they are not.

    Batch work is awaited until ``batch_until``, a time of the stop's clock.

    Raises:
        ClusterReadError: the cluster could not be read, repeatedly, or refuses access.
    """
    failures = idle = 0
    why: str | None = None
    held: str | None = None
    """What has prevented progress in the last round that was made."""
    while True:
        left = RemainingPods()
        try:
            # Twice: a node whose pods one wrong answer leaves out is not empty.
            if not (left := steps.look()) and not (left := steps.look()):
                return None
            if (ended := stop.reason()) is not None:
                return _end(ended, held)
            if (ended := _name_refused(left)) is not None:
                return ended
            steps.report_remaining(left, why)
            why = held = steps.evict() if left.to_evict else None
            failures = 0
        except ClusterReadError as error:
            failures += 1
            if isinstance(error, ForbiddenError) or failures > _FAILURES:
                raise
            why = str(error)
        idle = 0 if why is None and left.to_evict else idle + 1
        waits = (*left.batch, *left.unread)
        if waits and stop.now() >= batch_until and not steps.end_of_batch() and not left.to_evict:
            return f"work did not end in time: {_few(waits)}"
        if (ended := stop.wait(_pause(idle, left, why))) is not None:
            return _end(ended, held)


def _end(ended: str, held: str | None) -> str:
    """Return why it ended, with what was waited for then."""
    return ended if held is None or held == ended else f"{ended}; {held}"


def _name_refused(left: RemainingPods) -> str | None:
    if left.refused and not left.to_evict:
        return f"pods came that are not evicted without a flag: {_few(left.refused)}"
    return None


def _pause(idle: int, left: RemainingPods, why: str | None) -> float:
    """Return the seconds until the next look; longer after rounds without progress."""
    if idle == 0:
        return 1.0
    if left.to_evict or why is not None:
        return pause_after(idle, _PAUSE, _MAX_PAUSE)
    return _PAUSE
