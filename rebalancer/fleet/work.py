"""Play tasks, in this process or in several of this machine. Each worker process imports this module.

A result depends on its task alone. So it is the same for any number of processes.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO

import numpy as np

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.base.errors import PolicyError, RebalancerError
from rebalancer.base.plain_text import printable
from rebalancer.fleet.measures import measure, round_value
from rebalancer.fleet.task import LeftByRule, Origin, Result, Row, Rules, Task, fail
from rebalancer.plan.plan import Score
from rebalancer.planner.planning import score
from rebalancer.planner.rules import RunRules, finished_phases
from rebalancer.policy.forms import as_yaml, plain
from rebalancer.policy.kube_scheduler import KubeSchedulerConfiguration
from rebalancer.policy.load import LoadedPolicy, load_policy
from rebalancer.registry import Registry
from rebalancer.snapshot.load import load_judgeable
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope
from rebalancer.whatif.cycles import Conditions, play, total

_FROM_CONFIG = "fromConfig"
_MAX_ERROR = 500
_DIED = "a worker process died; is there enough memory? Give fewer --jobs, and --resume to go on"


def play_all(
    tasks: Sequence[Task], jobs: int, work: Callable[[Task], Result] | None = None
) -> Iterator[Result]:
    """Yield the result of each task, in any order; ``work`` is called with each, in a worker if ``jobs`` is above 1.

    If a worker dies, the system does not say with which task: all tasks that have not ended fail.
    """
    work = work or attempt
    if jobs == 1:
        yield from map(work, tasks)
        return
    with _pool(jobs) as pool:
        under_way: dict[Future[Result], Task] = {}
        for task in tasks:
            try:
                under_way[pool.submit(work, task)] = task
            except BrokenProcessPool:
                yield fail(task, _DIED)
        for future in as_completed(under_way):
            try:
                yield future.result()
            except BrokenProcessPool:
                yield fail(under_way[future], _DIED)


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of workers that ends with the context. After an error it ends at once, without finishing its tasks."""
    before = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_begin)
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


def attempt(task: Task) -> Result:
    """Play a task. Any error becomes a failure of this task and does not affect others."""
    try:
        return work(task)
    except RebalancerError as error:
        return fail(task, _one_line(str(error)))
    except MemoryError:
        return fail(task, "there is not enough memory")
    except Exception as error:  # noqa: BLE001  # a defect in one task must not lose the others
        return fail(task, _one_line(f"{type(error).__name__}: {error}"))


def work(task: Task) -> Row:
    """Play a task and measure it.

    Raises:
        RebalancerError: the policy or the snapshot cannot be used.
    """
    registry, setting = _registry(), task.setting
    loaded, judge = _load_rules(task.policy), _load_rules(setting.judge)
    phases = finished_phases(loaded.policy, registry) | finished_phases(judge.policy, registry)
    snapshot = _load_snapshot(task.source, phases)
    conditions = Conditions(cycles=setting.cycles, lifted=setting.lifted, memory=setting.memory)
    played = play(snapshot, loaded, registry, conditions, Timings(SystemClock()), seed=task.seed)
    judging = RunRules(judge, registry, Scope())
    scores = score(judging.problem(played.last), judging.settings()).scores
    return Row(
        number=task.number,
        policy=task.policy.name,
        snapshot=task.snapshot,
        draw=task.draw,
        nodes=len(snapshot.nodes),
        pods=len(snapshot.pods),
        silent=played.simulation.silent is not None,
        measures=measure(played, total(scores)),
        left={name: _split_by_entry(score) for name, score in sorted(scores.items())},
        warnings=played.simulation.warnings,
        origin=origin_of(snapshot),
    )


def origin_of(snapshot: Snapshot) -> Origin:
    """Return the cluster, time and state of a snapshot."""
    nodes, pods = snapshot.nodes, snapshot.pods
    state = hashlib.sha256(repr((nodes.names, *pods.name)).encode())
    for column in (nodes.ready, nodes.unschedulable, nodes.allocatable, pods.node, pods.cls):
        state.update(column.tobytes())
    state.update(snapshot.requests.tobytes())
    if snapshot.server is None:
        return Origin(state.hexdigest())
    # Clusters may have servers of one address: a service's in the pod that records.
    oldest = nodes.uid[int(np.argmin(nodes.created))] if len(nodes) else ""
    series = hashlib.sha256(repr((snapshot.server, oldest)).encode())
    return Origin(state.hexdigest(), series.hexdigest(), snapshot.captured_at)


def _split_by_entry(score: Score) -> LeftByRule:
    hard, soft, imbalance = map(round_value, score.cost.as_tuple())
    return LeftByRule(hard, soft, imbalance, score.violated, judged=not score.not_judged)


def as_rules(loaded: LoadedPolicy, name: str) -> Rules:
    """Return a policy as text, with the scheduler's configuration that it names."""
    data = plain(loaded.policy)
    configuration = loaded.policy.scheduler.configuration
    if configuration is None:
        return Rules(name, as_yaml(data))
    data["scheduler"] = {
        key: value for key, value in data["scheduler"].items() if key != _FROM_CONFIG
    }
    return Rules(name, as_yaml(data), configuration.model_dump_json())


@lru_cache(maxsize=1)
def _registry() -> Registry:
    return Registry.installed()


@lru_cache(maxsize=64)
def _load_rules(rules: Rules) -> LoadedPolicy:
    registry = _registry()
    try:
        loaded = load_policy(
            "-",
            registry,
            stdin=BytesIO(rules.text.encode()),
            signals=registry.signals,
            steps=registry.steps,
            providers=registry.providers,
        )
    except PolicyError as error:
        raise PolicyError([f"{rules.name}: {error}"]) from None
    if not rules.configuration:
        return loaded
    return loaded.with_scheduler(
        KubeSchedulerConfiguration.model_validate_json(rules.configuration)
    )


# Tasks come snapshot by snapshot: more of them in memory would serve nothing.
@lru_cache(maxsize=1)
def _load_snapshot(source: str, phases: frozenset[str]) -> Snapshot:
    return load_judgeable(source, finished=phases)


def _one_line(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= _MAX_ERROR else f"{line[:_MAX_ERROR]}..."
