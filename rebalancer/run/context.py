"""The environment of one run: flags, policy, stop, timings, and the names under which it leaves traces. Nothing in it changes."""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from io import BytesIO
from typing import TYPE_CHECKING

from rebalancer.base.environment import Environment, Timings
from rebalancer.base.errors import PolicyError
from rebalancer.base.stop import Stop
from rebalancer.core import INTERPRETED, is_compiled
from rebalancer.plan.machines import InterruptedMachine
from rebalancer.planner.deletion_costs import find_ordering
from rebalancer.planner.rules import RunRules
from rebalancer.policy.cluster import ConfigMapKey
from rebalancer.policy.load import LoadedPolicy
from rebalancer.policy.model import Mode, Steer
from rebalancer.policy.select import Select
from rebalancer.registry import Registry
from rebalancer.report.progress import Progress, bars_on
from rebalancer.run.options import (
    ClusterFlags,
    PolicyFlags,
    ProgressFlags,
    RunOptions,
    ScopeFlags,
    StateFlags,
)
from rebalancer.snapshot.protect import Scope

if TYPE_CHECKING:
    from rebalancer.kube.resources import AccessRule
    from rebalancer.report.plan_file import ReviewedPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """One run of ``run`` or ``apply``, or the dry run behind an explanation: what it is given.

    What it reads is in ``rebalancer.run.source.Reading``, what it does in ``rebalancer.run.ending.Results``.
    """

    acts: bool
    """Whether the run may evict."""
    environment: Environment
    rules: RunRules
    reviewed: ReviewedPlan | None
    """The plan to apply; None: make one."""
    state: StateFlags
    """The objects that it shares with other runs: memory and Lease."""
    measured: bool = False
    """Whether metrics of the run are sent or written."""
    stop: Stop
    name_in_marks: str
    """Name in the marks that do not outlast this run, see :func:`rebalancer.run.context.name_in_marks`."""
    rights: tuple[AccessRule, ...] = ()
    """Rights that it needs beside those of a run."""
    granted: frozenset[AccessRule] = frozenset()
    """Rights that were checked and are granted: a drain checks them once, not in each of its rounds."""
    timings: Timings
    progress: Progress
    """Reports on standard error what the run does."""
    interruptions: tuple[InterruptedMachine, ...] = ()
    """Machines that go, for the report."""
    notes: tuple[str, ...] = ()
    """What the reader of the report should know of flags and policy."""

    @property
    def loaded(self) -> LoadedPolicy:
        """The policy, including configuration from the cluster once that is read."""
        return self.rules.loaded

    @property
    def steers(self) -> bool:
        """Whether the run may mark nodes."""
        return self.loaded.policy.steer is Steer.MARKS

    @property
    def closes(self) -> bool:
        """Whether the run may cordon nodes whose machines will be removed."""
        policy = self.loaded.policy
        return self.reviewed is None and any(
            of.params.scales == "in" and policy.mode_of(name) is Mode.ENFORCE
            for name, of in policy.strategies.items()
        )

    @property
    def writes_costs(self) -> bool:
        """Whether the run may write deletion costs on pods, or remove them if their strategy is off."""
        name = None if self.reviewed is not None else find_ordering(self.rules)
        return name is not None and self.loaded.policy.mode_of(name) is not Mode.OBSERVE

    @property
    def restarts(self) -> bool:
        """Whether the run may restart rollouts."""
        return self.loaded.policy.method.restarts

    @property
    def requests(self) -> bool:
        """Whether the run creates EvictionRequests for pods with responders."""
        return self.loaded.policy.method.eviction_requests is not None


class RunNotes:
    """Collects notes for a report. For what acts over time and cannot return them: threads, and generators of acts."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, *texts: str | None) -> None:
        """Add notes; None is none."""
        self._texts += [text for text in texts if text is not None]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)


def run_context(
    options: RunOptions,
    environment: Environment,
    *,
    registry: Registry | None = None,
    loaded: LoadedPolicy | None = None,
) -> RunContext:
    """Load the policy, and the reviewed plan if there is one.

    ``registry`` and ``loaded``: loaded before by a long-lived process.

    Raises:
        PolicyError: a flag, the policy or the plan is invalid.
    """
    state, publishing = options.state, options.publishing
    if options.whole and not options.dry_run and options.cluster.snapshot_path is None:
        raise PolicyError(["--whole needs --dry-run: a run carries out what its time allows"])
    refuse_flags(options.policy, options.cluster, state)
    registry = Registry.installed() if registry is None else registry
    loaded = options.policy.load(registry) if loaded is None else loaded
    reviewed = _read_reviewed_plan(options, loaded)
    offline = options.cluster.snapshot_path is not None
    acts = not (options.dry_run or offline) and loaded.policy.mode is Mode.ENFORCE
    if acts and not options.yes and options.confirmed_plan is None:
        raise PolicyError([_UNASKED])
    # A dry run that is given no Lease is asked by people about a release whose Lease they may not know.
    knows_its_marks = not offline and (acts or state.lease is not None)
    passing = name_in_marks(state.lease, environment)
    clock, (timings, progress) = (
        environment.clock,
        say_on(environment, options.progress, options.ending.color),
    )
    return RunContext(
        acts=acts,
        environment=environment,
        rules=RunRules(
            loaded,
            registry,
            _scope(options.scope, environment),
            lifted=options.lift_budgets,
            seconds=math.inf if options.whole else options.deadline,
            runs=frozenset({name_in_lasting_marks(state.lease), passing})
            if knows_its_marks
            else None,
        ),
        reviewed=reviewed,
        state=state,
        name_in_marks=passing,
        measured=publishing.metrics_push is not None or publishing.metrics_file is not None,
        stop=Stop(clock, clock.now() + options.deadline, environment.stop),
        timings=timings,
        progress=progress,
        notes=(
            *loaded.warnings,
            *loaded.of_strategies,
            *([] if is_compiled() else [INTERPRETED]),
            *([_YES_OFFLINE] if offline and options.yes else []),
        ),
    )


def say_on(
    environment: Environment, flags: ProgressFlags, color: str = "auto"
) -> tuple[Timings, Progress]:
    """Return the timings of a run, and its progress reports on standard error."""
    form = "quiet" if flags.quiet else flags.log_format
    clock, bars = environment.clock, bars_on(environment, form=form, color=color)
    shown = nullcontext if bars is None else bars.phase
    progress = Progress(
        environment.err,
        clock=clock.now,
        form=form,
        bars=bars,
        unix=clock.unix,
    )
    return Timings(clock, shown=shown), progress


def _scope(flags: ScopeFlags, environment: Environment) -> Scope:
    """Return which pods the run may move; never its own pod."""
    select = Select() if flags.select is None else flags.select
    return Scope(flags.namespace, flags.selector, select, own_pod=own_pod(environment))


_YES_OFFLINE = "--yes has no effect: nothing is evicted from a file"
_UNASKED = (
    "an eviction needs a yes, and there is no terminal to ask on: add --yes; to look only,"
    " --mode observe"
)


def _read_reviewed_plan(options: RunOptions, loaded: LoadedPolicy) -> ReviewedPlan | None:
    if options.plan_path is None and options.confirmed_plan is None:
        return None
    from rebalancer.report.plan_file import read_plan  # noqa: PLC0415

    if options.confirmed_plan is not None:
        plan = read_plan("-", BytesIO(options.confirmed_plan))
        return replace(plan, name="shown above", max_age=options.max_age)
    if options.plan_path == options.policy.policy_path == "-":
        raise PolicyError(["plan and --policy cannot both be standard input"])
    if options.plan_path == options.cluster.snapshot_path == "-":
        raise PolicyError(["plan and --snapshot cannot both be standard input"])
    plan = read_plan(options.plan_path or "", sys.stdin.buffer)
    if not isinstance(loaded.policy.scheduler.from_config, ConfigMapKey):
        plan.check_policy(loaded)
    return replace(plan, max_age=options.max_age)


def refuse_flags(policy: PolicyFlags, cluster: ClusterFlags, state: StateFlags) -> None:
    """Raise PolicyError if two flags name standard input, or need a cluster although a snapshot file is read."""
    if policy.policy_path == cluster.snapshot_path == "-":
        raise PolicyError(["--policy and --snapshot cannot both be standard input"])
    if cluster.snapshot_path is None:
        return
    of_cluster = {
        "--kubeconfig": cluster.kubeconfig,
        "--context": cluster.context_name,
        "--as": cluster.as_user,
        "--as-group": cluster.as_groups or None,
        "--as-uid": cluster.as_uid,
        "--lease": state.lease,
        "--memory": state.memory,
        "--machine-state": state.machine_state,
    }
    given = [flag for flag, value in of_cluster.items() if value is not None]
    if given:
        are = "is" if len(given) == 1 else "are"
        it = "it" if len(given) == 1 else "them"
        raise PolicyError(
            [f"{', '.join(given)} {are} of the cluster; leave {it} out with a snapshot file"]
        )


def instance(environment: Environment) -> str:
    """Return the name of this process in events."""
    pod = environment.environ.get("POD_NAME")
    return pod or f"{os.uname().nodename}-{os.getpid()}"


def identity(environment: Environment) -> str:
    """Return a unique name for the holder of a Lease."""
    # A pod's name is not unique over the containers of hosts' networks, and a process's number is 1 in most.
    return f"{instance(environment)}_{environment.random(4).hex()}"


def own_pod(environment: Environment) -> tuple[str, str] | None:
    """Return (namespace, name) of the pod of this process; None outside of a pod."""
    environ = environment.environ
    own = (environ.get("POD_NAMESPACE", ""), environ.get("POD_NAME", ""))
    return own if all(own) else None


def name_in_lasting_marks(lease: tuple[str, str] | None) -> str:
    """Return the name in marks that outlast a run: that of its Lease. Runs without a Lease share one name."""
    if lease is None:
        return "nolease"
    return hashlib.sha256("/".join(lease).encode()).hexdigest()[:8]


def name_in_marks(lease: tuple[str, str] | None, environment: Environment) -> str:
    """Return the name in the marks of one run: that of its Lease, else a unique name.

    With it the holder of the Lease recognises marks left over by an earlier holder.
    """
    return environment.random(4).hex() if lease is None else name_in_lasting_marks(lease)
