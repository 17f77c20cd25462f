"""The simulation loop: plan, act, remember, advance the time, until no later run would act."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rebalancer.base.environment import Timings
from rebalancer.base.stop import Stop
from rebalancer.cost.streaks import Streaks
from rebalancer.kube.evict import AnswerKind, EvictionAnswer, PodView
from rebalancer.plan.plan import Cost, Move, Outcome, Score, Status, UnmetRule
from rebalancer.planner.methods import with_methods
from rebalancer.planner.planning import Planned, make_plan
from rebalancer.planner.rules import NO_HISTORY, History, RunRules
from rebalancer.planner.scheduler_profile import scheduler_profile
from rebalancer.policy.load import LoadedPolicy
from rebalancer.policy.model import Policy
from rebalancer.registry import Registry
from rebalancer.run.execution.executor import Execution, Executor, Recheck, WavePace
from rebalancer.run.execution.landing import Replacement
from rebalancer.run.memory.document import Document, count_last_hour
from rebalancer.run.memory.remember import (
    after_run,
    describe_cooling,
    describe_resting,
    forget_stale,
    list_resting,
    recall_streaks,
)
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope
from rebalancer.whatif.world import (
    APART,
    GONE_AFTER,
    Replaced,
    SimulatedCluster,
    Span,
    Waiting,
    set_measured_at,
)
from rebalancer.wire.marks import EMPTY, PINS

READY_AFTER = Span(10.0, 10.0)


def carry_out(
    world: SimulatedCluster,
    moves: Sequence[Move],
    recheck: Recheck,
    *,
    pace: WavePace = WavePace(),  # noqa: B008  # it cannot be changed
    ready_after: Span = READY_AFTER,
) -> tuple[Execution, int]:
    """Execute ``moves`` wave by wave; return the execution, and the number of waves.

    ``ready_after``: seconds from an eviction until the replacement is Ready.
    """
    simulated, waves = _Simulated(world, moves, ready_after), _Waves()
    executor = Executor(
        simulated,
        simulated,
        Stop(_Clock(world), signalled=_NoSignal(world)),
        # Threads would make the result depend on the machine.
        replace(pace, in_order=len(moves)),
        waves,
        domains=world.nodes.labels_of,
        marks=simulated,
    )
    return executor.run(moves, recheck), waves.count


class _Simulated:
    """The API server and the pods of a simulated cluster."""

    def __init__(self, world: SimulatedCluster, moves: Sequence[Move], ready_after: Span) -> None:
        self._world, self._ready_after = world, ready_after
        self._uids = {(move.namespace, move.pod): move.uid for move in moves}
        self._new: list[tuple[Replacement, float]] = []
        """The replacements of this wave, and when they are Ready."""
        self._ending: Collection[str] = ()
        """The victims that held their room when replacements without a node were last looked at."""

    # -- the actor: see rebalancer.run.execution.attempt.Actor -------------------------------------------

    def read_pod(
        self,
        namespace: str,
        name: str,
        *,
        seconds: float,  # noqa: ARG002
        after_stop: bool = False,  # noqa: ARG002
    ) -> PodView | None:
        uid = self._uids[namespace, name]
        return self._world.pod(uid) or self._world.find_ended(uid)

    def evict(
        self,
        namespace: str,
        name: str,
        uid: str,
        *,
        finishing: bool = False,  # noqa: ARG002
    ) -> EvictionAnswer:
        if self._world.find_ended(uid) is not None:
            self._world.remove(uid)
            return EvictionAnswer(AnswerKind.EVICTED, f"{name} is gone")
        created = self._world.now
        new = self._world.evict(uid)
        self._replace(namespace, uid, new, created, self._world.draw(self._ready_after))
        return EvictionAnswer(AnswerKind.EVICTED, f"{name} is replaced by {new.name}")

    def rehearse(self, namespace: str, name: str, uid: str) -> EvictionAnswer:  # noqa: ARG002
        return EvictionAnswer(AnswerKind.EVICTED, f"{name} would be replaced")

    def read_disruptions_allowed(self, budget: str) -> int | None:  # noqa: ARG002  # as planned
        return None

    def ask(self, move: Move) -> EvictionAnswer:
        """Let responders end the pod at once: how long they take is not known."""
        done = self.evict(move.namespace, move.pod, move.uid)
        return EvictionAnswer(AnswerKind.REQUESTED, done.message)

    def find_refusal(self, move: Move) -> str | None:  # noqa: ARG002  # there is none
        return None

    def withdraw(self, move: Move, *, in_vain: bool) -> str | None:  # noqa: ARG002  # none is open
        return None

    def restart(self, moves: Sequence[Move]) -> EvictionAnswer:
        for move in moves:
            created, starts = self._world.now, self._world.draw(self._ready_after)
            new = self._world.restart(move.uid, starts)
            self._replace(move.namespace, move.uid, new, created, starts)
        return EvictionAnswer(AnswerKind.RESTARTED, f"{moves[0].pod} is replaced by {new.name}")

    def _replace(
        self, namespace: str, uid: str, new: Replaced, created: float, starts: float
    ) -> None:
        replacement = Replacement(
            uid=new.uid,
            name=new.name,
            namespace=namespace,
            controller=uid,  # the one that replaces this very pod
            node=new.node,
            ready=False,
            created=created,
        )
        self._new.append((replacement, created + starts))

    def announce(self, move: Move) -> None:
        pass

    # -- marks: see rebalancer.run.execution.marks.Marks -----------------------------------------------------

    def stand_on(self, nodes: Collection[str]) -> str | None:
        self._world.mark(nodes)
        return None

    # -- the feed: see rebalancer.run.execution.landing.Feed ---------------------------------------------

    def begin_wave(self) -> None:
        self._new.clear()
        self._world.begin_wave()

    def controller_of(self, uid: str) -> str | None:
        return uid

    def newcomers(self) -> list[Replacement]:
        now = self._world.now
        if any(not new.node for new, _ in self._new) and self._ending != self._world.terminating():
            self._ending = self._world.terminating()
            self._land_late()
        return [replace(new, ready=bool(new.node) and now >= at) for new, at in self._new]

    def _land_late(self) -> None:
        """Give replacements without a node the room that victims have left since."""
        self._world.schedule()
        for number, (new, ready) in enumerate(self._new):
            pod = None if new.node else self._world.pod(new.uid)
            if pod is not None and pod.node:
                later = self._world.now - new.created
                self._new[number] = replace(new, node=pod.node), ready + later

    def ending(self) -> Collection[str]:
        return self._world.terminating()

    def is_gone(self, uid: str) -> bool:
        return uid not in self._world.terminating()

    def pause_of(self, uid: str) -> float:  # noqa: ARG002
        """Return 0: in cycles no controller waits."""
        return 0.0

    def recreates_group(self, namespace: str, name: str) -> bool:  # noqa: ARG002
        """Return True: a LeaderWorkerSet starts whole groups again, as it does by default."""
        return True

    def still_waits(self, uid: str) -> str | None:
        self._world.schedule()
        pod = self._world.pod(uid)
        return uid if pod is not None and not pod.node else None

    def unready_sibling(self, uid: str) -> str | None:  # noqa: ARG002
        return None

    def wait(self, seconds: float) -> None:
        self._world.wait(seconds)

    def list_again(self) -> None:
        pass


class _Clock:
    def __init__(self, world: SimulatedCluster) -> None:
        self._world = world

    def now(self) -> float:
        return self._world.now


class _NoSignal(threading.Event):
    """An event that is never set; waiting for it advances the simulated clock."""

    def __init__(self, world: SimulatedCluster) -> None:
        super().__init__()
        self._world = world

    def wait(self, timeout: float | None = None) -> bool:
        self._world.wait(timeout or 0.0)
        return False


class _Waves:
    def __init__(self) -> None:
        self.count = 0

    def wave_started(self, wave: int, waves: int, moves: int) -> None:  # noqa: ARG002
        self.count += 1

    def evicted(self, move: Move) -> None:
        pass

    def not_evicted(self, outcome: Outcome) -> None:
        pass

    def landed(self, move: Move, node: str, *, predicted: bool, seconds: float) -> None:
        pass

    def waiting(self, wave: int, pending: int, unready: int) -> None:
        pass


# So far ahead no pod is young, no eviction counts against the hour, and every cool-down is over.
_LATER = 86_400.0

# More runs in a row than any policy asks for.
_LONG = 1000


@dataclass(frozen=True, slots=True)
class Cycle:
    """One run in the report of a simulation."""

    number: int
    at: float
    """Unix seconds of the snapshot."""
    before: Mapping[str, Score]
    after: Mapping[str, Score]
    """The cluster at the next run: pods are where they landed, not where they were expected."""
    outcomes: tuple[Outcome, ...]
    waves: int
    pending: int
    """Pods without a node afterwards."""
    moved_twice: int
    """Pods moved more than once since the first cycle, their replacements being the same pods."""
    resting: int
    """Owners in a cool-down."""
    stopped: str
    """Why the run ended where it did."""
    lower_bound: int
    idle: float = 0.0
    """Seconds beyond the interval until a run has something to do again, where this one had not."""

    @property
    def evictions(self) -> int:
        """The number of evicted pods."""
        return sum(outcome.status.is_carried_out for outcome in self.outcomes)

    @property
    def as_predicted(self) -> int:
        """The number of replacements that landed where their move expected them."""
        return sum(outcome.predicted is True for outcome in self.outcomes)


@dataclass(frozen=True, slots=True)
class Simulation:
    """The result of a whole simulation."""

    cycles: tuple[Cycle, ...]
    silent: str | None
    """Why a run a day later does nothing, either; None if cycles ran out first or the memory forbids it."""
    later: int
    """Moves that a run a day later would make, with every cool-down over and nothing seen for too few runs."""
    pods: int
    document: Document
    waiting: tuple[Waiting, ...] = ()
    """The pods that fit on no node at the end."""
    unmet: tuple[UnmetRule, ...] = ()
    """The rules that are unmet at the end, where no further run would move anything."""
    warnings: tuple[str, ...] = ()
    """The warnings of the runs, each once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPace:
    """Limits and time steps of a simulation."""

    cycles: int
    interval: float = 120.0
    """Seconds between two runs."""
    ready_after: Span = READY_AFTER
    """Seconds from an eviction until the replacement is Ready."""
    waves: WavePace = field(default_factory=WavePace)
    """The pauses of a run between its waves."""
    memory: bool = True
    """Remember from run to run; without it every run is the first."""


def total(scores: Mapping[str, Score]) -> Cost:
    """Return the cost summed over all strategies."""
    return Cost(
        sum(score.cost.hard for score in scores.values()),
        sum(score.cost.soft for score in scores.values()),
        sum(score.cost.imbalance for score in scores.values()),
    )


class Loop:
    """One simulation of a cluster, which it changes."""

    def __init__(
        self,
        world: SimulatedCluster,
        rules: RunRules,
        pace: LoopPace,
        timings: Timings,
        *,
        windows: bool,
    ) -> None:
        """``windows``: whether the policy has windows; a strategy may then observe now and act later."""
        self._world, self._rules, self._pace = world, rules, pace
        self._timings, self._windows = timings, windows
        self._document = Document()
        self._known_later: tuple[int, Planned, int] | None = None
        self.settled = world.snapshot
        """The cluster as the first run sees it: pods that waited at the beginning are placed if they fit."""
        self._changes = 0
        self._warnings: dict[str, None] = {}

    def run(self) -> Simulation:
        """Simulate the cycles."""
        self._world.schedule()
        self.settled = self._world.snapshot
        planned = self._plan()
        cycles: list[Cycle] = []
        silent: str | None = None
        while len(cycles) < self._pace.cycles and silent is None:
            started = self._world.now
            outcomes, waves, cut = self._act(planned)
            waits = self._remember(planned, outcomes)
            evicted = any(outcome.status.is_carried_out for outcome in outcomes)
            self._world.wait(max(0.0, started + self._pace.interval - self._world.now))
            placed = self._world.schedule()
            self._changes += evicted or placed > 0
            over = not evicted and not placed and not self._later()[1]
            idle = 0.0 if evicted or placed or waits or over else self._idle()
            self._world.wait(idle or 0.0)
            following = self._plan()
            stopped = cut or _ending(planned)
            cycles.append(
                Cycle(
                    number=len(cycles) + 1,
                    at=started,
                    before=planned.plan.before,
                    after=following.plan.before,
                    outcomes=tuple(outcomes),
                    waves=waves,
                    pending=self._world.pending,
                    moved_twice=int((self._world.moves > 1).sum()),
                    resting=len(list_resting(self._document, self._world.now)),
                    stopped=stopped,
                    lower_bound=planned.plan.lower_bound or 0,
                    idle=idle or 0.0,
                )
            )
            if over:
                silent = _ending(self._later()[0])
            if idle is None:
                break
            planned = following
        return Simulation(
            cycles=tuple(cycles),
            silent=silent,
            later=self._later()[1],
            pods=len(self._world.moves),
            document=self._document,
            waiting=tuple(self._world.waiting()),
            # Of a plan that has moves these are what is left after it.
            unmet=self._unmet(following, silent=silent is not None),
            warnings=tuple(self._warnings),
        )

    def _unmet(self, following: Planned, *, silent: bool) -> tuple[UnmetRule, ...]:
        """Return the rules that are unmet at the end; where no later run moves anything, with the reasons that last."""
        plan = self._later()[0].plan if silent else following.plan
        return () if plan.moves else plan.unmet

    def _remember(self, planned: Planned, outcomes: Sequence[Outcome]) -> bool:
        """Store what a run has measured and done; return whether it waits for a second measurement."""
        if not self._pace.memory:
            return False
        before, now = self._document, self._world.now
        # A run that stands still ends before it remembers anything.
        seen = {} if planned.standstill else planned.streaks
        self._document = after_run(before, planned.snapshot, seen, outcomes, now)
        return any(
            of.runs and (name not in before.streaks or of.runs != before.streaks[name].runs)
            for name, of in self._document.streaks.items()
        )

    def _plan(self) -> Planned:
        snapshot = self._world.snapshot
        if self._pace.memory:
            self._document = forget_stale(self._document, snapshot)
        planned = self._make_plan(snapshot)
        self._warnings |= dict.fromkeys(planned.plan.warnings)
        return planned

    def _make_plan(self, snapshot: Snapshot) -> Planned:
        history = NO_HISTORY
        if self._pace.memory:
            now = snapshot.captured_at
            history = History(
                describe_cooling(self._document, now),
                count_last_hour(self._document, now),
                recall_streaks(self._document),
                resting=describe_resting(self._document, now),
            )
        return make_plan(self._rules, snapshot, self._timings, history=history)

    def _idle(self) -> float | None:
        """Return the seconds until a run would act again; None if none would within a day.

        Conditions that time alone changes (ages, the hour's budget, cool-downs) never become stricter while nothing
        moves, so the first run that acts is searched by doubling the time and then bisecting.
        """
        interval = self._pace.interval
        last, early, late = int(_LATER // interval), -1, 0
        while not self._acts_in(late * interval):
            if late >= last:
                return None
            early, late = late, min(last, max(1, 2 * late))
        while late - early > 1:
            middle = (early + late) // 2
            if self._acts_in(middle * interval):
                late = middle
            else:
                early = middle
        return late * interval

    def _acts_in(self, seconds: float) -> bool:
        """Return whether a run after ``seconds`` would evict a pod."""
        now = self._world.snapshot
        planned = self._make_plan(_later(now, seconds))
        return not planned.standstill and any(not move.observed for move in planned.plan.moves)

    def _act(self, planned: Planned) -> tuple[Sequence[Outcome], int, str | None]:
        """Execute a plan as a run does; return outcomes, waves and why it ended early."""
        moves = [move for move in planned.plan.moves if not move.observed]
        if why := "; ".join(planned.standstill):
            return [Outcome(move, Status.NOT_ATTEMPTED, why) for move in moves], 0, why
        if planned.plan.emptied is not None:
            self._world.keep_marked(EMPTY, planned.plan.emptied)
        execution, waves = carry_out(
            self._world,
            moves,
            lambda left: planned.revalidate(self._world.snapshot, left),
            pace=self._pace.waves,
            ready_after=self._pace.ready_after,
        )
        if planned.plan.pinned_nodes is not None:
            self._world.keep_marked(PINS, planned.plan.pinned_nodes)
        return execution.outcomes, waves, execution.stopped

    def _later(self) -> tuple[Planned, int]:
        """Return the plan of a run without memory after all waiting times, and its moves; cached while nothing changes."""
        if self._known_later is None or self._known_later[0] != self._changes:
            later = _later(self._world.snapshot, _LATER)
            planned = make_plan(self._rules, later, self._timings)
            if self._pace.memory and (lasting := _lasting(planned.streaks)):
                history = History(streaks=lasting)
                planned = make_plan(self._rules, later, self._timings, history=history)
            moves = planned.plan.moves
            acting = [move for move in moves if self._windows or not move.observed]
            self._known_later = (self._changes, planned, len(acting))
        return self._known_later[1:]


def _ending(planned: Planned) -> str:
    """Return why a run ends that makes no more moves."""
    return "; ".join(planned.standstill) or planned.plan.stopped


def _later(snapshot: Snapshot, seconds: float) -> Snapshot:
    at = snapshot.captured_at + seconds
    return set_measured_at(replace(snapshot, captured_at=at), at)


def _lasting(streaks: Mapping[str, Streaks]) -> dict[str, Streaks]:
    """Return the streaks extended to be long enough for every rule."""
    return {
        name: Streaks(0.0, dict.fromkeys(of.runs, _LONG)) for name, of in streaks.items() if of.runs
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The settings of a simulation that do not depend on the policy."""

    cycles: int = 20
    ready_after: Span = READY_AFTER
    """Seconds from an eviction until the replacement is Ready."""
    gone_after: Span = GONE_AFTER
    """Seconds from an eviction until the victim is gone; it occupies its place until then."""
    apart: Span = APART
    """Seconds from one eviction to the next in a wave."""
    memory: bool = True
    """Whether later runs remember earlier ones."""
    lifted: bool = False
    """Whether there is no limit per run and per hour."""


@dataclass(frozen=True, slots=True)
class Played:
    """A simulation, and the cluster before and after it."""

    simulation: Simulation
    first: Snapshot
    settled: Snapshot
    """The cluster as the first run sees it, see ``Loop.settled``."""
    last: Snapshot


def play(
    snapshot: Snapshot,
    loaded: LoadedPolicy,
    registry: Registry,
    conditions: Conditions,
    timings: Timings,
    *,
    seed: int | Sequence[int] | None,
) -> Played:
    """Simulate run after run of a policy on a snapshot.

    ``seed``: draw landings at random with this seed; None: take the most probable ones. Same arguments, same result.
    """
    first = with_methods(loaded.policy, snapshot)
    world = SimulatedCluster(
        first,
        lambda of: scheduler_profile(loaded.policy, of),
        None if seed is None else np.random.default_rng(seed),
        gone_after=conditions.gone_after,
        apart=conditions.apart,
    )
    loop = Loop(
        world,
        RunRules(loaded, registry, Scope(), lifted=conditions.lifted),
        LoopPace(
            cycles=conditions.cycles,
            ready_after=conditions.ready_after,
            waves=WavePace.of(loaded.policy.safety),
            memory=conditions.memory,
        ),
        timings,
        windows=_has_windows(loaded.policy),
    )
    simulation = loop.run()
    return Played(simulation, first, loop.settled, world.snapshot)


def _has_windows(policy: Policy) -> bool:
    return bool(policy.windows) or any(of.windows for of in policy.strategies.values())
