"""The result of a search as text, data and HTML page, and the recommended policy as a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from rebalancer import API_VERSION
from rebalancer.base.data_text import plain_number
from rebalancer.base.plain_text import (
    WIDE,
    columns,
    count,
    lines_of,
    printable,
    printable_lines,
    wrap,
)
from rebalancer.fleet.comparison_report import failure_lines, sentences, show_number, verdict_data
from rebalancer.fleet.tune import Candidate, Goal, Reason, Search, Tuning
from rebalancer.report.html_parts import render_page

_WIDTH, _HEIGHT = 640.0, 320.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 624.0, 12.0, 280.0


def as_text(tuning: Tuning, search: Search) -> str:
    """Return the frontier as a table, and what is recommended in sentences."""
    lines = [title(tuning), "", "Frontier: no other policy has fewer evictions and less left"]
    lines += columns(_table(tuning, search))
    lines += ["", *lines_of(legend(search.goal)), ""]
    for sentence in advice(tuning):
        lines += lines_of(sentence, "", "    ")
    return printable_lines("\n".join(lines).rstrip()) + "\n"


def title(tuning: Tuning) -> str:
    """Return one line that says what was searched."""
    tried = len(tuning.tried)
    plural = "policy" if tried == 1 else "policies"
    unseen = count(len(tuning.unseen), "other")
    searched = count(len(tuning.searched), "snapshot")
    return f"{tried} {plural} tried on {searched}, the best checked on {unseen}"


def legend(goal: Goal) -> str:
    """Return an explanation of the table's columns."""
    weights = [
        f"{weight:g} x {key}"
        for key, weight in goal.weights.items()
        if weight and key != "evictions"
    ]
    return (
        f"Means over the snapshots of the search. LEFT: {' + '.join(weights) or 0}. TOTAL: LEFT +"
        f" {goal.weights['evictions']:g} x evictions, which is what the search makes small. *: recommended. A key without a value"
        " is as in the given policy."
    )


def _table(tuning: Tuning, search: Search) -> list[tuple[str, ...]]:
    keys = [bounds.key for bounds in search.space]
    rows = [("", "EVICTED", "LEFT", "TOTAL", *keys)]
    every = dict.fromkeys((tuning.given, *tuning.frontier))
    if tuning.best is not None:
        every[tuning.best] = None
    for one in sorted(every, key=lambda one: (one.evictions, -one.left)):
        values = dict(one.settings)
        numbers = map(show_number, (one.evictions, one.left, one.total))
        rows.append((_mark(tuning, one), *numbers, *(values.get(key, "") for key in keys)))
    return rows


def _mark(tuning: Tuning, one: Candidate) -> str:
    if one == tuning.given:
        return "given"
    return "*" if one == tuning.recommended else ""


def advice(tuning: Tuning) -> Iterator[str]:
    """Yield sentences: the recommendation, the reason for each change, and the check on other snapshots."""
    if tuning.best is None:
        yield "Keep the given policy: none that was tried has a smaller total without more left for hard rules."
    else:
        flags = " ".join(f"--set {key}={value}" for key, value in tuning.best.settings)
        yes = tuning.recommended is not None
        yield f"{'Recommended' if yes else 'Best in the search, and not recommended'}: {flags}"
        for reason in tuning.reasons:
            yield _reason(reason, tuning.best)
        yield from _check_lines(tuning)
    if tuning.invalid:
        yield f"{count(tuning.invalid, 'set')} of values made no valid policy, or had no result on some snapshot."
    yield from failure_lines(tuning.failures)


def _reason(reason: Reason, best: Candidate) -> str:
    without = reason.without
    what = f"without it the total is {_difference(without.total - best.total)}"
    parts = (
        f"evictions {without.evictions - best.evictions:+.3g}, left {without.left - best.left:+.3g}"
    )
    return f"{reason.key}={reason.value}: {what} ({parts})."


def _difference(by: float) -> str:
    return f"{abs(by):.3g} {'higher' if by > 0 else 'lower'}" if abs(by) > 1e-9 else "the same"


def _check_lines(tuning: Tuning) -> Iterator[str]:
    check = tuning.check
    if check is None:
        yield (
            "Not checked: no snapshot of another state than those of the search has results of both policies."
        )
        return
    words = {
        "confirmed": "Confirmed on snapshots that the search has not seen",
        "not shown": "Better on snapshots that the search has not seen, but not surely",
        "not better": "No better on snapshots that the search has not seen, so keep the given policy",
    }
    yield f"{words[check.result]}:"
    for sentence in sentences([check.total], check.comparison.paired_by):
        yield f"  {sentence}"
    yield "Measure by measure, on those snapshots:"
    for sentence in sentences(check.comparison.verdicts, check.comparison.paired_by):
        yield f"  {sentence}"


def as_data(tuning: Tuning, search: Search, judge: str) -> dict[str, Any]:
    """Return ``apiVersion: rebalancer/v1, kind: Tuning``."""
    check = tuning.check
    return {
        "apiVersion": API_VERSION,
        "kind": "Tuning",
        "judge": judge,
        "weights": {key: plain_number(weight) for key, weight in search.goal.weights.items()},
        "searched": list(tuning.searched),
        "unseen": list(tuning.unseen),
        "given": _candidate(tuning.given),
        "frontier": [_candidate(one) for one in tuning.frontier],
        "tried": [_candidate(one) for one in tuning.tried],
        "invalid": tuning.invalid,
        "best": None if tuning.best is None else _candidate(tuning.best),
        "recommended": None if tuning.recommended is None else dict(tuning.recommended.settings),
        "reasons": [
            {"key": of.key, "value": of.value, "without": _candidate(of.without)}
            for of in tuning.reasons
        ],
        "check": None
        if check is None
        else {
            "result": check.result,
            "total": verdict_data(check.total),
            "verdicts": [verdict_data(of) for of in check.comparison.verdicts],
        },
        "failures": [msgspec.to_builtins(failure) for failure in tuning.failures],
    }


def _candidate(one: Candidate) -> dict[str, Any]:
    return {
        "settings": dict(one.settings),
        "evictions": plain_number(one.evictions),
        "left": plain_number(one.left),
        "total": plain_number(one.total),
        "hardLeft": plain_number(one.hard),
    }


def policy_file(policy: str, tuning: Tuning, search: Search) -> str:
    """Return the recommended policy, with the reasons in comments; ``policy`` is its YAML."""
    comments = [title(tuning), *advice(tuning), legend(search.goal)]
    lines = [line for text in comments for line in wrap(printable(text), "# ", "#   ", WIDE)]
    return "\n".join(lines) + f"\n{policy}"


def as_html(tuning: Tuning, search: Search) -> str:
    """Return the search as an HTML document, with a picture of the frontier."""
    heads, *rows = _table(tuning, search)
    return render_page(
        "tuning.html.j2",
        ["report.css", "comparison.css"],
        title=title(tuning),
        legend=legend(search.goal),
        advice=list(advice(tuning)),
        heads=heads,
        rows=rows,
        picture=_picture(tuning),
    )


def _picture(tuning: Tuning) -> dict[str, Any]:
    """Return the points of all policies: evictions to the right, what is left upwards."""
    every = (tuning.given, *tuning.tried)
    evictions, left = [one.evictions for one in every], [one.left for one in every]

    def place(one: Candidate) -> tuple[float, float]:
        x, y = _share(one.evictions, evictions), _share(one.left, left)
        return round(_LEFT + x * (_RIGHT - _LEFT), 1), round(_BOTTOM - y * (_BOTTOM - _TOP), 1)

    marks: Mapping[str, Candidate | None] = {"given": tuning.given, "best": tuning.best}
    ends = [f"{value:.3g}" for value in (min(evictions), max(evictions), min(left), max(left))]
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "dots": sorted({place(one) for one in tuning.tried}),
        "line": " ".join(f"{x},{y}" for x, y in map(place, tuning.frontier)),
        "marks": [(name, *place(one)) for name, one in marks.items() if one is not None],
        "ends": ends,
        "alt": f"Evictions, from {ends[0]} to {ends[1]}, against what is left, from {ends[2]} to {ends[3]}, of each policy that was"
        " tried",
    }


def _share(value: float, of: Sequence[float]) -> float:
    low, high = min(of), max(of)
    return (value - low) / (high - low) if high > low else 0.5
