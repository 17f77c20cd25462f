"""What ``serve`` does about machines that will go, while it leads: sources, pipeline runs, and when to plan for them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rebalancer.base.environment import Environment
from rebalancer.base.errors import PolicyError
from rebalancer.base.output import say
from rebalancer.base.stop import Stop
from rebalancer.commands.context import RunContext
from rebalancer.commands.identity import instance
from rebalancer.policy.model import Policy
from rebalancer.registry import Registry
from rebalancer.signals.model import InterruptedMachine, SignalError, SignalSource, SourceContext
from rebalancer.signals.nodes import FollowedNodes

if TYPE_CHECKING:
    from rebalancer.interruption.listening import Listening
    from rebalancer.interruption.pipeline import PipelineContext
    from rebalancer.interruption.pipeline_runs import PipelineRuns
    from rebalancer.kube.client import Client
    from rebalancer.kube.events import EventWriter
    from rebalancer.kube.follow import Follower
    from rebalancer.kube.resources import AccessRule
    from rebalancer.metrics.collect import SignalCounts
    from rebalancer.wire.objects import Node
    from rebalancer.wire.pods import PodRecord

GAP = 10.0
"""Seconds after a run until the next one, while pods have to leave a machine that goes."""
_GOODBYE = 5.0
"""Seconds for all threads to end."""


@dataclass(slots=True)
class _AtWork:
    """What runs as long as the policy asks for it."""

    asked: tuple[object, ...]
    """What the policy says of it."""
    closing: threading.Event
    pipeline_runs: PipelineRuns
    listening: list[Listening]
    events: EventWriter
    client: Client


class Interruptions:
    """Listens while this process leads; an observer of ``rebalancer.kube.follow.Follower``."""

    def __init__(self, environment: Environment, registry: Registry) -> None:
        self._environment, self._registry = environment, registry
        self._work: _AtWork | None = None
        self._follower: Follower | None = None
        self._every: list[FollowedNodes] = []
        self._calls = 0
        """How often a step has called for the planner."""

    # -- listening ---------------------------------------------------------------------------------

    def listen_as(
        self, run: RunContext, client: Client, follower: Follower, lost: Callable[[], str | None]
    ) -> None:
        """Listen as the policy of ``run`` says: begin, go on, or end.

        Raises:
            PolicyError: a source cannot be opened; nothing is listened to then.
        """
        policy = run.loaded.policy
        asked = (policy.signals, policy.interruption, run.acts)
        self._follower = follower
        if self._work is not None and self._work.asked == asked:
            return
        self.close()
        if policy.signals and run.acts:
            self._begin(policy, client, lost, asked)
        elif policy.signals:
            run.notes.append("signals are not listened to: this run only observes")

    def close(self) -> None:
        """Listen no more; what is not at its end stands on the nodes, for the process that leads next."""
        work, self._work = self._work, None
        if work is None:
            return
        work.closing.set()
        clock = self._environment.clock
        until = clock.now() + _GOODBYE
        for one in work.listening:
            one.join(max(0.0, until - clock.now()))
        work.pipeline_runs.join(max(0.0, until - clock.now()))
        work.events.close()
        work.client.close()
        self._every = []

    def rules(self, policy: Policy) -> tuple[AccessRule, ...]:
        """Return the rights that the steps of a policy need."""
        from rebalancer.interruption.model import Permitted  # noqa: PLC0415
        from rebalancer.kube.access import MARK_RULES  # noqa: PLC0415

        if not policy.signals:
            return ()
        steps = [
            (self._registry.steps.named(one.step), one.params) for one in policy.interruption.steps
        ]
        own = [
            rule
            for step, params in steps
            if isinstance(step, Permitted)
            for rule in step.rules(params)
        ]
        return (*MARK_RULES, *own)

    def _begin(
        self,
        policy: Policy,
        client: Client,
        lost: Callable[[], str | None],
        asked: tuple[object, ...],
    ) -> None:
        from rebalancer.interruption.pipeline import PipelineContext, planned_steps  # noqa: PLC0415
        from rebalancer.interruption.pipeline_runs import PipelineRuns  # noqa: PLC0415
        from rebalancer.kube.events import EventWriter, Subject  # noqa: PLC0415

        closing = threading.Event()
        stop = Stop(self._environment.clock, signalled=closing)
        stop.add(lambda: "stopped by a signal" if self._environment.stop.is_set() else None)
        stop.add(lost)
        of = client.beside(stop)
        clock = self._environment.clock
        events = EventWriter(of, clock=clock.unix, instance=instance(self._environment))
        nodes = self._followed()

        def write_event(name: str, text: str) -> None:
            node = nodes.node_of(name, "", "")
            if node is not None:
                subject = Subject("Node", "", name, node.metadata.uid)
                events.announce(subject, text, reason="Interruption", action="Attend")

        pipeline = PipelineContext(
            client=of,
            clock=clock,
            environ=self._environment.environ,
            stop=stop,
            steps=planned_steps(policy.interruption, self._registry.steps.named),
            policy=policy.interruption,
            plan=self._called,
            say=self._say,
            write_event=write_event,
        )
        pipeline_runs = PipelineRuns(pipeline, nodes)
        work = self._work = _AtWork(asked, closing, pipeline_runs, [], events, of)
        try:
            for name in policy.signals:
                work.listening.append(self._opened(policy, name, pipeline_runs, pipeline))
        except SignalError as error:
            for one in work.listening:
                one.receiver.close()
            self.close()
            raise PolicyError([f"signals: {error}"]) from None
        pipeline_runs.start()
        pipeline_runs.resume(self._nodes())
        for one in work.listening:
            one.start()

    def _opened(
        self, policy: Policy, name: str, pipeline_runs: PipelineRuns, pipeline: PipelineContext
    ) -> Listening:
        from rebalancer.interruption.listening import Listening  # noqa: PLC0415

        source: SignalSource = self._registry.signals.named(name)
        around = SourceContext(
            name=name,
            environ=self._environment.environ,
            unix=pipeline.clock.unix,
            nodes=self._followed(),
        )
        receiver = source.open(policy.signals[name], around)
        return Listening(name, receiver, pipeline_runs, pipeline.clock, pipeline.stop, self._say)

    def _followed(self) -> FollowedNodes:
        followed = FollowedNodes(self._nodes)
        self._every.append(followed)
        return followed

    def _nodes(self) -> Sequence[Node]:
        return [] if self._follower is None else self._follower.nodes()

    def _say(self, text: str) -> None:
        say(self._environment.err, f"rebalancer: {text}")

    # -- planning ----------------------------------------------------------------------------------

    def _called(self) -> None:
        self._calls += 1

    def begin_run(self) -> Callable[[], str | None]:
        """A run begins; return what ends it early: pods have to leave a machine of which it knows nothing."""
        calls = self._calls

        def called() -> str | None:
            return "pods have to leave a machine that goes" if self._calls > calls else None

        return called

    def due(self, ended: float) -> float:
        """Return when to plan again, infinite if nothing calls for it. ``ended``: when the last run had."""
        needs_planner = self._work is not None and self._work.pipeline_runs.needs_planner
        return ended + GAP if needs_planner else math.inf

    # -- what changes ------------------------------------------------------------------------------

    def pod_changed(self, pod: PodRecord) -> None:
        """See Observer."""

    def object_changed(self, kind: str, before: Any | None, after: Any | None) -> None:
        """See Observer."""
        if kind == "Node":
            for followed in self._every:
                followed.changed(before, after)

    # -- what is shown of it -----------------------------------------------------------------------

    def report(self) -> tuple[InterruptedMachine, ...]:
        """Return the machines whose pipeline runs have not ended, or ended since the last call."""
        return () if self._work is None else tuple(self._work.pipeline_runs.report())

    def ailment(self) -> str | None:
        """Return which source hangs, None if none does."""
        for one in () if self._work is None else self._work.listening:
            if (silent := one.hangs()) is not None:
                return f"signal source {one.name} has not answered for {silent:.0f} s"
        return None

    def counts(self) -> SignalCounts | None:
        """Return what the metrics show, None if nothing is listened to."""
        from rebalancer.metrics.collect import SignalCounts  # noqa: PLC0415

        if self._work is None:
            return None
        pipeline_runs, listening = self._work.pipeline_runs, self._work.listening
        return SignalCounts(
            under_way={(state,): count for state, count in pipeline_runs.counts().items()},
            ended={**pipeline_runs.results},
            steps={**pipeline_runs.steps},
            failing={(one.name,): float(one.trouble is not None) for one in listening},
        )


class Both:
    """Two observers as one."""

    def __init__(self, *observers: Any) -> None:
        self._observers = observers

    def pod_changed(self, pod: PodRecord) -> None:
        """See Observer."""
        for one in self._observers:
            one.pod_changed(pod)

    def object_changed(self, kind: str, before: Any | None, after: Any | None) -> None:
        """See Observer."""
        for one in self._observers:
            one.object_changed(kind, before, after)
