"""The flags of ``run`` and ``apply``, and what they say of the cluster."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rebalancer.base.durations import parse_duration
from rebalancer.base.environment import Environment
from rebalancer.base.errors import PolicyError
from rebalancer.base.stop import Stop
from rebalancer.policy.changes import Changes
from rebalancer.policy.load import LoadedPolicy, load_policy, parse_select
from rebalancer.policy.select import Select
from rebalancer.policy.selector_text import parse_selector
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
        changes = Changes(self.settings, self.only, self.mode)
        loaded = load_policy(
            self.policy_path,
            registry,
            changes,
            sys.stdin.buffer,
            signals=registry.signals,
            steps=registry.steps,
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

    def client(self, environment: Environment, stop: Stop) -> Client:
        """Return a client of the cluster, until ``stop``.

        Raises:
            ClusterReadError: there is no cluster to talk to.
        """
        from rebalancer.kube.client import connect  # noqa: PLC0415
        from rebalancer.kube.transport import Limits  # noqa: PLC0415

        return connect(
            kubeconfig=self.kubeconfig,
            context=self.context_name,
            environ=environment.environ,
            stop=stop,
            limits=Limits(in_flight=self.max_requests, compressed=self.compress),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(PolicyFlags):
    """The flags of ``run`` and ``apply``."""

    plan_path: str | None = None
    """The reviewed plan to apply; None: make one."""
    max_age: str = "1h"
    """Of a reviewed plan."""
    kubeconfig: str | None = None
    context_name: str | None = None
    dry_run: bool = False
    snapshot_path: str | None = None
    namespace: str | None = None
    selector: str | None = None
    select: str | None = None
    output: str = "table"
    lift_budgets: bool = False
    whole: bool = False
    """Plan all there is to do, not only what one run can carry out in its time; for dry runs."""
    detailed_exitcode: bool = False
    deadline: float = 600
    lease: str | None = None
    memory: str | None = None
    max_requests: int = 8
    compress: bool = False
    quiet: bool = False
    log_format: str = "text"
    color: str = "auto"
    fail_on: tuple[str, ...] = ()
    """Of :data:`FAIL_ON`: what makes a run that would exit with 0 or 10 exit with 11."""
    metrics_push: str | None = None
    """URL of a Pushgateway."""
    metrics_file: str | None = None
    """File for a textfile collector."""
    notify: str | None = None
    """URL that gets a notice; a secret."""
    notify_template: str = "plain"
    yes: bool = False
    """Evict without asking, on a terminal too."""
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
        )

    def ending(self) -> Ending:
        """Return what the run prints."""
        return Ending(self.output, self.color, self.plan_out, self.detailed_exitcode, self.fail_on)


FAIL_ON = ("standstill", "unmet", "held")


def reference(flag: str, text: str) -> tuple[str, str]:
    """Return ``NAMESPACE/NAME`` as a pair.

    Raises:
        PolicyError: it is something else.
    """
    namespace, _, name = text.partition("/")
    if not namespace or not name:
        raise PolicyError([f"{flag} {text}: write NAMESPACE/NAME"])
    return namespace, name


def duration(flag: str, text: str) -> float:
    """Return ``90s``, ``5m`` or ``1h30m`` in seconds.

    Raises:
        PolicyError: it is something else.
    """
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise PolicyError([f"{flag}: {error}"]) from None


def label_selector(flag: str, text: str) -> LabelSelector:
    """Return the label selector that a flag gives.

    Raises:
        PolicyError: it is none.
    """
    try:
        return parse_selector(text).wire()
    except PolicyError as error:
        raise PolicyError([f"{flag} {text}: {error}"]) from None


def scope_of(options: RunOptions, environment: Environment) -> Scope:
    """Return which pods the run may move."""
    return Scope(
        namespace=options.namespace,
        selector=label_selector("-l", options.selector) if options.selector else None,
        select=Select() if options.select is None else parse_select(options.select, "--select"),
        own_pod=own_pod(environment),
    )


def own_pod(environment: Environment) -> tuple[str, str] | None:
    """Return (namespace, name) of the pod that this process lives in, None outside of one."""
    environ = environment.environ
    own = (environ.get("POD_NAMESPACE", ""), environ.get("POD_NAME", ""))
    return own if all(own) else None
