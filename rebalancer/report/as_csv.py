"""The moves as CSV (RFC 4180), one row each, for a spreadsheet.

A spreadsheet executes a cell that starts with ``=``, ``+``, ``-`` or ``@`` as a formula, and the names come from the
cluster. Such a text gets a leading apostrophe, which marks text in a spreadsheet. Numbers are not changed.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO

from rebalancer.base.data_text import plain_number
from rebalancer.base.plain_text import printable
from rebalancer.plan.outcome import Outcome
from rebalancer.report.changes import likely
from rebalancer.report.model import RunReport

HEAD = (
    "wave", "namespace", "pod", "uid", "owner", "from", "fromZone", "to", "toZone", "probability",
    "strategy", "method", "reason", "gainHard", "gainSoft", "gainImbalance", "cost", "outcome", "message",
    "landed", "landedZone", "predicted", "seconds",
)  # fmt: skip
"""``to`` is the most probable landing, ``landed`` the real one."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def as_csv(report: RunReport) -> Iterator[str]:
    """Yield a header line, then one line per move."""
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for row in (HEAD, *(_row(report, outcome) for outcome in report.outcomes)):
        writer.writerow([_cell(value) for value in row])
        yield stream.getvalue()
        stream.seek(0)
        stream.truncate()


def _row(report: RunReport, outcome: Outcome) -> tuple[str | float | None, ...]:
    move, target = outcome.move, likely(outcome.move)
    return (
        move.wave,
        move.namespace,
        move.pod,
        move.uid,
        move.owner,
        move.node,
        report.domain_of(move.node),
        target,
        report.domain_of(target) if target is not None else None,
        plain_number(move.landings[0].probability) if move.landings else None,
        move.strategy,
        move.method.value,
        move.reason,
        *(plain_number(entry) for entry in move.gain.as_tuple()),
        plain_number(move.cost),
        outcome.status.value,
        outcome.message,
        outcome.landed,
        report.domain_of(outcome.landed) if outcome.landed is not None else None,
        None if outcome.predicted is None else str(outcome.predicted).lower(),
        plain_number(outcome.seconds, 4),
    )


def _cell(value: str | float | None) -> str | float:
    if not isinstance(value, str):
        return "" if value is None else value
    return printable(f"'{value}" if value.startswith(_FORMULA) else value)
