"""The result of a prediction: the nodes where a pod may land, the most probable first."""

from __future__ import annotations

from rebalancer.core.numbers import truncate
from rebalancer.core.views import ints, nodes_of_pods, reals
from rebalancer.core.windows import Ring

# Less than this is a rounding error, not a chance.
_NO_CHANCE = 1e-12


class LandingTable:
    """K landings; all arrays have room for N nodes, and more for sorting."""

    def __init__(self, nodes: int) -> None:
        self.count = 0
        """K."""
        self.nodes = nodes_of_pods(nodes)
        """(K,) the nodes, most probable first; equally probable ones in the order of nodes."""
        self.probability = reals(nodes)
        """(K,) of each; they sum up to 1."""
        self.chance = reals(nodes)
        """(N,) of each node, up to a constant factor."""
        self.order = ints(nodes)
        """(K,) the landings as they are sorted, and room to merge them."""
        self.merged = ints(nodes)
        self.rounded = ints(nodes)
        """(N,) the probability of each node in steps of ``_NO_CHANCE``."""


def collect(landings: LandingTable, ring: Ring) -> None:
    """Collect the landings that the windows of the ring have come to."""
    size = len(landings.chance)
    for node in range(size):
        landings.chance[node] = 0.0
    total = 0.0
    for place in range(ring.count):
        landings.chance[ring.nodes[place]] = ring.chance[place]
        total += ring.chance[place]
    count = 0
    kept = 0.0
    for node in range(size):
        chance = landings.chance[node] / total if total > 0.0 else 0.0
        if chance > _NO_CHANCE:
            landings.chance[node] = chance
            landings.rounded[node] = truncate(chance / _NO_CHANCE + 0.5)
            landings.order[count] = node
            kept += chance
            count += 1
    landings.count = count
    if ring.windows > 1:
        _sort(landings)
    for place in range(count):
        landings.nodes[place] = landings.order[place]
        landings.probability[place] = (
            landings.chance[landings.order[place]] / kept if ring.windows > 1 else 1.0 / count
        )


def _sort(landings: LandingTable) -> None:
    """Sort the landings by their probability, largest first; equal ones in the order of their nodes (merge sort)."""
    width = 1
    while width < landings.count:
        first = 0
        while first < landings.count:
            _merge(landings, first, min(first + width, landings.count), width)
            first += 2 * width
        for place in range(landings.count):
            landings.order[place] = landings.merged[place]
        width *= 2


def _merge(landings: LandingTable, first: int, middle: int, width: int) -> None:
    """Merge two sorted runs of landings: from ``first`` to ``middle``, and the ``width`` after that."""
    order, rounded = landings.order, landings.rounded
    left, right, end = first, middle, min(middle + width, landings.count)
    for place in range(first, end):
        takes_left = right >= end or (
            left < middle and rounded[order[left]] >= rounded[order[right]]
        )
        if takes_left:
            landings.merged[place] = order[left]
            left += 1
        else:
            landings.merged[place] = order[right]
            right += 1
