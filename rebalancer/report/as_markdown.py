"""The report as GitHub Markdown, short enough for a comment on a pull request.

Text from the cluster is written as code spans, in which markup, links and mentions have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rebalancer.base.plain_text import and_more, count, printable
from rebalancer.plan.plan import Outcome
from rebalancer.report import skips, words
from rebalancer.report.changes import WorkloadChange
from rebalancer.report.document import escape_markdown
from rebalancer.report.model import RunReport
from rebalancer.report.summary import LEGEND, ZONE_LOSSES, Summary

# A comment has room for 65,536 characters.
_MAX_ROWS = 50
_MAX_GROUPS = 5
_MAX_TEXT = 300
_MAX_TEXTS = 10
_MAX_NAMES = 5


def as_markdown(report: RunReport) -> str:
    """Return the report as Markdown, ending in a newline."""
    summary = Summary(report)
    sections = (
        _head(summary),
        _rules(summary),
        _unmet(summary),
        _workloads(summary),
        _moves(summary),
        _stays(summary),
        _zone_losses(summary),
        _next(summary),
    )
    return "\n\n".join(text for section in sections if (text := "\n".join(section))) + "\n"


def code(text: str) -> str:
    """Return ``text`` as a code span that is safe in a table."""
    shown = printable(text)
    shown = shown if len(shown) <= _MAX_TEXT else f"{shown[: _MAX_TEXT - 3]}..."
    runs = [len(run) for run in re.findall("`+", shown)]
    fence = "`" * (max(runs, default=0) + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") or not shown.strip() else ""
    # Only a table reads the bar before the code span does.
    return f"{fence}{pad}{shown}{pad}{fence}".replace("|", "\\|")


def _head(summary: Summary) -> Iterator[str]:
    report = summary.report
    yield f"### {escape_markdown(summary.headline)}"
    for line in summary.closing:
        yield ""
        yield escape_markdown(line)
    yield ""
    yield f"{code(words.title(report))}<br>{code(words.cluster_line(report))}"
    for warning in report.warnings[:_MAX_TEXTS]:
        yield f"- Warning: {code(warning)}"
    if len(report.warnings) > _MAX_TEXTS:
        yield f"- ... and {len(report.warnings) - _MAX_TEXTS:,} more warnings"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _rules(summary: Summary) -> Iterator[str]:
    rows = [
        [
            code(rule.strategy) + (" (observe)" if rule.observed else ""),
            *summary.unmet_cells(rule),
            ", ".join(f"{name} {amount}" for name, amount in rule.amounts) or "-",
        ]
        for rule in summary.rules
    ]
    if not rows:
        return
    yield from _table(["Rule", *summary.unmet_columns, "Cost"], rows)
    if any(rule.amounts for rule in summary.rules):
        yield ""
        yield "; ".join(f"*{name}*: {LEGEND[name]}" for name in ("hard", "soft", "imbalance"))
    yield from ([""] if summary.nodes else [])
    yield from (f"- {escape_markdown(line)}" for line in summary.nodes)
    impossible = summary.impossible
    yield from ([""] if impossible else [])
    yield from (f"- Cannot hold: {code(text)}" for text in impossible[:_MAX_TEXTS])
    if len(impossible) > _MAX_TEXTS:
        yield f"- ... and {len(impossible) - _MAX_TEXTS:,} more that cannot hold"


def _unmet(summary: Summary) -> Iterator[str]:
    if not summary.unmet:
        return
    yield f"**{summary.unmet_heading}**"
    yield ""
    for group in summary.unmet[:_MAX_TEXTS]:
        why = f": {code(group.why)}" if group.why else ""
        yield f"- **{group.heading}**: {code(and_more(group.names, _MAX_NAMES))}{why}"
    left = sum(group.rules for group in summary.unmet[_MAX_TEXTS:])
    if left:
        yield f"- ... and {left:,} more rules"


def _workloads(summary: Summary) -> Iterator[str]:
    changes = summary.changes.workloads
    if not changes:
        return
    steps = " → ".join(name.lower() for name in summary.changes.names)
    rows = [[code(one.owner), f"{one.moves:,}", _domains(one)] for one in changes[:_MAX_ROWS]]
    yield from _table(["Workload", "Moves", f"Pods, {steps}"], rows)
    if (left := len(changes) - _MAX_ROWS) > 0:
        yield ""
        yield f"... and {left:,} more workloads"


def _domains(change: WorkloadChange) -> str:
    changed = [
        f"{code(name)} {' → '.join(map(words.number, counts))}"
        for name, counts in change.list_changes()
    ]
    return and_more(changed, 6)


def _moves(summary: Summary) -> Iterator[str]:
    outcomes = summary.report.outcomes
    if not outcomes:
        return
    yield f"<details><summary>{count(len(outcomes), 'move')}</summary>"
    yield ""
    rows = [_move(summary.report, outcome) for outcome in outcomes[:_MAX_ROWS]]
    yield from _table(["Wave", "Pod", "From → to", "Why", "Outcome"], rows)
    yield ""
    if (left := len(outcomes) - _MAX_ROWS) > 0:
        yield f"... and {left:,} more (`-o csv` lists all)"
        yield ""
    yield "</details>"


def _move(report: RunReport, outcome: Outcome) -> list[str]:
    move = outcome.move
    where = f"{code(words.place(report, move.node))} → {code(words.outcome_words(report, outcome))}"
    why = code(f"{move.strategy}: {move.reason}")
    return [str(move.wave), code(move.ref), where, why, outcome.status.value]


def _stays(summary: Summary) -> Iterator[str]:
    if not summary.stays:
        return
    yield f"<details><summary>{summary.staying} although a rule is unmet</summary>"
    yield ""
    for stays in summary.stays:
        yield f"- **{stays.pods:,} {stays.code}**: {stays.why}"
        for group in stays.groups[:_MAX_GROUPS]:
            yield f"  - {code(and_more(group.pods))}: {code(group.message)}"
        if (left := skips.total(stays.groups[_MAX_GROUPS:])) > 0:
            yield f"  - ... and {left:,} more"
    yield ""
    yield "</details>"


def _zone_losses(summary: Summary) -> Iterator[str]:
    if summary.zone_losses:
        yield f"**{ZONE_LOSSES}**"
        yield ""
        yield from (f"- {code(line)}" for line in summary.zone_losses[:_MAX_TEXTS])


def _next(summary: Summary) -> Iterator[str]:
    if summary.next_steps:
        yield "**Next**"
        yield ""
        yield from (f"- {step}" for step in summary.next_steps)
