"""How few moves could do: a lower bound that never exceeds the true optimum."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rebalancer.cost.term import Entry, Term
from rebalancer.snapshot.columns import Int32s

Bound = tuple[float, Int32s]


def lower_bound(bounds: Iterable[Bound], residual: float, least_weight: float = 1.0) -> int:
    """Return how many moves it takes, at least, to reach a state as good as one known.

    ``bounds`` are (fewest moves, classes) of groups: only pods of those classes mend the group, one move
    by at most one. Groups that share no class need different moves, so their minima add up; of groups
    that share one only the larger counts. ``residual`` is the cost that is left in the known state
    (hard plus soft, weighted): a state as good may leave that much unmended, in whichever groups.
    """
    taken: set[int] = set()
    total = 0.0
    ordered = sorted(
        ((minimum, classes.tolist()) for minimum, classes in bounds),
        key=lambda item: (-item[0], item[1]),
    )
    for minimum, classes in ordered:
        if taken.isdisjoint(classes):
            taken.update(classes)
            total += minimum
    return max(0, math.ceil(total - residual / least_weight - 1e-9))


def bounds_of(terms: Sequence[Term]) -> list[Bound]:
    """Return the bounds of all hard and soft terms in their present state."""
    return [bound for term in terms if term.entry is not Entry.IMBALANCE for bound in term.bounds()]
