"""``run``: read the cluster, plan, act, report. ``apply`` and a dry run differ in where the plan comes from and ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from rebalancer.commands.context import RunContext, run_context
from rebalancer.commands.decide import make_plan, recall
from rebalancer.commands.flags import CLUSTER, POLICY, RUN, with_flags
from rebalancer.commands.options import RunOptions
from rebalancer.commands.result import report, report_lease_taken
from rebalancer.commands.source import Reading, Source, open_source
from rebalancer.environment import Environment, system_environment
from rebalancer.errors import ExitCode
from rebalancer.plan.outcome import Outcome
from rebalancer.planner.planning import Planned
from rebalancer.report.progress import Progress

if TYPE_CHECKING:
    from rebalancer.evictor.executor import Execution
    from rebalancer.evictor.marks import Marker
    from rebalancer.kube.client import Client
    from rebalancer.memory.keeper import Keeper

PATIENCE = 5.0
"""Seconds for a run that is stopped while it reads or plans to report all the same; the chart's pod has 10."""


def run_once(options: RunOptions, environment: Environment) -> ExitCode:
    """Read, plan, carry the plan out unless this is a dry run, report; return the exit code.

    Raises:
        RebalancerError: nothing was evicted; the exit code is the error's.
    """
    run = run_context(options, environment)
    with open_source(run) as source:
        if source.lease_taken is not None:
            return report_lease_taken(run, source, source.lease_taken)
        reading = source.read()
        memory = recall(run, source, reading)
        planned = make_plan(run, reading, memory)
        execution = act(run, source, reading, planned, memory) if run.acts else None
        return report(run, source, planned, execution)


def act(
    run: RunContext,
    source: Source,
    reading: Reading,
    planned: Planned,
    memory: Keeper | None,
    *,
    progress: Progress | None = None,
    ordered: bool = False,
    grace_seconds: int | None = None,
) -> Execution | None:
    """Carry the plan out, the only thing that a dry run does not do; None where nothing may be moved.

    ``ordered`` and ``grace_seconds``: see ``rebalancer.evictor.act.Acting``.
    """
    from rebalancer.evictor.act import Acting  # noqa: PLC0415

    if source.client is None or reading.kept is None:
        raise ValueError("a run that acts has a client, and keeps what it has read")
    marker = _marker(run, source.client, reading)
    if planned.standstill:
        return None
    clock = run.environment.clock
    run.environment.committed.set()
    started = clock.now()

    def remember(outcomes: Iterable[Outcome], *, cut: bool = False) -> str | None:
        if memory is None:
            return None
        seconds = 0.0 if cut else clock.now() - started
        return memory.record(outcomes, clock.unix(), seconds)

    acting = Acting(
        client=source.client,
        planning=run.planning,
        clock=clock,
        timings=run.timings,
        safety=run.loaded.policy.safety,
        instance=run.instance,
        progress=progress or progress_of(run),
        stop=run.stop,
        warn=run.notes.append,
        remember=remember,
        marker=marker,
        ordered=ordered,
        grace_seconds=grace_seconds,
    )
    return acting.execute(planned, reading.kept, reading.clock_skew)


def _marker(run: RunContext, client: Client, reading: Reading) -> Marker | None:
    """Return what marks nodes, after removing what earlier runs have left; None where the policy does not steer."""
    from rebalancer.evictor.marks import Marker  # noqa: PLC0415
    from rebalancer.snapshot.marks import marks_on  # noqa: PLC0415

    if not run.steers:
        return None
    clock = run.environment.clock
    marker = Marker(
        client,
        run=run.name_in_marks,
        clock=lambda: clock.unix() + reading.clock_skew,
        stop=run.stop,
    )
    run.notes.extend(marker.clear_stale(marks_on(reading.snapshot.nodes)))
    return marker


def progress_of(run: RunContext) -> Progress:
    """Return what tells of the run on standard error."""
    form = "quiet" if run.options.quiet else run.options.log_format
    return Progress(run.environment.err, clock=run.environment.clock.now, form=form)


@click.command("run")
@with_flags([POLICY, *CLUSTER])
@click.option("--dry-run", is_flag=True, help="Report only. The plan is the same as a real run's.")
@with_flags(RUN)
@click.option(
    "--whole",
    is_flag=True,
    help="With --dry-run: plan all there is to do, not only what one run can carry out in its time.",
)
@click.option(
    "--watch",
    "every",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="With --dry-run on a terminal: the report again every so often; a star marks what changed.",
)
def command(every: float | None, **flags: Any) -> int:
    """Plan moves and carry them out, once."""
    options, environment = RunOptions(**flags), system_environment(patience=PATIENCE)
    if every is not None:
        from rebalancer.commands.watching import watch  # noqa: PLC0415

        return int(watch(options, environment, every))
    return int(run_once(options, environment))
