"""One simulation as a task: its inputs, how it is played, here or in several processes, and its measures.

A result depends on its task alone. So it is the same for any number of processes. Each worker process imports this module.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO

import msgspec
import numpy as np

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.base.errors import PolicyError, RebalancerError
from rebalancer.base.plain_text import printable
from rebalancer.plan.plan import Cost, Method, Outcome, Score
from rebalancer.planner.planning import score
from rebalancer.planner.rules import RunRules, finished_phases
from rebalancer.policy.forms import as_yaml, plain
from rebalancer.policy.kube_scheduler import KubeSchedulerConfiguration
from rebalancer.policy.load import LoadedPolicy, load_policy
from rebalancer.registry import Registry
from rebalancer.snapshot.load import load_judgeable
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope
from rebalancer.whatif.cycles import Conditions, Played, play, total


class Rules(msgspec.Struct, frozen=True):
    """A policy as text, so that workers do not need its file."""

    name: str
    """The name that the user has given."""
    text: str
    """The effective policy in YAML, without the settings of the scheduler's configuration."""
    configuration: str = ""
    """The configuration of kube-scheduler that the policy names, in JSON; empty for none."""


class TaskSetting(msgspec.Struct, frozen=True):
    """The settings of all simulations of a comparison."""

    judge: Rules
    """The rules by which the end of every simulation is scored."""
    cycles: int = 20
    lifted: bool = False
    memory: bool = True


class Task(msgspec.Struct, frozen=True):
    """One policy on one snapshot, with landings drawn once."""

    number: int
    """The number of the task from 0; rows are in the order of tasks."""
    policy: Rules
    snapshot: str
    """The name of the snapshot that the user has given."""
    source: str
    """The path where a worker reads it, independent of its working directory."""
    draw: int
    """Number of the repetition, from 0: each one draws its landings anew."""
    seed: tuple[int, ...]
    """Seed of the random landings; the same for all policies of a snapshot and draw."""
    setting: TaskSetting


class LeftByRule(msgspec.Struct, frozen=True):
    """The violations that one strategy of the judging policy counts at the end of a simulation, per entry of the cost."""

    hard: float
    soft: float
    imbalance: float
    unmet: int
    """Rules that are unmet: a constraint of a workload, a node."""
    judged: bool = True
    """False: the strategy could not judge all, because something was not measured."""


class Origin(msgspec.Struct, frozen=True):
    """Where a snapshot comes from, to recognise repeats: two of one cluster in the same state, or taken soon after each other."""

    state: str = ""
    """A digest of the nodes, the pods and where they are; empty: not known."""
    series: str = ""
    """The cluster and the place where its snapshots are kept."""
    at: float = 0.0
    """Time of the snapshot, in Unix seconds; 0: its file does not have it."""


class Row(msgspec.Struct, frozen=True):
    """The result of one task. It depends on nothing but the task and its snapshot."""

    number: int
    policy: str
    snapshot: str
    draw: int
    nodes: int
    pods: int
    silent: bool
    """Whether no further run would do anything; False: the cycles ended before that, or the memory forbade it."""
    measures: Mapping[str, float]
    """Key of one of ``MEASURES`` -> value."""
    left: Mapping[str, LeftByRule]
    """Strategy of the judge -> its violations at the end."""
    warnings: tuple[str, ...] = ()
    origin: Origin = Origin()


class Failure(msgspec.Struct, frozen=True):
    """A task that has no result."""

    number: int
    policy: str
    snapshot: str
    draw: int
    error: str
    """The error in one line."""


Result = Row | Failure


def fail(task: Task, error: str) -> Failure:
    """Return the failure of a task."""
    return Failure(task.number, task.policy.name, task.snapshot, task.draw, error)


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure: its name, its words in reports, and which direction is better."""

    key: str
    """The key of the measure in JSON."""
    head: str
    """The title of its column in tables."""
    words: str
    better: str = "fewer"
    """The word before ``words`` where a policy is better: fewer, less, more."""

    @property
    def more_is_better(self) -> bool:
        """Whether a larger value is better."""
        return self.better == "more"


MEASURES = (
    Measure("evictions", "EVICTED", "evictions"),
    Measure("movedTwice", "TWICE", "pods moved more than once"),
    Measure("hardLeft", "HARD LEFT", "pods left to move for hard rules"),
    Measure("softLeft", "SOFT LEFT", "pods left to move for soft rules"),
    Measure("unevenness", "UNEVEN", "unevenness of requested cpu and memory", "less"),
    Measure("waiting", "WAITING", "pods without a node"),
    Measure("workloadShare", "GONE AT ONCE", "of a workload gone at once", "less"),
    Measure("budgetShare", "PDB USED", "of a PodDisruptionBudget used at once", "less"),
    Measure("runs", "RUNS", "runs until silence"),
    Measure("nodesEmpty", "EMPTY", "empty nodes at the end", "more"),
)


def measure(played: Played, left: Cost) -> dict[str, float]:
    """Return key -> value of all measures; ``left`` is the cost at the end by the rules of the judge."""
    cycles = played.simulation.cycles
    return {
        "evictions": float(sum(cycle.evictions for cycle in cycles)),
        "movedTwice": float(cycles[-1].moved_twice if cycles else 0),
        "hardLeft": round_value(left.hard),
        "softLeft": round_value(left.soft),
        "unevenness": round_value(unevenness(played.last)),
        "waiting": float(sum(one.pods for one in played.simulation.waiting)),
        "workloadShare": round_value(max(_workload_shares(played), default=0.0)),
        "budgetShare": round_value(max(_budget_shares(played), default=0.0)),
        "runs": float(len(cycles)),
        "nodesEmpty": float(_empty_nodes(played.last)),
    }


def unevenness(snapshot: Snapshot) -> float:
    """Return the standard deviation over the nodes of the requested share, the mean of cpu and memory.

    Nodes that are not Ready, or cordoned, do not count: nothing can be evened out there. 0 without nodes.
    """
    nodes, pods = snapshot.nodes, snapshot.pods
    counted = nodes.ready & ~nodes.unschedulable
    if not counted.any():
        return 0.0
    placed = np.flatnonzero(pods.node >= 0)
    total = 0.0
    for resource in (0, 1):
        asked = np.bincount(
            pods.node[placed],
            weights=snapshot.requests[resource, pods.cls[placed]],
            minlength=len(nodes),
        )
        room = np.maximum(nodes.allocatable[resource], 1)
        total += float(np.std((asked / room)[counted]))
    return total / 2


def _empty_nodes(snapshot: Snapshot) -> int:
    """Return the number of nodes without pods, not counting pods that are bound to their node."""
    pods = snapshot.pods
    others = (pods.node >= 0) & ~snapshot.per_node
    return len(snapshot.nodes) - len(np.unique(pods.node[others]))


def _waves(played: Played) -> Iterator[list[Outcome]]:
    """Yield the evictions of each wave. A restart does not count: the new pod is Ready before the old one ends."""
    for cycle in played.simulation.cycles:
        waves: dict[int, list[Outcome]] = {}
        for outcome in cycle.outcomes:
            if outcome.status.is_carried_out and outcome.move.method is not Method.RESTART:
                waves.setdefault(outcome.move.wave, []).append(outcome)
        yield from waves.values()


def _workload_shares(played: Played) -> Iterator[float]:
    """Yield, wave by wave, the largest share of the replicas of a workload that was evicted at once."""
    replicas = {owner.ref: owner.replicas for owner in played.first.owners}
    for wave in _waves(played):
        evicted = Counter(outcome.move.owner for outcome in wave if outcome.move.has_replacement)
        yield max(
            (_share(number, replicas.get(owner, 0)) for owner, number in evicted.items()),
            default=0.0,
        )


def _budget_shares(played: Played) -> Iterator[float]:
    """Yield, wave by wave, the largest share of a PodDisruptionBudget's allowed disruptions that was used at once."""
    allowed: Mapping[str, int] = {budget.ref: budget.allowed for budget in played.first.budgets}
    for wave in _waves(played):
        used = Counter(ref for outcome in wave for ref in outcome.move.budgets)
        yield max(
            (_share(number, allowed.get(ref, 0)) for ref, number in used.items()), default=0.0
        )


def _share(number: int, of: int) -> float:
    return min(1.0, number / of) if of > 0 else 1.0


def round_value(value: float) -> float:
    """Round ``value`` to nine decimals, so that smaller differences count as equal."""
    return round(value, 9)


_FROM_CONFIG = "fromConfig"
_MAX_ERROR = 500
_DIED = "a worker process died; is there enough memory? Give fewer --jobs"


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
