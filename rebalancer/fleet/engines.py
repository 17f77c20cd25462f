"""Engines, which execute tasks: in this process, in several processes of this machine, or on a Ray cluster.

An engine takes tasks from an iterator, keeps a limited number in progress, and yields the results in any order. A
result depends on its task alone. So it is the same for any engine and number of workers, and if workers die: a task
whose worker died is tried again, alone, and fails after ``MAX_DEATHS`` deaths. Ray needs the extra ``ray``; it is
imported when its engine runs.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from rebalancer.base.errors import ProviderError, import_extra
from rebalancer.fleet.task import Failure, Row, Task, fail

MAX_DEATHS = 3
"""So often the worker of a task may die that has no other task."""

AHEAD = 2
"""Tasks under way per worker: the next one is there when one ends."""

_SPAWN = multiprocessing.get_context("spawn")

Result = Row | Failure

Handle = TypeVar("Handle")
"""What an engine knows a task by while it is under way."""


class TaskEngine(Protocol):
    """The interface of engines, which execute tasks."""

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield the result of each task, in any order."""


def keep_under_way(
    tasks: Iterator[Task],
    most: Callable[[], int],
    submit: Callable[[Task], Handle],
    wait_for_one: Callable[[Collection[Handle]], Iterable[Handle]],
) -> Iterator[tuple[Handle, Task]]:
    """Submit tasks so that ``most()`` are in progress; yield each ended task with its handle."""
    under_way: dict[Handle, Task] = {}
    while True:
        while len(under_way) < most() and (task := next(tasks, None)) is not None:
            under_way[submit(task)] = task
        if not under_way:
            return
        done = wait_for_one(list(under_way))
        for handle in sorted(done, key=lambda handle: under_way[handle].number):
            yield handle, under_way.pop(handle)


class InProcess:
    """Executes one task after the other, in this process."""

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield the result of each task, in their order."""
        for task in tasks:
            yield attempt(task)


class Processes:
    """Executes tasks in several processes of this machine."""

    def __init__(self, jobs: int, work: Callable[[Task], Result] | None = None) -> None:
        """``work`` is called in a worker with each task; it must be the function of a module."""
        self._jobs, self._work = jobs, work or attempt

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield the result of each task, in any order."""
        left = iter(tasks)
        while True:
            died: list[Task] = []
            with _pool(self._jobs) as pool:
                yield from self._run_until_death(pool, left, died)
            if not died:
                return
            yield from self._run_one_by_one(died)

    def _run_until_death(
        self, pool: ProcessPoolExecutor, left: Iterator[Task], died: list[Task]
    ) -> Iterator[Result]:
        """Yield results until all is done or a worker dies; ``died`` gets the tasks that were under way then."""

        def submit(task: Task) -> Future[Result]:
            try:
                return pool.submit(self._work, task)
            except BrokenProcessPool as error:
                broken: Future[Result] = Future()
                broken.set_exception(error)
                return broken

        def most() -> int:
            return 0 if died else self._jobs * AHEAD

        for future, task in keep_under_way(left, most, submit, _wait_for_one):
            try:
                yield future.result()
            except BrokenProcessPool:
                died.append(task)

    def _run_one_by_one(self, tasks: Sequence[Task]) -> Iterator[Result]:
        """Yield the results of tasks that were under way when a worker died: whose it was is not known."""
        left, deaths = deque(tasks), 0
        while left:
            with _pool(1) as pool:
                try:
                    while left:
                        result = pool.submit(self._work, left[0]).result()
                        left.popleft()
                        deaths = 0
                        yield result
                except BrokenProcessPool:
                    deaths += 1
            if deaths == MAX_DEATHS:
                why = f"its worker died {deaths} times; is there enough memory?"
                yield fail(left.popleft(), why)
                deaths = 0


def _wait_for_one(futures: Collection[Future[Result]]) -> Iterable[Future[Result]]:
    return wait(futures, return_when=FIRST_COMPLETED).done


def attempt(task: Task) -> Result:
    """Play a task in a worker process. The modules for it are imported with the first task."""
    work = importlib.import_module("rebalancer.fleet.work")
    result: Result = work.attempt(task)
    return result


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of workers that ends with the context. After an error it ends at once, without finishing its tasks."""
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, mp_context=_SPAWN, initializer=_begin)
    try:
        yield pool
    except BaseException:
        for worker in set(multiprocessing.active_children()) - before:
            worker.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """Prepare a worker: Ctrl-C is for the parent, and without it a worker ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)


LOCAL = "local"
"""In the place of an address: a Ray of this command alone."""

TIMEOUT = 10.0
"""Seconds to reach a cluster."""

_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Set before Ray is imported, unless the user has set something else: it would report its use to its makers."""


class RayTasks:
    """Executes tasks as tasks of Ray, one processor each.

    If a worker dies, Ray itself tries its task again, ``MAX_DEATHS`` times in all. The workers need this package, and
    the snapshots under the same paths.
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
    ray = import_extra("ray", "ray", "--ray")
    handler = signal.getsignal(signal.SIGTERM)
    try:
        if address == LOCAL:
            ray.init(address=LOCAL, num_cpus=workers, include_dashboard=False, log_to_driver=False)
        else:
            _reach(address)
            ray.init(address=address, log_to_driver=False)
    except Exception as error:  # noqa: BLE001 (Ray raises Exception itself if its own node does not start)
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
