"""What a notice says of a run: the values of a template's placeholders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rebalancer.base.errors import ExitCode
from rebalancer.base.plain_text import count, printable
from rebalancer.plan.outcome import Status
from rebalancer.report.model import RunReport

_FINE = (ExitCode.DONE, ExitCode.MOVES_PLANNED, ExitCode.ASKED_RED)
_LONGEST = 2000
"""Characters of a summary; Slack takes 3,000 in a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What is said; the names of the fields are the placeholders, in camelCase (see :meth:`values`)."""

    result: str
    """``acted``, ``failed`` or ``stood still``."""
    summary: str
    source: str
    """The API server, empty where the run failed before it knew it."""
    exit_code: int
    evicted: int = 0
    landed_as_predicted: int = 0
    unmet_before: int = 0
    unmet_after: int = 0

    def values(self) -> Mapping[str, str]:
        """Return placeholder -> text."""
        summary = printable(self.summary)
        return {
            "result": self.result,
            "summary": summary if len(summary) <= _LONGEST else f"{summary[: _LONGEST - 3]}...",
            "source": printable(self.source),
            "exitCode": str(self.exit_code),
            "evicted": str(self.evicted),
            "landedAsPredicted": str(self.landed_as_predicted),
            "unmetBefore": str(self.unmet_before),
            "unmetAfter": str(self.unmet_after),
        }


PLACEHOLDERS = tuple(Notice(result="", summary="", source="", exit_code=0).values())


def of_error(message: str, exit_code: int) -> Notice:
    """Return the notice of a run that failed before it had a report."""
    return Notice(
        result="failed", summary=" ".join(message.split()), source="", exit_code=exit_code
    )


def of_report(report: RunReport) -> Notice | None:
    """Return the notice of a run, None if it had nothing to do and nothing went wrong."""
    evicted = [one for one in report.outcomes if one.status.may_have_evicted]
    failed = report.exit_code not in _FINE
    if not (evicted or failed or report.standstill):
        return None
    landed = sum(one.predicted is True for one in evicted)
    before = sum(score.violated for score in report.plan.before.values())
    after = sum(score.violated for score in report.plan.after.values())
    result = "failed" if failed else "acted" if evicted else "stood still"
    return Notice(
        result=result,
        summary=" ".join(_sentences(report, len(evicted), landed, before, after)),
        source=report.source,
        exit_code=report.exit_code,
        evicted=len(evicted),
        landed_as_predicted=landed,
        unmet_before=before,
        unmet_after=after,
    )


def _sentences(
    report: RunReport, evicted: int, landed: int, before: int, after: int
) -> Sequence[str]:
    said = []
    if report.standstill:
        said.append(f"Nothing is moved: {'; '.join(report.standstill)}.")
    if evicted:
        said.append(
            f"{count(evicted, 'pod')} evicted of {len(report.outcomes):,} planned,"
            f" {landed:,} landed as predicted."
        )
    wrong = [one for one in report.outcomes if one.status.is_failure]
    said += [
        f"{one.move.ref}: {one.status.value}{f' ({one.message})' if one.message else ''}."
        for one in wrong[:3]
    ]
    if len(wrong) > 3:
        said.append(f"{len(wrong) - 3:,} more failed.")
    if report.cut:
        said.append(f"The run ended early: {report.cut}.")
    unknown = [one for one in report.outcomes if one.status is Status.LOST]
    if unknown:
        said.append(f"Of {count(len(unknown), 'pod')} it is not known whether it was evicted.")
    said.append(f"Rules unmet: {before:,} before, {after:,} predicted after the plan.")
    return said
