"""The flags of ``run`` and ``apply``, and what they say of the cluster."""

from __future__ import annotations

from dataclasses import dataclass

from rebalancer.durations import parse_duration
from rebalancer.environment import Environment
from rebalancer.errors import PolicyError
from rebalancer.policy.load import parse_select
from rebalancer.policy.select import Select
from rebalancer.snapshot.protect import Scope
from rebalancer.snapshot.selector_text import parse_selector


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The flags of ``run`` and ``apply``."""

    plan_path: str | None = None
    """The reviewed plan to apply; None: make one."""
    max_age: str = "1h"
    """Of a reviewed plan."""
    policy_path: str | None = None
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


def scope_of(options: RunOptions, environment: Environment) -> Scope:
    """Return which pods the run may move."""
    return Scope(
        namespace=options.namespace,
        selector=parse_selector(options.selector) if options.selector else None,
        select=Select() if options.select is None else parse_select(options.select, "--select"),
        own_pod=own_pod(environment),
    )


def own_pod(environment: Environment) -> tuple[str, str] | None:
    """Return (namespace, name) of the pod that this process lives in, None outside of one."""
    environ = environment.environ
    own = (environ.get("POD_NAMESPACE", ""), environ.get("POD_NAME", ""))
    return own if all(own) else None
