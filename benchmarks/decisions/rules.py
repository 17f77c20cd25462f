"""What workloads ask of their placement, as rules over counts of pods per (workload, node).

Deliberately not the product's own code: this is the ruler by which it is measured. Every rule says how
many pods still have to move until it is kept (its potential), whether they can move or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Kind = Literal[
    "placement",
    "hardSpread",
    "requiredAntiAffinity",
    "softSpread",
    "preferredAntiAffinity",
    "duplicates",
]
KINDS: tuple[Kind, ...] = (
    "placement",
    "hardSpread",
    "requiredAntiAffinity",
    "softSpread",
    "preferredAntiAffinity",
    "duplicates",
)
HARD: frozenset[Kind] = frozenset({"placement", "hardSpread", "requiredAntiAffinity"})


@dataclass(frozen=True)
class Even:
    """Counts over the domains differ by at most ``skew`` (topology spread; preferred self-repulsion).

    Pods that would rather not meet their own kind meet least where they are spread most evenly, so their
    rule is this one with skew 1.
    """

    kind: Kind
    label: str
    members: tuple[int, ...]
    """Workloads whose pods are counted."""
    domain_of: Ints
    """(N,) domain of each node, -1 for none."""
    domains: int
    skew: int
    weight: float = 1.0
    min_domains: int = 1

    def potential(self, counts: Ints) -> float:
        """Return the least number of pods to move: the best level L of ``max(leaving, entering)``."""
        of = per_domain(counts, self.members, self.domain_of, self.domains)
        if self.domains == 0:
            return 0.0
        if self.domains < self.min_domains:
            return float(np.maximum(0, of - self.skew).sum())
        top = -(-int(of.sum()) // self.domains)
        return float(
            min(
                max(np.maximum(0, of - level - self.skew).sum(), np.maximum(0, level - of).sum())
                for level in range(top + 1)
            )
        )


@dataclass(frozen=True)
class Cap:
    """At most ``cap`` pods per domain (required self-repulsion; duplicates)."""

    kind: Kind
    label: str
    members: tuple[int, ...]
    domain_of: Ints
    domains: int
    cap: int
    weight: float = 1.0

    def potential(self, counts: Ints) -> float:
        """Return the pods above the cap."""
        of = per_domain(counts, self.members, self.domain_of, self.domains)
        return float(np.maximum(0, of - self.cap).sum())


@dataclass(frozen=True)
class Apart:
    """Two sets of workloads do not meet in a domain; where they do, the smaller side has to go."""

    kind: Kind
    label: str
    members: tuple[int, ...]
    others: tuple[int, ...]
    domain_of: Ints
    domains: int
    weight: float = 1.0

    def potential(self, counts: Ints) -> float:
        """Return the pods of the smaller side, summed over the domains."""
        mine = per_domain(counts, self.members, self.domain_of, self.domains)
        theirs = per_domain(counts, self.others, self.domain_of, self.domains)
        return float(np.minimum(mine, theirs).sum())


Rule = Even | Cap | Apart


def per_domain(
    counts: Ints, members: tuple[int, ...], domain_of: Ints, domains: int
) -> NDArray[np.int64]:
    """Return the pods (D,) of some workloads in each domain, from counts (W, N)."""
    inside = domain_of >= 0
    total = counts[list(members)].sum(axis=0)[inside]
    summed = np.bincount(domain_of[inside], weights=total, minlength=domains)
    return np.rint(summed).astype(np.int64)
