"""Parts of HTML pages: templates, styles, and tables of workloads and nodes.

A page is self-contained, with a policy that allows only its own style and script. The templates and style sheets are
in the folder ``page``. Each value is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from rebalancer.base.plain_text import and_more, count, percent, printable
from rebalancer.report import words
from rebalancer.report.changes import Changes, NodeLoad, Story, group_alike
from rebalancer.report.summary import LEGEND, Summary


def render_page(template: str, styles: Sequence[str], **values: object) -> str:
    """Return a page without a script, from a template and style sheets of the folder ``page``."""
    page = page_environment().get_template(template)
    return page.render(**inline("style", styles), **values) + "\n"


def inline(tag: str, names: Sequence[str]) -> dict[str, str]:
    """Return the text of files for a tag, and the hash by which the content security policy allows it."""
    text = "".join(map(page_text, names))
    # Ours, and hashed as it is: what is between the tags must not be changed by escaping.
    return {tag: Markup(text), f"{tag}_hash": content_hash(text)}  # noqa: S704


@cache
def page_environment() -> Environment:
    """Return the environment of all pages: it escapes each value, and unprintable characters in it."""
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


FEW = 10
"""Rows of a section that are open; the others are folded."""
_MAX_ROWS = 150
_MAX_BARS = 24
"""Nodes with a bar each; more nodes are cells of a strip."""
_MAX_CELLS = 2_000
MAX_NAMES = 20
_MAX_NAMED = 4
_STRIP = 160
WIDEST = 320
"""Widths of the longest bars, in pixels."""
_LEVELS = 5
_BINS = 10


def bar_width(value: float, most: float, longest: int) -> str:
    """Return the length of a bar as an SVG attribute: ``value`` / ``most`` of ``longest`` pixels."""
    return f"{longest * min(1.0, value / most):.1f}" if most > 0 else "0"


def heat(summary: Summary) -> dict[str, Any]:
    """Return the workloads by zone: those with moves, equal ones in one row, then large ones without moves."""
    changes = summary.changes
    moved = [change for change in changes.workloads if change.by == "zone"]
    grouped = len(moved) > FEW
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
    """Return the name of the workload; if there are several, their number and the first names."""
    owners = story.owners
    kind, slash, name = owners[0].partition("/")
    several = count(len(owners), "workload") if len(owners) > 1 else ""
    return {
        "kind": kind + slash,
        "name": name,
        "several": several,
        "owners": owners[:MAX_NAMES],
        "more": max(0, len(owners) - MAX_NAMES),
    }


def places(summary: Summary) -> dict[str, Any]:
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


def node_bars(nodes: Sequence[NodeLoad]) -> list[dict[str, Any]]:
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


def node_cells(changes: Changes) -> dict[str, Any] | None:
    """Return the nodes as cells by zone, fullest first, with a histogram of how full they are; None if there are few nodes."""
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
            "label": f"{100 * tenth // _BINS} to {100 * (tenth + 1) // _BINS}%",
            "widths": [bar_width(of[tenth], most, WIDEST) for of in counts],
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
        "before": bar_width(before, 1.0, _STRIP),
        "after": bar_width(after, 1.0, _STRIP),
        "over": after > 1,
        "words": was if was == will else f"{was} \u2192 {will}",
    }
