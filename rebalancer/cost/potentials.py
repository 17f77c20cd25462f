"""Exact remaining minimum moves, where a closed form exists.

The forms are exact when capacity, affinity and volumes do not bind; a useful move lowers them by exactly
one, so a search over them meets no plateaus.
"""

from __future__ import annotations

from collections.abc import Mapping

Kind = tuple[int, int, bool]
"""A kind of domain: its pods, how many of them cannot be moved (what is above its pods is not looked at), whether it is open."""
_NEVER = 2**40


def spread_minimum(kinds: Mapping[Kind, int], max_skew: int, *, too_few: bool = False) -> int:
    """Return the fewest moves that bring the domains' counts within ``max_skew``.

    ``kinds`` says how many domains there are of each kind. For a floor level L with D * L <= n <= D * (L + s),
    ``sum max(0, c - L - s)`` pods must leave and ``sum max(0, L - c)`` must enter; each move can do both, so the
    larger counts; the best L wins. With fewer domains than ``minDomains`` (``too_few``) the scheduler takes the
    global minimum as 0, which leaves L = 0 (KEP-3022).

    Immobile pods cannot leave, and nothing can enter a domain that is not open. Where that makes the
    constraint impossible, what is returned is the moves that still bring it as near as it gets.
    """
    domains = sum(kinds.values())
    if domains == 0:
        return 0
    total = sum(kind[0] * times for kind, times in kinds.items())
    highest = 0 if too_few else total // domains
    lowest = 0 if too_few else max(0, -((domains * max_skew - total) // domains))
    best, least_stuck = _NEVER, _NEVER
    for floor in range(highest, lowest - 1, -1):
        moves, stuck = _moves_at(kinds, floor, floor + max_skew)
        if stuck < least_stuck or (stuck == least_stuck and moves < best):
            best, least_stuck = moves, stuck
    return best


def _moves_at(kinds: Mapping[Kind, int], floor: int, ceiling: int) -> tuple[int, int]:
    """Return (moves, pods that no move brings down) for one floor level."""
    excess = deficit = stuck = lacking = 0
    for (count, immobile, is_open), times in kinds.items():
        fixed = min(count, immobile)
        if count > ceiling:
            excess += min(count - ceiling, count - fixed) * times
        elif is_open and count < floor:
            deficit += (floor - count) * times
        # Where immobile pods keep domains above the ceiling, the others may be too few to reach the floor.
        if fixed > ceiling:
            stuck += (fixed - ceiling) * times
            lacking -= (count - fixed) * times
        else:
            lacking += (floor - count) * times
    return max(excess, deficit - max(0, lacking)), stuck


def conflict_minimum(both: int, owners: int, matched: int) -> int:
    """Return the fewest pods to take away so that an anti-affinity term holds in a domain.

    ``both`` counts pods that own the term and match it (they repel each other), ``owners`` those that
    only own it, ``matched`` those that only match. What may stay together in a domain is either one pod
    of ``both``, or all of ``owners``, or all of ``matched``: the largest stays.
    """
    return both + owners + matched - max(min(both, 1), owners, matched)
