"""One run: read the cluster, plan, act, report.

Dry runs and reviewed plans differ only in where a plan comes from and ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from rebalancer.base.environment import Environment
from rebalancer.base.errors import (
    ClusterReadError,
    ExitCode,
    MarksError,
    PolicyError,
    ProviderError,
)
from rebalancer.base.output import say
from rebalancer.plan.machines import MachineAct
from rebalancer.planner.deletion_costs import find_ordering, plan_deletion_costs
from rebalancer.planner.plan import PlanObserver
from rebalancer.planner.planning import Planned, Reviewed, make_plan
from rebalancer.planner.rules import History
from rebalancer.policy.load import LoadedPolicy
from rebalancer.policy.model import Mode
from rebalancer.run.context import RunContext, RunNotes, name_in_lasting_marks, own_pod, run_context
from rebalancer.run.ending import EndedRun, Results, publish_run, report, report_lease_taken
from rebalancer.run.options import Ending, RunOptions
from rebalancer.run.source import Reading, Source, open_source
from rebalancer.snapshot.marks import describe_expired, marks_on
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.selected import grace_periods
from rebalancer.wire.marks import EMPTY, PINS

if TYPE_CHECKING:
    from rebalancer.base.stop import Stop
    from rebalancer.plan.deletion_costs import DeletionCosts
    from rebalancer.plan.plan import Plan, Totals
    from rebalancer.report.model import RunReport
    from rebalancer.run.execution.executor import Execution
    from rebalancer.run.execution.marks import Marker
    from rebalancer.run.memory.store import MemoryStore


class MachineScaling(Protocol):
    """The actions of a run on machines, if strategies of the policy add or remove some."""

    acts: list[MachineAct]
    """The acts so far."""

    @property
    def awaits_end(self) -> bool:
        """Whether something remains to be done after the moves."""

    @property
    def failed(self) -> bool:
        """Whether an act on a machine failed."""

    def before(self) -> None:
        """Act before the plan."""

    def with_acts(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot changed by the acts before the plan."""

    def after(self) -> None:
        """Act after the moves, and store all results."""


Scale = Callable[[Reading, RunNotes], MachineScaling | None]
"""Returns what a run does to machines, None if nothing; it notes what it does, then and later.

Raises ProviderError or ClusterReadError where that cannot be judged.
"""


_FOR_MACHINES = 15.0
"""Seconds of a run that are kept for the nodes that scale-in empties, at most a fourth of what is left of it."""


def run_once(
    options: RunOptions,
    environment: Environment,
    loaded: LoadedPolicy | None = None,
    *,
    scale: Scale | None = None,
    after: Callable[[Source], None] | None = None,
) -> ExitCode:
    """Read, plan, execute the plan unless this is a dry run, and report; return the exit code.

    ``loaded``: the policy, if it was read before. ``scale``: the actions on machines, if the policy has any. ``after``: what is to be done
    with the open source once the report is written.

    Raises:
        RebalancerError: nothing was evicted; the exit code is the error's.
    """
    return publish_run(
        options.publishing,
        options.deadline,
        environment,
        lambda: run_unpublished(options, environment, loaded, scale, after),
    ).code


_SIGNALS_UNHEARD = "signals have no effect in a single run: only `serve` (the chart's kind: Deployment) watches for machines that go"


def run_unpublished(
    options: RunOptions,
    environment: Environment,
    loaded: LoadedPolicy | None,
    scale: Scale | None = None,
    after: Callable[[Source], None] | None = None,
) -> EndedRun:
    """Run as ``run_once`` does, without metrics and notices. One run alone does nothing to machines.

    Raises:
        PolicyError: strategies of the policy act on machines, which needs a resident process.
        RebalancerError: nothing was evicted.
    """
    run = run_context(options, environment, loaded=loaded)
    if run.acts and run.reviewed is None and run.loaded.served:
        raise PolicyError(run.loaded.served)
    scale = None if run.acts else scale
    if run.acts and run.loaded.policy.signals:
        run = replace(run, notes=(*run.notes, _SIGNALS_UNHEARD))
    with open_source(run, options.cluster) as source:
        if source.lease_taken is not None:
            return EndedRun(report_lease_taken(source, options.ending, source.lease_taken))
        ended = run_on(source, options.ending, scale)
        if after is not None:
            after(source)
        return ended


def run_on(source: Source, ending: Ending, scale: Scale | None = None) -> EndedRun:
    """Read, plan, execute the plan if the run acts, and report.

    Raises:
        RebalancerError: nothing was evicted.
    """
    reading, notes = recall(source.read()), RunNotes()
    run, memory = reading.run, reading.memory
    remembered = None if memory is None else memory.document
    if run.acts and (reading.snapshot.nodes.notices or reading.snapshot.eviction_requests):
        from rebalancer.run.tidying import tidy  # noqa: PLC0415

        notes.add(*tidy(reading))
    scaling, partial = _scaling(reading, scale, notes)
    if scaling is not None:
        if run.acts:
            run.environment.committed.set()
        scaling.before()
        reading = replace(reading, snapshot=scaling.with_acts(reading.snapshot))
    planned, said = plan_run(reading)
    notes.add(*said)
    execution, stop = None, _stop_of_moves(run, scaling)
    if run.acts:
        try:
            execution = act(reading, planned, notes, stop=stop)
        except MarksError as error:
            if run.stop.reason() is not None:
                raise
            # One node that cannot be written is not to end every run: what needs no marks goes on.
            notes.add(f"this run marks no node, and empties none: {error}")
            reading = replace(reading, run=replace(run, rules=run.rules.without_marks()))
            planned, said = plan_run(reading)
            notes.add(*said)
            execution, partial = act(reading, planned, notes, stop=stop), True
    costs = order_deletions(reading, planned)
    partial = partial or bool(costs is not None and costs.failed)
    if scaling is not None:
        scaling.after()
        partial = partial or scaling.failed
    machines = () if scaling is None else tuple(scaling.acts)
    results = Results(tuple(notes), execution, machines, costs, partial=partial)
    code, written = report(reading, ending, planned, results)
    totals = None if memory is None else _count(run, memory, written, code)
    return EndedRun(code, written, remembered, totals)


def order_deletions(reading: Reading, planned: Planned) -> DeletionCosts | None:
    """Write deletion costs on pods, if the policy orders scale-ins; return what was or would be written."""
    run, client = reading.run, reading.client
    if run.reviewed is not None or find_ordering(run.rules) is None:
        return None
    with run.timings.phase("deletion costs"):
        costs = plan_deletion_costs(
            run.rules, reading.snapshot, reading.history, planned.emptied, planned.standstill
        )
        if costs is not None and (why := run.stop.reason()) is not None:
            costs = replace(costs, held=costs.held or why)
        if costs is not None and run.acts and not costs.held and client is not None:
            from rebalancer.kube.deletion_costs import write_costs  # noqa: PLC0415

            run.environment.committed.set()
            costs = write_costs(client, costs, run.stop.reason)
    return costs


def _count(
    run: RunContext, memory: MemoryStore, written: RunReport, code: ExitCode
) -> Totals | None:
    """Count this run in the memory if its metrics are sent; return the counters over all runs, or None."""
    if run.acts and run.measured:
        environment = run.environment
        why = memory.count_run(written.tried, int(code), environment.clock.unix())
        if why is not None:
            say(environment.err, f"rebalancer: this run is not counted: {why}")
    return memory.totals


def _stop_of_moves(run: RunContext, scaling: MachineScaling | None) -> Stop:
    """Return when moves must end: some time before the run's end if machines are to be terminated afterwards.

    Otherwise long or repeatedly refused evictions would postpone the terminations for ever.
    """
    if scaling is None or not scaling.awaits_end:
        return run.stop
    left = run.stop.seconds_left()
    return run.stop.sooner(left - min(_FOR_MACHINES, left / 4), run.environment.stop)


def _scaling(
    reading: Reading, scale: Scale | None, notes: RunNotes
) -> tuple[MachineScaling | None, bool]:
    """Return the run's acts on machines (None: none), and whether judging them failed; pods are moved anyway."""
    strategies = reading.run.loaded.policy.strategies.values()
    if scale is None or not any(of.params.scales for of in strategies):
        return None, False
    try:
        return scale(reading, notes), False
    except (ClusterReadError, ProviderError) as error:
        if reading.run.stop.reason() is not None:
            raise
        notes.add(f"nothing is done to machines: {error}")
        return None, True


def act(
    reading: Reading,
    planned: Planned,
    notes: RunNotes,
    *,
    ordered: bool = False,
    grace: Callable[[str], int | None] | None = None,
    stop: Stop | None = None,
) -> Execution | None:
    """Execute the plan, which a dry run does not do; return None if nothing may be moved.

    ``notes`` gets what the report should say of that. ``stop``: when moves end; None: with the run. ``ordered`` and ``grace``: see
    ``rebalancer.run.execution.act.Acting``; without ``grace`` pods have the policy's grace periods.

    Raises:
        MarksError: marks on nodes could not be removed or set; no pod was moved, and other nodes may have been marked.
        ClusterReadError: the evictions could not be reserved in the budget per hour; nothing was moved.
    """
    from rebalancer.run.execution.act import Acting, of_next_wave  # noqa: PLC0415

    run, memory, clock = reading.run, reading.memory, reading.run.environment.clock
    marker = _marker(reading, notes, stands_still=bool(planned.standstill))
    if planned.standstill:
        notes.add(None if memory is None else memory.save((), clock.unix()))
        return None
    run.environment.committed.set()
    if memory is not None and (first := of_next_wave(planned.left)):
        # A memory that can be read and never written would let each run spend the whole hour's budget.
        notes.add(why := memory.save((), clock.unix(), reserved=first))
        if why is not None and run.rules.counts_the_hour:
            raise ClusterReadError(f"nothing was moved: {why}")
    changed = marker is not None and _mark_lastingly(marker, EMPTY, reading, planned.plan)
    if grace is None:
        uids = {move.uid for move in planned.plan.moves}
        grace = grace_periods(reading.snapshot, run.loaded.policy.method, uids).get
    acting = Acting(
        reading=reading,
        notes=notes,
        stop=run.stop if stop is None else stop,
        started=clock.now(),
        marker=marker,
        ordered=ordered,
        grace=grace,
    )
    execution = acting.execute(planned)
    if execution is not None:
        execution = replace(execution, marks_changed=changed)
    return execution if marker is None else _mark_pinned(marker, reading, planned, execution, notes)


def _mark_lastingly(marker: Marker, reason: str, reading: Reading, plan: Plan) -> bool:
    """Mark exactly the nodes that the plan names for ``reason``, EMPTY or PINS; return whether a node was changed.

    If the plan has None, marks are not changed.

    Raises:
        MarksError: they could not be marked; some of them may have been.
    """
    nodes = plan.emptied if reason == EMPTY else plan.pinned_nodes
    if nodes is None:
        return False
    try:
        return marker.keep_marked(
            reason,
            nodes,
            plan.empty_for,
            marks_on(reading.snapshot.nodes),
            name_in_lasting_marks(reading.run.state.lease),
        )
    except ClusterReadError as error:
        what = "as to be empty" if reason == EMPTY else "as held by pods that stay"
        raise MarksError(f"nodes could not be marked {what}: {error}") from None


def _mark_pinned(
    marker: Marker,
    reading: Reading,
    planned: Planned,
    execution: Execution | None,
    notes: RunNotes,
) -> Execution | None:
    """Mark the nodes that pods pin; return the execution, failed if that failed.

    Only after the moves: their landings were predicted without these marks.

    Raises:
        MarksError: they could not be marked; no pod was moved, and nodes may have been marked as to be empty.
    """
    if reading.run.stop.reason() is not None:
        return execution
    try:
        changed = _mark_lastingly(marker, PINS, reading, planned.plan)
    except MarksError as error:
        if execution is None:
            raise
        notes.add(str(error))
        return replace(execution, failed=True, marks_changed=True)
    if execution is not None and changed:
        return replace(execution, marks_changed=True)
    return execution


def _marker(reading: Reading, notes: RunNotes, *, stands_still: bool) -> Marker | None:
    """Remove left-over marks; return a Marker, or None if the policy does not steer.

    Raises:
        MarksError: stale marks could not be removed, and the predictions assume their absence.
    """
    from rebalancer.run.execution.marks import Marker  # noqa: PLC0415

    run, client = reading.run, reading.client
    if client is None or not run.rules.steers:
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
    notes.add(*left)
    return marker


_PLANNING_SHARE = 0.5
"""Share of the time after reading the cluster that planning may use; execution uses the rest."""


def recall(reading: Reading) -> Reading:
    """Read the memory of earlier runs, if there is one; return the reading with it, and with their records.

    Raises:
        ClusterReadError: the memory does not exist.
    """
    run, client = reading.run, reading.client
    if client is None or run.state.memory is None:
        return reading
    from rebalancer.run.memory.document import count_last_hour  # noqa: PLC0415
    from rebalancer.run.memory.remember import (  # noqa: PLC0415  # noqa: PLC0415
        count_in_use,
        describe_cooling,
        describe_fall,
        describe_resting,
        recall_streaks,
        see_nodes,
        with_zones,
    )
    from rebalancer.run.memory.store import (  # noqa: PLC0415
        MemoryStore,
        open_config_map,
        pace_of,
    )

    memory = MemoryStore(
        open_config_map(client, run.state.memory),
        reading.snapshot,
        run.environment.random(8).hex(),
        pod[1] if (pod := own_pod(run.environment)) is not None else "",
    )
    flaw = memory.begin()
    notes = [] if flaw is None else [flaw]
    document, at = memory.document, reading.snapshot.captured_at
    unknown = memory.hour_unknown
    streaks = None if unknown is not None else recall_streaks(document)
    if not streaks and run.loaded.policy.mode is not Mode.ENFORCE:
        # Runs that only observe write nothing, so there is no next run to wait for.
        streaks = None
    safety, nodes = run.loaded.policy.safety, len(reading.snapshot.nodes)
    seen = see_nodes(document.nodes, nodes, count_in_use(reading.snapshot), safety, at)
    seen = with_zones(seen, document.nodes, reading.snapshot, at)
    memory.add_nodes(seen)
    if unknown is not None and not run.rules.counts_the_hour:
        notes.append(f"nothing is remembered: {unknown}")
    history = History(
        describe_cooling(document, at),
        count_last_hour(document, at),
        streaks,
        hour_unknown=unknown,
        pace=pace_of(document.pace),
        resting=describe_resting(document, at),
        nodes_fell=describe_fall(seen, nodes, safety, at),
        zones=tuple(seen.zones),
    )
    return replace(reading, history=history, memory=memory).noting(*notes)


def plan_run(
    reading: Reading, observe: Callable[[], PlanObserver] | None = None
) -> tuple[Planned, Sequence[str]]:
    """Return the plan, and notes. ``observe`` returns an observer of the draft before and after the moves."""
    run, reviewed = reading.run, reading.run.reviewed
    planned = make_plan(
        run.rules,
        reading.snapshot,
        run.timings,
        history=reading.history,
        clock_skew=reading.clock_skew,
        reviewed=None if reviewed is None else Reviewed(reviewed.moves, reviewed.empty),
        observe=observe,
        stop=_planning_ends(run),
    )
    expired = None if run.acts and run.steers else describe_expired(reading.snapshot)
    if reading.memory is not None:
        reading.memory.add_streaks(planned.streaks)
    evicts = run.acts and not planned.standstill
    if not (evicts and any(not move.observed for move in planned.left)):
        # Only evictions come before the explanation; a run without any may still be ended at once here.
        with run.timings.phase("plan"):
            planned.plan.explanation.make()
    return planned, [] if expired is None else [expired]


def _planning_ends(run: RunContext) -> Callable[[], str | None]:
    """Return a function that returns why planning must end early: a part of the run's time is for execution."""
    clock, until = run.environment.clock, math.inf
    if run.rules.seconds < math.inf:
        until = clock.now() + _PLANNING_SHARE * run.stop.seconds_left()
    slow = f"planning took {_PLANNING_SHARE:.0%} of the time that the run had left"
    return lambda: run.stop.reason() or (slow if clock.now() >= until else None)
