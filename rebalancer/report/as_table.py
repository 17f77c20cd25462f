"""The report for a terminal: the summary, the changes, each move, the pods that stay, next steps, and the sum.

The text is ASCII except for names. A move takes one line from 120 columns on, else two. ``wide`` breaks and shortens
no line; otherwise twenty or more moves are grouped by workload, and a long list ends with the number of omitted
entries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from io import StringIO
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rebalancer.base.plain_text import WIDTH, Paint, and_more, count, printable, wrap
from rebalancer.plan.plan import Outcome, Status
from rebalancer.planner.safety import lost_pods
from rebalancer.report import skips, words
from rebalancer.report.changes import WorkloadChange
from rebalancer.report.model import RunReport
from rebalancer.report.summary import ZONE_LOSSES, RuleSummary, Summary

# As much as is read at a glance; -o wide shows all.
_MANY_MOVES = 20
_MAX_WORKLOADS = 20
_MAX_GROUPS = 3
_MAX_WARNINGS = 8
_MAX_IMPOSSIBLE = 3
_MAX_UNMET = 5
_MAX_NAMES = 3
_MAX_DOMAINS = 6
_MAX_ZONES = 5
_ALL = 1 << 30
_LINES = 120
"""Columns from which on a move takes one line."""
_WIDEST = 2_000
"""Columns that rich lays a table out in at most."""
_LEAST = 20
"""Characters of a reason that are shown however long the names before it are."""

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


_MARGIN = re.compile(r" +((?:\x1b\[0m)?)$")
"""What a table is filled up with on the right."""


def as_table(
    report: RunReport, *, color: bool = False, width: int = WIDTH, wide: bool = False
) -> str:
    """Return the report as text of ``width`` columns, ending in a newline; ``color`` adds ANSI colours."""
    screen = Screen(width=_ALL if wide else width, color=color)
    return _TableReport(Summary(report), screen, wide=wide).text()


class _TableReport:
    def __init__(self, summary: Summary, screen: Screen, *, wide: bool) -> None:
        self._summary, self._report, self._screen = summary, summary.report, screen
        self._wide = wide

    def text(self) -> str:
        self._head()
        self._rules()
        self._unmet()
        self._workloads()
        self._moves()
        self._stays()
        self._zone_losses()
        self._end()
        return self._screen.text

    def _most(self, number: int) -> int:
        return _ALL if self._wide else number

    def _more(self, left: int, indent: str, what: str = "") -> None:
        if left > 0:
            text = f"... and {left:,} more{what} (-o wide shows all)"
            self._screen.prose(text, indent, f"{indent}    ", "dim")

    # -- the head ----------------------------------------------------------------------------------

    def _head(self) -> None:
        screen, report = self._screen, self._report
        screen.prose(self._summary.headline, hanging="  ", style=self._mood())
        if (why := self._summary.why) is not None:
            screen.prose(why, hanging="  ")
        for line in self._summary.closing:
            screen.prose(line, hanging="  ", style=self._mood())
        screen.gap()
        screen.prose(words.title(report), hanging="  ", style="dim")
        screen.prose(words.cluster_line(report), hanging="  ", style="dim")
        warnings = report.warnings[: self._most(_MAX_WARNINGS)]
        for warning in warnings:
            screen.prose(f"Warning: {warning}", hanging="  ", style="yellow")
        self._more(len(report.warnings) - len(warnings), "", " warnings")

    def _mood(self) -> str:
        report = self._report
        if any(outcome.status.is_failure for outcome in report.outcomes):
            return "red"
        surprised = any(outcome.predicted is False for outcome in report.outcomes)
        return "yellow" if surprised or report.cut or report.standstill else "bold"

    # -- rules -------------------------------------------------------------------------------------

    def _rules(self) -> None:
        rules, screen = self._summary.rules, self._screen
        if not rules or self._report.plan.funnel.get("pods") == 0:
            return
        screen.gap()
        if all(rule.holds for rule in rules):
            names = ", ".join(rule.strategy for rule in rules)
            which = "Every rule that can hold holds"
            if lost_pods(self._report.snapshot):
                which = "No rule that was judged is unmet"
            screen.prose(f"{which}: {names}.", hanging="  ")
        else:
            self._rule_table(rules)
        for line in self._summary.nodes:
            screen.prose(f"{line[:1].upper()}{line[1:]}.", "  ", _INDENT)
        impossible = self._summary.impossible
        for text in impossible[: self._most(_MAX_IMPOSSIBLE)]:
            screen.prose(f"Cannot hold: {text}", "  ", _INDENT)
        self._more(len(impossible) - self._most(_MAX_IMPOSSIBLE), "  ")

    def _rule_table(self, rules: Sequence[RuleSummary]) -> None:
        amounts = [dict(rule.amounts) for rule in rules]
        named = [
            name for name in ("hard", "soft", "imbalance") if any(name in of for of in amounts)
        ]
        heads = [name.upper() for name in self._summary.unmet_columns]
        rows = [
            [
                f"{rule.strategy} (observe)" if rule.observed else rule.strategy,
                *self._summary.unmet_cells(rule),
                *(of.get(name, "-") for name in named),
            ]
            for rule, of in zip(rules, amounts, strict=True)
        ]
        moods = {i: _mood_of(rule) for i, rule in enumerate(rules)}
        self._screen.table(["RULE", *heads, *(name.upper() for name in named)], rows, moods)
        if named:
            text = f"(`rebalancer explain code {named[0]}` says what a word or a code means)"
            self._screen.prose(text, "  ", style="dim")

    def _zone_losses(self) -> None:
        losses, screen = self._summary.zone_losses, self._screen
        if not losses:
            return
        screen.heading(ZONE_LOSSES)
        for line in losses[: self._most(_MAX_ZONES)]:
            screen.prose(line, "  ", _INDENT)
        self._more(len(losses) - self._most(_MAX_ZONES), "  ", " zones")

    def _unmet(self) -> None:
        """Print the rules that stay unmet, by workload, with their reasons."""
        summary, screen = self._summary, self._screen
        if not summary.unmet:
            return
        screen.heading(summary.unmet_heading)
        shown = summary.unmet[: self._most(_MAX_UNMET)]
        for group in shown:
            screen.prose(group.heading, "  ", style="yellow")
            self._name(group.names, _MAX_NAMES, f": {group.why}" if group.why else "")
        left = sum(group.rules for group in summary.unmet[len(shown) :])
        self._more(left, "  ", " rules")

    def _name(self, names: Sequence[str], most: int, why: str) -> None:
        """Print names with what they have in common; ``wide`` has one name a line, and all of them."""
        for line in names if self._wide else [and_more(names, most)]:
            self._screen.prose(f"{line}{why}", _INDENT, " " * 8)

    # -- moves -------------------------------------------------------------------------------------

    def _workloads(self) -> None:
        changes = self._summary.changes.workloads
        if not changes:
            return
        zones = self._summary.changes.zones
        by_zone = any(change.by == "zone" for change in changes)
        few = by_zone and len(zones) <= _MAX_DOMAINS
        shown = changes[: self._most(_MAX_WORKLOADS)]
        self._screen.heading("By workload")
        rows = [
            [change.owner, f"{change.moves:,}", _domains(change, slashes=few)] for change in shown
        ]
        pods = f"PODS IN {'/'.join(zones)}" if few else "PODS"
        self._screen.table(["WORKLOAD", "MOVES", pods], rows, {})
        left = changes[len(shown) :]
        self._more(len(left), "  ", f" with {sum(one.moves for one in left):,} moves")

    def _list_moves(self) -> Sequence[Outcome]:
        """Return the moves to show one by one: all if they are few, else those that need attention."""
        outcomes = self._report.outcomes
        if self._wide or len(outcomes) < _MANY_MOVES:
            return outcomes
        return [one for one in outcomes if one.status.is_failure or one.predicted is False]

    def _moves(self) -> None:
        outcomes, screen = self._report.outcomes, self._screen
        listed = self._list_moves()
        some = len(listed) < len(outcomes)
        waves = len({outcome.move.wave for outcome in outcomes})
        if listed:
            screen.heading("Moves that went wrong" if some else self._heading)
            if self._wide or screen.width >= _LINES:
                self._move_table(listed, waves=waves > 1)
            else:
                for wave, group in groupby(listed, key=lambda outcome: outcome.move.wave):
                    if waves > 1:
                        screen.prose(f"Wave {wave} of {waves}", "  ", style="dim")
                    for outcome in group:
                        self._move(outcome)
        if some:
            screen.gap()
            screen.prose(f"(-o wide lists all {len(outcomes):,} moves)", "  ", style="dim")

    @property
    def _heading(self) -> str:
        return "Moves that are not made" if self._report.standstill else "Moves"

    def _move(self, outcome: Outcome) -> None:
        """Print a move in two lines, and what went wrong with it."""
        move, screen = outcome.move, self._screen
        status = "" if outcome.status is Status.PLANNED else outcome.status.value
        screen.sides(move.ref, status, _STATUS_STYLE[outcome.status])
        arrow = f"{move.node} -> {words.outcome_brief(self._report, outcome)}"
        text = f"{arrow}; {move.strategy}, {_gain(outcome)}"
        if move.makes_way_for:
            # Its own gain is not what it is for.
            text += f"; {move.reason.partition(': ')[0]}"
        screen.prose(text, _INDENT, style="yellow" if outcome.predicted is False else "cyan")
        self._messages(outcome)

    def _messages(self, outcome: Outcome) -> None:
        if outcome.move.marks:
            self._screen.prose(words.marks_words(outcome.move), _INDENT)
        if not self._report.standstill and _went_wrong(outcome):
            self._screen.prose(outcome.message, _INDENT, style=_STATUS_STYLE[outcome.status])

    def _move_table(self, outcomes: Sequence[Outcome], *, waves: bool) -> None:
        """Print a move in one line; ``wide`` has more columns, and nothing of them is cut off."""
        report = self._report
        acted = any(outcome.status is not Status.PLANNED for outcome in outcomes)
        heads = [
            *(["WAVE"] if waves else []),
            "POD",
            *(["WORKLOAD"] if self._wide else []),
            "FROM",
            "TO",
            *(["OUTCOME"] if acted else []),
            "GAIN",
            "STRATEGY",
        ]
        destination = words.outcome_words if self._wide else words.outcome_brief
        rows = [
            [
                *([str(one.move.wave)] if waves else []),
                one.move.ref,
                *([one.move.owner] if self._wide else []),
                words.place(report, one.move.node) if self._wide else one.move.node,
                destination(report, one),
                *([one.status.value] if acted else []),
                _gain(one),
                one.move.strategy,
            ]
            for one in outcomes
        ]
        reasons = [self._reason(one) for one in outcomes]
        styles = [
            "yellow" if one.predicted is False else _STATUS_STYLE[one.status] for one in outcomes
        ]
        self._screen.lines(heads, rows, "WHY", reasons, styles)

    def _reason(self, outcome: Outcome) -> str:
        parts = [words.reason_words(outcome.move)]
        if outcome.move.marks:
            parts.append(words.marks_words(outcome.move))
        if not self._report.standstill and _went_wrong(outcome):
            parts = [outcome.message, *parts]
        return "; ".join(parts)

    # -- what stays, and the end -------------------------------------------------------------------

    def _stays(self) -> None:
        summary, screen = self._summary, self._screen
        if not summary.stays:
            return
        screen.heading(f"Stays: {count(summary.staying_pods, 'pod')}")
        for stays in summary.stays:
            screen.gap()
            screen.prose(f"{stays.pods:,} {stays.code}: {stays.why}", "  ")
            shown = stays.groups[: self._most(_MAX_GROUPS)]
            for group in shown:
                self._name(group.pods, 2, f": {group.message}")
            self._more(skips.total(stays.groups[len(shown) :]), _INDENT)

    def _end(self) -> None:
        screen = self._screen
        if self._report.plan.funnel:
            screen.gap()
            screen.prose(skips.funnel_words(self._report.plan.funnel), style="dim")
        if self._summary.next_steps:
            screen.heading("Next")
            for step in self._summary.next_steps:
                screen.prose(f"- {step}", "  ", "    ")
        if (total := self._summary.total) is not None:
            screen.gap()
            screen.prose(total, style=self._mood())


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
    return and_more(changed, _MAX_DOMAINS)


def _mood_of(rule: RuleSummary) -> str:
    last = rule.last
    if rule.holds:
        return "dim"
    return "green" if last and words.holds(last) and not last.unsatisfiable else "yellow"


class Screen:
    """Collects the printed text. Unprintable characters are escaped; nothing is interpreted as markup."""

    def __init__(self, *, width: int, color: bool) -> None:
        self.width = width
        self._color = color
        self._paint = Paint(color)
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        """The collected text, with one empty line between sections."""
        return "\n".join(self._lines).strip("\n") + "\n"

    def gap(self) -> None:
        """Add an empty line, unless the last line is empty."""
        if self._lines and self._lines[-1]:
            self._lines.append("")

    def heading(self, text: str) -> None:
        """Start a section with a title."""
        self.gap()
        self.prose(text, style="bold")

    def prose(
        self, text: str, indent: str = "", hanging: str | None = None, style: str = ""
    ) -> None:
        """Print wrapped text. Words are never broken, because they may be names to copy."""
        for line in wrap(text, indent, hanging, self.width):
            self._lines.append(self._paint(line, style))

    def sides(self, left: str, right: str, style: str) -> None:
        """Print a name on the left, and a word in ``style`` at the right margin."""
        left, right = printable(left), printable(right)
        gap = " " * max(2, self.width - 2 - len(left) - len(right)) if right else ""
        self._lines.append(f"  {self._paint(left, 'bold')}{gap}{self._paint(right, style)}")

    def lines(
        self,
        heads: Sequence[str],
        rows: Sequence[Sequence[str]],
        last: str,
        texts: Sequence[str],
        styles: Sequence[str],
    ) -> None:
        """Print one line for each row; the last column, headed ``last``, is cut off at the width."""
        cells = [[printable(cell) for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]

        def line(row: Sequence[str], text: str) -> str:
            start = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            room = max(self.width - len(start) - 4, _LEAST)
            text = printable(text)
            return f"  {start}  {text if len(text) <= room else f'{text[: room - 3]}...'}".rstrip()

        self._lines.append(self._paint(line(heads, last), "dim"))
        for row, text, style in zip(cells, texts, styles, strict=True):
            self._lines.append(self._paint(line(row, text), style))

    def table(
        self, heads: Sequence[str], rows: Sequence[Sequence[str]], styles: Mapping[int, str]
    ) -> None:
        """Print an indented table. The first column is never wrapped. ``styles``: row -> style."""
        first = max(len(printable(row[0])) for row in rows)
        table = Table(box=None, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
        for index, head in enumerate(heads):
            least = first if index == 0 else None
            table.add_column(Text(head), header_style="dim", no_wrap=index == 0, min_width=least)
        for number, row in enumerate(rows):
            cells = [Text(printable(cell)) for cell in row]
            table.add_row(*cells, style=styles.get(number) or None)
        stream = StringIO()
        console = Console(
            file=stream,
            width=min(max(self.width - 2, 20), _WIDEST),
            force_terminal=self._color,
            color_system="standard" if self._color else None,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
            _environ={},
        )
        console.print(table, crop=False)
        lines = stream.getvalue().splitlines()
        self._lines += [_MARGIN.sub(r"\1", f"  {line}") for line in lines]
