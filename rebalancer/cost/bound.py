"""How few moves could do: a lower bound that never exceeds the true optimum."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rebalancer.cost.term import Bound, Entry, Term

EntryBounds = tuple[Entry, Bound]


def lower_bound(before: Sequence[EntryBounds], after: Sequence[EntryBounds]) -> int:
    """Return how many moves it takes, at least, to come from one state to another as good as ``after``.

    Groups that share no class need different moves, so their minima add up; of groups that share one only
    the larger counts. A state as good as ``after`` may leave as much unmended as it does, in whichever
    groups, so that is taken off (weighted: a group of little weight may be left for one of much). Where
    hard rules stay broken, a better state may pay for fixing them with any number of soft ones: then only
    the hard ones count.
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
    """Return the sum over groups that share no class, largest first."""
    taken: set[int] = set()
    total = 0.0
    for bound in sorted(bounds, key=lambda bound: (-bound.moves, bound.classes.tolist())):
        classes = bound.classes.tolist()
        if taken.isdisjoint(classes):
            taken.update(classes)
            total += bound.moves
    return total


def bounds_of(terms: Iterable[tuple[Term, float]]) -> list[EntryBounds]:
    """Return the bounds of all hard and soft terms, given with their weights, in their present state."""
    return [
        (term.entry, Bound(bound.moves, bound.classes, bound.weight * weight))
        for term, weight in terms
        if term.entry is not Entry.IMBALANCE
        for bound in term.bounds()
    ]
