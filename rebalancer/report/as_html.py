"""The report as one self-contained HTML page: no external font, picture or script.

The template escapes all values. A content security policy allows only the page's own style and script, by their
hashes. The moves are data in the page, of which the script shows a part at a time, so that thousands of them remain
usable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from markupsafe import Markup

from rebalancer.base.plain_text import and_more, count, printable, printable_json
from rebalancer.plan.plan import Outcome
from rebalancer.report import html_parts, skips, words
from rebalancer.report.html_parts import (
    FEW,
    MAX_NAMES,
    WIDEST,
    bar_width,
    inline,
    page_environment,
)
from rebalancer.report.model import RunReport
from rebalancer.report.pictures import pod_map
from rebalancer.report.summary import LEGEND, ZONE_LOSSES, RuleSummary, Summary

_MAX_GROUPS = 100
_MAX_RULES = 100
_BAR = 150
"""Width of the longest bar of a rule, in pixels."""

# The script's order of a row; the heads sort by the column of that number.
_COLUMNS = (
    ("Wave", 0, ""),
    ("Pod", 2, ""),
    ("From, to", 4, ""),
    ("Why", 7, ""),
    ("Gain", 9, "; ".join(f"{word}: {meaning}" for word, meaning in LEGEND.items())),
)
_OUTCOME = ("Outcome", 11, "")
_NOT_IN_FILE = "not in the snapshot: "
"""Begins what a report notes of a file; a file of `kubectl get` rarely has every kind."""

_FORBIDS = "PodDisruptionBudget"
"""Where a file may lack objects of this kind, the cluster may refuse moves that are shown."""


RUNS = "<!--runs-->"
"""Placeholder in a live page for the list of runs."""


def as_html(report: RunReport, *, live: bool = False) -> Iterator[str]:
    """Yield the report as an HTML document, in pieces.

    A ``live`` page has a place for the list of runs (:data:`RUNS`), and polls its server for the current state.
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
            **_split_warnings(report),
            steps=summary.changes.names,
            few=FEW,
            rules=_rules(summary),
            unmet=_unmet(summary),
            legend=LEGEND,
            zone_losses_head=ZONE_LOSSES,
            pods=pod_map(report, summary.changes),
            heat=html_parts.heat(summary),
            places=html_parts.places(summary),
            nodes=html_parts.node_bars(summary.changes.nodes),
            cells=html_parts.node_cells(summary.changes),
            columns=_COLUMNS if report.dry_run else (*_COLUMNS, _OUTCOME),
            data=_data(report),
            staying=summary.staying,
            stays=_stays(summary),
            funnel=_funnel(report),
            timings=", ".join(
                f"{phase} {seconds:.2f} s" for phase, seconds in report.timings.items()
            ),
        )
    )
    yield "\n"


def _split_warnings(report: RunReport) -> dict[str, list[str]]:
    """Return the warnings for the top of the page, and the remarks on kinds that a file rarely has for its end."""
    remarks = [one for one in report.warnings if one.startswith(_NOT_IN_FILE)]
    warnings = [one for one in report.warnings if one not in remarks]
    if any(one.startswith(_FORBIDS) for one in report.snapshot.missing):
        warnings.append(
            f"no {_FORBIDS} is in the snapshot: the cluster may refuse moves of this page"
        )
    return {"warnings": warnings, "remarks": remarks}


def plain_page(heading: str) -> str:
    """Return a live page without a report."""
    page = page_environment().get_template("plain.html.j2")
    return page.render(heading=heading, **_of_report(live=True))


def _of_report(*, live: bool) -> dict[str, str]:
    styles = ["report.css", "pod_map.css", *(["live.css"] if live else [])]
    scripts = ["report.js", *(["live.js"] if live else [])]
    return {**inline("style", styles), **inline("script", scripts)}


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
        return
    bound, backlog = report.plan.lower_bound, report.plan.backlog
    # A bound above the moves counts those of further runs.
    if bound and bound <= len(report.outcomes):
        yield "No fewer than", f"{bound:,}"
    elif backlog.moves:
        yield "For further runs", f"{'at least ' if backlog.more else ''}{backlog.moves:,}"


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
            "width": bar_width(0 if score is None else score.violated, most, _BAR),
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
    """Return the rules that remain unmet, grouped by reason."""
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


def _funnel(report: RunReport) -> list[dict[str, str]]:
    if not report.plan.funnel:
        return []
    stages = skips.funnel_stages(report.plan.funnel)
    return [
        {"name": name, "number": f"{number:,}", "width": bar_width(number, stages[0][1], WIDEST)}
        for name, number in stages
    ]


# -- what stays, and the moves -------------------------------------------------------------------------


def _stays(summary: Summary) -> list[dict[str, Any]]:
    """Return the pods that are not moved, by reason and workload."""
    shown = [(one, one.groups[:_MAX_GROUPS]) for one in summary.stays]
    refs = {ref for _, groups in shown for group in groups for ref in group.pods}
    workloads = _workloads_of(summary.report, refs) if refs else {}
    return [
        {
            "pods": f"{one.pods:,}",
            "code": one.code,
            "why": one.why,
            "groups": [
                {"pods": _by_workload(workloads, group.pods), "message": group.message}
                for group in groups
            ],
            "left": skips.total(one.groups[_MAX_GROUPS:]),
        }
        for one, groups in shown
    ]


def _workloads_of(report: RunReport, refs: Collection[str]) -> dict[str, str]:
    snapshot, workloads = report.snapshot, {}
    for name, cls in zip(snapshot.pods.name, snapshot.pods.cls.tolist(), strict=True):
        ref = f"{snapshot.classes[cls].namespace}/{name}"
        if ref in refs and (owner := snapshot.owner_of(cls)) is not None:
            workloads[ref] = owner.ref
    return workloads


def _by_workload(workloads: Mapping[str, str], refs: Sequence[str]) -> str:
    """Return pods by their workloads, ``Deployment/shop/web (3 pods)``; a pod without one by its own name."""
    counted = Counter(workloads.get(ref, ref) for ref in refs)
    alone = set(refs) - workloads.keys()
    named = [
        name if name in alone else f"{name} ({count(number, 'pod')})"
        for name, number in counted.most_common()
    ]
    return and_more(named, MAX_NAMES)


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
