"""Handle one interrupted machine: run step after step, or undo the steps if the interruption is cancelled."""

from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from rebalancer.base.environment import SystemClock
from rebalancer.base.errors import ClusterReadError
from rebalancer.base.stop import Abandonable, Stop
from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeView
from rebalancer.machines.interruption.model import (
    DONE,
    Step,
    StepContext,
    Undoing,
    fail_step,
    skip_step,
    time_out_step,
)
from rebalancer.machines.interruption.record import KeptTexts, Record, Wanted, patiently
from rebalancer.node_record.conditions import NodeConditions
from rebalancer.node_record.tasks import Course, carry_out
from rebalancer.plan.machines import PipelineOutcome, Result, StepOutcome, StepStatus
from rebalancer.policy.interruption import InterruptionPolicy, StepParams
from rebalancer.signals.model import Interruption, SignalError
from rebalancer.signals.state import RecordedInterruption
from rebalancer.wire.times import rfc3339


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step of the policy."""

    name: str
    """Name of the step; a second step with the same name has a number."""
    step: Step
    params: StepParams
    part: timedelta | float | None
    """See ``rebalancer.machines.interruption.pipeline_run``."""


def planned_steps(
    policy: InterruptionPolicy, step_named: Callable[[str], Any]
) -> tuple[PlannedStep, ...]:
    """Return the steps of the policy; ``step_named`` returns the plug-in for a name."""
    names: dict[str, int] = {}
    steps = []
    for one in policy.steps:
        names[one.step] = number = names.get(one.step, 0) + 1
        name = one.step if number == 1 else f"{one.step}-{number}"
        steps.append(PlannedStep(name, step_named(one.step), one.params, one.part))
    return tuple(steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineContext:
    """The input of a pipeline run."""

    client: Client
    clock: SystemClock
    environ: Mapping[str, str]
    stop: Stop
    """The process ends, or leads no longer: another one continues from what is recorded on the nodes."""
    steps: tuple[PlannedStep, ...]
    policy: InterruptionPolicy
    kept: KeptTexts
    """The texts that steps keep apart from the record on the node."""
    sources: frozenset[str]
    """Names of the sources in the policy: notices of other sources on a node are ignored."""
    plan: Callable[[], None]
    """Triggers a plan, see ``StepContext.plan``."""
    say: Callable[[str], None]
    """Writes a line to the process's log."""
    write_event: Callable[[str, str], None]
    """Writes an event on the node of a name, with this text."""
    conditions: NodeConditions
    """Shows on nodes what their records say."""


LEAST = 5.0
"""Seconds that a step has in any case: a deadline that has passed is often no more than a clock that is ahead."""

StepPart = timedelta | float | None
"""A time span, a share of all the time, or None for all that the others leave."""


def seconds_of(parts: Sequence[StepPart], total: float, left: float) -> float:
    """Return the seconds for the first of the remaining steps, at least ``LEAST``.

    Parameters
    ----------
    parts
        Of the remaining steps, in order.
    total
        Seconds from the start of the first step of all to the end.
    left
        Seconds from now to the end.

    If the parts exceed the remaining time, all are shortened by the same factor. Steps without a part share equally
    what the fixed parts leave.
    """
    fixed = [_fix(part, total) for part in parts]
    asked = sum(seconds for seconds in fixed if seconds is not None)
    own = fixed[0]
    if own is None:
        spare = left - asked
        return max(LEAST, spare / fixed.count(None))
    scale = max(0.0, left) / asked if asked > left and asked > 0 else 1.0
    return max(LEAST, own * scale)


def _fix(part: StepPart, total: float) -> float | None:
    if part is None:
        return None
    return part.total_seconds() if isinstance(part, timedelta) else part * max(0.0, total)


_JOIN_TIMEOUT = 1.0
"""Seconds for a step to say how far it came, once its part of the time is over."""
_MAX_KEPT = 8 * 1024
"""Characters that a step may keep."""


def _idempotency_key(machine: str, begun: float, step: str) -> str:
    """Return a key for a step in the pipeline run of ``machine`` that started at ``begun`` (Unix seconds).

    An event's id is not sufficient: a taint that is removed and set again has the same id, and must be handled
    again.
    """
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"kube-rebalancer/{machine}/{begun!r}/{step}"))


def _require_short(left: str) -> None:
    if len(left) > _MAX_KEPT:
        raise SignalError(f"a step may keep {_MAX_KEPT} characters, not {len(left)}")


_WRITE = 3.0
"""Seconds for writing the progress of the steps: a server that does not answer must not use a step's time."""
_UNDO = 20.0
"""Seconds for one attempt to undo a step."""
_PAUSE, _LONGEST_PAUSE = 5.0, 60.0
"""Seconds between two attempts to undo a step, at first and at most."""


@dataclass
class PipelineRun:
    """The pipeline run of one machine. :meth:`run` has its own thread; other threads call the other methods."""

    pipeline: PipelineContext
    node: str
    """Name of the Node; empty if the machine has no Node."""
    uid: str
    """Of the Node: with another one of its name this has nothing to do."""
    instance: str
    """Name of the machine at its provider; may be empty."""
    causes: dict[str, Interruption] = field(default_factory=dict)
    """Id -> an interruption that is in force."""
    withdraws: bool = False
    """Whether the machine still exists although its announcement was not cancelled: the announcement is remembered."""
    running: PlannedStep | None = None
    record: Record = field(init=False)
    is_sole: Callable[[], bool] = lambda: True
    """Returns whether no other Node names this machine as its own."""
    last: Interruption = field(default_factory=lambda: Interruption(id="", kind="none", source=""))
    """The one that came last: once all are cancelled, it is what is reported, and undone at the machine's provider."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _began_at: float = 0.0
    """Unix seconds at which the running step began."""
    _ends_at: float = math.inf
    """Unix seconds at which its part of the time is over."""

    def __post_init__(self) -> None:
        changing = {one.name for one in self.pipeline.steps if one.params.changes_node}
        self.record = Record(self.node, self.uid, self.pipeline.kept, changing)

    # -- interruptions -----------------------------------------------------------------------------

    def take(self, interruption: Interruption) -> None:
        """Receive an interruption that is new, has another deadline, or is cancelled."""
        with self._lock:
            self.last, self.withdraws = interruption, False
            if interruption.cancelled:
                self.causes.pop(interruption.id, None)
            else:
                self.causes[interruption.id] = interruption
        if self.running is not None:
            # A step that runs may get less time by this, and never more.
            self._ends_at = min(self._ends_at, self._end_of_part())

    @property
    def urgent(self) -> Interruption | None:
        """The most urgent interruption, overdue ones last; None once all are cancelled."""
        now = self.pipeline.clock.unix()
        with self._lock:
            every = list(self.causes.values())
        return min(every, key=lambda one: (one.is_over(now), _deadline(one)), default=None)

    @property
    def goes_at(self) -> float:
        """The time at which the machine ends, in Unix seconds; infinite if unknown."""
        urgent = self.urgent
        return math.inf if urgent is None else _deadline(urgent)

    @property
    def is_held(self) -> bool:
        """Whether the machine ends only after its source releases it; False if no source holds it."""
        urgent = self.urgent
        with self._lock:
            held = any(one.held for one in self.causes.values())
        return held and urgent is not None and urgent.deadline is None

    def begins(self) -> float:
        """Return when the steps are to start, in Unix seconds; -inf: now."""
        with self._lock:
            every = list(self.causes.values())
        begins = [
            -math.inf
            if one.deadline is None
            else one.deadline - self.pipeline.policy.lead(one.kind)
            for one in every
        ]
        return min(begins, default=-math.inf)

    # -- steps -------------------------------------------------------------------------------------

    def run(self) -> PipelineOutcome | None:
        """Run the steps, or undo them if the interruption is cancelled. None: the process ends, and another one continues."""
        return carry_out(self._course(), self.pipeline.stop)

    def _course(self) -> Course[PipelineOutcome | None]:
        if not self._on_node(self.record.read, "how far the steps have come could not be read"):
            self.record.assume()
        while self.pipeline.stop.reason() is None:
            outcome = yield from (self._undo() if self.urgent is None else self._steps())
            if outcome is not None:
                return outcome
        return None

    def _steps(self) -> Course[PipelineOutcome | None]:
        """Run the remaining steps. The result None: the process ends, or the interruption is cancelled."""
        record, clock = self.record, self.pipeline.clock
        with self._lock:
            causes = [RecordedInterruption.of(one) for one in self.causes.values()]
        news = {cause.id for cause in causes} - {cause.id for cause in record.state.causes}
        if record.state.ended and not news:
            record.causes(causes)
            self._write()  # a process before this one may have been killed before it showed it on the node
            return record.state.outcome
        if record.state.ended or not record.state.begun:
            record.begin(causes, clock.unix())
            self._announce(self._goes())
        record.causes(causes)
        for planned in self.pipeline.steps:
            if record.outcome(planned.name) is not None:
                continue
            outcome = self._one(planned)
            while self._holds(planned, outcome):
                self._say(
                    f"step {planned.name}: {outcome}; the machine is held, and it is tried again"
                )
                yield _PAUSE
                outcome = self._one(planned)
            if self._is_over():
                return None
            record.step(planned.name, outcome, clock.unix())
        record.end(clock.unix())
        self._write()
        self._announce("; ".join(f"{name} {one}" for name, one in self.outcomes().items()))
        return record.state.outcome

    def _one(self, planned: PlannedStep) -> StepOutcome:
        if planned.params.needs_node and (not self.node or self.record.gone):
            return skip_step("there is no such node")
        if self._has_expired():
            return time_out_step("the machine was to have gone before this step began")
        self._began_at, self.running = self.pipeline.clock.unix(), planned
        try:
            self.record.step(planned.name, StepOutcome(StepStatus.RUNNING), self._began_at)
            self._write()
            if self._is_over():
                # Who leads next runs it: both at once would send it twice.
                return time_out_step("it did not begin")
            if (known := self.record.outcome(planned.name)) is not None:
                # It could be read only now.
                return known
            if planned.params.needs_node and self.record.gone:
                return skip_step("the node is gone")
            self._ends_at = self._end_of_part()
            seconds = self._ends_at - self._began_at
            return self._attempt(
                planned, seconds, lambda context: planned.step.act(context, planned.params)
            )
        finally:
            self.running = None

    def _holds(self, planned: PlannedStep, outcome: StepOutcome) -> bool:
        """Return whether a step still empties the node, so that the machine is not released with pods on it."""
        until = self.record.state.begun + self.pipeline.policy.hold_up_to.total_seconds()
        return (
            planned.params.strategy is not None
            and not outcome.is_good
            and not self._is_over()
            and self.is_held
            and self.pipeline.clock.unix() < until
        )

    def _end_of_part(self) -> float:
        """Return when the current step's part of the time is over, in Unix seconds."""
        steps, running, urgent = self.pipeline.steps, self.running, self.urgent
        begun, policy, held = self.record.state.begun, self.pipeline.policy, self.is_held
        deadline = None if urgent is None else urgent.deadline
        usual = policy.without_deadline.total_seconds()
        if deadline is None:
            deadline = begun + (policy.hold_up_to.total_seconds() if held else usual)
        first = 0 if running is None else steps.index(running)
        # While a machine is held, pods have all the time that they need.
        parts = [None if held and step.params.strategy else step.part for step in steps[first:]]
        total, left = usual if held else deadline - begun, deadline - self._began_at
        seconds = seconds_of(parts, total, left)
        if running is not None and running.params.waits:
            seconds = max(seconds, seconds_of([None, *parts[1:]], total, left))
        return self._began_at + seconds

    def _has_expired(self) -> bool:
        """Return whether the machine should be gone but exists: the process did not run in the meantime."""
        urgent = self.urgent
        return urgent is not None and urgent.is_over(self.pipeline.clock.unix())

    def _is_over(self) -> bool:
        return self.pipeline.stop.reason() is not None or self.urgent is None

    def _attempt(
        self, planned: PlannedStep, seconds: float, act: Callable[[StepContext], StepOutcome]
    ) -> StepOutcome:
        urgent = self.urgent
        interruption = self.last if urgent is None else urgent
        instance = interruption.instance or self.instance
        if instance and not self.is_sole():
            # Its kubelet chose the name, and it may be another one's machine.
            self._say(f"another node names the machine {instance}, too: nothing is done to it")
            instance = ""
        interruption = replace(interruption, node=self.node, uid=self.uid, instance=instance)

        def why_stop() -> str | None:
            if urgent is not None and self.urgent is None:
                return "the machine stays"
            late = self.pipeline.clock.unix() >= self._ends_at
            return "its part of the time is over" if late else None

        stop = self.pipeline.stop.sooner(seconds, threading.Event())
        stop.add(why_stop)
        return self._act(planned, interruption, stop, act, seconds)

    def _act(
        self,
        planned: PlannedStep,
        interruption: Interruption,
        stop: Stop,
        act: Callable[[StepContext], StepOutcome],
        seconds: float,
    ) -> StepOutcome:
        """Return the outcome of ``act``; if ``stop`` comes first, abandon it and return why.

        ``seconds``: its part of the time, for the message.
        """

        def acting() -> StepOutcome:
            client = self.pipeline.client.beside(stop)
            try:
                return act(self._context(planned, interruption, client, stop))
            except (ClusterReadError, SignalError) as error:
                why = " ".join(str(error).split())
                return fail_step(why) if stop.reason() is None else time_out_step(why)
            except Exception as error:  # noqa: BLE001  # a plug-in's error must not keep the next step from its turn
                self.pipeline.say(f"step {planned.name}: {type(error).__name__}: {error}")
                return fail_step(f"{type(error).__name__}: an error of the step")
            finally:
                client.close()

        task = Abandonable(acting, name=f"step-{planned.name}")
        stop.sooner(math.inf, task.done).wait(math.inf)
        if task.done.wait(_JOIN_TIMEOUT):
            return task.result()
        return time_out_step(f"it did not end in its {seconds:.0f} s, and is left alone")

    def _context(
        self, planned: PlannedStep, interruption: Interruption, client: Client, stop: Stop
    ) -> StepContext:
        pipeline, record, name = self.pipeline, self.record, planned.name
        machine, apart = interruption.instance, planned.params.keeps

        def change(wanted: Wanted, left: str) -> NodeView | None:
            _require_short(left)
            return patiently(lambda: record.change(client, (name, left), wanted), stop)

        def keep(left: str) -> None:
            _require_short(left)
            if apart:
                patiently(lambda: pipeline.kept.keep(client, machine, name, left), stop)
                return
            record.keep(name, left)
            patiently(lambda: record.write(client), stop)

        return StepContext(
            interruption=replace(interruption, token=None),
            node=self.node,
            instance=machine,
            deadline=interruption.deadline,
            stop=stop,
            client=client,
            environ=pipeline.environ,
            unix=pipeline.clock.unix,
            outcomes=self.outcomes(),
            left=pipeline.kept.of(client, machine, name) if apart else record.kept_data(name),
            keep=keep,
            change=change,
            idempotency_key=_idempotency_key(self.node or machine, record.state.begun, name),
            plan=pipeline.plan,
        )

    # -- the machine stays -------------------------------------------------------------------------

    def _undo(self) -> Course[PipelineOutcome | None]:
        """Undo the steps, the last one first. The result None: the process ends, or the machine is interrupted again."""
        read = partial(self._on_node, self.record.read, "what is to be undone could not be read")
        if not (yield from self._again_and_again(read)):
            return None
        if not (self.record.state.begun or self.record.shown):
            return PipelineOutcome(Result.CANCELLED, {})  # it was cancelled before the first step
        outcomes = self.outcomes()
        for planned in reversed(self.pipeline.steps):
            # Data stored off the node decide, where the step has any.
            begun = planned.params.keeps or planned.name in self.record.state.steps
            undoes = begun and isinstance(planned.step, Undoing)
            undone = partial(self._undone, planned)
            if undoes and not (yield from self._again_and_again(undone)):
                return None
        if any(planned.params.keeps for planned in self.pipeline.steps):
            forget = partial(self._on_node, self._forget, "what steps kept cannot be removed")
            if not (yield from self._again_and_again(forget)):
                return None
        clear = self._withdrawn if self.withdraws else self.record.clear
        cleared = partial(self._on_node, clear, "the record on the node cannot be removed")
        if not (yield from self._again_and_again(cleared)):
            return None
        why = "has not gone in time, or is back" if self.withdraws else "stays"
        self._announce(f"The machine {why}: what was done was undone")
        return PipelineOutcome(Result.WITHDRAWN if self.withdraws else Result.CANCELLED, outcomes)

    def _forget(self, client: Client) -> None:
        self.pipeline.kept.forget(client, self.instance)

    def _withdrawn(self, client: Client) -> None:
        self.record.withdraw(client, self.pipeline.clock.unix())

    def _undone(self, planned: PlannedStep) -> bool:
        def undo(context: StepContext) -> StepOutcome:
            if isinstance(planned.step, Undoing):
                planned.step.undo(context, planned.params)
            return DONE

        self._ends_at = math.inf
        outcome = self._attempt(planned, _UNDO, undo)
        if outcome.status is not StepStatus.DONE:
            self._say(f"step {planned.name} is not undone: {outcome.why}")
            return False
        self.record.undone(planned.name)
        return True

    def _again_and_again(self, act: Callable[[], bool]) -> Course[bool]:
        """Repeat ``act``; the result is whether it succeeded before the process ends or the machine is interrupted again."""
        pause = _PAUSE
        while not act():
            if self.urgent is not None or (yield pause) is not None:
                return False
            pause = min(2 * pause, _LONGEST_PAUSE)
        return True

    # -- the record on the node, and messages ------------------------------------------------------

    def outcomes(self) -> Mapping[str, StepOutcome]:
        """Return the outcomes of the finished steps."""
        return {
            planned.name: outcome
            for planned in self.pipeline.steps
            if (outcome := self.record.outcome(planned.name)) is not None
        }

    def _write(self) -> None:
        self._on_node(self.record.write, "how far the steps have come could not be written")

    def _on_node(self, act: Callable[[Client], object], trouble: str) -> bool:
        stop = self.pipeline.stop.sooner(_WRITE, threading.Event())
        client = self.pipeline.client.beside(stop)
        try:
            patiently(lambda: act(client), stop)
            if self.node and not self.record.gone:
                self.pipeline.conditions.show(client, self.node)
        except ClusterReadError as error:
            if self.pipeline.stop.reason() is None:
                self._say(f"{trouble}: {error}")
            return False
        finally:
            client.close()
        return True

    def _goes(self) -> str:
        urgent = self.urgent
        if urgent is None:
            return "The machine stays"
        when = "soon" if urgent.deadline is None else f"at {rfc3339(urgent.deadline)}"
        why = f": {urgent.reason}" if urgent.reason else ""
        return f"The machine goes {when} ({urgent.kind}, by {urgent.source}{why})"

    def _announce(self, text: str) -> None:
        self._say(text)
        if self.node and not self.record.gone:
            self.pipeline.write_event(self.node, text)

    @property
    def machine(self) -> str:
        """The machine, as text for messages."""
        return self.node or self.instance

    def _say(self, text: str) -> None:
        self.pipeline.say(f"{self.machine}: {text}")


def _deadline(one: Interruption) -> float:
    return math.inf if one.deadline is None else one.deadline
