"""Interruptions in ``serve``: one thread per signal source, and the pipeline of steps, while this process leads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import PolicyError
from rebalancer.base.output import say
from rebalancer.base.stop import Backoff, Stop
from rebalancer.kube.client import Client, prepare_structs
from rebalancer.kube.events import EventWriter, Subject
from rebalancer.machines.interruption.pipeline_run import PipelineContext, planned_steps
from rebalancer.machines.interruption.pipeline_runs import PipelineRuns
from rebalancer.machines.interruption.record import KeptTexts
from rebalancer.node_record.conditions import NodeConditions
from rebalancer.plan.machines import InterruptedMachine
from rebalancer.policy.model import Policy
from rebalancer.registry import Registry
from rebalancer.report.metrics import SignalCounts
from rebalancer.run.context import RunContext, instance
from rebalancer.signals.model import (
    HEARTBEAT,
    MAX_RECEIVE,
    FollowedNodes,
    Receiver,
    SignalError,
    SourceContext,
)
from rebalancer.wire.objects import Node

if TYPE_CHECKING:
    from rebalancer.kube.cache import ClusterCache
    from rebalancer.kube.resources import AccessRule
    from rebalancer.wire.pods import PodRecord

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_HANGS = MAX_RECEIVE + 120.0
_LAST_HEARTBEATS = 10.0
"""Seconds for which heartbeats that are being sent are waited for at the end."""


@dataclass
class Listening:
    """Listens to one source with two threads, until ``stop``: one receives, one sends heartbeats, so that none is delayed."""

    name: str
    receiver: Receiver
    pipeline_runs: PipelineRuns
    clock: SystemClock
    stop: Stop
    say: Callable[[str], None]
    failures: int = 0
    """Since the process began."""
    _troubles: dict[str, str] = field(default_factory=dict)
    """What cannot be done now -> why."""
    _seen: float = field(init=False)
    _over: threading.Event = field(default_factory=threading.Event)
    """Nothing is received any more."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._seen = self.clock.now()
        self._thread = self._make(self._listen, f"signals-{self.name}")

    @property
    def trouble(self) -> str | None:
        """Why nothing is received, or no heartbeat is sent, at present; None if all is well."""
        with self._lock:
            return next(iter(self._troubles.values()), None)

    def start(self) -> None:
        """Start the threads."""
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait until the threads have ended after the stop, ``seconds`` at most."""
        if self._thread.is_alive():
            self._thread.join(seconds)

    def hangs(self) -> float | None:
        """Return the seconds since the last answer of the source, if they exceed its limit; else None."""
        silent = self.clock.now() - self._seen
        return silent if silent > _HANGS else None

    def _make(self, target: Callable[[], None], name: str) -> threading.Thread:
        return threading.Thread(target=target, name=name, daemon=True)

    def _listen(self) -> None:
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        heartbeats = self._make(self._send_heartbeats, f"heartbeats-{self.name}")
        heartbeats.start()
        try:
            while self.stop.reason() is None:
                self._seen = self.clock.now()
                if self._try_each("receive", [self._receive]):
                    backoff.reset()
                else:
                    backoff.wait(self.stop)
        finally:
            self._over.set()
            heartbeats.join(_LAST_HEARTBEATS)
            self.receiver.close()

    def _try_each(self, what: str, acts: Iterable[Callable[[], None]]) -> bool:
        """Run each of ``acts``, even after failures; return whether all succeeded."""
        failures = [why for act in acts if (why := _failure(act)) is not None]
        why = "; ".join(dict.fromkeys(failures))
        with self._lock:
            before = self._troubles.pop(what, "")
            if not why:
                return True
            self._troubles[what] = why
            self.failures += 1
        if why != before:
            self.say(f"signal source {self.name}: {why}; it is tried again")
        return False

    def _receive(self) -> None:
        for interruption in self.receiver.receive(self.stop):
            self.pipeline_runs.take(interruption, self.receiver)

    def _send_heartbeats(self) -> None:
        """Send a heartbeat for each machine every :data:`HEARTBEAT` seconds, independently."""
        sent = self.clock.now()
        while self.stop.reason() is None and not self._over.is_set():
            left = sent + HEARTBEAT - self.clock.now()
            if left > 0:
                self.stop.sooner(left, self._over).wait(left)
                continue
            sent = self.clock.now()
            every = self.pipeline_runs.open_interruptions(self.receiver)
            self._try_each("heartbeat", [partial(self.receiver.heartbeat, one) for one in every])


def _failure(act: Callable[[], None]) -> str | None:
    """Run ``act``; return the error message, or None."""
    try:
        act()
    except SignalError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  # a plug-in's error must not end the listening for good
        return f"{type(error).__name__}: {error}"
    return None


class ClusterNodes:
    """Gives each listener its own view of the nodes, and forwards changes to all of them."""

    def __init__(self) -> None:
        self._nodes: Callable[[], Sequence[Node]] = tuple
        self._followed: list[FollowedNodes] = []

    def __call__(self) -> Sequence[Node]:
        """Return all nodes as currently known."""
        return self._nodes()

    def read_from(self, nodes: Callable[[], Sequence[Node]]) -> None:
        """Read the nodes with the function ``nodes`` from now on."""
        self._nodes = nodes

    def add_listener(self) -> FollowedNodes:
        """Return a view of the cluster's nodes for a new listener."""
        self._followed.append(FollowedNodes(self))
        return self._followed[-1]

    def end_following(self) -> None:
        """Stop forwarding changes."""
        self._followed = []

    def find(self, name: str) -> Node | None:
        """Return the node of this name; None if there is none."""
        return next((node for node in self() if node.metadata.name == name), None)

    def note_change(self, before: Any | None, after: Any | None) -> None:
        """Forward a change of a node, see ``FollowedNodes.note_change``."""
        for followed in self._followed:
            followed.note_change(before, after)


_JOIN_TIMEOUT = 5.0
"""Seconds for all threads to end."""


@dataclass(frozen=True, slots=True)
class SignalPipeline:
    """The threads that listen to the sources of one policy, and run its steps."""

    context: PipelineContext
    nodes: ClusterNodes
    runs: PipelineRuns
    events: EventWriter
    closing: threading.Event
    listening: list[Listening] = field(default_factory=list)

    @classmethod
    def start(
        cls,
        environment: Environment,
        registry: Registry,
        policy: Policy,
        client: Client,
        nodes: ClusterNodes,
        *,
        kept_in: tuple[str, str] | None,
        lost: Callable[[], str | None],
        call_planner: Callable[[], None],
    ) -> SignalPipeline:
        """Open the sources of ``policy``, continue interruptions of an earlier process, and listen.

        It ends when it is closed, at a signal, or once ``lost`` returns a reason. ``kept_in``: (namespace, name) of
        the ConfigMap in which steps store what they must restore later.

        Raises:
            PolicyError: a source cannot be opened, or a step has no ConfigMap to store its data; nothing was started.
        """
        _require_place(policy, kept_in)
        closing = threading.Event()
        stop = Stop(environment.clock, signalled=closing)
        stop.add(lambda: "stopped by a signal" if environment.stop.is_set() else None)
        stop.add(lost, final=True)
        own = client.beside(stop)
        clock = environment.clock
        events = EventWriter(own, clock=clock.unix, instance=instance(environment))

        def write_event(name: str, text: str) -> None:
            if (node := nodes.find(name)) is not None:
                subject = Subject("Node", "", name, node.metadata.uid)
                events.announce(subject, text, reason="Interruption", action="Attend")

        def say_line(text: str) -> None:
            say(environment.err, f"rebalancer: {text}")

        context = PipelineContext(
            client=own,
            clock=clock,
            environ=environment.environ,
            stop=stop,
            steps=planned_steps(policy.interruption, registry.steps.load),
            policy=policy.interruption,
            kept=KeptTexts(kept_in, clock.unix),
            sources=frozenset(policy.signals),
            plan=call_planner,
            say=say_line,
            write_event=write_event,
            conditions=NodeConditions(policy.node_conditions, clock.unix, say_line),
        )
        runs = PipelineRuns(context, nodes.add_listener())
        made = cls(context, nodes, runs, events, closing)
        made._start(registry, policy)
        return made

    def _start(self, registry: Registry, policy: Policy) -> None:
        try:
            for name in policy.signals:
                self.listening.append(self._open(name, registry, policy))
        except SignalError as error:
            for one in self.listening:
                one.receiver.close()
            self.close()
            raise PolicyError([f"signals: {error}"]) from None
        prepare_structs()  # those of plug-ins are imported by now
        self.runs.start()
        self.runs.resume(self.nodes())
        for one in self.listening:
            one.start()

    def _open(self, name: str, registry: Registry, policy: Policy) -> Listening:
        context = self.context
        around = SourceContext(
            name=name,
            environ=context.environ,
            unix=context.clock.unix,
            nodes=self.nodes.add_listener(),
        )
        receiver = registry.signals.load(name).open(policy.signals[name], around)
        return Listening(name, receiver, self.runs, context.clock, context.stop, context.say)

    def close(self) -> None:
        """End the threads; the progress of each interruption is recorded on its node for the next leader."""
        self.closing.set()
        clock = self.context.clock
        until = clock.now() + _JOIN_TIMEOUT
        for one in self.listening:
            one.join(max(0.0, until - clock.now()))
        self.runs.join(max(0.0, until - clock.now()))
        self.events.close()
        self.context.client.close()
        self.nodes.end_following()

    def problem(self) -> str | None:
        """Return which source hangs; None if none does."""
        for one in self.listening:
            if (silent := one.hangs()) is not None:
                return f"signal source {one.name} has not answered for {silent:.0f} s"
        return None

    def counts(self) -> SignalCounts:
        """Return the counts for metrics."""
        return SignalCounts(
            under_way={(state,): count for state, count in self.runs.counts().items()},
            ended={**self.runs.results},
            steps={**self.runs.steps},
            failing={(one.name,): float(one.trouble is not None) for one in self.listening},
        )


def _require_place(policy: Policy, kept_in: tuple[str, str] | None) -> None:
    keeping = [one.step for one in policy.interruption.steps if one.params.keeps]
    if keeping and kept_in is None:
        message = (
            f"the step {keeping[0]} needs --machine-state NAMESPACE/NAME: a ConfigMap, made before, that keeps what"
            " it has to give back if the machine stays"
        )
        raise PolicyError([message])


class Interruptions:
    """Listens to the policy's signals while this process leads.

    An observer of ``rebalancer.kube.cache.ClusterCache``.
    """

    def __init__(
        self, environment: Environment, registry: Registry, call_planner: Callable[[], None]
    ) -> None:
        """``call_planner`` is called by steps, from their threads, once pods have to leave a machine."""
        self._environment, self._registry = environment, registry
        self._call_planner = call_planner
        self._nodes = ClusterNodes()
        self._pipeline: SignalPipeline | None = None
        self._listens_as: tuple[object, ...] | None = None
        """The policy's settings of it, since the pipeline was started."""

    # -- listening ---------------------------------------------------------------------------------

    def listen_as(
        self, run: RunContext, client: Client, cache: ClusterCache, lost: Callable[[], str | None]
    ) -> str | None:
        """Start, continue or end listening, as the policy of ``run`` says; return a note on that, or None.

        Raises:
            PolicyError: a source cannot be opened; then no source is listened to.
        """
        policy = run.loaded.policy
        asked = (policy.signals, policy.interruption, policy.node_conditions, run.acts)
        self._nodes.read_from(cache.nodes)
        if self._pipeline is not None and self._listens_as == asked:
            return None
        self.close()
        if not policy.signals:
            return None
        if not run.acts:
            return "signals are not listened to: this run only observes"
        self._pipeline, self._listens_as = self._start(run, client, lost), asked
        return None

    def _start(
        self, run: RunContext, client: Client, lost: Callable[[], str | None]
    ) -> SignalPipeline:

        return SignalPipeline.start(
            self._environment,
            self._registry,
            run.loaded.policy,
            client,
            self._nodes,
            kept_in=run.state.machine_state,
            lost=lost,
            call_planner=self._call_planner,
        )

    def close(self) -> None:
        """Stop listening."""
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.close()

    def rules(self, policy: Policy) -> tuple[AccessRule, ...]:
        """Return the rights that the steps of a policy need."""
        from rebalancer.kube.access import MARK_RULES  # noqa: PLC0415
        from rebalancer.machines.interruption.model import Permitted  # noqa: PLC0415

        if not policy.signals:
            return ()
        steps = [
            (self._registry.steps.load(one.step), one.params) for one in policy.interruption.steps
        ]
        own = [
            rule
            for step, params in steps
            if isinstance(step, Permitted)
            for rule in step.rules(params)
        ]
        return (*MARK_RULES, *own)

    @property
    def pods_must_leave(self) -> bool:
        """Whether pods have to leave an interrupted machine, which a plan must achieve."""
        return self._pipeline is not None and self._pipeline.runs.needs_planner

    # -- what changes ------------------------------------------------------------------------------

    def pod_changed(self, pod: PodRecord) -> None:
        """Forward a change of a pod."""

    def object_changed(self, kind: str, before: Any | None, after: Any | None) -> None:
        """Forward a change of a node."""
        if kind == "Node":
            self._nodes.note_change(before, after)

    def watch_failed(self, plural: str, why: str) -> None:
        """Do nothing: signals are received again once the list is followed."""

    # -- what is shown of it -----------------------------------------------------------------------

    def report(self) -> tuple[InterruptedMachine, ...]:
        """Return the machines whose pipeline runs are in progress, or have ended since the last call."""
        return () if self._pipeline is None else tuple(self._pipeline.runs.report())

    def problem(self) -> str | None:
        """Return which source hangs; None if none does."""
        return None if self._pipeline is None else self._pipeline.problem()

    def counts(self) -> SignalCounts | None:
        """Return the counts for metrics; None if no source is listened to."""
        return None if self._pipeline is None else self._pipeline.counts()
