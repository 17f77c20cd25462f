"""The report as one self-contained HTML page: no external font, picture or script.

The template escapes all values. A content security policy allows only the page's own style and script, by their
hashes. The moves are data in the page, of which the script shows a part at a time, so that thousands of them stay
usable.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from rebalancer.base.plain_text import and_more, count, printable, printable_json
from rebalancer.plan.plan import Outcome
from rebalancer.report import skips, words
from rebalancer.report.changes import NodeLoad, WorkloadChange
from rebalancer.report.model import RunReport
from rebalancer.report.pictures import flow_chart, pod_map
from rebalancer.report.summary import LEGEND, RuleSummary, Stays, Summary

_MAX_HEAT = 150
_MAX_NODES = 120
_MAX_GROUPS = 100
_MAX_PODS = 20
_MAX_RULES = 100
_BAR, _STRIP, _FUNNEL = 150, 160, 320
"""Widths of the longest bars, in pixels."""
_LEVELS = 5

# The script's order of a row; the heads sort by the column of that number.
_COLUMNS = (("Wave", 0), ("Pod", 2), ("From, to", 4), ("Why", 7), ("Gain", 9), ("Outcome", 11))


def as_html(report: RunReport) -> Iterator[str]:
    """Yield the report as an HTML document, in pieces."""
    summary = Summary(report)
    style, script = f"{page_text('report.css')}{page_text('pod_map.css')}", page_text("report.js")
    yield from (
        page_environment()
        .get_template("report.html.j2")
        .generate(
            report=report,
            summary=summary,
            title=words.title(report),
            cluster=words.cluster_line(report),
            # Ours, and hashed as they are: what is between the tags must not be changed by escaping.
            style=Markup(style),  # noqa: S704
            script=Markup(script),  # noqa: S704
            style_hash=content_hash(style),
            script_hash=content_hash(script),
            numbers=_numbers(summary),
            steps=summary.changes.names,
            rules=_rules(summary),
            unmet=_unmet(summary),
            legend=LEGEND.items(),
            pods=pod_map(report, summary.changes),
            heat=_heat(summary),
            flows=flow_chart(summary.changes.flows) if summary.changes.has_zones else None,
            nodes=_nodes(summary.changes.nodes),
            columns=_COLUMNS,
            data=_data(report),
            staying=count(summary.staying_pods, "pod"),
            stays=[_stays(one) for one in summary.stays],
            funnel=_funnel(report),
            timings=", ".join(
                f"{phase} {seconds:.2f} s" for phase, seconds in report.timings.items()
            ),
        )
    )
    yield "\n"


@cache
def page_environment() -> Environment:
    """Return the environment of all pages: it escapes each value, and what is not printable in it."""
    made = Environment(
        autoescape=True,
        loader=FunctionLoader(page_text),
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_show,
        auto_reload=False,
    )
    made.filters["code"] = _with_code
    return made


def page_text(name: str) -> str:
    """Return a file of the folder ``page``."""
    return (files("rebalancer.report") / "page" / name).read_text(encoding="utf-8")


def content_hash(text: str) -> str:
    """Return the hash by which a content security policy allows a style or a script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _show(value: object) -> object:
    """Escape the unprintable characters of text; markup is not changed."""
    return printable(value) if type(value) is str else value


def _with_code(text: str) -> Markup:
    """Return a sentence as markup, with each text between backticks as ``code``."""
    parts = [escape(printable(part)) for part in text.split("`")]
    return Markup().join(
        Markup("<code>{}</code>").format(part) if index % 2 else part
        for index, part in enumerate(parts)
    )


# -- the head, and the rules ---------------------------------------------------------------------------


def _numbers(summary: Summary) -> list[tuple[str, str]]:
    report = summary.report
    # All stay where the run stands still: its moves that are not made say so.
    stays = [] if report.standstill else [("Pods that stay", f"{summary.staying_pods:,}")]
    return [
        *_about_moves(summary),
        ("Rules unmet", _unmet_words(summary)),
        *stays,
        ("Nodes", f"{len(report.snapshot.nodes):,}"),
        ("Pods", f"{len(report.snapshot.pods):,}"),
    ]


def _about_moves(summary: Summary) -> Iterator[tuple[str, str]]:
    report, planned = summary.report, f"{len(summary.report.outcomes):,}"
    if report.standstill:
        yield "Moves not made", planned
        return
    yield "Evictions planned", planned
    if not report.dry_run:
        evicted = sum(1 for outcome in report.outcomes if outcome.status.is_carried_out)
        yield "Evicted", f"{evicted:,}"
    elif report.plan.lower_bound:
        yield "No fewer than", f"{report.plan.lower_bound:,}"


def _unmet_words(summary: Summary) -> str:
    """Return ``8 → 2``; if a real run did not reach the plan, ``8 → 2, planned 0``."""
    was, planned, now = summary.unmet_before, summary.unmet_planned, summary.unmet_now
    if summary.report.dry_run or summary.report.standstill:
        steps = (was,) if len(summary.changes.steps) == 1 else (was, planned)
        return words.steps_words(steps).replace("->", "\u2192")
    if now is None:
        return f"{was:,}, then not scored"
    missed = f", planned {planned:,}" if now != planned else ""
    return f"{words.change(was, now)}{missed}".replace("->", "\u2192")


def _rule(rule: RuleSummary, steps: Sequence[str], most: float) -> dict[str, Any]:
    """Return one row of the table of rules. A bar's length is the number of rules divided by ``most``."""
    sides = [
        {
            "label": step.lower(),
            "words": "not scored again" if score is None else words.score_words(score),
            "holds": score is not None and words.holds(score),
            "width": _width(0 if score is None else score.violated, most, _BAR),
        }
        for step, score in zip(steps, rule.scores, strict=True)
    ]
    return {
        "name": rule.strategy,
        "observed": rule.observed,
        "most": 0.0 if rule.holds else most,
        "sides": sides,
        "impossible": () if rule.last is None else rule.last.unsatisfiable,
    }


def _rules(summary: Summary) -> list[dict[str, Any]]:
    scores = [score for rule in summary.rules for score in rule.scores if score is not None]
    most = float(max((score.violated for score in scores), default=0))
    return [_rule(rule, summary.changes.names, most) for rule in summary.rules]


def _unmet(summary: Summary) -> dict[str, Any]:
    """Return the rules that stay unmet, grouped by reason."""
    return {
        "heading": summary.unmet_heading,
        "groups": [
            {
                "heading": group.heading,
                "why": group.why,
                "names": group.names[:_MAX_RULES],
                "left": len(group.names) - _MAX_RULES,
            }
            for group in summary.unmet[:_MAX_GROUPS]
        ],
        "left": sum(group.rules for group in summary.unmet[_MAX_GROUPS:]),
    }


def _width(value: float, most: float, longest: int) -> str:
    return f"{longest * min(1.0, value / most):.1f}" if most > 0 else "0"


# -- pictures ------------------------------------------------------------------------------------------


def _heat(summary: Summary) -> dict[str, Any]:
    changes = summary.changes
    moved = [change for change in changes.workloads if change.by == "zone"]
    shown = [*moved[:_MAX_HEAT], *changes.still][: max(_MAX_HEAT, len(changes.still))]
    return {
        "zones": changes.zones,
        "phases": changes.names,
        "rows": [_heat_row(change) for change in shown] if changes.has_zones else [],
        "left": max(0, len(moved) - _MAX_HEAT),
    }


def _heat_row(change: WorkloadChange) -> dict[str, Any]:
    most = max(max(counts) for counts in change.counts)
    kind, slash, name = change.owner.partition("/")
    return {
        "kind": kind + slash,
        "name": name,
        "phases": [
            [
                {
                    "count": words.number(number),
                    "level": math.ceil(number * _LEVELS / most) if most else 0,
                    "change": f"{number - was:+.3g}" if number != was else "",
                }
                for number, was in zip(counts, change.counts[0], strict=True)
            ]
            for counts in change.counts
        ],
    }


def _nodes(nodes: Sequence[NodeLoad]) -> dict[str, Any]:
    """Return the nodes with the largest changes, grouped by zone."""
    by_change = sorted(
        nodes, key=lambda node: -max(_difference(node.cpu), _difference(node.memory))
    )
    shown = sorted(by_change[:_MAX_NODES], key=lambda node: (node.zone, node.name))
    rows = []
    zone = None
    for node in shown:
        pods = node.pods[0], node.pods[-1]
        rows.append(
            {
                "name": node.name,
                "zone": node.zone,
                "first": node.zone != zone,
                "strips": [_strip("cpu", node.cpu), _strip("memory", node.memory)],
                "pods": words.steps_words(pods).replace("->", "\u2192"),
            }
        )
        zone = node.zone
    return {"rows": rows, "left": len(nodes) - len(shown)}


def _difference(shares: Sequence[float]) -> float:
    return abs(shares[-1] - shares[0])


def _strip(label: str, shares: Sequence[float]) -> dict[str, Any]:
    """Return the fill level of a node at the first step and at the last."""
    before, after = shares[0], shares[-1]
    was, will = f"{before:.0%}", f"{after:.0%}"
    return {
        "label": label,
        "before": _width(before, 1.0, _STRIP),
        "after": _width(after, 1.0, _STRIP),
        "over": after > 1,
        "words": was if was == will else f"{was} \u2192 {will}",
    }


def _funnel(report: RunReport) -> list[dict[str, str]]:
    if not report.plan.funnel:
        return []
    stages = skips.funnel_stages(report.plan.funnel)
    return [
        {"name": name, "number": f"{number:,}", "width": _width(number, stages[0][1], _FUNNEL)}
        for name, number in stages
    ]


# -- what stays, and the moves -------------------------------------------------------------------------


def _stays(one: Stays) -> dict[str, Any]:
    shown = one.groups[:_MAX_GROUPS]
    return {
        "pods": f"{one.pods:,}",
        "code": one.code,
        "why": one.why,
        "groups": [
            {"pods": and_more(group.pods, _MAX_PODS), "message": group.message} for group in shown
        ],
        "left": skips.total(one.groups[_MAX_GROUPS:]),
    }


class _Strings:
    """Numbers strings, so that many moves can share one reason, node or owner."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.numbers.setdefault(printable(text), len(self.numbers))


def _data(report: RunReport) -> Markup:
    """Return the moves as JSON that is safe inside a script element."""
    strings = _Strings()
    ranks = _ranks(report.outcomes)
    rows = [
        _row(report, outcome, rank, strings)
        for outcome, rank in zip(report.outcomes, ranks, strict=True)
    ]
    text = msgspec.json.encode({"strings": list(strings.numbers), "moves": rows}).decode()
    safe = printable_json(text)
    for character in "<>&":
        safe = safe.replace(character, f"\\u{ord(character):04x}")
    return Markup(safe)  # noqa: S704  # JSON has these three within strings only, where the escapes mean the same


def _ranks(outcomes: Sequence[Outcome]) -> Iterable[int]:
    """Return the position of each move in the order of gain, smallest first."""
    gains = sorted({outcome.move.gain.as_tuple() for outcome in outcomes})
    place = {gain: index for index, gain in enumerate(gains)}
    return [place[outcome.move.gain.as_tuple()] for outcome in outcomes]


def _row(report: RunReport, outcome: Outcome, rank: int, strings: _Strings) -> list[Any]:
    move = outcome.move
    texts = (
        move.namespace,
        move.pod,
        move.owner,
        words.place(report, move.node),
        words.outcome_words(report, outcome),
        move.strategy,
        move.reason,
        words.gain_words(move.gain),
    )
    message = "" if report.standstill else outcome.message
    ending = (strings(outcome.status.value), strings(message), _tone(outcome))
    return [move.wave, *map(strings, texts), rank, float(words.number(move.cost)), *ending]


def _tone(outcome: Outcome) -> int:
    """Return the severity of an outcome: 3 failed, 2 landed elsewhere, 1 done, 0 all others."""
    if outcome.status.is_failure:
        return 3
    if outcome.predicted is False:
        return 2
    return int(outcome.status.is_carried_out)
