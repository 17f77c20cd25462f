"""The composition root of ``run`` and ``apply``: policy, cluster, plan, evictions, report.

The two differ in where the plan comes from, and in nothing else: see :meth:`Planning.plan`.

A dry run and a real one share every line up to :meth:`_Run._execute`. Modules that a command may not need
(the API client above all) are imported where they are used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from rebalancer.deciding import Deciding
from rebalancer.environment import Environment
from rebalancer.errors import ClusterReadError, ExitCode, PolicyError, StoppedError
from rebalancer.evictor.outcomes import Outcome
from rebalancer.options import RunOptions, duration, reference, scope_of
from rebalancer.output import say
from rebalancer.planning import Planned, Planning
from rebalancer.policy.load import LoadedPolicy, load_policy
from rebalancer.policy.model import Mode
from rebalancer.registry import Registry
from rebalancer.report.progress import Progress
from rebalancer.reporting import Reporting
from rebalancer.snapshot.model import Snapshot
from rebalancer.stop import Stop

if TYPE_CHECKING:
    from rebalancer.evictor.executor import Execution
    from rebalancer.kube.client import Client
    from rebalancer.kube.lease import HeldByAnother, HeldLease
    from rebalancer.kube.read import Reading
    from rebalancer.report.plan_file import ReviewedPlan


def run_once(options: RunOptions, environment: Environment) -> ExitCode:
    """Plan, or take the plan that was reviewed; carry it out unless this is a dry run; report; return the exit code.

    Raises:
        RebalancerError: nothing was evicted; the exit code is the error's.
    """
    registry = Registry.installed()
    loaded = load_policy(options.policy_path, registry)
    run = _Run(options, environment, loaded, registry, _reviewed(options, loaded))
    if options.snapshot_path is not None:
        return run.on_file(options.snapshot_path)
    try:
        return run.on_cluster()
    except ClusterReadError:
        if environment.stop.is_set() and not environment.committed.is_set():
            raise StoppedError from None
        raise


def _reviewed(options: RunOptions, loaded: LoadedPolicy) -> ReviewedPlan | None:
    """Read the plan to apply, if there is one, and hold it against the policy."""
    if options.plan_path is None:
        return None
    from rebalancer.report.plan_file import read_plan  # noqa: PLC0415

    if options.plan_path == options.snapshot_path == "-":
        raise PolicyError(["plan and --snapshot cannot both be standard input"])
    plan = read_plan(options.plan_path, sys.stdin.buffer)
    plan.check_policy(loaded)
    return plan


class _Run:
    """One run, from the policy on."""

    def __init__(
        self,
        options: RunOptions,
        environment: Environment,
        loaded: LoadedPolicy,
        registry: Registry,
        reviewed: ReviewedPlan | None,
    ) -> None:
        self._options, self._environment, self._loaded = options, environment, loaded
        deadline = environment.clock.now() + options.deadline
        self._stop = Stop(environment.clock, deadline, environment.stop)
        scope = scope_of(options, environment)
        self._planning = Planning(
            loaded,
            registry,
            scope,
            lifted=options.lift_budgets,
            reviewed=None if reviewed is None else reviewed.moves,
        )
        self._reporting = Reporting(options, environment, loaded, self._acts, reviewed)
        self._reviewed, self._max_age = reviewed, duration("--max-age", options.max_age)
        lease, memory = options.lease, options.memory
        self._lease = reference("--lease", lease) if lease is not None else None
        self._memory = reference("--memory", memory) if memory is not None else None
        self._deciding = Deciding(self._planning, environment, loaded, self._memory)
        self._timings, self._notes = self._deciding.timings, self._deciding.notes

    def on_file(self, path: str) -> ExitCode:
        """Report on a snapshot file."""
        snapshot = self._deciding.load(path)
        self._check_age(snapshot)
        planned = self._deciding.plan(snapshot)
        return self._report(planned, None, source=path)

    def on_cluster(self) -> ExitCode:
        """Read the cluster, plan, act unless told otherwise, report."""
        from rebalancer.kube.access import (  # noqa: PLC0415
            ACT_RULES,
            READ_RULES,
            USAGE_RULES,
            lease_rules,
            memory_rules,
            require,
        )
        from rebalancer.kube.client import connect  # noqa: PLC0415
        from rebalancer.kube.transport import Limits  # noqa: PLC0415

        options, environment = self._options, self._environment
        client = connect(
            kubeconfig=options.kubeconfig,
            context=options.context_name,
            environ=environment.environ,
            stop=self._stop,
            limits=Limits(in_flight=options.max_requests, compressed=options.compress),
        )
        with ExitStack() as stack:
            if self._acts:
                with self._timings.phase("access"):
                    lease = lease_rules(*self._lease) if self._lease else ()
                    memory = memory_rules(*self._memory) if self._memory else ()
                    usage = USAGE_RULES if self._planning.needs_usage else ()
                    require(client, (*READ_RULES, *usage, *ACT_RULES, *lease, *memory))
                if (held := self._acquire(client, stack)) is not None:
                    return self._reporting.report_held(held, client.server)
            reading = self._deciding.read(client, keep=self._acts)
            self._check_age(reading.snapshot)
            if self._reviewed is not None and self._reviewed.source != client.server:
                self._notes.append(
                    f"the plan was made on {self._reviewed.source or 'an unnamed cluster'}"
                )
            skew = reading.readings.clock_skew or 0.0
            planned = self._deciding.plan(reading.snapshot, client=client, clock_skew=skew)
            execution = None
            if self._acts and not planned.standstill:
                execution = self._execute(client, planned, reading)
            return self._report(planned, execution, source=client.server)

    @property
    def _acts(self) -> bool:
        dry = self._options.dry_run or self._options.snapshot_path is not None
        return not dry and self._loaded.policy.mode is Mode.ENFORCE

    def _check_age(self, snapshot: Snapshot) -> None:
        """Refuse a reviewed plan that is too old."""
        if self._reviewed is not None:
            tolerance = self._loaded.policy.safety.max_clock_skew.total_seconds()
            self._reviewed.check_age(snapshot.captured_at, self._max_age, tolerance)

    # -- what is kept from run to run --------------------------------------------------------------

    def _remember(self, outcomes: Iterable[Outcome]) -> str | None:
        keeper = self._deciding.keeper
        if keeper is None:
            return None
        return keeper.record(outcomes, self._environment.clock.unix())

    def _acquire(self, client: Client, stack: ExitStack) -> HeldByAnother | None:
        """Take the Lease; return whose it is, if another run holds it: this one must not go on then."""
        if self._lease is None:
            return None
        from rebalancer.kube.lease import HeldByAnother, Lease  # noqa: PLC0415

        environment = self._environment
        # A pod's name is not unique over the containers of hosts' networks, and a process's number is 1 in most.
        identity = f"{self._identity}_{environment.random(4).hex()}"
        lease = Lease(client, *self._lease, identity=identity, clock=environment.clock.unix)
        found = lease.acquire()
        if isinstance(found, HeldByAnother):
            return found
        self._stop.add(found.lost)
        stack.callback(self._release, found)
        return None

    def _release(self, lease: HeldLease) -> None:
        if (warning := lease.release()) is not None:
            say(self._environment.err, f"rebalancer: {warning}")

    # -- acting ------------------------------------------------------------------------------------

    def _execute(self, client: Client, planned: Planned, reading: Reading) -> Execution | None:
        """Carry the plan out. The only thing a dry run does not do."""
        from rebalancer.acting import Acting  # noqa: PLC0415

        if reading.kept is None:
            raise ValueError("a run that acts keeps what it has read")
        self._environment.committed.set()
        acting = Acting(
            client=client,
            planning=self._planning,
            clock=self._environment.clock,
            timings=self._timings,
            safety=self._loaded.policy.safety,
            instance=self._identity,
            progress=self._progress(),
            stop=self._stop,
            warn=self._notes.append,
            remember=self._remember,
        )
        return acting.execute(planned, reading.kept, reading.readings.clock_skew or 0.0)

    @property
    def _identity(self) -> str:
        name = self._environment.environ.get("POD_NAME")
        return name or f"{os.uname().nodename}-{os.getpid()}"

    def _progress(self) -> Progress:
        return Progress(
            self._environment.err,
            clock=self._environment.clock.now,
            form="quiet" if self._options.quiet else self._options.log_format,
        )

    # -- reporting ---------------------------------------------------------------------------------

    def _report(self, planned: Planned, execution: Execution | None, *, source: str) -> ExitCode:
        self._environment.committed.set()
        return self._reporting.report(
            planned,
            execution,
            source=source,
            timings=self._timings.seconds,
            notes=tuple(self._notes),
        )
