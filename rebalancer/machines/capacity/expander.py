"""Choose the group to scale up among several: the expander of Cluster Autoscaler ("What are Expanders?" in its FAQ)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rebalancer.machines.capacity.packing import Packed
from rebalancer.policy.cluster import CapacitySettings, Expander

Option = tuple[str, Packed]
"""A group, and what it would add."""


def choose(options: Sequence[Option], settings: CapacitySettings) -> Option | None:
    """Return the option that the expander prefers, the first by name among equals; None if there is no option."""

    def waste(option: Option) -> tuple[float, int, str]:
        name, packed = option
        return round(packed.waste, 9), -len(packed.pods), name

    match settings.expander:
        case Expander.LEAST_WASTE:
            return min(options, key=waste, default=None)
        case Expander.MOST_PODS:
            return min(options, key=lambda one: (-len(one[1].pods), *waste(one)), default=None)
        case Expander.PRIORITY:
            ranked = [(rank, one) for one in options if (rank := priority(one[0], settings)) >= 0]
            best = min(ranked, key=lambda pair: (pair[0], *waste(pair[1])), default=None)
            return None if best is None else best[1]


def priority(group: str, settings: CapacitySettings) -> int:
    """Return the index of the first pattern that matches a group's name; -1 if none does."""
    matching = (i for i, pattern in enumerate(settings.priorities) if re.search(pattern, group))
    return next(matching, -1)
