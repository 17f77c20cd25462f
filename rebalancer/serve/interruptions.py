"""Interruptions in ``serve``: signal sources and pipeline runs, while this process leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rebalancer.base.environment import Environment
from rebalancer.plan.machines import InterruptedMachine
from rebalancer.policy.model import Policy
from rebalancer.registry import Registry
from rebalancer.run.context import RunContext
from rebalancer.serve.cluster_nodes import ClusterNodes

if TYPE_CHECKING:
    from rebalancer.kube.cache import ClusterCache
    from rebalancer.kube.client import Client
    from rebalancer.kube.resources import AccessRule
    from rebalancer.metrics.collect import SignalCounts
    from rebalancer.serve.signal_pipeline import SignalPipeline
    from rebalancer.wire.pods import PodRecord


class Interruptions:
    """Listens to signals while this process leads, as the policy says.

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
        """What the policy says of it, since the pipeline was started."""

    # -- listening ---------------------------------------------------------------------------------

    def listen_as(
        self, run: RunContext, client: Client, cache: ClusterCache, lost: Callable[[], str | None]
    ) -> None:
        """Start, continue or end listening, as the policy of ``run`` says.

        Raises:
            PolicyError: a source cannot be opened; then no source is listened to.
        """
        policy = run.loaded.policy
        asked = (policy.signals, policy.interruption, run.acts)
        self._nodes.read_from(cache.nodes)
        if self._pipeline is not None and self._listens_as == asked:
            return
        self.close()
        if policy.signals and run.acts:
            self._pipeline, self._listens_as = self._start(run, client, lost), asked
        elif policy.signals:
            run.notes.append("signals are not listened to: this run only observes")

    def _start(
        self, run: RunContext, client: Client, lost: Callable[[], str | None]
    ) -> SignalPipeline:
        from rebalancer.serve.signal_pipeline import SignalPipeline  # noqa: PLC0415

        return SignalPipeline.start(
            self._environment,
            self._registry,
            run.loaded.policy,
            client,
            self._nodes,
            kept_in=run.state.interruption_state,
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
            (self._registry.steps.named(one.step), one.params) for one in policy.interruption.steps
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
            self._nodes.changed(before, after)

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
