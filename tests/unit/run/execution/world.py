"""A cluster of scripted answers, a clock that waiting moves, and an executor on both."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.stop import Stop
from rebalancer.kube.evict import AnswerKind, EvictionAnswer, PodView
from rebalancer.plan.plan import Cost, Landing, Method, Move, Outcome, Status
from rebalancer.run.execution.executor import Execution, Executor, WavePace
from rebalancer.run.execution.landing import Replacement
from rebalancer.run.execution.marks import Marks
from tests.support.clocks import HandClock


def move(
    name: str,
    *,
    wave: int = 1,
    budget: str | None = None,
    observed: bool = False,
    method: Method = Method.EVICT,
) -> Move:
    return Move(
        namespace="default",
        pod=name,
        uid=f"uid-{name}",
        owner="Deployment/default/web",
        node="n1",
        landings=(Landing("n2", 1.0, {}),),
        strategy="duplicates",
        reason="two on one node",
        gain=Cost(soft=1.0),
        cost=1.0,
        wave=wave,
        budgets=(budget,) if budget else (),
        observed=observed,
        method=method,
    )


def pod(name: str, **more: object) -> PodView:
    """The pod of a move as it was planned on."""
    return PodView(**{"uid": f"uid-{name}", "node": "n1", "deleting": False, **more})  # type: ignore[arg-type]


def opted_out(name: str) -> PodView:
    return pod(name, opted_out='annotated rebalancer/evict: "false"')


class Waiting(threading.Event):
    """The signal of a Stop: waiting for it moves the clock; it comes at a time, if any."""

    def __init__(self, clock: HandClock, comes: float = math.inf) -> None:
        super().__init__()
        self._clock, self._comes = clock, comes

    def is_set(self) -> bool:
        return super().is_set() or self._clock.seconds >= self._comes

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._clock.seconds += timeout
        return self.is_set()


@dataclass
class World:
    """What an actor and a feed see; ``answers`` are kinds or whole answers, in turn.

    An evicted pod is replaced at once, on n2 unless ``lands`` says otherwise.
    """

    clock: HandClock = field(default_factory=HandClock)
    answers: Mapping[str, list[Any]] = field(default_factory=dict)
    pods: dict[str, PodView | None] = field(default_factory=dict)
    lands: str = "n2"
    ready: bool = True
    silent: bool = False
    """The watch says nothing: what happened shows only in a list."""
    unreadable: float = math.inf
    """From then on pods cannot be read."""
    reading_takes: float = 0.0
    holds: dict[str, float] = field(default_factory=dict)
    """uid -> until when the evicted pod still terminates."""
    pauses: dict[str, float] = field(default_factory=dict)
    """uid -> seconds for which its controller makes no pod again; what is evicted comes after the longest of them."""
    waiting: dict[str, tuple[str, float]] = field(default_factory=dict)
    """uid -> (name, until when) of a pod without a node for which room is made."""
    recreates: bool | None = True
    """Whether LeaderWorkerSets start whole groups again once a pod has gone; None: they cannot be read."""
    follow_at: float = math.inf
    """When the controller ends the pods of a group whose leader has gone."""
    never: Collection[str] = ()
    """Names of the pods that nothing replaces."""
    unready: str | None = None
    evictions: list[str] = field(default_factory=list)
    """Names of the pods whose eviction was asked for."""
    rehearsed: Mapping[str, AnswerKind] = field(default_factory=dict)
    """The answers to evictions that are dry runs."""
    rehearsals: list[str] = field(default_factory=list)
    """Names of the pods of which it was asked whether they would be evicted."""
    allowed: Mapping[str, int] = field(default_factory=dict)
    """What each PodDisruptionBudget allows."""
    responds_after: float = math.inf
    """Seconds after a request until responders end the pod."""
    vain: str | None = None
    """Why requests come to nothing."""
    stands: str | None = None
    """Why a request cannot be withdrawn."""
    requested: dict[str, float] = field(default_factory=dict)
    """Name of a pod -> when its responders were asked to end it."""
    withdrawn: list[tuple[str, bool]] = field(default_factory=list)
    """Pods whose request was withdrawn, and whether it had its time."""
    restarts: list[str] = field(default_factory=list)
    """Names of the pods whose rollout was to be restarted."""
    reads: list[tuple[float, bool]] = field(default_factory=list)
    """Seconds that each read was given, and whether it was one after the stop."""
    announced: list[str] = field(default_factory=list)
    lists: int = 0
    _new: list[Replacement] = field(default_factory=list)
    _unseen: list[Replacement] = field(default_factory=list)

    # -- the actor ---------------------------------------------------------------------------------

    def read_pod(
        self, namespace: str, name: str, *, seconds: float, after_stop: bool = False
    ) -> PodView | None:
        self.reads.append((seconds, after_stop))
        if self.reading_takes > seconds:
            self.clock.seconds += seconds
            raise ClusterReadError("it answers too slowly")
        self.clock.seconds += self.reading_takes
        if self.clock.seconds >= self.unreadable:
            raise ClusterReadError("no answer")
        if self.evictions and self.clock.seconds >= self.follow_at and name not in self.pods:
            self.carry_out(name)
        return self.pods.get(name, pod(name))

    def rehearse(self, namespace: str, name: str, uid: str) -> EvictionAnswer:
        self.rehearsals.append(name)
        said = self.rehearsed.get(name, AnswerKind.EVICTED)
        return EvictionAnswer(said, f"{said.value} by script", 1.0)

    def read_disruptions_allowed(self, budget: str) -> int | None:
        return self.allowed.get(budget)

    def evict(
        self, namespace: str, name: str, uid: str, *, finishing: bool = False
    ) -> EvictionAnswer:
        self.evictions.append(name)
        script = self.answers.get(name, [])
        said = script.pop(0) if script else AnswerKind.EVICTED
        answer = (
            said
            if isinstance(said, EvictionAnswer)
            else EvictionAnswer(said, f"{said.value} by script", 1.0)
        )
        if answer.kind in (AnswerKind.EVICTED, AnswerKind.GONE) and name not in self.never:
            self.carry_out(name)
        return answer

    def recreates_group(self, namespace: str, name: str) -> bool:
        if self.recreates is None:
            raise ClusterReadError("no answer")
        return self.recreates

    def restart(self, moves: Sequence[Move]) -> EvictionAnswer:
        first = moves[0].pod
        self.restarts.append(first)
        script = self.answers.get(first, [])
        said = script.pop(0) if script else AnswerKind.RESTARTED
        if said is AnswerKind.RESTARTED:
            for planned in moves:
                self.carry_out(planned.pod)
        return EvictionAnswer(said, f"{said.value} by script", 1.0)

    def ask(self, planned: Move) -> EvictionAnswer:
        script = self.answers.get(planned.pod, [])
        said = script.pop(0) if script else AnswerKind.REQUESTED
        if said is AnswerKind.REQUESTED:
            self.requested.setdefault(planned.pod, self.clock.now())
        return EvictionAnswer(said, f"{said.value} by script", 1.0)

    def find_refusal(self, planned: Move) -> str | None:
        return self.vain

    def withdraw(self, planned: Move, *, in_vain: bool) -> str | None:
        if self.stands is None:
            self.withdrawn.append((planned.pod, in_vain))
            self.requested.pop(planned.pod, None)
        return self.stands

    def _respond(self) -> None:
        for name, at in list(self.requested.items()):
            if self.clock.now() >= at + self.responds_after:
                del self.requested[name]
                self.carry_out(name)

    def carry_out(self, name: str) -> None:
        """Let the pod go and its replacement come."""
        self.pods[name] = None
        new = Replacement(
            f"new-{name}", f"new-{name}", "default", "rs", self.lands, self.ready, 1.0
        )
        (self._unseen if self.silent else self._new).append(new)

    def announce(self, planned: Move) -> None:
        self.announced.append(planned.pod)

    # -- the feed ----------------------------------------------------------------------------------

    def begin_wave(self) -> None:
        self._new.clear()

    def controller_of(self, uid: str) -> str | None:
        return "rs"

    def newcomers(self) -> list[Replacement]:
        self._respond()
        made = self.clock.now() >= max(self.pauses.values(), default=0.0)
        return list(self._new) if made else []

    def ending(self) -> set[str]:
        return {uid for uid, until in self.holds.items() if self.clock.now() < until}

    def is_gone(self, uid: str) -> bool:
        self._respond()
        return uid not in self.ending() and uid.removeprefix("uid-") not in self.requested

    def pause_of(self, uid: str) -> float:
        return self.pauses.get(uid, 0.0)

    def still_waits(self, uid: str) -> str | None:
        ref, until = self.waiting.get(uid, ("", 0.0))
        return ref if self.clock.now() < until else None

    def unready_sibling(self, uid: str) -> str | None:
        return self.unready

    def wait(self, seconds: float) -> None:
        self.clock.seconds += seconds

    def list_again(self) -> None:
        self.lists += 1
        self._new += self._unseen
        self._unseen.clear()


class RecordedProgress:
    """Progress that keeps what it is called with."""

    def __init__(self) -> None:
        self.lines: list[tuple[object, ...]] = []

    def wave_started(self, wave: int, waves: int, moves: int) -> None:
        self.lines.append(("wave", wave, waves, moves))

    def evicted(self, planned: Move) -> None:
        self.lines.append(("evicted", planned.pod))

    def not_evicted(self, outcome: Outcome) -> None:
        self.lines.append((outcome.status.value, outcome.move.pod))

    def landed(self, planned: Move, node: str, *, predicted: bool, seconds: float) -> None:
        self.lines.append(("landed", planned.pod, node))

    def waiting(self, wave: int, pending: int, unready: int) -> None:
        self.lines.append(("waiting", wave, pending, unready))


def stop_of(clock: HandClock, *, deadline: float = 600.0, signal_at: float = math.inf) -> Stop:
    return Stop(clock, deadline, Waiting(clock, signal_at))


def executor_of(
    world: World,
    stop: Stop,
    *,
    in_order: int = 50,
    progress: RecordedProgress | None = None,
    marks: Marks | None = None,
    leaders: Mapping[str, str] = MappingProxyType({}),
) -> Executor:
    return Executor(
        world,
        world,
        stop,
        WavePace(parallel=1, in_order=in_order),
        progress or RecordedProgress(),
        domains=lambda node: {"zone": "z" + node[-1]},
        marks=marks,
        leaders=leaders,
    )


Recheck = Callable[[Sequence[Move]], Sequence[tuple[Move, str | None]]]


def execute(
    world: World,
    moves: Sequence[Move],
    *,
    recheck: Recheck | None = None,
    deadline: float = 600.0,
    signal_at: float = math.inf,
    in_order: int = 50,
    stop: Stop | None = None,
    marks: Marks | None = None,
    leaders: Mapping[str, str] = MappingProxyType({}),
) -> Execution:
    stop = stop or stop_of(world.clock, deadline=deadline, signal_at=signal_at)
    executor = executor_of(world, stop, in_order=in_order, marks=marks, leaders=leaders)
    return executor.run(moves, recheck or (lambda left: [(m, None) for m in left]))


def statuses(execution: Execution) -> list[Status]:
    return [outcome.status for outcome in execution.outcomes]
