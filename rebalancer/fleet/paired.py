"""Paired tests: would the difference between two policies on these snapshots also appear on other snapshots?

The test is Fisher's randomisation test for pairs: if two policies were alike, each difference would be as likely with
the other sign. p is the share of the assignments of signs whose sum is at least as far from 0 (exact up to ``_EXACT``
differences, else over random ones). The interval is the percentile bootstrap of the mean (Efron and Tibshirani, An
Introduction to the Bootstrap, ch. 13). Many comparisons at once are corrected by Holm's method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
