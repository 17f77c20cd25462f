"""The report as plain text for 80 columns: ASCII but for what names bring along, colour only if asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rebalancer.plain_text import printable
from rebalancer.plan.outcome import Outcome, Status
from rebalancer.plan.plan import Score
from rebalancer.policy.model import Mode
from rebalancer.report import words
from rebalancer.report.model import RunReport
from rebalancer.report.text import WIDTH, Paint, wrapped

# As much as is read at a glance; the whole is in the JSON.
_MOST_MOVES = 20
_MOST_GROUPS = 3
_MOST_WARNINGS = 8
_MOST_UNSATISFIABLE = 3

_INDENT = " " * 6

_UNITS = {
    "hard": "hard: pods still to move",
    "soft": "soft: pods still to move, by weight",
    "imbalance": "imbalance: squared deviation",
}

_STATUS_STYLE = {
    Status.EVICTED: "green",
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


def as_table(report: RunReport, *, color: bool = False) -> str:
    """Return the report as text, ending in a newline; ``color`` adds ANSI colours."""
    paint = Paint(color)
    sections = [
        list(section)
        for section in (
            _head(report, paint),
            _scores(report, paint),
            _moves(report, paint),
            _skipped(report, paint),
            _end(report, paint),
        )
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _head(report: RunReport, paint: Paint) -> Iterator[str]:
    for line in wrapped(words.title(report), hanging="  "):
        yield paint(line, "bold")
    for line in wrapped(words.cluster_line(report), hanging="  "):
        yield paint(line, "dim")
    for warning in report.warnings[:_MOST_WARNINGS]:
        for line in wrapped(f"Warning: {warning}", hanging="  "):
            yield paint(line, "yellow")
    yield from _more(len(report.warnings) - _MOST_WARNINGS, paint, "")


def _more(left: int, paint: Paint, indent: str, detail: str = "") -> Iterator[str]:
    if left > 0:
        text = f"... and {left:,} more (-o json shows all)"
        for line in wrapped(f"{text}: {detail}" if detail else text, indent, f"{indent}    "):
            yield paint(line, "dim")


# -- scores --------------------------------------------------------------------------------------------


def _scores(report: RunReport, paint: Paint) -> Iterator[str]:
    before, after = report.plan.before, report.plan.after
    if not before:
        return
    names = sorted(before)
    pairs = [(before[name], after.get(name, before[name])) for name in names]
    if all(words.holds(was) and words.holds(will) for was, will in pairs):
        yield from wrapped(f"Every rule that can hold holds: {', '.join(names)}.", hanging="  ")
    else:
        yield from _score_rows([_name(report, name) for name in names], pairs, paint)
    yield from _impossible([text for _, score in pairs for text in score.unsatisfiable], paint)


def _score_rows(
    names: Sequence[str], pairs: Sequence[tuple[Score, Score]], paint: Paint
) -> Iterator[str]:
    """Yield one line per strategy: what it saw and will see, in rules and in each entry of the cost."""
    cells = [
        [("rules unmet", was.violated, will.violated), *_amounts(was, will)] for was, will in pairs
    ]
    columns = [
        column
        for column in range(len(cells[0]))
        if any(row[column][1] or row[column][2] for row in cells)
    ]
    heads = ["", *(cells[0][column][0] for column in columns)]
    rows = [
        [printable(name), *(_change(*row[column][1:]) for column in columns)]
        for name, row in zip(names, cells, strict=True)
    ]
    widths = [max(len(row[index]) for row in [heads, *rows]) for index in range(len(heads))]
    yield paint(f"  {_aligned(heads, widths)}", "dim")
    for row, (_, will) in zip(rows, pairs, strict=True):
        yield paint(f"  {_aligned(row, widths)}", _mood(will))
    if notes := [note for name, note in _UNITS.items() if name in heads]:
        yield paint(f"  ({'; '.join(notes)})", "dim")


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip()


def _amounts(was: Score, will: Score) -> list[tuple[str, float, float]]:
    quiet = words.holds(was) and words.holds(will)
    # The imbalance is never quite zero: without a rule that is unmet, it concerns no rule.
    return [
        (name, 0.0, 0.0) if quiet else (name, old, new)
        for (name, old), (_, new) in zip(
            words.entries(was.cost), words.entries(will.cost), strict=True
        )
    ]


def _change(was: float, will: float) -> str:
    if not was and not will:
        return "-"
    old, new = words.number(was), words.number(will)
    return old if old == new else f"{old} -> {new}"


def _name(report: RunReport, strategy: str) -> str:
    observes = report.loaded.policy.mode_of(strategy) is Mode.OBSERVE
    return f"{strategy} (observe)" if observes else strategy


def _mood(score: Score) -> str:
    return "green" if words.holds(score) and not score.unsatisfiable else "yellow"


def _impossible(texts: Sequence[str], paint: Paint) -> Iterator[str]:
    for text in texts[:_MOST_UNSATISFIABLE]:
        yield from wrapped(f"Cannot hold: {text}", "  ", _INDENT)
    yield from _more(len(texts) - _MOST_UNSATISFIABLE, paint, "  ")


# -- moves ---------------------------------------------------------------------------------------------


def _moves(report: RunReport, paint: Paint) -> Iterator[str]:
    outcomes = report.outcomes
    if not outcomes:
        return
    shown = outcomes[:_MOST_MOVES]
    waves = len({outcome.move.wave for outcome in outcomes})
    for index, (wave, group) in enumerate(groupby(shown, key=lambda outcome: outcome.move.wave)):
        if index:
            yield ""
        yield paint(f"Moves, wave {wave} of {waves}" if waves > 1 else "Moves", "bold")
        for outcome in group:
            yield ""
            yield from _move(report, outcome, paint)
    left = outcomes[_MOST_MOVES:]
    if left:
        yield ""
        yield from _more(len(left), paint, "  ", words.owners_of(outcome.move for outcome in left))


def _move(report: RunReport, outcome: Outcome, paint: Paint) -> Iterator[str]:
    move = outcome.move
    name = printable(move.ref)
    status = "" if outcome.status is Status.PLANNED else outcome.status.value
    gap = " " * max(2, WIDTH - 2 - len(name) - len(status))
    painted = paint(status, _STATUS_STYLE[outcome.status])
    yield f"  {paint(name, 'bold')}{gap if status else ''}{painted}"
    source = words.place(report, move.node)
    arrow = f"{source} -> {words.outcome_words(report, outcome)}"
    style = "yellow" if outcome.predicted is False else "cyan"
    for line in wrapped(arrow, _INDENT):
        yield paint(line, style)
    gain = f"{move.strategy}, gain {words.gain_words(move.gain)}, cost {words.number(move.cost)}"
    yield from wrapped(f"{gain}: {move.reason}", _INDENT)
    if outcome.message and outcome.status not in (Status.EVICTED, Status.PLANNED):
        for line in wrapped(outcome.message, _INDENT):
            yield paint(line, _STATUS_STYLE[outcome.status])


# -- what stays ----------------------------------------------------------------------------------------


def _skipped(report: RunReport, paint: Paint) -> Iterator[str]:
    skips = report.plan.skips
    if not skips:
        return
    pods = len({(skip.namespace, skip.pod) for skip in skips})
    yield paint(f"Left where they are: {words.count(pods, 'pod')}", "bold")
    for code, groups in words.grouped(skips):
        yield ""
        yield from wrapped(f"{words.total(groups):,} {code.value}: {words.WHY_LEFT[code]}", "  ")
        for group in groups[:_MOST_GROUPS]:
            yield from wrapped(f"{words.and_more(group.pods)}: {group.message}", _INDENT, " " * 8)
        yield from _more(words.total(groups[_MOST_GROUPS:]), paint, _INDENT)


# -- the end -------------------------------------------------------------------------------------------


def _end(report: RunReport, paint: Paint) -> Iterator[str]:
    if report.plan.funnel:
        for line in wrapped(words.funnel_words(report.plan.funnel)):
            yield paint(line, "dim")
        yield ""
    if report.plan.moves:
        for line in wrapped(f"Plan: {words.planned_line(report)}", hanging="  "):
            yield paint(line, "bold")
    if (done := words.done_line(report)) is not None:
        for line in wrapped(f"Done: {done}", hanging="  "):
            yield paint(line, _overall(report))
    for line in wrapped(words.ending(report), hanging="  "):
        yield paint(line, "yellow" if report.standstill or report.cut else "bold")


def _overall(report: RunReport) -> str:
    if any(outcome.status.is_failure for outcome in report.outcomes):
        return "red"
    surprised = any(outcome.predicted is False for outcome in report.outcomes)
    return "yellow" if surprised or report.cut else "green"
