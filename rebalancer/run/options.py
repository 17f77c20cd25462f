"""The flags of ``run`` and ``apply``, and what they say of the cluster."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rebalancer.base.environment import Environment
from rebalancer.base.stop import Stop
from rebalancer.policy.load import LoadedPolicy, load_policy
from rebalancer.policy.select import Select
from rebalancer.policy.sources import PolicyChanges
from rebalancer.registry import Registry
from rebalancer.snapshot.protect import Scope
from rebalancer.wire.objects import LabelSelector

if TYPE_CHECKING:
    from rebalancer.kube.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFlags:
    """The flags that say which policy is in force."""

    policy_path: str | None = None
    settings: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    mode: str | None = None

    def load(self, registry: Registry) -> LoadedPolicy:
        """Return the policy.

        Raises:
            PolicyError: it is wrong, or a flag is.
        """
        changes = PolicyChanges(self.settings, self.only, self.mode)
        loaded = load_policy(
            self.policy_path,
            registry,
            changes,
            sys.stdin.buffer,
            signals=registry.signals,
            steps=registry.steps,
            providers=registry.providers,
        )
        if (configuration := loaded.policy.scheduler.configuration) is not None:
            from rebalancer.scheduler.configured import not_followed  # noqa: PLC0415

            warnings = (*loaded.warnings, *not_followed(configuration))
            loaded = replace(loaded, warnings=warnings)
        if loaded.policy.usage.prometheus is None:
            return loaded
        from rebalancer.planner.planning import reads_usage  # noqa: PLC0415

        if reads_usage(loaded.policy, registry):
            return loaded
        warning = "usage.prometheus has no effect: no strategy judges by usage (signal: usage)"
        return replace(loaded, warnings=(*loaded.warnings, warning))


@dataclass(frozen=True, slots=True)
class Access:
    """The flags that say what a run reads: a snapshot file, or else a cluster, and how the API server is asked."""

    snapshot_path: str | None = None
    kubeconfig: str | None = None
    context_name: str | None = None
    max_requests: int = 8
    compress: bool = False
    request_timeout: float | None = None
    """Seconds for each request; None: the client's own limits."""

    def client(self, environment: Environment, stop: Stop) -> Client:
        """Return a client of the cluster, until ``stop``.

        Raises:
            ClusterReadError: there is no cluster to talk to.
        """
        from rebalancer.kube.client import connect  # noqa: PLC0415
        from rebalancer.kube.transport import Limits  # noqa: PLC0415

        limits = Limits(in_flight=self.max_requests, compressed=self.compress)
        return connect(
            kubeconfig=self.kubeconfig,
            context=self.context_name,
            environ=environment.environ,
            stop=stop,
            limits=limits if self.request_timeout is None else limits.within(self.request_timeout),
        )


@dataclass(frozen=True, slots=True)
class Ending:
    """The flags that say what a run prints at its end, and when that makes the exit code another one."""

    output: str
    color: str
    plan_out: str | None
    detailed_exitcode: bool
    fail_on: tuple[str, ...]
    prints_idle: bool = True
    """Whether the report of a run is printed that had nothing to do, else one line."""


@dataclass(frozen=True, slots=True)
class Publishing:
    """The flags that say where metrics and a notice of a run are sent."""

    metrics_push: str | None
    """URL of a Pushgateway."""
    metrics_file: str | None
    """File for a textfile collector."""
    notify: str | None
    """URL that gets a notice; a secret."""
    notify_template: str
    deadline: float
    """Seconds that a run has, sending included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(PolicyFlags):
    """The flags of ``run`` and ``apply``."""

    plan_path: str | None = None
    """The reviewed plan to apply; None: make one."""
    max_age: float = 3600
    """Seconds; of a reviewed plan."""
    kubeconfig: str | None = None
    context_name: str | None = None
    request_timeout: float | None = None
    dry_run: bool = False
    snapshot_path: str | None = None
    namespace: str | None = None
    selector: LabelSelector | None = None
    select: Select | None = None
    output: str = "table"
    lift_budgets: bool = False
    whole: bool = False
    """Plan all there is to do, not only what one run can carry out in its time; for dry runs."""
    detailed_exitcode: bool = False
    deadline: float = 600
    lease: tuple[str, str] | None = None
    """(namespace, name) of the Lease that keeps two runs apart."""
    memory: tuple[str, str] | None = None
    """(namespace, name) of the ConfigMap that remembers earlier runs."""
    capacity_status: tuple[str, str] | None = None
    """(namespace, name) of the ConfigMap with the status of machines."""
    interruption_state: tuple[str, str] | None = None
    """(namespace, name) of the ConfigMap with what steps have to give back."""
    max_requests: int = 8
    compress: bool = False
    quiet: bool = False
    log_format: str = "text"
    color: str = "auto"
    fail_on: tuple[str, ...] = ()
    """Of :data:`FAIL_ON`: what makes a run that would exit with 0 or 10 exit with 11."""
    metrics_push: str | None = None
    metrics_file: str | None = None
    notify: str | None = None
    notify_template: str = "plain"
    yes: bool = False
    """Evict without asking; without it, only a ``confirmed_plan``."""
    plan_out: str | None = None
    """File that the plan is written to, for ``apply``."""
    confirmed_plan: bytes | None = None
    """The plan that was shown and agreed to, as ``plan_out`` has it."""

    def access(self) -> Access:
        """Return what the run reads."""
        return Access(
            self.snapshot_path,
            self.kubeconfig,
            self.context_name,
            self.max_requests,
            self.compress,
            self.request_timeout,
        )

    def ending(self) -> Ending:
        """Return what the run prints."""
        return Ending(self.output, self.color, self.plan_out, self.detailed_exitcode, self.fail_on)

    def publishing(self) -> Publishing:
        """Return where metrics and a notice go."""
        return Publishing(
            self.metrics_push,
            self.metrics_file,
            self.notify,
            self.notify_template,
            self.deadline,
        )

    def scope(self, own_pod: tuple[str, str] | None) -> Scope:
        """Return which pods the run may move; ``own_pod`` is never one of them."""
        select = Select() if self.select is None else self.select
        return Scope(self.namespace, self.selector, select, own_pod=own_pod)


FAIL_ON = ("standstill", "unmet", "held")
