"""Exact remaining minimum moves, where a closed form exists.

The forms are exact when capacity, affinity and volumes do not bind; a useful move lowers them by exactly
one, so a search over them meets no plateaus. All functions take a batch of count vectors (..., D), one
count per topology domain, so that every destination of a move is one row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rebalancer.snapshot.columns import Ints

Counts = NDArray[np.int64]
_NEVER = np.int64(2**40)


def spread_minimum(
    counts: Counts,
    immobile: Counts,
    open_: NDArray[np.bool_],
    max_skew: int,
    *,
    too_few: bool = False,
) -> Ints:
    """Return the fewest moves (...,) that bring counts (..., D) within ``max_skew``.

    For a floor level L with D * L <= n <= D * (L + s), ``sum max(0, c - L - s)`` pods must leave and
    ``sum max(0, L - c)`` must enter; each move can do both, so the larger counts; the best L wins. With
    fewer domains than ``minDomains`` (``too_few``) the scheduler takes the global minimum as 0, which
    leaves L = 0 (KEP-3022).

    ``immobile`` (D,) pods cannot leave, and nothing can enter a domain that is not ``open_`` (D,). Where
    that makes the constraint impossible, what is returned is the moves that still bring it as near as
    it gets.
    """
    domains = counts.shape[-1]
    if domains == 0:
        return np.zeros(counts.shape[:-1], np.int64)
    totals = counts.sum(axis=-1)
    if too_few:
        return _moves_at(counts, immobile, open_, np.zeros_like(totals), max_skew)[0]
    highest = totals // domains
    lowest = np.maximum(0, -((domains * max_skew - totals) // domains))
    best = np.full(totals.shape, _NEVER, np.int64)
    least_stuck = np.full(totals.shape, _NEVER, np.int64)
    for step in range(int((highest - lowest).max(initial=0)) + 1):
        level = highest - step
        moves, stuck = _moves_at(counts, immobile, open_, level, max_skew)
        allowed = level >= lowest
        better = allowed & ((stuck < least_stuck) | ((stuck == least_stuck) & (moves < best)))
        best = np.where(better, moves, best)
        least_stuck = np.where(better, stuck, least_stuck)
    return best


def _moves_at(
    counts: Counts, immobile: Counts, open_: NDArray[np.bool_], level: Ints, max_skew: int
) -> tuple[Ints, Ints]:
    """Return (moves, pods that no move brings down) for one floor level per row."""
    floor = level[..., None]
    ceiling = floor + max_skew
    excess = np.minimum(np.maximum(0, counts - ceiling), counts - immobile).sum(axis=-1)
    deficit = (np.maximum(0, floor - counts) * open_).sum(axis=-1)
    over = np.maximum(0, immobile - ceiling)
    stuck = over.sum(axis=-1)
    # Where immobile pods keep domains above the ceiling, the others may be too few to reach the floor.
    free = over == 0
    reachable = np.where(free, counts, counts - immobile).sum(axis=-1)
    unreachable = np.maximum(0, (free * floor).sum(axis=-1) - reachable)
    return np.maximum(excess, np.maximum(0, deficit - unreachable)), stuck


def small_spread_minimum(
    counts: Sequence[int],
    immobile: Sequence[int],
    open_: Sequence[bool],
    max_skew: int,
    *,
    too_few: bool = False,
) -> int:
    """Return what :func:`spread_minimum` does for one row of few domains, in plain integers.

    For the three zones of most clusters that takes a tenth of the time of so many calls on small arrays.
    """
    domains = len(counts)
    if domains == 0:
        return 0
    total = sum(counts)
    highest = 0 if too_few else total // domains
    lowest = 0 if too_few else max(0, -((domains * max_skew - total) // domains))
    best, least_stuck = int(_NEVER), int(_NEVER)
    columns = list(zip(counts, immobile, open_, strict=True))
    for floor in range(highest, lowest - 1, -1):
        ceiling = floor + max_skew
        excess = deficit = stuck = reachable = free = 0
        for count, fixed, is_open in columns:
            excess += min(max(0, count - ceiling), count - fixed)
            if is_open:
                deficit += max(0, floor - count)
            if fixed > ceiling:
                stuck += fixed - ceiling
                reachable += count - fixed
            else:
                free += floor
                reachable += count
        moves = max(excess, 0, deficit - max(0, free - reachable))
        if stuck < least_stuck or (stuck == least_stuck and moves < best):
            best, least_stuck = moves, stuck
    return best


def conflict_minimum(both: Counts, owners: Counts, matched: Counts) -> Ints:
    """Return the fewest pods (...,) to take away so that an anti-affinity term holds in each domain.

    ``both`` counts pods that own the term and match it (they repel each other), ``owners`` those that
    only own it, ``matched`` those that only match. What may stay together in a domain is either one pod
    of ``both``, or all of ``owners``, or all of ``matched``: the largest stays.
    """
    stays = np.maximum(np.minimum(both, 1), np.maximum(owners, matched))
    return (both + owners + matched - stays).sum(axis=-1)
