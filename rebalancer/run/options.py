"""The flags of commands that plan and act, in groups: each part of a run receives only its group.

The node agent, a process on each node, imports this too; so modules for policies or clusters are imported on use.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rebalancer.base.environment import Environment
    from rebalancer.base.stop import Stop
    from rebalancer.kube.client import Client
    from rebalancer.policy.load import LoadedPolicy
    from rebalancer.policy.select import Select
    from rebalancer.registry import Registry
    from rebalancer.wire.objects import LabelSelector

FAIL_ON = ("standstill", "unmet", "held")
"""What ``--fail-on`` may name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFlags:
    """The flags that choose the policy."""

    policy_path: str | None = None
    settings: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    mode: str | None = None

    def load(self, registry: Registry) -> LoadedPolicy:
        """Return the policy.

        Raises:
            PolicyError: the policy or a flag is invalid.
        """
        from rebalancer.planner.rules import reads_usage  # noqa: PLC0415
        from rebalancer.policy.load import load_policy  # noqa: PLC0415
        from rebalancer.policy.sources import PolicyChanges  # noqa: PLC0415

        loaded = load_policy(
            self.policy_path,
            registry,
            PolicyChanges(self.settings, self.only, self.mode),
            sys.stdin.buffer,
            signals=registry.signals,
            steps=registry.steps,
            providers=registry.providers,
        )
        if (configuration := loaded.policy.scheduler.configuration) is not None:
            from rebalancer.scheduler.configured import not_followed  # noqa: PLC0415

            warnings = (*loaded.warnings, *not_followed(configuration))
            loaded = replace(loaded, warnings=warnings)
        if loaded.policy.usage.prometheus is None or reads_usage(loaded.policy, registry):
            return loaded
        warning = "usage.prometheus has no effect: no strategy judges by usage (signal: usage)"
        return replace(loaded, warnings=(*loaded.warnings, warning))


@dataclass(frozen=True, slots=True)
class ClusterFlags:
    """The flags that choose the input, a snapshot file or a cluster, and the access to the API server."""

    snapshot_path: str | None = None
    kubeconfig: str | None = None
    context_name: str | None = None
    max_requests: int = 8
    compress: bool = False
    request_timeout: float | None = None
    """Seconds for each request; None: the client's own limits."""

    def client(self, environment: Environment, stop: Stop) -> Client:
        """Return a client of the cluster, valid until ``stop``.

        Raises:
            ClusterReadError: no cluster is configured.
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
            spans=environment.spans,
        )


@dataclass(frozen=True, slots=True)
class ScopeFlags:
    """The flags that limit which pods may move."""

    namespace: str | None = None
    selector: LabelSelector | None = None
    select: Select | None = None


@dataclass(frozen=True, slots=True)
class StateFlags:
    """The objects that runs share, as (namespace, name)."""

    lease: tuple[str, str] | None = None
    """The Lease that keeps two runs apart."""
    memory: tuple[str, str] | None = None
    """The ConfigMap that remembers earlier runs."""
    capacity_status: tuple[str, str] | None = None
    """The ConfigMap with the status of machines."""
    interruption_state: tuple[str, str] | None = None
    """The ConfigMap with what steps have to give back."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The flags for the output at the end of a run, and for its exit code."""

    output: str = "table"
    color: str = "auto"
    plan_out: str | None = None
    """File that the plan is written to, for ``apply``."""
    detailed_exitcode: bool = False
    fail_on: tuple[str, ...] = ()
    """Of :data:`FAIL_ON`: what makes a run that would exit with 0 or 10 exit with 11."""
    asks: bool = False
    """Whether the question whether to carry the plan out follows the report of a dry run."""
    prints_idle: bool = True
    """Whether the report of a run is printed that had nothing to do, else one line."""


@dataclass(frozen=True, slots=True)
class Publishing:
    """The flags for metrics, notices and the trace of a run."""

    metrics_push: str | None = None
    """URL of a Pushgateway."""
    metrics_file: str | None = None
    """File for a textfile collector."""
    notify: str | None = None
    """URL that gets a notice; a secret."""
    traces: str | None = None
    """URL of an OpenTelemetry collector."""
    notify_template: str = "plain"
    cluster: str = ""
    """Name of the cluster among others, in metrics and notices; empty: there is one only."""


@dataclass(frozen=True, slots=True)
class ProgressFlags:
    """The flags for progress messages on standard error."""

    quiet: bool = False
    log_format: str = "text"
    pictured: bool = False
    """Whether a terminal shows the nodes while pods move."""


class Grouped:
    """Options of which some fields are groups of flags; the default of such a field is the group's class."""

    __slots__ = ()

    @classmethod
    def of(cls, **flags: Any) -> Self:
        """Return the options with these flags; each flag is set in the group that has a field of its name.

        Raises:
            TypeError: there is no such flag.
        """
        groups: dict[str, Any] = {}
        for one in fields(cls):  # type: ignore[arg-type]  # what derives from this is a dataclass
            if is_dataclass(group := one.default_factory):
                names = [each.name for each in fields(group) if each.name in flags]
                groups[one.name] = group(**{name: flags.pop(name) for name in names})
        return cls(**groups, **flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(Grouped):
    """The flags of ``run`` and ``apply``, and of commands that show a dry run."""

    policy: PolicyFlags = field(default_factory=PolicyFlags)
    cluster: ClusterFlags = field(default_factory=ClusterFlags)
    scope: ScopeFlags = field(default_factory=ScopeFlags)
    state: StateFlags = field(default_factory=StateFlags)
    ending: Ending = field(default_factory=Ending)
    publishing: Publishing = field(default_factory=Publishing)
    progress: ProgressFlags = field(default_factory=ProgressFlags)
    plan_path: str | None = None
    """The reviewed plan to apply; None: make one."""
    max_age: float = 3600
    """Seconds; of a reviewed plan."""
    confirmed_plan: bytes | None = None
    """The plan that was shown and agreed to, as ``plan_out`` has it."""
    dry_run: bool = False
    yes: bool = False
    """Evict without asking; without it, only a ``confirmed_plan``."""
    lift_budgets: bool = False
    whole: bool = False
    """Plan all there is to do, not only what one run can carry out in its time; for dry runs."""
    deadline: float = 600
    """Seconds that a run has, sending included."""
