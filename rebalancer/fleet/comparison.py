"""Compare policies by the rows of all tasks: means and spread, and for each measure which policy is better, with p.

p answers: would the difference between two policies on these snapshots also appear on other snapshots? The test is
Fisher's randomisation test for pairs: if two policies were alike, each difference would be as likely with the other
sign. p is the share of the assignments of signs whose sum is at least as far from 0 (exact up to ``_EXACT``
differences, else over random ones). The interval is the percentile bootstrap of the mean (Efron and Tibshirani, An
Introduction to the Bootstrap, ch. 13). Many comparisons at once are corrected by Holm's method.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from rebalancer.fleet.measures import MEASURES, Measure
from rebalancer.fleet.task import Failure, LeftByRule, Row
from rebalancer.snapshot.columns import Bools, Floats

LEVEL = 0.05
"""Of all claims of a comparison together, so often one or more is wrong where there are no differences."""

_EXACT = 14
_DRAWS = 20_000
_SEED = 20_260_101
_BLOCK = 1_000
_SLACK = 1e-9
"""Sums in another order differ by less."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of paired differences, its interval, and the p value that it is 0."""

    mean: float
    low: float
    high: float
    """The 95 % interval of the mean."""
    p: float
    """Of this difference alone."""
    least_p: float
    """The smallest p that so many differences can have."""
    differing: int
    """Pairs whose difference is not 0."""


def compare_pairs(differences: Floats) -> Difference:
    """Return the mean of ``differences`` (n,), with interval and p. Same input, same result."""
    mean = float(differences.mean()) if len(differences) else 0.0
    # A 0 has no sign: what is equal in both says nothing of which is better.
    signed = differences[np.abs(differences) > _SLACK]
    if not len(signed):
        return Difference(mean, mean, mean, 1.0, 1.0, 0)
    low, high = _interval(differences)
    return Difference(mean, low, high, _p(signed), 2.0 ** (1 - len(signed)), len(signed))


def adjust(ps: Sequence[float], family: int) -> list[float]:
    """Adjust p values for ``family`` comparisons by Holm's method. ``ps``: the p values below 1; the others count as 1."""
    order = sorted(range(len(ps)), key=lambda index: ps[index])
    adjusted, largest = [1.0] * len(ps), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (family - rank) * ps[index]))
        adjusted[index] = largest
    return adjusted


def _p(signed: Floats) -> float:
    number, size = len(signed), np.abs(signed)
    reached = abs(float(signed.sum())) - _SLACK
    if number <= _EXACT:
        bits = (np.arange(2**number)[:, None] >> np.arange(number)) & 1
        return float((np.abs(_sums(bits == 1, size)) >= reached).mean())
    random = np.random.default_rng(_SEED)
    beyond = 0
    for _ in range(_DRAWS // _BLOCK):
        beyond += int((np.abs(_sums(random.random((_BLOCK, number)) < 0.5, size)) >= reached).sum())
    # The assignment that was seen is one of them: p is never 0.
    return (beyond + 1) / (_DRAWS + 1)


def _sums(positive: Bools, size: Floats) -> Floats:
    sums: Floats = 2 * (positive @ size) - size.sum()
    return sums


def _interval(differences: Floats) -> tuple[float, float]:
    random, number = np.random.default_rng(_SEED), len(differences)
    means = np.concatenate(
        [
            differences[random.integers(0, number, (_BLOCK, number))].mean(axis=1)
            for _ in range(_DRAWS // _BLOCK)
        ]
    )
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class PolicySummary:
    """One measure of one policy, over all of its rows."""

    mean: float
    draws: float
    """Standard deviation over the draws of a snapshot (root mean square over the snapshots); 0 with one draw."""
    snapshots: float
    """Standard deviation over the snapshots, of their means."""


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """Which of two policies is better by one measure, and how sure that is."""

    measure: Measure
    first: str
    second: str
    difference: Difference
    """``first`` minus ``second``."""
    p: float
    """Corrected for all comparisons of the report."""
    better: str
    """The policy that is surely better; empty where that is not shown."""
    against: tuple[str, ...]
    """Snapshots (or draws of the only one) on which the difference has the other sign than its mean."""
    equal: int
    """On how many there is none."""


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """All measurements of one policy."""

    name: str
    tasks: int
    """With a result."""
    silent: int
    """Tasks that fell silent within the cycles."""
    measures: Mapping[str, PolicySummary]
    left: Mapping[str, LeftByRule]
    """Rule -> the mean of what it leaves."""
    warnings: tuple[tuple[str, int], ...]
    """What runs warned of, and in how many tasks."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison."""

    policies: tuple[PolicyResult, ...]
    verdicts: tuple[PairVerdict, ...]
    snapshots: tuple[str, ...]
    """Those that all policies were played on in at least one same draw: the pairs of the verdicts."""
    paired_by: str
    """What a pair is: ``snapshot``, or ``draw`` where there is one snapshot only."""
    rows: tuple[Row, ...]
    failures: tuple[Failure, ...]

    @property
    def rules(self) -> tuple[str, ...]:
        """All rules that some policy may have left unmet."""
        return tuple(dict.fromkeys(rule for of in self.policies for rule in of.left))


def compare_rows(
    policies: Sequence[str],
    rows: Sequence[Row],
    failures: Sequence[Failure],
    measures: Sequence[Measure] = MEASURES,
) -> Comparison:
    """Compare policies in ``measures``. The order of the rows does not matter.

    A draw of a snapshot counts for the verdicts only if all policies have a row for it. Otherwise one policy would be
    judged on easier clusters than the others.
    """
    rows = sorted(rows, key=lambda row: row.number)
    of_policy = {name: [row for row in rows if row.policy == name] for name in policies}
    common = _common(of_policy)
    snapshots = tuple(dict.fromkeys(snapshot for snapshot, _ in common))
    paired_by = "snapshot" if len(snapshots) != 1 else "draw"
    values = {name: _means(of, common, paired_by, measures) for name, of in of_policy.items()}
    names = _pair_names(common, paired_by)
    return Comparison(
        policies=tuple(_result(name, of, measures) for name, of in of_policy.items()),
        verdicts=tuple(_verdicts(policies, values, names, measures)),
        snapshots=snapshots,
        paired_by=paired_by,
        rows=tuple(rows),
        failures=tuple(sorted(failures, key=lambda failure: failure.number)),
    )


_Draw = tuple[str, int]


def _common(of_policy: Mapping[str, Sequence[Row]]) -> list[_Draw]:
    """Return the (snapshot, draw) pairs of which every policy has a row, in the order of the tasks."""
    every = [{(row.snapshot, row.draw) for row in rows} for rows in of_policy.values()]
    shared = set.intersection(*every) if every else set()
    first = next(iter(of_policy.values()), [])
    return [(row.snapshot, row.draw) for row in first if (row.snapshot, row.draw) in shared]


def _pair_names(common: Sequence[_Draw], paired_by: str) -> list[str]:
    if paired_by == "draw":
        return [f"draw {draw}" for _, draw in common]
    return list(dict.fromkeys(snapshot for snapshot, _ in common))


def _means(
    rows: Sequence[Row], common: Sequence[_Draw], paired_by: str, measures: Sequence[Measure]
) -> dict[str, Floats]:
    """Return key -> (pairs,) the value of each draw, or its mean over the draws of each snapshot."""
    by_draw = {(row.snapshot, row.draw): row for row in rows}
    groups: dict[object, list[Row]] = {}
    for draw in common:
        groups.setdefault(draw if paired_by == "draw" else draw[0], []).append(by_draw[draw])
    return {
        measure.key: np.array(
            [np.mean([row.measures[measure.key] for row in group]) for group in groups.values()],
            float,
        )
        for measure in measures
    }


def _verdicts(
    policies: Sequence[str],
    values: Mapping[str, Mapping[str, Floats]],
    names: Sequence[str],
    measures: Sequence[Measure],
) -> Iterator[PairVerdict]:
    verdicts = [
        _verdict(
            measure, first, second, values[first][measure.key] - values[second][measure.key], names
        )
        for first, second in combinations(policies, 2)
        for measure in measures
    ]
    # What differs nowhere can never be claimed, and costs the others nothing.
    open_ = [index for index, verdict in enumerate(verdicts) if verdict.difference.least_p < 1.0]
    ps = adjust([verdicts[index].difference.p for index in open_], len(open_))
    for index, p in zip(open_, ps, strict=True):
        verdicts[index] = _decide(verdicts[index], p)
    yield from verdicts


def _verdict(
    measure: Measure, first: str, second: str, differences: Floats, names: Sequence[str]
) -> PairVerdict:
    difference = compare_pairs(differences)
    sign = np.sign(difference.mean)
    against = [name for name, of in zip(names, differences.tolist(), strict=True) if of * sign < 0]
    equal = int((differences == 0).sum())
    return PairVerdict(measure, first, second, difference, 1.0, "", tuple(against), equal)


def _decide(verdict: PairVerdict, p: float) -> PairVerdict:
    """Return the verdict with its corrected p; a winner is named only if test and interval agree."""
    of = verdict.difference
    better = ""
    if p <= LEVEL and (of.low > 0 or of.high < 0):
        better = (
            verdict.first if (of.mean > 0) is verdict.measure.more_is_better else verdict.second
        )
    return replace(verdict, p=p, better=better)


def _result(name: str, rows: Sequence[Row], measures: Sequence[Measure]) -> PolicyResult:
    warnings: dict[str, int] = {}
    for row in rows:
        for warning in row.warnings:
            warnings[warning] = warnings.get(warning, 0) + 1
    return PolicyResult(
        name=name,
        tasks=len(rows),
        silent=sum(row.silent for row in rows),
        measures={measure.key: _summary(rows, measure.key) for measure in measures},
        left=_mean_left(rows),
        warnings=tuple(warnings.items()),
    )


def _summary(rows: Sequence[Row], key: str) -> PolicySummary:
    groups = _by_snapshot(rows, key)
    if not groups:
        return PolicySummary(0.0, 0.0, 0.0)
    means = [float(np.mean(group)) for group in groups]
    within = [float(np.var(group, ddof=1)) for group in groups if len(group) > 1]
    return PolicySummary(
        mean=float(np.mean(means)),
        draws=float(np.sqrt(np.mean(within))) if within else 0.0,
        snapshots=float(np.std(means, ddof=1)) if len(means) > 1 else 0.0,
    )


def mean_by_snapshot(rows: Sequence[Row], key: str) -> list[float]:
    """Return the mean of a measure over the draws of each snapshot."""
    return [float(np.mean(group)) for group in _by_snapshot(rows, key)]


def _by_snapshot(rows: Sequence[Row], key: str) -> list[list[float]]:
    groups: dict[str, list[float]] = {}
    for row in rows:
        groups.setdefault(row.snapshot, []).append(row.measures[key])
    return list(groups.values())


def _mean_left(rows: Sequence[Row]) -> dict[str, LeftByRule]:
    rules = sorted({rule for row in rows for rule in row.left})
    means: dict[str, LeftByRule] = {}
    for rule in rules:
        of = [row.left[rule] for row in rows]
        means[rule] = LeftByRule(
            hard=float(np.mean([one.hard for one in of])),
            soft=float(np.mean([one.soft for one in of])),
            imbalance=float(np.mean([one.imbalance for one in of])),
            unmet=sum(one.unmet for one in of),
            judged=all(one.judged for one in of),
        )
    return means
