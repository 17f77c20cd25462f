"""A comparison as one self-contained HTML page, with a picture for each measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rebalancer.base.plain_text import count
from rebalancer.fleet.comparison import Comparison, mean_by_snapshot
from rebalancer.fleet.measures import MEASURES, Measure
from rebalancer.fleet.show import LEGEND, by_pair, cell, failure_lines, left_cell, sentences, title
from rebalancer.report.html_page import render_page

_LEFT, _RIGHT, _LINE = 6.0, 294.0, 18
_MAX_DOTS = 300
"""Snapshots in a picture, as many of them at equal distances in their order."""


def as_html(comparison: Comparison, judge: str) -> str:
    """Return the comparison as an HTML document."""
    policies = comparison.policies
    return render_page(
        "comparison.html.j2",
        ["report.css", "comparison.css"],
        title=title(comparison),
        legend=LEGEND.format(judge=judge),
        failures=list(failure_lines(comparison.failures)),
        warnings=[
            f"{of.name}, {count(number, 'task')}: {text}"
            for of in policies
            for text, number in of.warnings
        ],
        pairs=[
            {
                "name": f"{first} beside {second}",
                "lines": list(sentences(verdicts, comparison.paired_by)),
            }
            for first, second, verdicts in by_pair(comparison)
        ],
        policies=[of.name for of in policies],
        measures=[_measure(comparison, measure) for measure in MEASURES],
        rules=[
            {"name": rule, "cells": [left_cell(of, rule) for of in policies]}
            for rule in comparison.rules
        ],
    )


def _measure(comparison: Comparison, measure: Measure) -> dict[str, Any]:
    """Return the row of a measure, with its picture."""
    dots = {
        of.name: mean_by_snapshot(
            [row for row in comparison.rows if row.policy == of.name], measure.key
        )
        for of in comparison.policies
    }
    values = [value for of in dots.values() for value in of] or [0.0]
    low, high = min(values), max(values)

    def place(value: float) -> float:
        share = (value - low) / (high - low) if high > low else 0.5
        return round(_LEFT + share * (_RIGHT - _LEFT), 1)

    return {
        "name": measure.words,
        "more": measure.more_is_better,
        "cells": [cell(of.measures[measure.key]) for of in comparison.policies],
        "height": _LINE * len(comparison.policies),
        "low": f"{low:.3g}",
        "high": f"{high:.3g}",
        "alt": f"{measure.words} of each policy by snapshot, from {low:.3g} to {high:.3g}",
        "lines": [
            {
                "name": of.name,
                "y": _LINE * index + _LINE // 2,
                "dots": [place(value) for value in _thin(dots[of.name])],
                "mean": place(of.measures[measure.key].mean) if dots[of.name] else None,
            }
            for index, of in enumerate(comparison.policies)
        ],
    }


def _thin(values: Sequence[float]) -> Sequence[float]:
    return values[:: -(-len(values) // _MAX_DOTS)] if values else values
