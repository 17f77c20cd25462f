"""The content of a notice about a run: the values for the placeholders of a template."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from rebalancer.base.data_text import names_in
from rebalancer.base.errors import ExitCode, PolicyError
from rebalancer.base.plain_text import and_more, count, printable
from rebalancer.plan.plan import Status
from rebalancer.report.model import RunReport
from rebalancer.report.summary import Summary
from rebalancer.report.words import describe_done

_FINE = (ExitCode.DONE, ExitCode.MOVES_PLANNED, ExitCode.ASKED_RED)
_NAMED = 3
_MAX_TEXT = 2000
"""Characters of a summary; Slack accepts 3,000 in a block."""


SHIPPED = ("plain", "slack", "teams")
_MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """The content of a notice. The field names in camelCase are the placeholders (see :meth:`values`)."""

    result: str
    """``acted``, ``failed`` or ``stood still``."""
    summary: str
    source: str
    """The API server, empty where the run failed before it knew it."""
    exit_code: int
    evicted: int = 0
    landed_as_predicted: int = 0
    unmet_before: int = 0
    unmet_planned: int = 0
    unmet_after: int | None = 0
    """The number of unmet rules in the present cluster; None if it was not scored again."""

    def values(self) -> Mapping[str, str]:
        """Return placeholder -> text."""
        summary = printable(self.summary)
        return {
            "result": self.result,
            "summary": summary if len(summary) <= _MAX_TEXT else f"{summary[: _MAX_TEXT - 3]}...",
            "source": printable(self.source),
            "exitCode": str(self.exit_code),
            "evicted": str(self.evicted),
            "landedAsPredicted": str(self.landed_as_predicted),
            "unmetBefore": str(self.unmet_before),
            "unmetPlanned": str(self.unmet_planned),
            "unmetAfter": "not known" if self.unmet_after is None else str(self.unmet_after),
        }


PLACEHOLDERS = tuple(Notice(result="", summary="", source="", exit_code=0).values())


def of_error(message: str, exit_code: int) -> Notice:
    """Return the notice for a run that failed without a report."""
    return Notice(
        result="failed", summary=" ".join(message.split()), source="", exit_code=exit_code
    )


def of_report(report: RunReport) -> Notice | None:
    """Return the notice for a run; None if the run did nothing and nothing went wrong."""
    evicted = [one for one in report.outcomes if one.status.may_have_evicted]
    failed = report.exit_code not in _FINE
    if not (evicted or failed or report.standstill):
        return None
    landed = sum(one.predicted is True for one in evicted)
    summary = Summary(report)
    result = "failed" if failed else "acted" if evicted else "stood still"
    return Notice(
        result=result,
        summary=" ".join(_sentences(summary, len(evicted))),
        source=report.source,
        exit_code=report.exit_code,
        evicted=len(evicted),
        landed_as_predicted=landed,
        unmet_before=summary.unmet_before,
        unmet_planned=summary.unmet_planned,
        unmet_after=summary.unmet_now,
    )


def _sentences(summary: Summary, evicted: int) -> Sequence[str]:
    said, report = [], summary.report
    if report.standstill:
        said.append(f"Nothing is moved: {'; '.join(report.standstill)}.")
    if evicted:
        said.append(f"Of {len(report.outcomes):,} planned: {describe_done(report)}")
        said.append(_workloads(report))
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
    said.append(_unmet(summary))
    return said


def _workloads(report: RunReport) -> str:
    """Return the workloads whose pods were evicted, those with most of them first."""
    evicted = Counter(one.move.owner for one in report.outcomes if one.status.may_have_evicted)
    most = sorted(evicted.items(), key=lambda item: (-item[1], item[0]))
    return f"Evicted: {and_more([f'{pods:,} of {owner}' for owner, pods in most], _NAMED)}."


def _unmet(summary: Summary) -> str:
    """Return the number of unmet rules, and name the first ones."""
    before, planned, now = summary.unmet_before, summary.unmet_planned, summary.unmet_now
    if summary.report.standstill:
        text = f"Rules unmet: {before:,}"
    elif now is None:
        text = f"Rules unmet: {before:,} before, {planned:,} planned; they were not counted again"
    else:
        text = f"Rules unmet: {before:,} before, {planned:,} planned, {now:,} now"
    names = [rule.rule for rule in summary.unmet_rules]
    return f"{text}{f': {and_more(names, _NAMED)}' if names and now else ''}."


def load_template(name: str) -> Any:
    """Return the parsed built-in template ``name``, or the template in the file ``name``.

    Raises:
        PolicyError: the file cannot be read, is not JSON, or has an unknown placeholder.
    """
    try:
        if name in SHIPPED:
            folder = resources.files("rebalancer.report") / "templates"
            raw = (folder / f"{name}.json").read_bytes()
        else:
            with Path(name).open("rb") as stream:
                raw = stream.read(_MAX_BYTES)
        template = json.loads(raw)
    except OSError as error:
        known = ", ".join(SHIPPED)
        raise PolicyError(
            [f"--notify-template {name}: is none of {known}, and no file ({error.strerror})"]
        ) from None
    except (ValueError, RecursionError) as error:
        raise PolicyError([f"--notify-template {name}: is no JSON ({error})"]) from None
    unknown = sorted({*names_in(template)} - {*PLACEHOLDERS})
    if unknown:
        known = ", ".join(f"${one}" for one in PLACEHOLDERS)
        raise PolicyError(
            [f"--notify-template {name}: ${unknown[0]} is no placeholder; known: {known}"]
        )
    return template
