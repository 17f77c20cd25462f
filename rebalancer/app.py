"""The composition root of ``run``: policy, cluster, plan, evictions, report.

A dry run and a real one share every line up to :meth:`_Run._execute`. Modules that a command may not need
(the API client above all) are imported where they are used.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rebalancer.environment import Environment, SystemClock, Timings
from rebalancer.errors import ExitCode, PolicyError
from rebalancer.evictor.outcomes import Outcome, Status
from rebalancer.planner.plan import Move
from rebalancer.planning import Planned, Planning
from rebalancer.policy.load import LoadedPolicy, load_policy
from rebalancer.policy.model import Mode
from rebalancer.registry import Registry
from rebalancer.report.model import RunReport
from rebalancer.report.progress import Progress
from rebalancer.report.render import render
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope
from rebalancer.snapshot.selector_text import parse_selector

if TYPE_CHECKING:
    from rebalancer.evictor.executor import Execution, Pace
    from rebalancer.kube.client import Client
    from rebalancer.kube.lease import HeldByAnother, HeldLease
    from rebalancer.memory.keeper import Keeper


_LAST_WORDS = 10.0
"""Seconds after a run's deadline for what ends it: a request under way, the memory, the Lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The flags of ``run``."""

    policy_path: str | None = None
    kubeconfig: str | None = None
    context_name: str | None = None
    dry_run: bool = False
    snapshot_path: str | None = None
    namespace: str | None = None
    selector: str | None = None
    output: str = "table"
    lift_budgets: bool = False
    detailed_exitcode: bool = False
    deadline: float = 600.0
    lease: str | None = None
    memory: str | None = None
    max_requests: int = 8
    compress: bool = False
    quiet: bool = False
    log_format: str = "text"
    color: bool | None = None


def system_environment() -> Environment:
    """Return the environment of this process, with SIGTERM and SIGINT turned into ``stop``."""
    environment = Environment(SystemClock(), os.environ, sys.stdout, sys.stderr)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: environment.stop.set())
    return environment


def run_once(options: RunOptions, environment: Environment) -> ExitCode:
    """Plan and, unless this is a dry run, carry out; print the report; return the exit code.

    Raises:
        RebalancerError: nothing was evicted; the exit code is the error's.
    """
    registry = Registry.installed()
    loaded = load_policy(options.policy_path, registry)
    run = _Run(options, environment, loaded, registry)
    if options.snapshot_path is not None:
        return run.on_file(options.snapshot_path)
    return run.on_cluster()


def save_snapshot(
    kubeconfig: str | None, context: str | None, path: str, environment: Environment
) -> ExitCode:
    """Write the cluster's state to ``path`` and say so.

    Raises:
        RebalancerError: the cluster could not be read, or the file not be written.
    """
    from rebalancer.kube.capture import write_cluster_snapshot  # noqa: PLC0415
    from rebalancer.kube.client import connect  # noqa: PLC0415

    client = connect(kubeconfig=kubeconfig, context=context, environ=environment.environ)
    target = sys.stdout.buffer if path == "-" else Path(path)
    captured = write_cluster_snapshot(client, target, clock=environment.clock.unix)
    environment.err.write(f"{path}: {sum(captured.counts.values())} objects\n")
    return ExitCode.DONE


def reference(flag: str, text: str) -> tuple[str, str]:
    """Return ``NAMESPACE/NAME`` as a pair.

    Raises:
        PolicyError: it is something else.
    """
    namespace, _, name = text.partition("/")
    if not namespace or not name:
        raise PolicyError([f"{flag} {text}: write NAMESPACE/NAME"])
    return namespace, name


def _scope(options: RunOptions, environment: Environment) -> Scope:
    environ = environment.environ
    own = (environ.get("POD_NAMESPACE", ""), environ.get("POD_NAME", ""))
    return Scope(
        namespace=options.namespace,
        selector=parse_selector(options.selector) if options.selector else None,
        own_pod=own if all(own) else None,
    )


class _Run:
    """One run, from the policy on."""

    def __init__(
        self,
        options: RunOptions,
        environment: Environment,
        loaded: LoadedPolicy,
        registry: Registry,
    ) -> None:
        self._options, self._environment, self._loaded = options, environment, loaded
        self._deadline = environment.clock.now() + options.deadline
        self._timings = Timings(environment.clock)
        scope = _scope(options, environment)
        self._planning = Planning(loaded, registry, scope, lifted=options.lift_budgets)
        self._notes: list[str] = list(loaded.warnings)
        self._held: HeldLease | None = None
        lease, memory = options.lease, options.memory
        self._lease = reference("--lease", lease) if lease is not None else None
        self._memory = reference("--memory", memory) if memory is not None else None
        self._keeper: Keeper | None = None

    def on_file(self, path: str) -> ExitCode:
        """Report on a snapshot file."""
        from rebalancer.snapshot.load import load_snapshot  # noqa: PLC0415

        with self._timings.phase("read"):
            snapshot = load_snapshot(path, stdin=sys.stdin.buffer)
        planned = self._planning.plan(snapshot, 0.0, self._timings)
        return self._report(planned, None, source=path)

    def on_cluster(self) -> ExitCode:
        """Read the cluster, plan, act unless told otherwise, report."""
        from rebalancer.kube.access import ACT_RULES, READ_RULES, lease_rules, require  # noqa: PLC0415
        from rebalancer.kube.client import connect  # noqa: PLC0415
        from rebalancer.kube.transport import Limits  # noqa: PLC0415

        options, environment = self._options, self._environment
        client = connect(
            kubeconfig=options.kubeconfig,
            context=options.context_name,
            environ=environment.environ,
            seconds=self._deadline - environment.clock.now() + _LAST_WORDS,
            limits=Limits(in_flight=options.max_requests, compressed=options.compress),
        )
        with ExitStack() as stack:
            if self._acts:
                with self._timings.phase("access"):
                    lease = lease_rules(*self._lease) if self._lease else ()
                    require(client, (*READ_RULES, *ACT_RULES, *lease))
                if (held := self._acquire(client, stack)) is not None:
                    return self._report_held(held, client.server)
            planned = self._plan(client)
            execution = None
            if self._acts and not planned.standstill:
                execution = self._execute(client, planned)
            return self._report(planned, execution, source=client.server)

    @property
    def _acts(self) -> bool:
        dry = self._options.dry_run or self._options.snapshot_path is not None
        return not dry and self._loaded.policy.mode is Mode.ENFORCE

    def _plan(self, client: Client) -> Planned:
        from rebalancer.kube.read import read_cluster  # noqa: PLC0415

        with self._timings.phase("read"):
            reading = read_cluster(client, clock=self._environment.clock.unix)
        self._notes += reading.readings.notes
        skew = reading.readings.clock_skew or 0.0
        if self._memory is not None:
            self._recall(client, reading.snapshot, *self._memory)
        return self._planning.plan(reading.snapshot, skew, self._timings)

    def _recall(self, client: Client, snapshot: Snapshot, namespace: str, name: str) -> None:
        """Let the plan know what came of earlier runs."""
        from rebalancer.kube.memory import MemoryStore  # noqa: PLC0415
        from rebalancer.memory.keeper import Keeper  # noqa: PLC0415

        store = MemoryStore(client, namespace, name)
        self._keeper = Keeper(store, f"{namespace}/{name}", self._notes.append)
        self._keeper.load(snapshot)
        self._planning.remember(self._keeper.cooling(), self._keeper.moved_last_hour())

    def _remember(self, outcomes: Iterable[Outcome]) -> None:
        if self._keeper is not None:
            self._keeper.record(outcomes, self._environment.clock.unix())

    def _acquire(self, client: Client, stack: ExitStack) -> HeldByAnother | None:
        """Take the Lease; return whose it is, if another run holds it: this one must not go on then."""
        if self._lease is None:
            return None
        from rebalancer.kube.lease import HeldByAnother, HeldLease, Lease  # noqa: PLC0415

        clock = self._environment.clock.unix
        lease = Lease(client, *self._lease, identity=self._identity, clock=clock)
        found = lease.acquire()
        if isinstance(found, HeldByAnother):
            return found
        if isinstance(found, HeldLease):
            self._held = found
            stack.callback(self._release, found)
        else:
            self._notes.append(found.message)
        return None

    def _release(self, lease: HeldLease) -> None:
        if (warning := lease.release()) is not None:
            self._environment.err.write(f"rebalancer: {warning}\n")

    # -- acting ------------------------------------------------------------------------------------

    def _execute(self, client: Client, planned: Planned) -> Execution | None:
        """Carry the plan out. The only thing a dry run does not do."""
        from rebalancer.evictor.cluster import ClusterActor, open_feed  # noqa: PLC0415
        from rebalancer.evictor.executor import Executor  # noqa: PLC0415

        moves = [move for move in planned.plan.moves if not move.observed]
        if not moves:
            self._remember(())
            return None
        environment = self._environment
        actor = ClusterActor(
            client,
            planned.snapshot,
            clock=environment.clock.unix,
            instance=self._identity,
            warn=self._notes.append,
        )
        left = self._deadline - environment.clock.now()
        feed = open_feed(client, planned.snapshot, moves, seconds=max(1.0, left))
        with self._timings.phase("act"), feed:
            executor = Executor(
                actor,
                feed,
                environment.clock,
                self._pace(),
                self._progress(),
                stopped=self._stopped,
                domains=planned.snapshot.nodes.labels_of,
            )
            try:
                return executor.run(
                    planned.plan.moves,
                    lambda rest: self._recheck(client, rest, executor.outcomes),
                )
            finally:
                # Also after a signal, and when the cluster is lost from sight: what was done was done.
                self._remember(executor.outcomes)

    def _recheck(
        self, client: Client, rest: Sequence[Move], outcomes: Iterable[Outcome]
    ) -> Sequence[tuple[Move, str | None]]:
        """Judge what is left of the plan on the cluster as it is now, with what was done remembered."""
        from rebalancer.kube.read import read_cluster  # noqa: PLC0415
        from rebalancer.planner.recheck import recheck  # noqa: PLC0415

        # A run that is killed in a later wave has used up its part of the hour all the same.
        self._remember(outcomes)
        reading = read_cluster(client, clock=self._environment.clock.unix)
        snapshot, skew = reading.snapshot, reading.readings.clock_skew or 0.0
        if reasons := self._planning.standstill(snapshot, skew):
            return [(move, f"standing still: {reasons[0]}") for move in rest]
        return recheck(self._planning.planner(snapshot), rest)

    def _pace(self) -> Pace:
        from rebalancer.evictor.executor import Pace  # noqa: PLC0415

        safety = self._loaded.policy.safety
        return Pace(
            deadline=self._deadline,
            pending=safety.max_pending_time.total_seconds(),
            ready=safety.max_ready_time.total_seconds(),
        )

    def _stopped(self) -> str | None:
        if self._environment.stop.is_set():
            return "stopped by a signal"
        if self._held is not None and self._held.lost.is_set():
            return "the Lease was lost to another run"
        return None

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

    def _not_executed(self, planned: Planned) -> tuple[Outcome, ...]:
        why = "; ".join(planned.standstill)
        return tuple(
            Outcome(move, Status.OBSERVED, "its strategy only observes, or its window is closed")
            if move.observed
            else Outcome(move, Status.NOT_ATTEMPTED, why)
            if planned.standstill
            else Outcome(move, Status.PLANNED, "")
            for move in planned.plan.moves
        )

    def _report(
        self,
        planned: Planned,
        execution: Execution | None,
        *,
        source: str,
    ) -> ExitCode:
        code = self._exit_code(planned, execution)
        report = RunReport(
            dry_run=not self._acts,
            source=source,
            snapshot=planned.snapshot,
            loaded=self._loaded,
            plan=planned.plan,
            outcomes=execution.outcomes if execution else self._not_executed(planned),
            standstill=planned.standstill,
            cut=execution.stopped if execution else None,
            timings=dict(self._timings.seconds),
            warnings=(*self._notes, *planned.plan.warnings),
            exit_code=int(code),
        )
        self._environment.out.write(render(report, self._options.output, color=self._color))
        self._environment.out.flush()
        return code

    def _report_held(self, held: HeldByAnother, source: str) -> ExitCode:
        """Say who holds the Lease, and until when; that is no failure."""
        from rebalancer.report.held import HeldReport, render_held  # noqa: PLC0415
        from rebalancer.wire.times import rfc3339  # noqa: PLC0415

        report = HeldReport(
            source=source,
            loaded=self._loaded,
            holder=held.holder,
            until=rfc3339(held.expires_at),
        )
        self._environment.out.write(render_held(report, self._options.output))
        self._environment.out.flush()
        return ExitCode.DONE

    @property
    def _color(self) -> bool:
        return (
            self._environment.out.isatty() if self._options.color is None else self._options.color
        )

    def _exit_code(self, planned: Planned, execution: Execution | None) -> ExitCode:
        if execution is not None:
            if execution.refused is not None:
                return ExitCode.UNREADABLE
            return ExitCode.PARTIAL if execution.failed else ExitCode.DONE
        wanted = self._options.detailed_exitcode and planned.plan.moves
        return ExitCode.MOVES_FOUND if wanted and not self._acts else ExitCode.DONE
