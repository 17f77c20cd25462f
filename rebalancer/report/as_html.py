"""The report as one HTML page that needs nothing else: no script, no font, no picture from anywhere.

Everything that comes from the cluster is escaped, and a content security policy forbids what escaping
might miss.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from string import Template

from rebalancer.evictor.outcomes import Outcome, Status
from rebalancer.plain_text import printable
from rebalancer.planner.plan import Landing, Score
from rebalancer.report import words
from rebalancer.report.html_page import PAGE
from rebalancer.report.model import RunReport

_MOST_ROWS = 2000
_MOST_PODS = 50
_BAR = 160
"""Width of the longest bar, in pixels."""


def as_html(report: RunReport) -> str:
    """Return the report as an HTML document."""
    return Template(PAGE).substitute(
        title=escape(words.title(report)),
        cluster=escape(words.cluster_line(report)),
        policy_hash=escape(report.loaded.policy_hash),
        warnings=_listed(report.warnings, "warning"),
        ending=escape(words.ending(report)),
        planned=escape(words.planned_line(report)),
        done=_paragraph(words.done_line(report)),
        scores="\n".join(_scores(report)),
        moves=_moves(report),
        skipped="\n".join(_skipped(report)),
        funnel=escape(words.funnel_words(report.plan.funnel)),
        timings=escape(
            ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in report.timings.items())
        ),
    )


def escape(text: str) -> str:
    """Return ``text`` as HTML shows it, with what is not printable written out."""
    return html.escape(printable(text))


def _paragraph(text: str | None) -> str:
    return "" if text is None else f"<p>{escape(text)}</p>"


def _listed(texts: Iterable[str], style: str) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<ul class="{style}">{items}</ul>' if items else ""


# -- scores --------------------------------------------------------------------------------------------


def _scores(report: RunReport) -> Iterator[str]:
    before, after = report.plan.before, report.plan.after
    for name in sorted(before):
        was, will = before[name], after.get(name, before[name])
        # Pods and squared deviation share no scale: each strategy's bars are of its own largest.
        entry = _telling_entry(was, will)
        most = max(was.cost.as_tuple()[entry], will.cost.as_tuple()[entry])
        yield (
            f"<tr><th>{escape(name)}</th>{_score(was, entry, most)}{_score(will, entry, most)}"
            f"<td>{_listed(will.unsatisfiable, 'note')}</td></tr>"
        )


def _telling_entry(was: Score, will: Score) -> int:
    """Return the first entry of the cost that is not zero in both."""
    pairs = zip(was.cost.as_tuple(), will.cost.as_tuple(), strict=True)
    return next((index for index, pair in enumerate(pairs) if any(pair)), 0)


def _score(score: Score, entry: int, most: float) -> str:
    value = score.cost.as_tuple()[entry]
    width = _BAR * value / most if most > 0 else 0.0
    style = "good" if words.holds(score) else "bad"
    return (
        f'<td class="{style}"><svg width="{_BAR}" height="10" role="img" aria-label="{value:.6g}">'
        f'<rect class="rail" width="{_BAR}" height="10"/>'
        f'<rect class="bar" width="{width:.1f}" height="10"/></svg>'
        f"<br>{escape(words.score_words(score))}</td>"
    )


# -- moves ---------------------------------------------------------------------------------------------


def _moves(report: RunReport) -> str:
    if not report.outcomes:
        return "<p>None.</p>"
    rows = "\n".join(_move(report, outcome) for outcome in report.outcomes[:_MOST_ROWS])
    head = "<tr><th>Wave</th><th>Pod</th><th>From</th><th>To</th><th>Why</th><th>Gain, cost</th><th>Outcome</th></tr>"
    left = len(report.outcomes) - _MOST_ROWS
    return f"<table>{head}\n{rows}\n</table>{_more(left)}"


def _move(report: RunReport, outcome: Outcome) -> str:
    move = outcome.move
    style = "bad" if outcome.status.is_failure or outcome.predicted is False else ""
    style = "good" if outcome.status is Status.EVICTED and not style else style
    landings = "".join(_landing(report, landing) for landing in move.landings[:5])
    cells = (
        f"{move.wave}",
        f"<b>{escape(move.ref)}</b><br>{escape(move.owner)}",
        escape(words.place(report, move.node)),
        f"{escape(words.outcome_words(report, outcome))}{landings}",
        f"{escape(move.strategy)}: {escape(move.reason)}",
        f"{escape(words.gain_words(move.gain))}<br>cost {words.number(move.cost)}",
        f"{escape(outcome.status.value)}<br>{escape(outcome.message)}",
    )
    return f'<tr class="{style}">{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _landing(report: RunReport, landing: Landing) -> str:
    width = _BAR * max(0.0, min(1.0, landing.probability))
    return (
        f'<div class="landing"><svg width="{_BAR}" height="6"><rect class="rail" width="{_BAR}" '
        f'height="6"/><rect class="bar" width="{width:.1f}" height="6"/></svg> '
        f"{escape(words.place(report, landing.node))} {escape(words.percent(landing.probability))}</div>"
    )


# -- what stays ----------------------------------------------------------------------------------------


def _skipped(report: RunReport) -> Iterator[str]:
    if not report.plan.skips:
        yield "<p>None.</p>"
    for code, groups in words.grouped(report.plan.skips):
        heading = f"{words.total(groups):,} {code.value}: {words.WHY_LEFT[code]}"
        items = "".join(
            f"<li>{escape(words.and_more(group.pods, _MOST_PODS))}: {escape(group.message)}</li>"
            for group in groups[:_MOST_ROWS]
        )
        left = words.total(groups[_MOST_ROWS:])
        yield f"<details><summary>{escape(heading)}</summary><ul>{items}</ul>{_more(left)}</details>"


def _more(left: int) -> str:
    return f"<p>... and {left:,} more (-o json shows all)</p>" if left > 0 else ""
