"""The event loop: controllers that observe changes, and timers. One thread, a fixed order.

Equal writes at equal times give an equal cluster on any machine.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from rebalancer.embedded.apiserver.store import Change, Store

_MAX_STEPS = 200_000


@dataclass(frozen=True, slots=True)
class Durations:
    """Durations in the cluster, in seconds of its clock."""

    start_up: float = 3.0
    """Seconds from a pod's binding until it is Ready (an annotation of the pod takes precedence)."""
    shutdown: float = 2.0
    """From a pod's deletion until its containers have ended, if its grace period is not shorter."""
    node_start_up: float = 1.0
    """Seconds from a node's creation until its kubelet reports Ready."""
    monitor_grace: float = 50.0
    """Seconds from a kubelet's last report until its node is unreachable (node-monitor-grace-period)."""
    heartbeat: float = 300.0
    """Between two reports of a kubelet without changes (nodeStatusReportFrequency)."""
    job: float = 60.0
    """Seconds for which a Job's pod runs (an annotation of the pod takes precedence)."""
    job_backoff: float = 10.0
    """Before a Job replaces its first failed or evicted pod; doubled for each further one."""
    orphan: float = 40.0
    """From a node's removal until its pods are removed (the pod garbage collector's quarantine)."""

    def faster(self, factor: float) -> Durations:
        """Return timings with the durations of pods and nodes divided by ``factor``."""
        return Durations(
            start_up=self.start_up / factor,
            shutdown=self.shutdown / factor,
            node_start_up=self.node_start_up / factor,
            monitor_grace=self.monitor_grace / factor,
            heartbeat=self.heartbeat,
            job=self.job / factor,
            job_backoff=self.job_backoff / factor,
            orphan=self.orphan / factor,
        )


class Engine:
    """Runs controllers until their queues are empty, and timers when they are due.

    Callers must hold the store's lock.
    """

    def __init__(self, store: Store, timings: Durations) -> None:
        self.store, self.timings = store, timings
        self._controllers: list[Controller] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        store.listeners.append(self._observe)

    def add(self, controllers: Sequence[Controller]) -> None:
        """Add controllers, in the order in which they act."""
        self._controllers.extend(controllers)

    def _observe(self, change: Change) -> None:
        for controller in self._controllers:
            controller.observe(change)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Set a timer; timers that are due at the same time run in the order of their calls."""
        self._count += 1
        heapq.heappush(self._timers, (self.store.clock.now() + seconds, self._count, action))

    @property
    def idle(self) -> bool:
        """Whether all queues are empty."""
        return not any(controller.queue for controller in self._controllers)

    def next_timer(self) -> float | None:
        """Return when the next timer is due."""
        return self._timers[0][0] if self._timers else None

    def drain(self) -> None:
        """Let the controllers act until all queues are empty."""
        for _ in range(_MAX_STEPS):
            if self.idle:
                return
            for controller in self._controllers:
                controller.act()
        raise RuntimeError("the controllers never become idle: a bug of the simulator")

    def run_due(self, until: float) -> None:
        """Run the timers that are due by ``until``, and the controllers after each."""
        self.drain()
        while self._timers and self._timers[0][0] <= until:
            _, _, action = heapq.heappop(self._timers)
            action()
            self.drain()

    def run_until(self, target: float) -> None:
        """Advance the clock to ``target``: every timer runs at its own time."""
        self.drain()
        while self._timers and self._timers[0][0] <= target:
            self.store.clock.set(self._timers[0][0])
            self.run_due(self.store.clock.now())
        self.store.clock.set(target)


class Controller(ABC):
    """Observes changes, queues the keys that need work, and syncs them in that order."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.store = engine, engine.store
        self.queue: dict[Any, None] = {}

    def note(self, key: Hashable) -> None:
        """Append a key to the queue, unless it is there already."""
        self.queue.setdefault(key)

    @abstractmethod
    def observe(self, change: Change) -> None:
        """Queue the keys that a change affects; must not write to the store."""

    @abstractmethod
    def sync(self, key: Any) -> None:
        """Reconcile the object of a key."""

    def act(self) -> None:
        """Sync the keys that are in the queue now; keys queued meanwhile wait for the next call."""
        keys, self.queue = self.queue, {}
        for key in keys:
            self.sync(key)
