"""``serve`` on an embedded cluster, in a thread of this process."""

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import ExitCode
from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.serve.health import Health
from rebalancer.serve.loop import ServeLoop
from rebalancer.serve.page import LivePage
from rebalancer.serve.triggers import Schedule
from tests.unit.commands.embedded import NOW_POLICY, run_options

BUSY = 240.0
"""Seconds that something may take on a machine that does much else."""
LEASE = "default/lease"
NEVER = 10**6
"""Seconds between two runs of a schedule that is not to come."""


class ServerClock(SystemClock):
    """The time of day is the cluster's."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    def unix(self) -> float:
        return self._cluster.clock.now()


class Served:
    """One process that serves."""

    def __init__(
        self,
        cluster: EmbeddedCluster,
        policy: Path,
        every: float | Schedule,
        clock: SystemClock | None = None,
        **options: Any,
    ):
        self.out, self.err = io.StringIO(), io.StringIO()
        self.stop = threading.Event()
        self.code: ExitCode | None = None
        self.error: BaseException | None = None
        chosen: dict[str, Any] = {
            "policy_path": str(policy),
            "kubeconfig": str(cluster.kubeconfig),
            "output": "json",
            "deadline": BUSY,
            **options,
        }
        clock = clock or ServerClock(cluster)
        environment = Environment(clock, {}, self.out, self.err, self.stop)
        self.health = Health(environment.clock, BUSY, keeps_report=True, page=LivePage())
        schedule = every if callable(every) else lambda _: every
        self.loop = ServeLoop(run_options(**chosen), environment, schedule, self.health)
        self._thread = threading.Thread(target=self._live)
        self._thread.start()

    def _live(self) -> None:
        try:
            self.code = self.loop.run()
        except BaseException as error:  # noqa: BLE001  # of another thread: kept for the test
            self.error = error

    def end(self) -> ExitCode | None:
        """Send the signal; return the exit code."""
        self.stop.set()
        self._thread.join(BUSY)
        assert not self._thread.is_alive()
        return self.code

    def await_runs(self, number: int) -> None:
        """Wait until so many runs have ended."""
        soon(lambda: self.health.runs >= number or self.error is not None, self.err.getvalue)
        assert self.error is None, self.error


@contextmanager
def serving(
    cluster: EmbeddedCluster,
    folder: Path,
    every: float | Schedule = NEVER,
    policy: str = NOW_POLICY,
    **options: Any,
) -> Iterator[Served]:
    path = folder / "policy.yaml"
    path.write_text(policy)
    served = Served(cluster, path, every, **options)
    try:
        yield served
    finally:
        served.end()


def like(**attributes: Any) -> Any:
    """Return what has these attributes, and stands for what a part is given."""
    return SimpleNamespace(**attributes)


def soon(true: Callable[[], bool], said: Callable[[], str] = str) -> None:
    """Wait until something is true."""
    until = time.monotonic() + BUSY
    while not true():
        assert time.monotonic() < until, said()
        time.sleep(0.01)
