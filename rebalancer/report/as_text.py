"""The report of a run as blocks: the summary, the changes, each move, the pods that are not moved, next steps, and the sum.

On a terminal, a move has one line from 120 columns on, else two. ``wide`` breaks and shortens no line; otherwise
twenty or more moves are grouped by workload, and a long list ends with the number of omitted entries. In Markdown it is
short enough for a comment on a pull request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby

from rebalancer.base.plain_text import WIDTH, Paint, and_more, count
from rebalancer.plan.plan import Outcome, Status
from rebalancer.planner.safety import lost_pods
from rebalancer.report import skips, words
from rebalancer.report.changes import WorkloadChange
from rebalancer.report.document import (
    UNBOUND,
    Block,
    Details,
    Fit,
    Passage,
    ReportDocument,
    Sides,
    Table,
    join_sections,
)
from rebalancer.report.model import RunReport
from rebalancer.report.summary import ZONE_LOSSES, RuleSummary, Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """The most entries of each list; these are as much as is read at a glance."""

    moves: int = 20
    """If there are as many, or more, only those are listed that need attention."""
    workloads: int = 20
    groups: int = 3
    warnings: int = 8
    impossible: int = 3
    unmet: int = 5
    names: int = 3
    pods: int = 2
    domains: int = 6
    zones: int = 5
    text: int = UNBOUND
    """Characters of a text from the cluster."""


_GLANCE = _Limits()
_WIDE = _Limits(**{one.name: UNBOUND for one in fields(_Limits)})
_COMMENT = _Limits(
    moves=50,
    workloads=50,
    groups=5,
    warnings=10,
    impossible=10,
    unmet=10,
    names=5,
    zones=10,
    text=300,
)
"""A comment has room for 65,536 characters."""
_MAX_COMMENTED = 50
"""Moves that are listed in a comment at most."""

_LINES = 120
"""Columns from which on a move has one line."""
_INDENT = " " * 6

_STATUS_STYLE = {
    Status.EVICTED: "green",
    Status.RESTARTED: "green",
    Status.REQUESTED: "green",
    Status.PLANNED: "",
    Status.OBSERVED: "dim",
    Status.NOT_ATTEMPTED: "dim",
    Status.DROPPED: "dim",
    Status.GONE: "yellow",
    Status.CHANGED: "yellow",
    Status.BLOCKED: "yellow",
    Status.MISCONFIGURED: "red",
    Status.REFUSED: "red",
    Status.FAILED: "red",
    Status.LOST: "red",
}


def as_table(
    report: RunReport, *, color: bool = False, width: int = WIDTH, wide: bool = False
) -> str:
    """Return the report as text of ``width`` columns, ending in a newline; ``color`` adds ANSI colours."""
    limits, width = (_WIDE, UNBOUND) if wide else (_GLANCE, width)
    blocks = _RunBlocks(Summary(report), limits, one_line=width >= _LINES).all()
    return ReportDocument(blocks, {}).show("table", width, Paint(color))


def as_markdown(report: RunReport) -> str:
    """Return the report as Markdown, ending in a newline."""
    return ReportDocument(_RunBlocks(Summary(report), _COMMENT).all(), {}).show("markdown")


def _prose(text: str, indent: str = "", hanging: str | None = "  ", style: str = "") -> Passage:
    return Passage(text, indent, hanging, UNBOUND, style=style)


def _heading(text: str) -> Passage:
    return _prose(text, hanging="", style="bold")


class _RunBlocks:
    def __init__(self, summary: Summary, limits: _Limits, *, one_line: bool = True) -> None:
        """``one_line``: whether a move has one line."""
        self._summary, self._report, self._limits = summary, summary.report, limits
        self._wide, self._one_line = limits is _WIDE, one_line

    def all(self) -> Sequence[Block]:
        summary = self._summary
        total = [] if summary.total is None else [_prose(summary.total, style=self._mood())]
        return join_sections(
            self._outcome(),
            self._head(),
            self._rules(),
            self._unmet(),
            self._workloads(),
            self._moves(),
            self._stays(),
            self._zone_losses(),
            self._funnel(),
            self._next(),
            total,
        )

    def _more(self, left: int, indent: str, what: str = "") -> Iterator[Block]:
        if left > 0:
            text = f"... and {left:,} more{what} (-o wide shows all)"
            yield _prose(text, indent, f"{indent}    ", "dim")

    def _cut(self, text: str) -> str:
        most = self._limits.text
        return text if len(text) <= most else f"{text[: most - 3]}..."

    # -- the head ----------------------------------------------------------------------------------

    def _outcome(self) -> Iterator[Block]:
        summary = self._summary
        yield _prose(summary.headline, style=self._mood())
        if (why := summary.why) is not None:
            yield _prose(why)
        yield from (_prose(line, style=self._mood()) for line in summary.closing)

    def _head(self) -> Iterator[Block]:
        report, most = self._report, self._limits.warnings
        yield _prose(words.title(report), style="dim")
        yield _prose(words.cluster_line(report), style="dim")
        for warning in report.warnings[:most]:
            yield _prose(f"Warning: {self._cut(warning)}", style="yellow")
        yield from self._more(len(report.warnings) - most, "", " warnings")

    def _mood(self) -> str:
        report = self._report
        if any(outcome.status.is_failure for outcome in report.outcomes):
            return "red"
        surprised = any(outcome.predicted is False for outcome in report.outcomes)
        return "yellow" if surprised or report.cut or report.standstill else "bold"

    # -- rules -------------------------------------------------------------------------------------

    def _rules(self) -> Iterator[Block]:
        summary, most = self._summary, self._limits.impossible
        if not summary.rules or self._report.plan.funnel.get("pods") == 0:
            return
        if all(rule.holds for rule in summary.rules):
            names = ", ".join(rule.strategy for rule in summary.rules)
            which = "Every rule that can hold holds"
            if any(of.select for of in self._report.loaded.policy.strategies.values()):
                which = "Every rule of the pods that are selected holds"
            if lost_pods(self._report.snapshot):
                which = "No rule that was judged is unmet"
            yield _prose(f"{which}: {names}.")
        else:
            yield from self._rule_table(summary.rules)
        for line in summary.nodes:
            yield _prose(f"{line[:1].upper()}{line[1:]}.", "  ", _INDENT)
        for text in summary.impossible[:most]:
            yield _prose(f"Cannot hold: {self._cut(text)}", "  ", _INDENT)
        yield from self._more(len(summary.impossible) - most, "  ")

    def _rule_table(self, rules: Sequence[RuleSummary]) -> Iterator[Block]:
        amounts = [dict(rule.amounts) for rule in rules]
        named = [
            name for name in ("hard", "soft", "imbalance") if any(name in of for of in amounts)
        ]
        heads = [name.upper() for name in (*self._summary.unmet_columns, *named)]
        rows = [
            [
                f"{rule.strategy} (observe)" if rule.observed else rule.strategy,
                *self._summary.unmet_cells(rule),
                *(of.get(name, "-") for name in named),
            ]
            for rule, of in zip(rules, amounts, strict=True)
        ]
        moods = {i: _mood_of(rule) for i, rule in enumerate(rules)}
        yield _table([["RULE", *heads], *rows], Fit.CELLS, moods)
        if named:
            text = f"(`rebalancer explain code {named[0]}` says what a word or a code means)"
            yield _prose(text, "  ", None, "dim")

    def _zone_losses(self) -> Iterator[Block]:
        losses, most = self._summary.zone_losses, self._limits.zones
        if losses:
            yield _heading(ZONE_LOSSES)
            yield from (_prose(line, "  ", _INDENT) for line in losses[:most])
            yield from self._more(len(losses) - most, "  ", " zones")

    def _unmet(self) -> Iterator[Block]:
        """Yield the rules that remain unmet, by workload, with their reasons."""
        summary, limits = self._summary, self._limits
        if not summary.unmet:
            return
        yield _heading(summary.unmet_heading)
        for group in summary.unmet[: limits.unmet]:
            yield _prose(group.heading, "  ", None, "yellow")
            yield from self._name(group.names, limits.names, group.why)
        left = sum(group.rules for group in summary.unmet[limits.unmet :])
        yield from self._more(left, "  ", " rules")

    def _name(self, names: Sequence[str], most: int, why: str) -> Iterator[Block]:
        """Yield names with what they have in common; ``wide`` has one name a line, and all of them."""
        ending = f": {self._cut(why)}" if why else ""
        for line in names if self._wide else [and_more(names, most)]:
            yield _prose(f"{line}{ending}", _INDENT, " " * 8)

    # -- moves -------------------------------------------------------------------------------------

    def _workloads(self) -> Iterator[Block]:
        changes, limits = self._summary.changes.workloads, self._limits
        if not changes:
            return
        zones = self._summary.changes.zones
        by_zone = any(change.by == "zone" for change in changes)
        few = by_zone and len(zones) <= _GLANCE.domains
        yield _heading("By workload")
        rows = [
            [change.owner, f"{change.moves:,}", _domains(change, slashes=few)]
            for change in changes[: limits.workloads]
        ]
        pods = f"PODS IN {'/'.join(zones)}" if few else "PODS"
        yield _table([["WORKLOAD", "MOVES", pods], *rows], Fit.CELLS, {})
        left = changes[limits.workloads :]
        yield from self._more(len(left), "  ", f" with {sum(one.moves for one in left):,} moves")

    def _list_moves(self) -> Sequence[Outcome]:
        """Return the moves to show one by one: all if they are few, else those that need attention."""
        outcomes = self._report.outcomes
        if self._limits is _COMMENT:
            return outcomes[:_MAX_COMMENTED]
        if len(outcomes) < self._limits.moves:
            return outcomes
        return [one for one in outcomes if one.status.is_failure or one.predicted is False]

    def _moves(self) -> Iterator[Block]:
        outcomes, listed = self._report.outcomes, self._list_moves()
        some = len(listed) < len(outcomes)
        if listed:
            waves = len({outcome.move.wave for outcome in outcomes})
            heading = "Moves that are not made" if self._report.standstill else "Moves"
            if some and self._limits is not _COMMENT:
                heading = "Moves that went wrong"
            lines = (
                [self._move_table(listed, waves=waves > 1)]
                if self._one_line
                else list(self._move_lines(listed, waves))
            )
            yield Details(heading, lines)
        if some:
            yield from [""] if listed else []
            yield _prose(f"(-o wide lists all {len(outcomes):,} moves)", "  ", None, "dim")

    def _move_lines(self, outcomes: Sequence[Outcome], waves: int) -> Iterator[Block]:
        """Yield each move in two lines, and what went wrong with it."""
        for wave, group in groupby(outcomes, key=lambda outcome: outcome.move.wave):
            if waves > 1:
                yield _prose(f"Wave {wave} of {waves}", "  ", None, "dim")
            for outcome in group:
                yield from self._move(outcome)

    def _move(self, outcome: Outcome) -> Iterator[Block]:
        move = outcome.move
        status = "" if outcome.status is Status.PLANNED else outcome.status.value
        yield Sides(move.ref, status, _STATUS_STYLE[outcome.status])
        arrow = f"{move.node} -> {words.outcome_brief(self._report, outcome)}"
        text = f"{arrow}; {move.strategy}, {_gain(outcome)}"
        if move.makes_way_for:
            # Its own gain is not what it is for.
            text += f"; {move.reason.partition(': ')[0]}"
        yield _prose(text, _INDENT, None, "yellow" if outcome.predicted is False else "cyan")
        if move.marks:
            yield _prose(words.marks_words(move), _INDENT, None)
        if not self._report.standstill and _went_wrong(outcome):
            yield _prose(outcome.message, _INDENT, None, _STATUS_STYLE[outcome.status])

    def _move_table(self, outcomes: Sequence[Outcome], *, waves: bool) -> Table:
        """Return a table with a line for each move; ``wide`` has more columns, and nothing of them is cut off."""
        report, wide = self._report, self._wide
        acted = any(outcome.status is not Status.PLANNED for outcome in outcomes)
        heads = [
            *(["WAVE"] if waves else []),
            "POD",
            *(["WORKLOAD"] if wide else []),
            "FROM",
            "TO",
            *(["OUTCOME"] if acted else []),
            "GAIN",
            "STRATEGY",
            "WHY",
        ]
        destination = words.outcome_words if wide else words.outcome_brief
        rows = [
            [
                *([str(one.move.wave)] if waves else []),
                one.move.ref,
                *([one.move.owner] if wide else []),
                words.place(report, one.move.node) if wide else one.move.node,
                destination(report, one),
                *([one.status.value] if acted else []),
                _gain(one),
                one.move.strategy,
                self._cut(self._reason(one)),
            ]
            for one in outcomes
        ]
        styles = {
            row: "yellow" if one.predicted is False else _STATUS_STYLE[one.status]
            for row, one in enumerate(outcomes)
        }
        return _table([heads, *rows], Fit.CUT, styles)

    def _reason(self, outcome: Outcome) -> str:
        parts = [words.reason_words(outcome.move)]
        if outcome.move.marks:
            parts.append(words.marks_words(outcome.move))
        if not self._report.standstill and _went_wrong(outcome):
            parts = [outcome.message, *parts]
        return "; ".join(parts)

    # -- what stays, and the end -------------------------------------------------------------------

    def _stays(self) -> Iterator[Block]:
        summary, most = self._summary, self._limits.groups
        if not summary.stays:
            return
        groups: list[Block] = []
        for stays in summary.stays:
            groups += ["", _prose(f"{stays.pods:,} {stays.code}: {stays.why}", "  ", None)]
            for group in stays.groups[:most]:
                groups += self._name(group.pods, self._limits.pods, group.message)
            groups += self._more(skips.total(stays.groups[most:]), _INDENT)
        yield Details(f"Stays: {count(summary.staying_pods, 'pod')}", groups)

    def _funnel(self) -> Iterator[Block]:
        if self._report.plan.funnel:
            yield _prose(skips.funnel_words(self._report.plan.funnel), hanging="", style="dim")

    def _next(self) -> Iterator[Block]:
        if self._summary.next_steps:
            yield _heading("Next")
            yield from (_prose(f"- {step}", "  ", "    ") for step in self._summary.next_steps)


def _table(rows: Sequence[Sequence[str]], fit: Fit, styles: Mapping[int, str]) -> Table:
    return Table(rows, left=range(len(rows[0])), fit=fit, styles=styles)


def _gain(outcome: Outcome) -> str:
    move = outcome.move
    cost = "" if move.cost == 1 else f", cost {words.number(move.cost)}"
    return f"{words.gain_words(move.gain)}{cost}"


def _went_wrong(outcome: Outcome) -> bool:
    done = outcome.status in (Status.EVICTED, Status.PLANNED)
    return bool(outcome.message) and not done


def _domains(change: WorkloadChange, *, slashes: bool) -> str:
    """Format pods per domain as ``8/7/0 -> 6/5/4``.

    With many domains, or nodes as domains, the names are given: ``node-a 2 -> 1, node-b 0 -> 1``.
    """
    if slashes and change.by == "zone":
        steps = ["/".join(map(words.number, counts)) for counts in change.counts]
        shown = [text for i, text in enumerate(steps) if i == 0 or text != steps[i - 1]]
        return " -> ".join(shown)
    changed = [
        f"{name} {' -> '.join(map(words.number, counts))}" for name, counts in change.list_changes()
    ]
    return and_more(changed, _GLANCE.domains)


def _mood_of(rule: RuleSummary) -> str:
    last = rule.last
    if rule.holds:
        return "dim"
    return "green" if last and words.holds(last) and not last.unsatisfiable else "yellow"
