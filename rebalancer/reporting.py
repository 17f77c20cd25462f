"""What a run says at its end: the report, and the exit code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rebalancer.environment import Environment
from rebalancer.errors import ExitCode
from rebalancer.evictor.outcomes import Outcome, Status
from rebalancer.options import RunOptions
from rebalancer.output import OutputError, say, write
from rebalancer.planning import Planned
from rebalancer.policy.load import LoadedPolicy
from rebalancer.report.model import RunReport
from rebalancer.report.render import render

if TYPE_CHECKING:
    from rebalancer.evictor.executor import Execution
    from rebalancer.kube.lease import HeldByAnother
    from rebalancer.report.plan_file import ReviewedPlan


@dataclass(frozen=True, slots=True)
class Reporting:
    """Writes the report of one run."""

    options: RunOptions
    environment: Environment
    loaded: LoadedPolicy
    acts: bool
    """Whether the run may evict."""
    reviewed: ReviewedPlan | None = None
    """The file that the plan was read from, if so."""

    def report(
        self,
        planned: Planned,
        execution: Execution | None,
        *,
        source: str,
        timings: Mapping[str, float],
        notes: tuple[str, ...],
    ) -> ExitCode:
        """Write what was planned and what came of it."""
        code = self._exit_code(planned, execution)
        report = RunReport(
            dry_run=not self.acts,
            source=source,
            snapshot=planned.snapshot,
            loaded=self.loaded,
            plan=planned.plan,
            outcomes=outcomes_of(planned, execution),
            reviewed=self.reviewed,
            standstill=planned.standstill,
            cut=execution.stopped if execution else None,
            timings=dict(timings),
            warnings=(*notes, *planned.plan.warnings),
            exit_code=int(code),
        )
        pieces = render(report, self.options.output, color=self._color)
        return self._written(pieces, code, report.outcomes)

    def report_held(self, held: HeldByAnother, source: str) -> ExitCode:
        """Say who holds the Lease, and until when; that is no failure."""
        from rebalancer.report.held import HeldReport, render_held  # noqa: PLC0415
        from rebalancer.wire.times import rfc3339  # noqa: PLC0415

        report = HeldReport(
            source=source,
            loaded=self.loaded,
            reviewed=self.reviewed,
            holder=held.holder,
            until=rfc3339(held.expires_at),
        )
        return self._written((render_held(report, self.options.output),), ExitCode.DONE, ())

    def _written(
        self, pieces: Iterable[str], code: ExitCode, outcomes: Sequence[Outcome]
    ) -> ExitCode:
        """Write the report; return the exit code ``code``, or another if it could not be written.

        What was evicted is said on standard error then. A reader that has left (``head``) misses nothing that
        it wanted, unless something was evicted.
        """
        try:
            write(self.environment.out, pieces)
        except OutputError as error:
            evicted = [one.move.ref for one in outcomes if one.status.may_have_evicted]
            if evicted:
                done = f"evicted or lost: {len(evicted)}: {', '.join(evicted)}"
                say(self.environment.err, f"rebalancer: {error}\n{done}")
                return ExitCode.PARTIAL
            if error.reader_has_left:
                return code
            say(self.environment.err, f"rebalancer: {error}")
            return code if code is ExitCode.PARTIAL else error.exit_code
        return code

    @property
    def _color(self) -> bool:
        return self.environment.out.isatty() if self.options.color is None else self.options.color

    def _exit_code(self, planned: Planned, execution: Execution | None) -> ExitCode:
        if execution is not None:
            if execution.refused is not None:
                return ExitCode.UNREADABLE
            return ExitCode.PARTIAL if execution.failed else ExitCode.DONE
        wanted = self.options.detailed_exitcode and planned.left
        return ExitCode.MOVES_FOUND if wanted and not self.acts else ExitCode.DONE


def outcomes_of(planned: Planned, execution: Execution | None) -> tuple[Outcome, ...]:
    """Return what came of each move of the plan, in its order."""
    told = iter(execution.outcomes if execution else _not_executed(planned))
    return tuple(planned.ended.get(move.uid) or next(told) for move in planned.plan.moves)


def _not_executed(planned: Planned) -> tuple[Outcome, ...]:
    why = "; ".join(planned.standstill)
    return tuple(
        Outcome(move, Status.OBSERVED, "its strategy only observes, or its window is closed")
        if move.observed
        else Outcome(move, Status.NOT_ATTEMPTED, why)
        if planned.standstill
        else Outcome(move, Status.PLANNED, "")
        for move in planned.left
    )
