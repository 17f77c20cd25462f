"""The end of a run: the report, the exit code, and the published metrics and notice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rebalancer.base.environment import Environment
from rebalancer.base.errors import ExitCode, PolicyError, RebalancerError
from rebalancer.base.output import OutputError, create_file, replace_file, say, terminal_look, write
from rebalancer.base.stop import Stop
from rebalancer.plan.deletion_costs import DeletionCosts
from rebalancer.plan.machines import ActStatus, MachineAct
from rebalancer.plan.plan import Code, Outcome, Plan, Score, Status
from rebalancer.planner.planning import ClusterNow, Planned
from rebalancer.report.model import RunReport
from rebalancer.report.render import render
from rebalancer.run.context import RunContext
from rebalancer.run.options import Ending, Publishing
from rebalancer.run.source import Reading, Source
from rebalancer.wire.times import rfc3339

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from rebalancer.kube.lease import LeaseTaken
    from rebalancer.plan.plan import Totals
    from rebalancer.report.notices import Notice
    from rebalancer.run.execution.executor import Execution
    from rebalancer.run.memory.document import Document


@dataclass(frozen=True, slots=True)
class Results:
    """What a run has done, beside its plan."""

    notes: tuple[str, ...] = ()
    """What the reader of the report should know of that."""
    execution: Execution | None = None
    """Of the plan; None in a dry run, and where nothing was to be moved."""
    machines: tuple[MachineAct, ...] = ()
    deletion_costs: DeletionCosts | None = None
    """What is written on pods beside the moves."""
    partial: bool = False
    """Something other than the moves of the plan has failed."""


def report(
    reading: Reading, ending: Ending, planned: Planned, results: Results
) -> tuple[ExitCode, RunReport]:
    """Write the report of the plan and its outcome; return the exit code and the report."""
    run, execution = reading.run, results.execution
    try:
        if run.environment.stop.is_set() and planned.plan.explanation.shorten():
            # Who sends a signal waits some seconds; on thousands of nodes the reasons alone take as long.
            results = replace(results, notes=(*results.notes, _SHORTENED))
        planned.plan.explanation.make()
    except Exception:
        _say_evicted(run.environment, outcomes_of(planned, execution))
        raise
    code = _exit_code(run, ending, planned, execution)
    if results.partial and code is not ExitCode.UNREADABLE:
        code = ExitCode.PARTIAL
    written = replace(run_report(reading, planned, results, int(code)), asks=ending.asks)
    if (path := ending.plan_out) is not None:
        write_plan(path, written)
    if not ending.prints_idle and _is_idle(written):
        nodes = len(written.snapshot.nodes)
        why = f": {written.plan.stopped}" if written.plan.unmet else ""
        run.progress.note("idle", f"nothing to do on {nodes:,} nodes{why}")
        return code, written
    return print_report(run.environment, ending, written), written


_SHORTENED = (
    "left out, because the run was stopped by a signal: why other pods stay, and the lower bound"
)


def print_report(environment: Environment, ending: Ending, written: RunReport) -> ExitCode:
    """Print the report in the form that the flags select; return the exit code."""
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
    reading: Reading, planned: Planned, results: Results, exit_code: int = 0
) -> RunReport:
    """Return the report of a run."""
    run, execution = reading.run, results.execution
    return RunReport(
        dry_run=not run.acts,
        source=reading.source.name,
        snapshot=planned.snapshot,
        loaded=run.loaded,
        plan=planned.plan,
        outcomes=outcomes_of(planned, execution),
        reviewed=run.reviewed,
        standstill=planned.standstill,
        cut=execution.stopped if execution else None,
        timings=dict(run.timings.seconds),
        warnings=(*run.notes, *reading.notes, *results.notes, *planned.plan.warnings),
        exit_code=exit_code,
        interruptions=run.interruptions,
        machines=results.machines,
        deletion_costs=results.deletion_costs,
        read_again=_score_again(planned, execution),
        scope=planned.rules.scope,
    )


def _score_again(planned: Planned, execution: Execution | None) -> ClusterNow | None:
    """Return the scored cluster after a run; if a safety hold stopped the run, the cluster as read."""
    if planned.standstill:
        return planned.score(planned.snapshot)
    return None if execution is None else execution.now


def report_lease_taken(source: Source, ending: Ending, taken: LeaseTaken) -> ExitCode:
    """Print which run holds the Lease, and until when; return a successful exit code."""
    from rebalancer.report.render import LeaseTakenReport, render_lease_taken  # noqa: PLC0415

    run, code = source.run, ExitCode.ASKED_RED if "held" in ending.fail_on else ExitCode.DONE
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


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that has ended."""

    code: ExitCode
    report: RunReport | None = None
    """None where another run has the Lease: metrics and notices are that run's matter."""
    remembered: Document | None = None
    """The records of earlier runs; None without a memory."""
    totals: Totals | None = None
    """The totals of all runs, this one included; None if they are not known."""


def publish_run(
    flags: Publishing, deadline: float, environment: Environment, run: Callable[[], EndedRun]
) -> EndedRun:
    """Run, then send metrics and a notice according to ``flags``. ``deadline``: seconds for all of it.

    Raises:
        RebalancerError: raised by the run, or a flag is invalid.
    """
    publish = _publisher(flags, deadline, environment)
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
class Publisher:
    """Sends the metrics and notices that the flags select."""

    environment: Environment
    stop: Stop
    """The run's stop: once it has come, sending may take a second at most."""
    push_url: str | None
    """The URL of a Pushgateway."""
    file: str | None
    """The file for a textfile collector."""
    notify_url: str | None
    template: Any
    """The template of the notice; None without one."""
    cluster: str = ""
    """Name of the cluster among others; empty: there is one only."""

    def report(
        self, report: RunReport, memory: Document | None, totals: Totals | None = None
    ) -> None:
        """Publish a finished run. ``memory``: the document before it; ``totals``: counters including this run."""
        if self._measures:
            from rebalancer.report.metrics import of_report, of_totals, registry  # noqa: PLC0415
            from rebalancer.run.memory.remember import summarize_memory  # noqa: PLC0415

            now = self.environment.clock.unix()
            values = of_report(
                report, None if memory is None else summarize_memory(memory, now), now
            )
            self._metrics(registry(values if totals is None else {**values, **of_totals(totals)}))
        if self.notify_url is not None:
            from rebalancer.report.notices import of_report as notice_of  # noqa: PLC0415

            if (notice := notice_of(report)) is not None:
                self._notify(notice)

    def failure(self, message: str, exit_code: int) -> None:
        """Publish a run that failed without a report."""
        if self._measures:
            from rebalancer.report.metrics import of_end, registry  # noqa: PLC0415

            self._metrics(registry(of_end(exit_code, self.environment.clock.unix())))
        if self.notify_url is not None:
            from rebalancer.report.notices import of_error  # noqa: PLC0415

            self._notify(of_error(message, exit_code))

    @property
    def _measures(self) -> bool:
        return self.push_url is not None or self.file is not None

    def _metrics(self, metrics: CollectorRegistry) -> None:
        from rebalancer.report.metrics import as_text, push  # noqa: PLC0415

        if (file := self.file) is not None:
            self._try(f"--metrics-file {file}", lambda: replace_file(Path(file), as_text(metrics)))
        if (url := self.push_url) is not None:
            self._try("--metrics-push", lambda: push(url, metrics, self.stop, self.cluster))

    def _notify(self, notice: Notice) -> None:
        from rebalancer.base.data_text import fill  # noqa: PLC0415
        from rebalancer.base.sending import send  # noqa: PLC0415

        if self.cluster:
            source = f"{self.cluster} ({notice.source})" if notice.source else self.cluster
            notice = replace(notice, source=source)
        url, body = self.notify_url or "", fill(self.template, notice.values())
        headers = {"Content-Type": "application/json"}
        self._try("--notify", lambda: send("POST", url, body, headers, self.stop))

    def _try(self, flag: str, deliver: Callable[[], None]) -> None:
        from rebalancer.base.sending import SendingError  # noqa: PLC0415

        try:
            deliver()
        except SendingError as error:
            say(self.environment.err, f"rebalancer: {flag}: {error}; the run is not affected")
        except OSError as error:
            why = f"could not be written ({error.strerror})"
            say(self.environment.err, f"rebalancer: {flag}: {why}; the run is not affected")


def _publisher(flags: Publishing, deadline: float, environment: Environment) -> Publisher | None:
    """Return a publisher for a run that starts now and has ``deadline`` seconds; None if no flag asks for one.

    Raises:
        PolicyError: an address or the template is invalid.
    """
    urls = {
        "--metrics-push": flags.metrics_push,
        "--notify": flags.notify,
    }
    if flags.metrics_file is None and not any(urls.values()):
        return None
    from rebalancer.base.sending import SendingError, check_url  # noqa: PLC0415

    for flag, url in urls.items():
        if not url:
            continue
        try:
            check_url(url)
        except SendingError as error:
            raise PolicyError([f"{flag}: {error}"]) from None
    template = None
    if flags.notify is not None:
        from rebalancer.report.notices import load_template  # noqa: PLC0415

        template = load_template(flags.notify_template)
    clock = environment.clock
    stop = Stop(clock, clock.now() + deadline, environment.stop)
    return Publisher(
        environment,
        stop,
        push_url=flags.metrics_push,
        file=flags.metrics_file,
        notify_url=flags.notify,
        template=template,
        cluster=flags.cluster,
    )
