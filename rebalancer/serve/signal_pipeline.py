"""The threads of a policy with ``signals``: one per source, and the pipeline of steps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from rebalancer.base.environment import Environment
from rebalancer.base.errors import PolicyError
from rebalancer.base.output import say
from rebalancer.base.stop import Stop
from rebalancer.kube.client import Client
from rebalancer.kube.events import EventWriter, Subject
from rebalancer.machines.interruption.listening import Listening
from rebalancer.machines.interruption.pipeline_run import PipelineContext, planned_steps
from rebalancer.machines.interruption.pipeline_runs import PipelineRuns
from rebalancer.machines.interruption.record import KeptTexts
from rebalancer.metrics.collect import SignalCounts
from rebalancer.policy.model import Policy
from rebalancer.registry import Registry
from rebalancer.run.identity import instance
from rebalancer.serve.cluster_nodes import ClusterNodes
from rebalancer.signals.model import SignalError, SourceContext

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
        stop.add(lost)
        own = client.beside(stop)
        clock = environment.clock
        events = EventWriter(own, clock=clock.unix, instance=instance(environment))

        def write_event(name: str, text: str) -> None:
            if (node := nodes.find(name)) is not None:
                subject = Subject("Node", "", name, node.metadata.uid)
                events.announce(subject, text, reason="Interruption", action="Attend")

        context = PipelineContext(
            client=own,
            clock=clock,
            environ=environment.environ,
            stop=stop,
            steps=planned_steps(policy.interruption, registry.steps.named),
            policy=policy.interruption,
            kept=KeptTexts(kept_in, clock.unix),
            sources=frozenset(policy.signals),
            plan=call_planner,
            say=lambda text: say(environment.err, f"rebalancer: {text}"),
            write_event=write_event,
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
        receiver = registry.signals.named(name).open(policy.signals[name], around)
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
            f"the step {keeping[0]} needs --interruption-state NAMESPACE/NAME: a ConfigMap, made before, that keeps what"
            " it has to give back if the machine stays"
        )
        raise PolicyError([message])
