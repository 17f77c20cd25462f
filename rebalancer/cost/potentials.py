"""Closed forms for the exact minimum number of remaining moves.

They are exact if capacity, affinity and volumes do not bind. A useful move lowers the potential by exactly one, so a
search meets no plateaus.
"""

from __future__ import annotations

from collections.abc import Mapping

Kind = tuple[int, int, bool]
"""A kind of domain: its pods, how many of them cannot be moved (what is above its pods is not looked at), whether it is open."""
_NEVER = 2**40


def spread_minimum(kinds: Mapping[Kind, int], max_skew: int, *, too_few: bool = False) -> int:
    """Return the minimum number of moves after which the domains' counts differ by at most ``max_skew``.

    ``kinds``: kind of domain -> number of such domains. For a floor level L with D * L <= n <= D * (L + s), ``sum
    max(0, c - L - s)`` pods must leave and ``sum max(0, L - c)`` must enter; each move can do both, so the larger
    counts; the best L wins. With fewer domains than ``minDomains`` (``too_few``) the scheduler takes the global
    minimum as 0, which leaves L = 0 (KEP-3022).

    Immobile pods cannot leave, and no pod can enter a domain that is not open. If that makes the constraint
    unsatisfiable, the result is the number of moves that bring the counts as near as possible.
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
    """Return (moves, excess pods that no move can remove) for one floor level."""
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
    """Return the minimum number of pods to remove from a domain so that an anti-affinity term holds.

    ``both``: the number of pods that declare the term and match it (they repel each other); ``owners``: pods that
    only declare it; ``matched``: pods that only match it. A domain can keep one pod of ``both``, or all of
    ``owners``, or all of ``matched``: the largest set stays.
    """
    return both + owners + matched - max(min(both, 1), owners, matched)
