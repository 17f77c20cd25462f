"""A comparison as a document and as data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from rebalancer import API_VERSION
from rebalancer.base.data_text import plain_number
from rebalancer.base.plain_text import and_more, count
from rebalancer.fleet.comparison import (
    LEVEL,
    Comparison,
    PairVerdict,
    PolicyResult,
    PolicySummary,
)
from rebalancer.fleet.simulation import MEASURES, Failure
from rebalancer.report.document import Block, Passage, ReportDocument, Table

_MAX_NAMES = 3
_MAX_FAILURES = 20


def document_of(comparison: Comparison, judge: str) -> ReportDocument:
    """Return the comparison in all its forms; ``judge``: the policy that scored the final states."""
    return ReportDocument(list(_blocks(comparison, judge)), as_data(comparison, judge))


def _blocks(comparison: Comparison, judge: str) -> Iterator[Block]:
    yield title(comparison)
    if counted := describe_repeats(comparison):
        yield Passage(counted)
    yield ""
    for part in (MEASURES[:5], MEASURES[5:]):
        rows = [("POLICY", *(measure.head for measure in part))]
        rows += [
            (of.name, *(cell(of.measures[measure.key]) for measure in part))
            for of in comparison.policies
        ]
        yield from (Table(rows), "")
    yield Passage(LEGEND.format(judge=judge))
    yield from ("", "Left by rule (hard / soft / imbalance)", _tabulate_left(comparison))
    rest = list(_verdicts(comparison))
    yield from ("", *rest) if rest else ()


def _verdicts(comparison: Comparison) -> Iterator[Block]:
    """Yield which policy is better, what runs warned of, and what failed."""
    for first, second, verdicts in by_pair(comparison):
        yield f"{first} beside {second}"
        for sentence in sentences(verdicts, comparison.paired_by):
            yield Passage(sentence, "  ", "      ")
    for of in comparison.policies:
        for warning, number in of.warnings:
            yield Passage(f"Warning of {of.name} in {count(number, 'task')}: {warning}")
    yield from failure_lines(comparison.failures)


LEGEND = (
    "A cell is the mean over all snapshots, ± the standard deviation over the draws of one snapshot. What is left is scored"
    " by the rules of {judge} for all policies. UNEVEN: standard deviation of the requested share of nodes. GONE AT ONCE, PDB"
    " USED: the largest share of a workload's replicas, and of a PodDisruptionBudget, that one wave took. RUNS: until nothing"
    " more is done, or the cycles end."
)


def title(comparison: Comparison) -> str:
    """Return one line with what was compared."""
    tasks = len(comparison.rows) + len(comparison.failures)
    policies, snapshots = len(comparison.policies), len(comparison.snapshots)
    plural = "policy" if policies == 1 else "policies"
    of = f" from {_hours(comparison.hours)}" if comparison.hours else ""
    return (
        f"{policies} {plural} on {count(snapshots, 'snapshot')}{of}, {count(tasks, 'simulation')}"
    )


def _hours(hours: float) -> str:
    return f"{hours:,.3g} hours" if hours < 1000 else f"{hours / 24:,.0f} days"


def describe_repeats(comparison: Comparison) -> str:
    """Return a sentence on snapshots that depend on others; empty if there are none."""
    snapshots, states = len(comparison.snapshots), comparison.states
    if states >= snapshots:
        return ""
    return (
        f"{count(snapshots, 'snapshot')} count as {states}: those of one cluster in one state, or within an hour, say the"
        " same."
    )


def cell(summary: PolicySummary) -> str:
    """Return a mean with its spread over the draws."""
    mean = show_number(summary.mean)
    return f"{mean} ± {summary.draws:.2g}" if summary.draws else mean


def show_number(value: float) -> str:
    """Return a number with three digits, or all before the point."""
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _tabulate_left(comparison: Comparison) -> Table:
    rows = [("RULE", *(of.name for of in comparison.policies))]
    rows += [
        (rule, *(left_cell(of, rule) for of in comparison.policies)) for rule in comparison.rules
    ]
    return Table(rows)


def left_cell(of: PolicyResult, rule: str) -> str:
    """Return in words what a policy leaves unmet of a rule, or ``not judged``."""
    left = of.left.get(rule)
    if left is None:
        return ""
    if not left.judged:
        return "not judged"
    if not (left.unmet or left.hard or left.soft):
        return "holds"
    return f"{left.hard:.3g} / {left.soft:.3g} / {left.imbalance:.3g}"


def by_pair(comparison: Comparison) -> Iterator[tuple[str, str, list[PairVerdict]]]:
    """Yield the verdicts of each pair of policies."""
    pairs: dict[tuple[str, str], list[PairVerdict]] = {}
    for verdict in comparison.verdicts:
        pairs.setdefault((verdict.first, verdict.second), []).append(verdict)
    for (first, second), verdicts in pairs.items():
        yield first, second, verdicts


def sentences(verdicts: Sequence[PairVerdict], paired_by: str) -> Iterator[str]:
    """Yield sentences on a pair of policies: first the measures on which one is better, then differences not shown to be real."""
    for verdict in verdicts:
        if verdict.better:
            yield _better(verdict, paired_by)
    unsure = [of for of in verdicts if not of.better and of.difference.differing]
    for verdict in unsure:
        yield _unsure(verdict, paired_by)
    if not any(of.difference.differing for of in verdicts):
        yield f"Alike on every {paired_by}, in all measures."
    elif not any(of.better for of in verdicts):
        yield "Neither is shown to be better."


def _better(verdict: PairVerdict, paired_by: str) -> str:
    of, measure = verdict.difference, verdict.measure
    low, high = sorted((abs(of.low), abs(of.high)))
    text = (
        f"{verdict.better} is better: {abs(of.mean):.3g} {measure.better} {measure.words}"
        f" (95%: {low:.3g} to {high:.3g}; p {_p(verdict.p)})"
    )
    return text + _disagreement(verdict, paired_by)


def _unsure(verdict: PairVerdict, paired_by: str) -> str:
    of = verdict.difference
    why = f"p {_p(verdict.p)}"
    if of.least_p > LEVEL:
        why = f"too few of the {paired_by}s differ"
    elif of.least_p * verdict.family > LEVEL:
        why = f"too few of the {paired_by}s differ for {verdict.family} questions at once"
    within = f"95%: {of.low:+.3g} to {of.high:+.3g}; " if math.isfinite(of.low) else ""
    return f"Not shown: {verdict.measure.words}, {of.mean:+.3g} ({within}{why})" + _disagreement(
        verdict, paired_by
    )


def _disagreement(verdict: PairVerdict, paired_by: str) -> str:
    number, blocks, text = len(verdict.against), verdict.difference.blocks, ""
    if number:
        text = f"; the other way on {count(number, paired_by)}: {and_more(verdict.against, _MAX_NAMES)}"
    if blocks:
        text += f"; neighbours in time are alike, so that all count as {blocks}"
    return f"{text}."


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def failure_lines(failures: Sequence[Failure]) -> Iterator[str]:
    """Yield a line for each error of a snapshot; its tasks mostly fail for one reason."""
    of_errors: dict[tuple[str, str], list[Failure]] = {}
    for one in failures:
        of_errors.setdefault((one.snapshot, one.error), []).append(one)
    for (snapshot, error), those in list(of_errors.items())[:_MAX_FAILURES]:
        first, more = those[0], len(those) - 1
        others = f" and {count(more, 'other')}" if more else ""
        yield f"Failed: {first.policy} on {snapshot}, draw {first.draw}{others}: {error}"
    if len(of_errors) > _MAX_FAILURES:
        more = len(of_errors) - _MAX_FAILURES
        yield f"... and {count(more, 'more error')} (-o json shows all)"
    if failures:
        yield "Draws without a result of every policy count for no comparison between policies."


def as_data(comparison: Comparison, judge: str) -> dict[str, Any]:
    """Return ``apiVersion: rebalancer/v1, kind: Comparison``."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Comparison",
        "judge": judge,
        "pairedBy": comparison.paired_by,
        "states": comparison.states,
        "hours": plain_number(comparison.hours, 3),
        "snapshots": list(comparison.snapshots),
        "policies": [_policy(of) for of in comparison.policies],
        "verdicts": [verdict_data(of) for of in comparison.verdicts],
        "rows": [msgspec.to_builtins(row) for row in comparison.rows],
        "failures": [msgspec.to_builtins(failure) for failure in comparison.failures],
    }


def _policy(of: PolicyResult) -> dict[str, Any]:
    return {
        "name": of.name,
        "tasks": of.tasks,
        "silent": of.silent,
        "measures": {
            key: _numbers(
                {"mean": one.mean, "overDraws": one.draws, "overSnapshots": one.snapshots}
            )
            for key, one in of.measures.items()
        },
        "left": {
            rule: {
                **_numbers({"hard": one.hard, "soft": one.soft, "imbalance": one.imbalance}),
                "unmet": one.unmet,
                "judged": one.judged,
            }
            for rule, one in of.left.items()
        },
        "warnings": [{"message": text, "tasks": number} for text, number in of.warnings],
    }


def verdict_data(of: PairVerdict) -> dict[str, Any]:
    """Return a verdict as data."""
    difference = of.difference
    return {
        "measure": of.measure.key,
        "first": of.first,
        "second": of.second,
        "better": of.better or None,
        **_numbers(
            {
                "difference": difference.mean,
                "low": difference.low,
                "high": difference.high,
                "p": difference.p,
                "pCorrected": of.p,
            }
        ),
        "against": list(of.against),
        "equal": of.equal,
    }


def _numbers(values: Mapping[str, float]) -> dict[str, Any]:
    return {key: plain_number(value) for key, value in values.items()}
