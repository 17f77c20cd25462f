"""Groups: one rule of one workload over the domains of one topology key.

``spread_group`` asks for equal counts per domain. In ``separable_groups``, a cap limits the count per domain, and a
conflict separates pods that repel each other. A strategy defines groups; ``rebalancer.cost.domain_term`` makes a
term of them.

The closed forms of their potentials, the minimum number of remaining moves, are exact if capacity, affinity and volumes
do not bind. A useful move lowers the potential by exactly one, so a search meets no plateaus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rebalancer.cost.term import Group
from rebalancer.cost.view import View
from rebalancer.snapshot.columns import Bools, Floats, Int32s, Ints

_Held = TypeVar("_Held", bound=Hashable)


@dataclass(frozen=True)
class Domains:
    """The domains of a topology key among the eligible nodes."""

    of_node: Int32s
    """(N,) domain of each node, -1 where it has none or does not count."""
    names: Sequence[str]
    """Label value of each domain."""

    @staticmethod
    def of(view: View, key: str, eligible: Bools) -> Domains:
        """Return the domains of ``key`` among ``eligible`` nodes (N,); equal arguments return the same object."""
        eligible = eligible if not eligible.flags.writeable else view.shared(eligible)
        made = view.made.get(identity := (key, id(eligible)))
        if not isinstance(made, tuple):
            # The array is kept, too: its identity is the name.
            made = view.made[identity] = Domains._of(view, key, eligible), eligible
        domains: Domains = made[0]
        return domains

    @staticmethod
    def _of(view: View, key: str, eligible: Bools) -> Domains:
        labels = view.snapshot.nodes.labels
        column = np.where(eligible, labels.column(key), -1)
        present = np.unique(column[column >= 0])
        of_node = np.full(len(column), -1, np.int32)
        inside = column >= 0
        of_node[inside] = np.searchsorted(present, column[inside])
        values = labels.values(key)
        return Domains(of_node, tuple(values[value] for value in present.tolist()))

    @staticmethod
    def nodes(view: View) -> Domains:
        """Return domains of one node each; always the same object."""
        made = view.made.get("nodes as domains")
        if not isinstance(made, Domains):
            names = view.snapshot.nodes.names
            made = Domains(np.arange(len(names), dtype=np.int32), names)
            view.made["nodes as domains"] = made
        return made

    def count(self, view: View, classes: Int32s) -> Ints:
        """Return the current number of pods of ``classes`` in each domain (D,)."""
        return view.state.counts_by(classes, self.of_node, len(self.names))

    def occupied(self, view: View, classes: Int32s) -> tuple[Ints, Ints]:
        """Return the domains (K,), ascending, that hold pods of ``classes`` now, and how many each (K,)."""
        counts = self.count(view, classes)
        at = counts.nonzero()[0]
        return at, counts[at]

    def held(self, view: View, classes: Int32s) -> dict[int, int]:
        """Return domain -> current number of pods of ``classes``, for the domains that hold any."""
        held = Counter(self.of_node[view.state.nodes_of(classes)].tolist())
        held.pop(-1, None)
        return held

    def sum(self, per_node: NDArray[np.int32]) -> Ints:
        """Return the sums per domain (D,) of a count per node (N,)."""
        inside = self.of_node >= 0
        return np.bincount(
            self.of_node[inside], per_node[inside], minlength=len(self.names)
        ).astype(np.int64)


def fill(values: Floats, held: Mapping[int, _Held], value: Callable[[_Held], float]) -> Floats:
    """Write ``value`` of each domain's content ``held`` into ``values`` (D + 1,), and return ``values``.

    ``value`` is called once per distinct content: thousands of nodes have only a few.
    """
    if held:
        of_kind = {kind: value(kind) for kind in set(held.values())}
        at = np.fromiter(held, np.intp, len(held))
        values[at] = np.fromiter(map(of_kind.__getitem__, held.values()), float, len(held))
    return values


def gains_at(group: Group, nodes: Int32s) -> Floats:
    """Return the maximum gain (K,) of moving one mover of ``group`` off each of the nodes."""
    of_nodes = getattr(group, "gains_at", None)
    gains: Floats = of_nodes(nodes) if of_nodes is not None else group.gains()[nodes]
    return gains


class Counted(Protocol):
    """A group that can prove from the extremes of its counts that no move is needed.

    Thousands of such groups are tested at once, and their counts are computed together.
    """

    members: Int32s
    domains: Domains

    def satisfied(self, least: int, most: int) -> bool:
        """Return whether counts per domain between ``least`` and ``most`` prove a potential of 0.

        ``False`` proves nothing.
        """


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
    """Return, for one floor level, how many moves are needed, and how many excess pods no move can remove."""
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


def conflict_minimum(both: Ints, owners: Ints, matched: Ints) -> Ints:
    """Return the minimum number of pods to remove from domains (K,) so that an anti-affinity term holds.

    ``both``: the number of pods that declare the term and match it (they repel each other); ``owners``: pods that
    only declare it; ``matched``: pods that only match it. A domain can keep one pod of ``both``, or all of
    ``owners``, or all of ``matched``: the largest set stays.
    """
    largest = np.maximum(np.maximum(np.minimum(both, 1), owners), matched)
    left: Ints = both + owners + matched - largest
    return left
