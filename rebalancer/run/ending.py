"""The end of a run: the report and the exit code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rebalancer.base.environment import Environment
from rebalancer.base.errors import ExitCode, PolicyError
from rebalancer.base.output import OutputError, create_file, say, terminal_look, write
from rebalancer.plan.machines import ActStatus
from rebalancer.plan.plan import Code, Outcome, Plan, Score, Status
from rebalancer.planner.planning import ClusterNow, Planned
from rebalancer.report.model import RunReport
from rebalancer.report.render import render
from rebalancer.run.context import RunContext
from rebalancer.run.options import Ending
from rebalancer.run.source import Source
from rebalancer.wire.times import rfc3339

if TYPE_CHECKING:
    from rebalancer.kube.lease import LeaseTaken
    from rebalancer.run.execution.executor import Execution


def report(
    run: RunContext,
    ending: Ending,
    source: Source,
    planned: Planned,
    execution: Execution | None,
    *,
    partial: bool = False,
) -> tuple[ExitCode, RunReport]:
    """Write the report of the plan and its outcome; return the exit code and the report.

    ``partial``: something other than the moves of the plan has failed.
    """
    try:
        if run.environment.stop.is_set() and planned.plan.explanation.shorten():
            # Who sends a signal waits some seconds; on thousands of nodes the reasons alone take as long.
            run.notes.append(
                "left out, because the run was stopped by a signal: why other pods stay, and the lower bound"
            )
        planned.plan.explanation.make()
    except Exception:
        _say_evicted(run.environment, outcomes_of(planned, execution))
        raise
    code = _exit_code(run, ending, planned, execution)
    if partial and code is not ExitCode.UNREADABLE:
        code = ExitCode.PARTIAL
    written = replace(run_report(run, source, planned, execution, int(code)), asks=ending.asks)
    if (path := ending.plan_out) is not None:
        write_plan(path, written)
    if not ending.prints_idle and _is_idle(written):
        nodes = len(written.snapshot.nodes)
        why = f": {written.plan.stopped}" if written.plan.unmet else ""
        run.progress.note("idle", f"nothing to do on {nodes:,} nodes{why}")
        return code, written
    return print_report(run.environment, ending, written), written


def print_report(environment: Environment, ending: Ending, written: RunReport) -> ExitCode:
    """Print the report in the form that the flags ask for; return the exit code."""
    look = terminal_look(environment, ending.color)
    pieces = render(written, ending.output, color=look.color, width=look.width)
    return _write(environment, pieces, ExitCode(written.exit_code), written.outcomes)


def _is_idle(written: RunReport) -> bool:
    return not (
        written.outcomes
        or written.standstill
        or written.exit_code
        or written.interruptions
        or (written.deletion_costs is not None and written.deletion_costs.changes)
        or any(act.status is not ActStatus.WAITS for act in written.machines)
    )


def write_plan(path: str, written: RunReport) -> None:
    """Write the plan to a file, for ``apply``.

    Raises:
        PolicyError: the file could not be written.
    """
    from rebalancer.report.as_json import as_json  # noqa: PLC0415

    try:
        with create_file(Path(path)) as file:
            file.writelines(piece.encode() for piece in as_json(written))
    except OSError as error:
        raise PolicyError([f"--out {path}: cannot be written ({error.strerror})"]) from None


def run_report(
    run: RunContext,
    source: Source,
    planned: Planned,
    execution: Execution | None = None,
    exit_code: int = 0,
) -> RunReport:
    """Return the report of a run; of a dry run if ``execution`` is None."""
    return RunReport(
        dry_run=not run.acts,
        source=source.name,
        snapshot=planned.snapshot,
        loaded=run.loaded,
        plan=planned.plan,
        outcomes=outcomes_of(planned, execution),
        reviewed=run.reviewed,
        standstill=planned.standstill,
        cut=execution.stopped if execution else None,
        timings=dict(run.timings.seconds),
        warnings=(*run.notes, *planned.plan.warnings),
        exit_code=exit_code,
        interruptions=run.interruptions,
        machines=run.machines,
        deletion_costs=run.deletion_costs,
        read_again=_score_again(planned, execution),
        scope=planned.rules.scope,
    )


def _score_again(planned: Planned, execution: Execution | None) -> ClusterNow | None:
    """Return the scored cluster after a run. If the run stands still, that is the cluster as read."""
    if planned.standstill:
        return planned.score(planned.snapshot)
    return None if execution is None else execution.now


def report_lease_taken(
    run: RunContext, ending: Ending, source: Source, taken: LeaseTaken
) -> ExitCode:
    """Print which run holds the Lease, and until when; return a successful exit code."""
    from rebalancer.report.render import LeaseTakenReport, render_lease_taken  # noqa: PLC0415

    code = ExitCode.ASKED_RED if "held" in ending.fail_on else ExitCode.DONE
    held_report = LeaseTakenReport(
        source=source.name,
        loaded=run.loaded,
        reviewed=run.reviewed,
        holder=taken.holder,
        until=rfc3339(taken.expires_at),
        exit_code=int(code),
    )
    return _write(run.environment, (render_lease_taken(held_report, ending.output),), code, ())


def _write(
    environment: Environment, pieces: Iterable[str], code: ExitCode, outcomes: Sequence[Outcome]
) -> ExitCode:
    """Write the report; return ``code``, or another exit code if it could not be written.

    In that case the evicted pods are printed to standard error. A reader that closed the pipe early (``head``) is no
    error, unless something was evicted.
    """
    try:
        write(environment.out, pieces)
    except OutputError as error:
        evicted = any(one.status.may_have_evicted for one in outcomes)
        if error.reader_has_left and not evicted:
            return code
        say(environment.err, f"rebalancer: {error}")
        _say_evicted(environment, outcomes)
        if evicted:
            return ExitCode.PARTIAL
        return code if code is ExitCode.PARTIAL else error.exit_code
    return code


def _say_evicted(environment: Environment, outcomes: Sequence[Outcome]) -> None:
    """Print the evicted pods to standard error, in place of the report; nothing if there are none."""
    evicted = [one.move.ref for one in outcomes if one.status.may_have_evicted]
    if evicted:
        say(environment.err, f"evicted or lost: {len(evicted)}: {', '.join(evicted)}")


def _exit_code(
    run: RunContext, ending: Ending, planned: Planned, execution: Execution | None
) -> ExitCode:
    if execution is not None:
        if execution.refused is not None:
            return ExitCode.UNREADABLE
        if execution.failed:
            untouched = run.environment.stop.is_set() and _did_nothing(execution)
            return ExitCode.STOPPED if untouched else ExitCode.PARTIAL
    if _is_red(ending.fail_on, planned, execution):
        return ExitCode.ASKED_RED
    if execution is not None:
        return ExitCode.DONE
    wanted = ending.detailed_exitcode and planned.left
    return ExitCode.MOVES_PLANNED if wanted and not run.acts else ExitCode.DONE


def _did_nothing(execution: Execution) -> bool:
    """Return whether the cluster certainly has not been changed."""
    statuses = [one.status for one in execution.outcomes]
    evicted = any(status.may_have_evicted or status.is_failure for status in statuses)
    return not (evicted or execution.marks_left or execution.marks_changed)


def _is_red(fail_on: Sequence[str], planned: Planned, execution: Execution | None) -> bool:
    """Return whether the run ended in one of the states of ``--fail-on``."""
    if not fail_on:
        return False
    plan, outcomes = planned.plan, outcomes_of(planned, execution)
    states = {
        "standstill": bool(planned.standstill),
        "unmet": any(
            score.violated or score.not_judged for score in _last(plan, execution).values()
        )
        or any(not (one.status.is_carried_out or one.status is Status.PLANNED) for one in outcomes),
        "held": plan.backlog.moves > 0
        or any(skip.code in _HELD_BACK for skip in plan.skips)
        or any(one.status is Status.BLOCKED for one in outcomes),
    }
    return any(states[name] for name in fail_on)


def _last(plan: Plan, execution: Execution | None) -> Mapping[str, Score]:
    """Return the scores of the cluster after a run, else the planned scores."""
    return plan.after if execution is None or execution.now is None else execution.now.scores


_HELD_BACK = (Code.PDB, Code.PDB_CONFLICT, Code.BUDGET, Code.QUOTA)


def outcomes_of(planned: Planned, execution: Execution | None) -> tuple[Outcome, ...]:
    """Return the outcome of each move of the plan, in its order."""
    outcomes = iter(execution.outcomes if execution else _not_executed(planned))
    return tuple(planned.ended.get(move.uid) or next(outcomes) for move in planned.plan.moves)


def _not_executed(planned: Planned) -> tuple[Outcome, ...]:
    why = "; ".join(planned.standstill)
    return tuple(
        Outcome(move, Status.OBSERVED, "observed now, by the policy or its windows")
        if move.observed
        else Outcome(move, Status.NOT_ATTEMPTED, why)
        if planned.standstill
        else Outcome(move, Status.PLANNED, "")
        for move in planned.left
    )
