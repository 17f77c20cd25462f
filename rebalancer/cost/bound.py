"""A lower bound on the number of moves; it never exceeds the true optimum."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rebalancer.cost.term import Bound, Entry, Term

EntryBounds = tuple[Entry, Bound]


def lower_bound(before: Sequence[EntryBounds], after: Sequence[EntryBounds]) -> int:
    """Return the minimum number of moves from the state ``before`` to a state as good as ``after``.

    Groups that share no class need different moves, so their minima add up; of groups that share a class only the
    largest counts. A state as good as ``after`` may leave as many violations as ``after`` does, in any group, so
    these are subtracted (weighted: a group of small weight may remain violated instead of one of large weight). If
    hard violations remain, a better state may fix them at the price of any number of soft ones: then only the hard
    ones count.
    """
    hard_left = any(entry is Entry.HARD and bound.moves > 0 for entry, bound in after)
    counted = [bound for entry, bound in before if entry is Entry.HARD or not hard_left]
    residual = sum(b.moves * b.weight for entry, b in after if entry is Entry.HARD or not hard_left)
    weights = sorted({bound.weight for bound in counted}, reverse=True)
    best = 0.0
    for least in weights:
        heavy = [bound for bound in counted if bound.weight >= least]
        best = max(best, _disjoint_sum(heavy) - residual / least)
    return max(0, math.ceil(best - 1e-9))


def _disjoint_sum(bounds: Sequence[Bound]) -> float:
    """Return the sum of the minima over groups that share no class, largest first, of equal ones that of fewest classes.

    A group of few classes shares them with fewer others, whatever the numbers of the classes are.
    """
    taken: set[int] = set()
    total = 0.0

    def rank(bound: Bound) -> tuple[float, int, list[int]]:
        return -bound.moves, len(bound.classes), bound.classes.tolist()

    for bound in sorted(bounds, key=rank):
        classes = bound.classes.tolist()
        if taken.isdisjoint(classes):
            taken.update(classes)
            total += bound.moves
    return total


def bounds_of(terms: Iterable[tuple[Term, float]]) -> list[EntryBounds]:
    """Return the bounds of all hard and soft terms in their current state; ``terms`` are (term, weight)."""
    return [
        (term.entry, Bound(bound.moves, bound.classes, bound.weight * weight))
        for term, weight in terms
        if term.entry is not Entry.IMBALANCE
        for bound in term.bounds()
    ]
