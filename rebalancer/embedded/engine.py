"""The event loop: controllers that look at what changed, and timers. One thread, a fixed order.

The same writes at the same times lead to the same cluster, whatever the machine does.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from rebalancer.embedded.apiserver.store import Change, Store

_MOST_STEPS = 200_000


@dataclass(frozen=True, slots=True)
class Timings:
    """How long things take in the cluster, in its seconds."""

    start_up: float = 3.0
    """From a pod's binding until it is Ready (its annotation may say otherwise)."""
    shutdown: float = 2.0
    """From a pod's deletion until its containers are gone, if its grace period is not shorter."""
    node_start_up: float = 1.0
    """From a node's creation until its kubelet reports Ready."""
    monitor_grace: float = 50.0
    """From a kubelet's last word until its node counts as unreachable (node-monitor-grace-period)."""
    heartbeat: float = 300.0
    """Between two reports of a kubelet that have nothing new to say (nodeStatusReportFrequency)."""
    job: float = 60.0
    """How long a Job's pod runs (its annotation may say otherwise)."""
    job_backoff: float = 10.0
    """Before a Job replaces its first failed or evicted pod; twice as long for each further one."""
    orphan: float = 40.0
    """How long the pods of a node that is gone are left alone (the pod garbage collector's quarantine)."""

    def faster(self, factor: float) -> Timings:
        """Return timings in which pods and nodes need ``1/factor`` of their time."""
        return Timings(
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
    """Runs controllers until they have nothing left to do, and timers when they are due.

    All methods are to be called with the store's lock held.
    """

    def __init__(self, store: Store, timings: Timings) -> None:
        self.store, self.timings = store, timings
        self._controllers: list[Controller] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        store.listeners.append(self._observe)

    def add(self, controllers: Sequence[Controller]) -> None:
        """Add controllers, in the order in which they shall act."""
        self._controllers.extend(controllers)

    def _observe(self, change: Change) -> None:
        for controller in self._controllers:
            controller.observe(change)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Have something done in so many seconds; what is due at one moment goes in order of calling."""
        self._count += 1
        heapq.heappush(self._timers, (self.store.clock.now() + seconds, self._count, action))

    @property
    def idle(self) -> bool:
        """Whether no controller has anything to look at."""
        return not any(controller.queue for controller in self._controllers)

    def next_timer(self) -> float | None:
        """Return when the next timer is due."""
        return self._timers[0][0] if self._timers else None

    def drain(self) -> None:
        """Let the controllers act until all of them are done."""
        for _ in range(_MOST_STEPS):
            if self.idle:
                return
            for controller in self._controllers:
                controller.act()
        raise RuntimeError("the controllers do not come to rest: a bug of the simulator")

    def run_due(self, until: float) -> None:
        """Run the timers that are due, each followed by what the controllers make of it."""
        self.drain()
        while self._timers and self._timers[0][0] <= until:
            _, _, action = heapq.heappop(self._timers)
            action()
            self.drain()

    def run_until(self, target: float) -> None:
        """Let time pass up to ``target``: every timer runs at its own moment."""
        self.drain()
        while self._timers and self._timers[0][0] <= target:
            self.store.clock.set(self._timers[0][0])
            self.run_due(self.store.clock.now())
        self.store.clock.set(target)


class Controller(ABC):
    """Looks at changes, notes which keys need work, and works them off in the order of noting."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.store = engine, engine.store
        self.queue: dict[Any, None] = {}

    def note(self, key: Hashable) -> None:
        """Put a key at the end of the queue, unless it waits there already."""
        self.queue.setdefault(key)

    @abstractmethod
    def observe(self, change: Change) -> None:
        """Note what a change means for this controller. Nothing may be written here."""

    @abstractmethod
    def sync(self, key: Any) -> None:
        """Bring what a key stands for closer to what it should be."""

    def act(self) -> None:
        """Work off what was noted before now; what comes up meanwhile waits for the next round."""
        keys, self.queue = self.queue, {}
        for key in keys:
            self.sync(key)
