"""Play every policy on every snapshot, several times, and compare them by the results.

The result has means and spread, and for each measure which policy is better, with p.

p answers: would the difference between two policies on these snapshots also appear on other snapshots? A pair is the
mean of the snapshots of one cluster that are not independent: those in one state, and those within an hour. The test is Fisher's
randomisation test for pairs: if two policies were alike, each difference would be as likely with the other sign. p is
the share of the assignments of signs whose sum is at least as far from 0. The interval holds the means for which that
test has a p above 5 %: its ends are means of subsets of the differences (Hartigan, Using subsample values as typical
values, 1969). Many comparisons at once are corrected by Holm's method.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from rebalancer.base.errors import PolicyError
from rebalancer.fleet.simulation import (
    MEASURES,
    Failure,
    LeftByRule,
    Measure,
    Origin,
    Result,
    Row,
    Rules,
    Task,
    TaskSetting,
)
from rebalancer.snapshot.columns import Bools, Floats
from rebalancer.snapshot.load import load_judgeable

LEVEL = 0.05
"""Of all claims of a comparison together, so often one or more is wrong where there are no differences."""

HOUR = 3600.0
"""Snapshots of one cluster that were taken within it are one pair."""

_EXACT = 14
"""Maximum number of differences whose subsets are all enumerated."""
_DRAWS = 4_000
"""Random subsets of more of them."""
_SEED = 20_260_101
_BLOCK = 1_000
_GRID = 1 << 15
"""Steps in which the distribution of a sum is computed."""
_DEPENDENT = 10
"""Differences from which on their dependence on each other can be seen."""
_T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Number of differences, of which no sure answer is possible -> Student's t for 95 %."""
_SLACK = 1e-9
"""Sums in another order differ by less."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of paired differences, its interval, and the p value that it is 0."""

    mean: float
    low: float
    high: float
    """The 95 % confidence interval of the mean."""
    p: float
    """The p value of this difference alone, without correction."""
    least_p: float
    """The smallest p that this number of differences can have."""
    differing: int
    """Number of pairs whose difference is not 0; of blocks of pairs, if neighbours are alike."""
    blocks: int = 0
    """Number of independent blocks of pairs, if neighbours in time are alike; 0: each pair is independent."""


def compare_pairs(differences: Floats) -> Difference:
    """Return the mean of ``differences`` (n,) in the order of time, with interval and p. Same input, same result."""
    mean = float(np.sort(differences).mean()) if len(differences) else 0.0
    if not (np.abs(differences) > _SLACK).any():
        return Difference(mean, mean, mean, 1.0, 1.0, 0)
    independent = np.sort(_average_blocks(differences))
    # A 0 has no sign: what is equal in both says nothing of which is better.
    signed = independent[np.abs(independent) > _SLACK]
    low, high = _interval(independent)
    blocks = len(independent) if len(independent) < len(differences) else 0
    return Difference(mean, low, high, _p(signed), 2.0 ** (1 - len(signed)), len(signed), blocks)


def _average_blocks(differences: Floats) -> Floats:
    """Return the means of blocks of neighbours; a block is a single difference where neighbours are not alike.

    A block is twice as long as the differences depend on each other: the integrated autocorrelation time.
    """
    number, centred = len(differences), differences - differences.mean()
    total = float(centred @ centred)
    if number < _DEPENDENT or total <= _SLACK:
        return differences
    length, least = 1.0, 2.5 / np.sqrt(number)  # by chance alone, one in 160 is above that
    for lag in range(1, number):
        correlation = float(centred[:-lag] @ centred[lag:]) / total
        if correlation <= least:
            break
        length, least = length + 2 * correlation, 0.0
    blocks = number if length == 1.0 else max(1, int(number / (2 * length)))
    return np.array([block.mean() for block in np.array_split(differences, blocks)])


def adjust(ps: Sequence[float], family: int) -> list[float]:
    """Adjust p values for ``family`` comparisons by Holm's method. ``ps``: the p values below 1; the others count as 1."""
    order = sorted(range(len(ps)), key=lambda index: ps[index])
    adjusted, largest = [1.0] * len(ps), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (family - rank) * ps[index]))
        adjusted[index] = largest
    return adjusted


def _p(signed: Floats) -> float:
    """Return the share of the assignments of signs whose sum is at least as far from 0."""
    number, size = len(signed), np.abs(signed)
    if number <= _EXACT:
        sums = 2 * (_subsets(number) @ size) - size.sum()
        return float((np.abs(sums) >= abs(float(signed.sum())) - _SLACK).mean())
    # The distribution of the sum of whole steps, one difference after the other.
    steps = np.rint(signed * (_GRID / size.sum())).astype(int)
    middle = int(np.abs(steps).sum())
    chances = np.zeros(2 * middle + 1)
    chances[middle] = 1.0
    for step in steps.tolist():
        chances = (np.roll(chances, step) + np.roll(chances, -step)) / 2
    # Sums that are equal but for what is rounded are equal.
    reached = max(0, abs(int(steps.sum())) - int(1.5 * np.sqrt(number)))
    p = float(chances[: middle - reached + 1].sum() + chances[middle + reached :].sum())
    return min(1.0, max(p, 2.0 ** (1 - number)))


def _interval(differences: Floats) -> tuple[float, float]:
    """Return the means that the test does not exclude; of five and less, by Student's t."""
    number = len(differences)
    if number in _T:
        half = _T[number] * float(differences.std(ddof=1)) / np.sqrt(number)
        return float(differences.mean() - half), float(differences.mean() + half)
    if number < min(_T):
        return -np.inf, np.inf
    if number <= _EXACT:
        chosen = [_subsets(number)[1:]]
    else:
        random = np.random.default_rng(_SEED)
        chosen = [random.random((_BLOCK, number)) < 0.5 for _ in range(_DRAWS // _BLOCK)]
    sizes = [of.sum(axis=1) for of in chosen]
    means = np.concatenate(
        [(of @ differences)[n > 0] / n[n > 0] for of, n in zip(chosen, sizes, strict=True)]
    )
    means.sort()
    beyond = int((len(means) + 1) * LEVEL / 2)
    return float(means[beyond - 1]), float(means[-beyond])


def _subsets(number: int) -> Bools:
    """Return all subsets of ``number`` things, the empty one first."""
    return ((np.arange(2**number)[:, None] >> np.arange(number)) & 1) == 1


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
    """The difference ``first`` minus ``second``."""
    p: float
    """Corrected for all comparisons of the report."""
    better: str
    """The policy that is surely better; empty where that is not shown."""
    against: tuple[str, ...]
    """Snapshots (or draws of the only one) on which the difference has the other sign than its mean."""
    equal: int
    """Number of pairs without a difference."""
    family: int = 1
    """Comparisons for which its p is corrected."""


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """All measurements of one policy."""

    name: str
    tasks: int
    """Number of tasks that have a result."""
    silent: int
    """Tasks that fell silent within the cycles."""
    measures: Mapping[str, PolicySummary]
    left: Mapping[str, LeftByRule]
    """Rule -> the mean of the unmet rest."""
    warnings: tuple[tuple[str, int], ...]
    """Warning of runs -> number of tasks with it."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison."""

    policies: tuple[PolicyResult, ...]
    verdicts: tuple[PairVerdict, ...]
    snapshots: tuple[str, ...]
    """The snapshots with results of all policies for at least one same draw, in the order of time."""
    paired_by: str
    """What a pair is: ``snapshot``, or ``draw`` if all snapshots have the same state."""
    states: int
    """How many of the snapshots are independent: pairs, if not paired by draws."""
    hours: float
    """The hours that the snapshots of known time cover, of all clusters together."""
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
) -> Comparison:
    """Compare policies in all measures. The order of the rows does not matter.

    Each snapshot is simulated several times, each time with other random landings: its draws. A draw counts for the
    verdicts only if all policies have a row for it. Otherwise one policy would be judged on easier clusters.
    """
    rows = sorted(rows, key=lambda row: row.number)
    of_policy = {name: [row for row in rows if row.policy == name] for name in policies}
    common = _common(of_policy)
    origins = {row.snapshot: row.origin for row in rows}
    snapshots = _in_order({snapshot: origins[snapshot] for snapshot, _ in common})
    states = _group(snapshots)
    paired_by = "snapshot" if len(set(states.values())) != 1 else "draw"
    pairs = _pairs(common, states, paired_by)
    values = {name: _means(of, pairs) for name, of in of_policy.items()}
    return Comparison(
        policies=tuple(_result(name, of) for name, of in of_policy.items()),
        verdicts=tuple(_verdicts(policies, values, list(pairs))),
        snapshots=tuple(snapshots),
        paired_by=paired_by,
        states=len(set(states.values())),
        hours=_hours(snapshots.values()),
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


def _in_order(origins: Mapping[str, Origin]) -> dict[str, Origin]:
    """Return snapshots in the order of their clusters and times; names decide only between equal ones."""
    key = {name: (of.series, of.at, of.state, name) for name, of in origins.items()}
    return {name: origins[name] for name in sorted(origins, key=lambda name: key[name])}


def _group(snapshots: Mapping[str, Origin]) -> dict[str, str]:
    """Return snapshot -> the first one that it depends on: in the same state, or of one cluster within an hour."""
    first: dict[str, str] = {}
    of_state: dict[str, str] = {}
    begun: dict[str, tuple[float, str]] = {}
    for name, of in snapshots.items():
        since, one = begun.get(of.series, (-HOUR, ""))
        # Two states at one moment are not of one cluster.
        if not of.at or not 0 < of.at - since < HOUR:
            one = of_state.get(of.state, name) if of.state else name
            if of.at:
                begun[of.series] = (of.at, one)
        first[name] = of_state.setdefault(of.state, one) if of.state else one
    return first


def _hours(origins: Iterable[Origin]) -> float:
    times: dict[str, list[float]] = {}
    for of in origins:
        if of.at:
            times.setdefault(of.series, []).append(of.at)
    return sum(max(of) - min(of) for of in times.values()) / HOUR


def _pairs(
    common: Sequence[_Draw], states: Mapping[str, str], paired_by: str
) -> dict[str, list[_Draw]]:
    """Return name of a pair -> its draws, in the order of time."""
    pairs: dict[str, list[_Draw]] = {}
    if paired_by == "snapshot":
        pairs = {first: [] for first in states.values()}
    for snapshot, draw in sorted(common, key=lambda one: one[1]):
        name = states[snapshot] if paired_by == "snapshot" else f"draw {draw}"
        pairs.setdefault(name, []).append((snapshot, draw))
    return pairs


def _means(rows: Sequence[Row], pairs: Mapping[str, Sequence[_Draw]]) -> dict[str, Floats]:
    """Return key -> (pairs,) the means over the draws of each pair; a snapshot with fewer draws counts as one with more."""
    by_draw = {(row.snapshot, row.draw): row for row in rows}
    return {
        measure.key: np.array(
            [
                _mean_of_means([by_draw[draw] for draw in draws], measure.key)
                for draws in pairs.values()
            ],
            float,
        )
        for measure in MEASURES
    }


def _mean_of_means(rows: Sequence[Row], key: str) -> float:
    return float(np.mean(np.sort([np.mean(group) for group in _by_snapshot(rows, key)])))


def _verdicts(
    policies: Sequence[str],
    values: Mapping[str, Mapping[str, Floats]],
    names: Sequence[str],
) -> Iterator[PairVerdict]:
    verdicts = [
        _verdict(
            measure, first, second, values[first][measure.key] - values[second][measure.key], names
        )
        for first, second in combinations(policies, 2)
        for measure in MEASURES
    ]
    # What differs nowhere can never be claimed, and costs the others nothing.
    open_ = [index for index, verdict in enumerate(verdicts) if verdict.difference.least_p < 1.0]
    ps = adjust([verdicts[index].difference.p for index in open_], len(open_))
    for index, p in zip(open_, ps, strict=True):
        verdicts[index] = _decide(replace(verdicts[index], family=len(open_)), p)
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


def _result(name: str, rows: Sequence[Row]) -> PolicyResult:
    warnings: dict[str, int] = {}
    for row in rows:
        for warning in row.warnings:
            warnings[warning] = warnings.get(warning, 0) + 1
    return PolicyResult(
        name=name,
        tasks=len(rows),
        silent=sum(row.silent for row in rows),
        measures={measure.key: _summary(rows, measure.key) for measure in MEASURES},
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


Play = Callable[[Sequence[Task]], Iterator[Result]]
"""Yields the result of each task, in any order."""

Reached = Callable[[int, int], None]
"""Called with two numbers: the tasks that have ended, and all tasks."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a comparison."""

    policies: tuple[Rules, ...]
    snapshots: tuple[str, ...]
    """The paths of the snapshots, each once."""
    draws: int
    seed: int
    setting: TaskSetting


def list_tasks(inputs: Inputs) -> list[Task]:
    """Return the tasks.

    Tasks are in the order of snapshots, so that a worker reads each snapshot only once. The seed of the random
    landings comes from the content of the snapshot, not from its name or place; all policies have the same seed.

    Raises:
        PolicyError: two policies have one name, or a snapshot cannot be read.
    """
    names = [policy.name for policy in inputs.policies]
    if len(set(names)) < len(names):
        raise PolicyError([f"--policies: {_twice(names)} is there twice"])
    tasks: list[Task] = []
    for snapshot in inputs.snapshots:
        content, source = _digest(snapshot), str(Path(snapshot).absolute())
        for policy in inputs.policies:
            for draw in range(inputs.draws):
                seed = (inputs.seed, int(content[:16], 16), draw)
                setting = inputs.setting
                tasks.append(Task(len(tasks), policy, snapshot, source, draw, seed, setting))
    return tasks


def compare(inputs: Inputs, play: Play, *, reached: Reached) -> Comparison:
    """Play all tasks and compare the policies by their results.

    ``reached`` is called with each result. The comparison is the same in whatever order the results come.

    Raises:
        PolicyError: see :func:`list_tasks`.
    """
    tasks = list_tasks(inputs)
    rows: list[Row] = []
    failures: list[Failure] = []
    reached(0, len(tasks))
    for result in play(tasks):
        if isinstance(result, Failure):
            failures.append(result)
        else:
            rows.append(result)
        reached(len(rows) + len(failures), len(tasks))
    return compare_rows([policy.name for policy in inputs.policies], rows, failures)


def _twice(names: Sequence[str]) -> str:
    return next(name for index, name in enumerate(names) if name in names[:index])


_SUFFIXES = (".zip", ".json", ".json.gz")


def list_snapshots(named: Sequence[str]) -> list[str]:
    """Return the snapshots in the ``named`` files and directories, each once, in order.

    A file that is named in several ways counts once, by its first name; hidden files and folders do not count. A file
    that is named itself is read once, so that a wrong one is reported before the first simulation. Those of a
    directory are not: one damaged file is no reason to stop.

    Raises:
        PolicyError: something does not exist, a directory holds no snapshot, or a named file is none.
    """
    every: dict[str, str] = {}
    for name in named:
        path = Path(name)
        if path.is_file():
            load_judgeable(name)
            snapshots = [name]
        elif path.is_dir():
            snapshots = _list_directory(path)
        else:
            raise PolicyError([f"{name}: there is no such file or directory"])
        for one in snapshots:
            every.setdefault(os.path.realpath(one), one)
    return list(every.values())


def _list_directory(directory: Path) -> list[str]:
    snapshots = sorted(
        str(file)
        for file in directory.rglob("*")
        if file.name.endswith(_SUFFIXES)
        and not any(part.startswith(".") for part in file.relative_to(directory).parts)
        and file.is_file()
    )
    if not snapshots:
        raise PolicyError([f"{directory}: holds no snapshot (*{', *'.join(_SUFFIXES)})"])
    return snapshots


def _digest(snapshot: str) -> str:
    """Return the sha256 of a snapshot's file in hex."""
    try:
        with Path(snapshot).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise PolicyError([f"{snapshot}: cannot be read: {error.strerror or error}"]) from None
