"""``run``: read the cluster, plan, act, report. ``apply`` and a dry run differ in where the plan comes from and ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TextIO

import click

from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import (
    ClusterReadError,
    ExitCode,
    MarksError,
    ProviderError,
    RebalancerError,
)
from rebalancer.base.output import say
from rebalancer.commands.ask import asks, run_asking, terminal_at_hand
from rebalancer.commands.context import RunContext, run_context
from rebalancer.commands.decide import make_plan, recall
from rebalancer.commands.flags import (
    CLUSTER,
    POLICY_FLAGS,
    RUN,
    WATCH,
    WHOLE,
    YES,
    examples,
    with_flags,
)
from rebalancer.commands.identity import instance, name_in_lasting_marks
from rebalancer.commands.options import Ending, Publishing, RunOptions
from rebalancer.commands.publish import publisher
from rebalancer.commands.result import print_report, report, report_lease_taken
from rebalancer.commands.source import Reading, Source, open_source
from rebalancer.plan.outcome import Outcome
from rebalancer.planner.planning import Planned
from rebalancer.policy.load import LoadedPolicy
from rebalancer.registry import Registry
from rebalancer.snapshot.marks import marks_on
from rebalancer.snapshot.selected import grace_periods

if TYPE_CHECKING:
    from rebalancer.base.stop import Stop
    from rebalancer.capacity.scaling import Scaling
    from rebalancer.evictor.executor import Execution
    from rebalancer.evictor.marks import Marker
    from rebalancer.kube.client import Client
    from rebalancer.memory.document import Document, Totals
    from rebalancer.memory.keeper import Keeper
    from rebalancer.report.model import RunReport

_FOR_MACHINES = 15.0
"""Seconds of a run that are kept for the nodes that scale-in empties, at most a fourth of what is left of it."""


def run_once(
    options: RunOptions, environment: Environment, loaded: LoadedPolicy | None = None
) -> ExitCode:
    """Read, plan, carry the plan out unless this is a dry run, report; return the exit code.

    ``loaded``: the policy, if it was read before.

    Raises:
        RebalancerError: nothing was evicted; the exit code is the error's.
    """
    return published(
        options.publishing(), environment, lambda: _run(options, environment, loaded)
    ).code


def published(flags: Publishing, environment: Environment, run: Callable[[], EndedRun]) -> EndedRun:
    """Run, and send its metrics and notice where ``flags`` say.

    Raises:
        RebalancerError: the run's, or a flag is wrong.
    """
    publish = publisher(flags, environment)
    if publish is None:
        return run()
    try:
        ended = run()
    except RebalancerError as error:
        if not environment.stop.is_set():
            publish.failure(str(error), int(error.exit_code))
        raise
    except Exception as error:
        publish.failure(f"{type(error).__name__}: an error of the program", int(ExitCode.BUG))
        raise
    if ended.report is not None:
        written = replace(ended.report, exit_code=int(ended.code))
        publish.report(written, ended.remembered, ended.totals)
    return ended


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that came to its end."""

    code: ExitCode
    report: RunReport | None = None
    """None where another run has the Lease: metrics and notices are that run's matter."""
    remembered: Document | None = None
    """What earlier runs left; None without a memory."""
    totals: Totals | None = None
    """What runs have done, this one included; None where that is not known."""


def _run(options: RunOptions, environment: Environment, loaded: LoadedPolicy | None) -> EndedRun:
    run = run_context(options, environment, loaded=loaded)
    ending = options.ending()
    with open_source(run, options.access()) as source:
        if source.lease_taken is not None:
            return EndedRun(report_lease_taken(run, ending, source, source.lease_taken))
        return run_on(run, ending, source)


def run_on(run: RunContext, ending: Ending, source: Source) -> EndedRun:
    """Read, plan, carry the plan out if the run acts, report.

    Raises:
        RebalancerError: nothing was evicted.
    """
    reading = source.read()
    memory = recall(run, source, reading)
    remembered = None if memory is None else memory.document
    scaling, blind = _scaling(run, source, reading)
    if scaling is not None:
        if run.acts:
            run.environment.committed.set()
        scaling.before()
        reading = replace(reading, snapshot=scaling.seen(reading.snapshot))
    planned = make_plan(run, reading, memory)
    execution, unmarked = None, False
    stop = _stop_of_moves(run, scaling)
    if run.acts:
        try:
            execution = act(run, source, reading, planned, memory, stop=stop)
        except MarksError as error:
            if run.stop.reason() is not None:
                raise
            # One node that cannot be written is not to end every run: what needs no marks goes on.
            run.notes.append(f"this run marks no node, and empties none: {error}")
            run.planning.give_up_marks()
            planned = make_plan(run, reading, memory)
            execution, unmarked = act(run, source, reading, planned, memory, stop=stop), True
    partial = unmarked or blind
    if scaling is not None:
        scaling.after()
        run, partial = replace(run, machines=tuple(scaling.acts)), partial or scaling.failed
    code, written = report(run, ending, source, planned, execution, partial=partial)
    totals = None if memory is None else _count(run, memory, written, code)
    return EndedRun(code, written, remembered, totals)


def _count(run: RunContext, memory: Keeper, written: RunReport, code: ExitCode) -> Totals | None:
    """Return what runs have done, after counting this one where its metrics are sent: an idle run writes nothing else."""
    if run.acts and run.measured:
        environment = run.environment
        why = memory.count_run(written.tried, int(code), environment.clock.unix())
        if why is not None:
            say(environment.err, f"rebalancer: this run is not counted: {why}")
    return memory.totals()


def _stop_of_moves(run: RunContext, scaling: Scaling | None) -> Stop:
    """Return when no more pods are moved: some time before the run's end where nodes wait for that of their machines.

    Else a drift that takes the time of every run, or evictions that are refused again and again, would keep them for ever.
    """
    if scaling is None or not scaling.awaits_end:
        return run.stop
    left = run.stop.left()
    return run.stop.sooner(left - min(_FOR_MACHINES, left / 4), run.environment.stop)


def _scaling(run: RunContext, source: Source, reading: Reading) -> tuple[Scaling | None, bool]:
    """Return what the run does to machines, None if nothing; and whether that could not be judged: pods are moved anyway."""
    strategies = run.loaded.policy.strategies.values()
    if run.capacity_status is None and not any(of.params.scales for of in strategies):
        return None, False
    from rebalancer.commands.machines import scaling_of  # noqa: PLC0415

    try:
        return scaling_of(run, source, reading), False
    except (ClusterReadError, ProviderError) as error:
        if run.stop.reason() is not None:
            raise
        run.notes.append(f"nothing is done to machines: {error}")
        return None, True


def act(
    run: RunContext,
    source: Source,
    reading: Reading,
    planned: Planned,
    memory: Keeper | None,
    *,
    ordered: bool = False,
    grace: Callable[[str], int | None] | None = None,
    stop: Stop | None = None,
) -> Execution | None:
    """Carry the plan out, the only thing that a dry run does not do; None where nothing may be moved.

    ``stop``: when that ends; None: with the run. ``ordered`` and ``grace``: see ``rebalancer.evictor.act.Acting``; without the latter pods have the policy's grace periods.

    Raises:
        MarksError: marks on nodes could not be removed or set; nothing was moved.
        ClusterReadError: what perHour allows could not be reserved; nothing was moved.
    """
    from rebalancer.evictor.act import Acting, of_next_wave  # noqa: PLC0415

    if source.client is None or reading.kept is None:
        raise ValueError("a run that acts has a client, and keeps what it has read")
    marker = _marker(run, source.client, reading, stands_still=bool(planned.standstill))
    if planned.standstill:
        return None
    run.environment.committed.set()
    if memory is not None and (first := of_next_wave(planned.left)):
        # A memory that can be read and never written would let each run spend the whole hour's budget.
        why = memory.record((), run.environment.clock.unix(), reserved=first)
        if why is not None and run.planning.counts_the_hour:
            raise ClusterReadError(f"nothing was moved: {why}")
    if marker is not None and planned.plan.emptied is not None:
        try:
            marker.keep_empty(
                planned.plan.emptied,
                planned.plan.empty_for,
                marks_on(reading.snapshot.nodes),
                name_in_lasting_marks(run.lease),
            )
        except ClusterReadError as error:
            raise MarksError(f"nodes could not be marked as to be empty: {error}") from None
    clock = run.environment.clock
    if grace is None:
        uids = {move.uid for move in planned.plan.moves}
        grace = grace_periods(reading.snapshot, run.loaded.policy.method, uids).get
    started = clock.now()

    def remember(
        outcomes: Iterable[Outcome], *, cut: bool = False, reserved: int = 0
    ) -> str | None:
        if memory is None:
            return None
        seconds = clock.now() - started
        return memory.record(outcomes, clock.unix(), seconds, cut=cut, reserved=reserved)

    acting = Acting(
        client=source.client,
        planning=run.planning,
        clock=clock,
        timings=run.timings,
        safety=run.loaded.policy.safety,
        instance=instance(run.environment),
        progress=run.progress,
        stop=run.stop if stop is None else stop,
        warn=run.notes.append,
        remember=remember,
        marker=marker,
        ordered=ordered,
        grace=grace,
        scores=not ordered,
    )
    return acting.execute(planned, reading.kept, reading.clock_skew)


def _marker(
    run: RunContext, client: Client, reading: Reading, *, stands_still: bool
) -> Marker | None:
    """Return what marks nodes, after removing what earlier runs have left; None where the policy does not steer.

    Raises:
        MarksError: stale marks could not be removed, and pods would move by predictions without them.
    """
    from rebalancer.evictor.marks import Marker  # noqa: PLC0415

    if not run.planning.steers:
        return None
    clock = run.environment.clock
    marker = Marker(
        client,
        run=run.name_in_marks,
        clock=lambda: clock.unix() + reading.clock_skew,
        stop=run.stop,
    )
    if (left := marker.clear_stale(marks_on(reading.snapshot.nodes))) and not stands_still:
        raise MarksError("; ".join(left))
    run.notes.extend(left)
    return marker


@click.command(
    "run",
    epilog=examples(
        "rebalancer run --dry-run",
        "rebalancer run",
        "rebalancer run --yes --lease default/rebalancer --memory default/memory",
        "rebalancer run --snapshot cluster.zip -o html > report.html",
    ),
)
@with_flags([*POLICY_FLAGS, *CLUSTER])
@click.option("--dry-run", is_flag=True, help="Report only. The plan is the same as a real run's.")
@with_flags([YES, *RUN, WHOLE, WATCH])
def command(every: float | None, **flags: Any) -> int:
    """Plan moves and carry them out, once.

    The plan is shown on the terminal first, and carried out once you agree; without a terminal --yes is needed.
    """
    options = RunOptions(**flags)
    if every is not None:
        return watched(options, every)
    return run_or_ask(options)


def run_or_ask(options: RunOptions) -> int:
    """Run once; without ``--yes`` the plan is shown on the terminal first, and carried out once it is agreed to.

    Raises:
        RebalancerError: nothing was evicted: a yes is missing, say.
    """
    with terminal_at_hand() if asks(options) else nullcontext() as terminal:
        if terminal is None:
            return int(run_once(options, system_environment()))
        environment = system_environment()
        # Once: it may come from standard input.
        loaded = options.load(Registry.installed())
        return int(run_asking(options, terminal, _Steps(options, loaded, environment)))


class _Steps:
    """See ``rebalancer.commands.ask.Steps``."""

    def __init__(self, options: RunOptions, loaded: LoadedPolicy, environment: Environment) -> None:
        self._options, self._loaded, self._environment = options, loaded, environment

    def look(self, options: RunOptions, out: TextIO) -> tuple[ExitCode, RunReport | None]:
        """See Steps."""
        ended = _run(options, replace(self._environment, out=out), self._loaded)
        return ended.code, ended.report

    def print_plan(self, report: RunReport) -> ExitCode:
        """See Steps."""
        return print_report(self._environment, self._options.ending(), report)

    def act(self, plan: bytes) -> ExitCode:
        """See Steps."""
        options = replace(self._options, confirmed_plan=plan)
        return run_once(options, self._environment, self._loaded)


def watched(options: RunOptions, every: float) -> int:
    """Show the report again every so many seconds."""
    from rebalancer.commands.watching import watch  # noqa: PLC0415

    return int(watch(options, system_environment(), every))
