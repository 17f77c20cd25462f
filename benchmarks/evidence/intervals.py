"""Intervals of 95 % that assume nothing of how values are distributed."""

from collections.abc import Sequence
from math import comb, sqrt
from statistics import median

_Z = 1.959964


def of_median(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of ``values``, and its interval between two of them, by their order."""
    ordered, count = sorted(values), len(values)
    low, below = 0, 0.0
    # The chance that fewer than so many values are below the true median.
    while low < (count - 1) // 2 and (below := below + comb(count, low) / 2**count) <= 0.025:
        low += 1
    return median(ordered), ordered[max(0, low - 1)], ordered[min(count - 1, count - low)]


def of_share(hits: int, of: int) -> tuple[float, float, float]:
    """Return a share and Wilson's interval."""
    share = hits / of
    middle = (share + _Z**2 / (2 * of)) / (1 + _Z**2 / of)
    half = _Z / (1 + _Z**2 / of) * sqrt(share * (1 - share) / of + _Z**2 / (4 * of**2))
    return share, max(0.0, middle - half), min(1.0, middle + half)
