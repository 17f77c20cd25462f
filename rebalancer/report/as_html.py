"""The report as one self-contained HTML page: no external font, picture or script.

The template escapes all values. A content security policy allows only the page's own style and script, by their
hashes. The moves are data in the page, of which the script shows a part at a time, so that thousands of them stay
usable.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any

import msgspec
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from rebalancer.base.plain_text import and_more, count, percent, printable, printable_json
from rebalancer.plan.plan import Outcome
from rebalancer.report import skips, words
from rebalancer.report.changes import Changes, NodeLoad, Story, group_alike
from rebalancer.report.model import RunReport
from rebalancer.report.pictures import flow_chart, pod_map
from rebalancer.report.summary import LEGEND, RuleSummary, Stays, Summary

_FEW = 10
"""Rows of a section that are open; the others are folded."""
_MAX_ROWS = 150
_MAX_BARS = 24
"""Nodes with a bar each; more nodes are cells of a strip."""
_MAX_CELLS = 2_000
_MAX_GROUPS = 100
_MAX_PODS = 20
_MAX_NAMED = 4
_MAX_RULES = 100
_BAR, _STRIP, _FUNNEL = 150, 160, 320
"""Widths of the longest bars, in pixels."""
_LEVELS = 5
_BINS = 10

# The script's order of a row; the heads sort by the column of that number.
_COLUMNS = (("Wave", 0), ("Pod", 2), ("From, to", 4), ("Why", 7), ("Gain", 9))
_OUTCOME = ("Outcome", 11)
_NOT_IN_FILE = "not in the snapshot: "
"""Begins what a report notes of a file; a file of `kubectl get` rarely has every kind."""


RUNS = "<!--runs-->"
"""Stands in a live page where the list of runs is to be put."""


def as_html(report: RunReport, *, live: bool = False) -> Iterator[str]:
    """Yield the report as an HTML document, in pieces.

    A ``live`` page has a place for the list of runs (:data:`RUNS`), and asks where it came from what goes on.
    """
    summary = Summary(report)
    yield from (
        page_environment()
        .get_template("report.html.j2")
        .generate(
            report=report,
            live=live,
            summary=summary,
            title=words.title(report),
            cluster=words.cluster_line(report),
            **_of_report(live=live),
            numbers=_numbers(summary),
            warnings=[one for one in report.warnings if not one.startswith(_NOT_IN_FILE)],
            remarks=[one for one in report.warnings if one.startswith(_NOT_IN_FILE)],
            steps=summary.changes.names,
            few=_FEW,
            rules=_rules(summary),
            unmet=_unmet(summary),
            legend=LEGEND,
            pods=pod_map(report, summary.changes),
            heat=_heat(summary),
            places=_places(summary),
            flows=flow_chart(summary.changes.flows) if summary.changes.has_zones else None,
            nodes=_nodes(summary.changes.nodes),
            cells=_cells(summary.changes),
            columns=_COLUMNS if report.dry_run else (*_COLUMNS, _OUTCOME),
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


def waiting_page() -> str:
    """Return the live page of a process without a report."""
    return page_environment().get_template("waiting.html.j2").render(**_of_report(live=True))


def render_page(template: str, styles: Sequence[str], **values: object) -> str:
    """Return a page without a script, from a template and style sheets of the folder ``page``."""
    page = page_environment().get_template(template)
    return page.render(**_inline("style", styles), **values) + "\n"


def _of_report(*, live: bool) -> dict[str, str]:
    styles = ["report.css", "pod_map.css", *(["live.css"] if live else [])]
    scripts = ["report.js", *(["live.js"] if live else [])]
    return {**_inline("style", styles), **_inline("script", scripts)}


def _inline(tag: str, names: Sequence[str]) -> dict[str, str]:
    """Return the text of files for a tag, and the hash by which the content security policy allows it."""
    text = "".join(map(page_text, names))
    # Ours, and hashed as it is: what is between the tags must not be changed by escaping.
    return {tag: Markup(text), f"{tag}_hash": content_hash(text)}  # noqa: S704


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
    made.filters["glossed"] = _with_meanings
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


def _with_meanings(text: str) -> Markup:
    """Return a score as markup, with the meaning of each word of the legend as its title."""
    parts = re.split(r"\b(hard|soft|imbalance)\b", printable(text))
    return Markup().join(
        Markup('<abbr title="{}">{}</abbr>').format(LEGEND[part], part) if index % 2 else part
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


def _rules(summary: Summary) -> dict[str, Any]:
    scores = [score for rule in summary.rules for score in rule.scores if score is not None]
    most = float(max((score.violated for score in scores), default=0))
    quiet = [rule for rule in summary.rules if rule.holds and not rule.before.unsatisfiable]
    return {
        "rows": [
            _rule(rule, summary.changes.names, most) for rule in summary.rules if rule not in quiet
        ],
        "hold": ", ".join(rule.strategy for rule in quiet),
        "holding": len(quiet),
    }


def _unmet(summary: Summary) -> dict[str, Any]:
    """Return the rules that stay unmet, grouped by reason."""
    return {
        "heading": summary.unmet_heading,
        "groups": [
            {
                "heading": group.heading,
                "why": group.why,
                "first": and_more(group.names, 1),
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
    """Return the workloads by zone: those with moves, equal ones in one row, then large ones without moves."""
    changes = summary.changes
    moved = [change for change in changes.workloads if change.by == "zone"]
    grouped = len(moved) > _FEW
    stories = group_alike(moved) if grouped else [Story((change,)) for change in moved]
    still = [Story((change,)) for change in changes.still]
    return {
        "zones": changes.zones,
        "phases": changes.names,
        "grouped": grouped,
        "rows": [_heat_row(story) for story in stories[:_MAX_ROWS]] if changes.has_zones else [],
        "still": [_heat_row(story) for story in still] if changes.has_zones else [],
        "left": sum(len(story.changes) for story in stories[_MAX_ROWS:]),
    }


def _heat_row(story: Story) -> dict[str, Any]:
    change = story.first
    most = max(max(counts) for counts in change.counts)
    steps = ["/".join(map(words.number, counts)) for counts in change.counts]
    kept = [text for i, text in enumerate(steps) if i == 0 or text != steps[i - 1]]
    return {
        **_names(story),
        "short": " \u2192 ".join(kept),
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


def _names(story: Story) -> dict[str, Any]:
    """Return the workload of a story; of several, their number and the first names."""
    owners = story.owners
    kind, slash, name = owners[0].partition("/")
    several = count(len(owners), "workload") if len(owners) > 1 else ""
    return {
        "kind": kind + slash,
        "name": name,
        "several": several,
        "owners": owners[:_MAX_PODS],
        "more": max(0, len(owners) - _MAX_PODS),
    }


def _places(summary: Summary) -> dict[str, Any]:
    """Return the workloads with moves that change nodes only, equal ones in one row."""
    stories = group_alike(change for change in summary.changes.workloads if change.by == "node")
    return {
        "rows": [
            {**_names(story), "moves": f"{story.moves:,}", "nodes": _node_words(story)}
            for story in stories[:_MAX_ROWS]
        ],
        "left": sum(len(story.changes) for story in stories[_MAX_ROWS:]),
    }


def _node_words(story: Story) -> str:
    """Return ``node-a 3 -> 2`` for the nodes that lose pods; of several workloads, their number without names."""
    if len(story.changes) == 1:
        named = [
            f"{name} {words.steps_words(counts)}"
            for name, counts in story.first.list_changes()
            if counts[-1] < counts[0]
        ]
        return and_more(named, _MAX_NAMED).replace("->", "\u2192")
    fewer = Counter(
        (counts[0], counts[-1])
        for _, counts in story.first.list_changes()
        if counts[-1] < counts[0]
    )
    text = ", ".join(
        f"{words.change(was, will)} on {count(nodes, 'node')}"
        for (was, will), nodes in sorted(fewer.items(), reverse=True)
    )
    return f"{text} each".replace("->", "\u2192")


def _nodes(nodes: Sequence[NodeLoad]) -> list[dict[str, Any]]:
    """Return a bar for each node by zone; none if there are many nodes."""
    rows: list[dict[str, Any]] = []
    zone = None
    for node in nodes if len(nodes) <= _MAX_BARS else ():
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
    return rows


def _cells(changes: Changes) -> dict[str, Any] | None:
    """Return many nodes as cells by zone, the fullest first, and how full how many are; None for few nodes."""
    nodes = changes.nodes
    if len(nodes) <= _MAX_BARS:
        return None
    shown = sorted(nodes, key=lambda node: (node.zone, -_fullness(node, 0), node.name))[:_MAX_CELLS]
    steps = [(changes.names[0], 0), *((name, -1) for name in changes.names[1:][-1:])]
    return {
        "steps": [
            {
                "name": name,
                "zones": [
                    {"name": zone, "cells": [_cell(node, step) for node in of]}
                    for zone, of in _by_zone(shown)
                ],
            }
            for name, step in steps
        ],
        "left": len(nodes) - len(shown),
        "bins": _bins(nodes, [step for _, step in steps]),
    }


def _by_zone(nodes: Sequence[NodeLoad]) -> Iterator[tuple[str, list[NodeLoad]]]:
    for zone, of in groupby(nodes, key=lambda node: node.zone):
        members = list(of)
        yield f"{zone}: {count(len(members), 'node')}", members


def _fullness(node: NodeLoad, step: int) -> float:
    return max(node.cpu[step], node.memory[step])


def _cell(node: NodeLoad, step: int) -> dict[str, Any]:
    full = _fullness(node, step)
    return {
        "level": "over" if full > 1 else f"h{math.ceil(full * _LEVELS)}",
        "title": f"{node.name}: cpu {percent(node.cpu[step])}, memory {percent(node.memory[step])}, "
        f"{words.number(node.pods[step])} pods",
    }


def _bins(nodes: Sequence[NodeLoad], steps: Sequence[int]) -> list[dict[str, Any]]:
    """Return the number of nodes by fullness, in tenths, at each step; the last tenth includes overfull nodes."""
    counts = [
        Counter(min(_BINS - 1, int(_fullness(node, step) * _BINS)) for node in nodes)
        for step in steps
    ]
    most = float(max(max(of.values()) for of in counts))
    return [
        {
            "label": f"{100 * tenth // _BINS} to {100 * (tenth + 1) // _BINS} %",
            "widths": [_width(of[tenth], most, _FUNNEL) for of in counts],
            "words": words.steps_words([of[tenth] for of in counts]).replace("->", "\u2192"),
        }
        for tenth in range(_BINS)
    ]


def _strip(label: str, shares: Sequence[float]) -> dict[str, Any]:
    """Return the fill level of a node at the first step and at the last."""
    before, after = shares[0], shares[-1]
    was, will = percent(before), percent(after)
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
        words.reason_words(move),
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
