"""Where tasks are worked off: on a Ray cluster, or a local Ray. Needs the extra ``ray``, and imports it when it runs."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rebalancer.base.errors import PolicyError, ProviderError
from rebalancer.fleet.engines import AHEAD, MAX_DEATHS, Result, attempt, keep_under_way
from rebalancer.fleet.task import Task, fail

LOCAL = "local"
"""In the place of an address: a Ray of this command alone."""

TIMEOUT = 10.0
"""Seconds to reach a cluster."""

_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Set before Ray is imported, unless the user has set something else: it would report its use to its makers."""


class RayTasks:
    """Works off tasks as tasks of Ray, one processor each.

    Ray itself tries a task again whose worker died, ``MAX_DEATHS`` times in all. The workers need this package, and the
    snapshots under the same paths.
    """

    def __init__(
        self, address: str, workers: int | None = None, work: Callable[[Task], Result] = attempt
    ) -> None:
        """``workers``: of a local Ray; None: one for each processor."""
        self._address, self._workers, self._work = address, workers, work

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield the result of each task, in any order.

        Raises:
            PolicyError: Ray is not installed.
            ProviderError: Ray cannot be started or reached.
        """
        with _connect(self._address, self._workers) as ray:
            play = ray.remote(num_cpus=1, max_retries=MAX_DEATHS - 1)(self._work)

            def most() -> int:
                return AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))

            def wait_for_one(references: Collection[Any]) -> Iterable[Any]:
                done, _ = ray.wait(references, num_returns=1)
                return done

            for reference, task in keep_under_way(iter(tasks), most, play.remote, wait_for_one):
                yield _take(ray, reference, task)


def _take(ray: Any, reference: Any, task: Task) -> Result:
    try:
        result: Result = ray.get(reference)
    except ray.exceptions.WorkerCrashedError:
        return fail(task, f"its worker died {MAX_DEATHS} times; is there enough memory?")
    except ray.exceptions.RayError as error:
        return fail(task, f"Ray: {' '.join(str(error).split())[:300]}")
    return result


@contextmanager
def _connect(address: str, workers: int | None) -> Iterator[Any]:
    """Yield the module ``ray``, connected until the context ends."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise PolicyError(
            [f"--ray needs the extra ray: pip install '.[ray]' in a checkout ({error})"]
        ) from None
    handler = signal.getsignal(signal.SIGTERM)
    try:
        if address == LOCAL:
            ray.init(address=LOCAL, num_cpus=workers, include_dashboard=False, log_to_driver=False)
        else:
            _reach(address)
            ray.init(address=address, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
        raise ProviderError(f"--ray {address}: {' '.join(str(error).split())[:300]}") from None
    try:
        if threading.current_thread() is threading.main_thread():
            # Ray has set its own, which would end the command with a code of its own.
            signal.signal(signal.SIGTERM, handler)
        yield ray
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Try to connect to HOST:PORT: Ray itself tries for minutes, and nothing interrupts it.

    Raises:
        OSError: there is no connection.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=TIMEOUT).close()
