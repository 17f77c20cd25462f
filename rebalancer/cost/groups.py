"""Groups: one rule of one workload over the domains of one topology key.

``spread_group`` requires equal counts per domain. In ``separable_groups``, a cap limits the count per domain, and a
conflict separates pods that repel each other. A strategy defines groups; ``rebalancer.cost.domain_term``
combines them in a term.

The closed forms of their potentials, the minimum number of remaining moves, are exact if capacity, affinity and volumes
do not bind. A useful move lowers the potential by exactly one, so a search meets no plateaus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rebalancer.core.rules import PodMove, Rule, read, write_changes, write_gains
from rebalancer.core.spread import FloorSums
from rebalancer.core.tallies import ClassSet, DomainMap, Tally
from rebalancer.core.views import view_of
from rebalancer.cost.view import View
from rebalancer.snapshot.columns import Bools, Floats, Int32s, Ints, Same


@dataclass(frozen=True, eq=False)
class Domains:
    """The domains of a topology key among the eligible nodes. Each is equal to itself alone."""

    of_node: Int32s
    """(N,) domain of each node, -1 where it has none or does not count."""
    names: Sequence[str]
    """Label value of each domain."""

    @cached_property
    def lowered(self) -> DomainMap:
        """The domains as the core reads them."""
        return DomainMap(view_of(np.ascontiguousarray(self.of_node)), len(self.names))

    @staticmethod
    def of(view: View, key: str, eligible: Bools) -> Domains:
        """Return the domains of ``key`` among ``eligible`` nodes (N,); equal arguments return the same object."""
        eligible = eligible if not eligible.flags.writeable else view.shared(eligible)
        return view.once((key, Same(eligible)), lambda: Domains._of(view, key, eligible))

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
        names = view.snapshot.nodes.names
        return view.once(
            "nodes as domains", lambda: Domains(np.arange(len(names), dtype=np.int32), names)
        )

    def sum(self, per_node: NDArray[np.int32]) -> Ints:
        """Return the sums per domain (D,) of a count per node (N,)."""
        inside = self.of_node >= 0
        return np.bincount(
            self.of_node[inside], per_node[inside], minlength=len(self.names)
        ).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Room:
    """Room for the numbers of one rule at a time, which all rules over a state share."""

    tally: Tally
    sums: tuple[FloorSums, FloorSums]

    @staticmethod
    def of(view: View) -> Room:
        """Return the room for rules over the view's state; always the same object."""
        nodes = len(view.snapshot.nodes)
        return view.once("room for rules", lambda: Room(Tally(nodes), (FloorSums(), FloorSums())))


def set_of(classes: Int32s) -> ClassSet:
    """Return classes as the core reads them."""
    some = np.unique(classes).astype(np.int32)
    if not len(some):
        return ClassSet(0, 0, None)
    first, last = int(some[0]), int(some[-1])
    follow = last - first + 1 == len(some)
    return ClassSet(first, len(some), None if follow else view_of(some))


def class_set(view: View, classes: Int32s) -> ClassSet:
    """Return classes as the core reads them; equal ones are the same object."""
    return view.once(("classes", classes.tobytes()), lambda: set_of(classes))


_ANSWERS = frozenset(("potential", "gains", "gains_at", "delta"))


class RuledGroup:
    """A group whose numbers the core computes."""

    answers = False
    """Whether a derived class computes its rule's values itself."""
    _view: View
    _rule: Rule | None = None

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        cls.answers = cls.answers or not _ANSWERS.isdisjoint(vars(cls))

    # No cached_property: it would give each of thousands of groups a dictionary of its own.
    @property
    def rule(self) -> Rule:
        """The rule in the core's form. It is made at the first use, because most groups are trivially satisfied."""
        made = self._rule
        if made is None:
            made = self._rule = self._lower()
        return made

    def _lower(self) -> Rule:
        raise NotImplementedError

    def potential(self) -> float:
        """Return the moves that are still needed."""
        return read(self.rule)

    def gains(self) -> Floats:
        """Return per node (N,) the maximum gain of moving one pod off the node."""
        return self.gains_at(np.arange(len(self._view.snapshot.nodes), dtype=np.int32))

    def gains_at(self, nodes: Int32s) -> Floats:
        """Return the maximum gain (K,) of moving one pod off each of ``nodes``."""
        gains = np.zeros(len(nodes))
        write_gains(self.rule, -1, view_of(np.ascontiguousarray(nodes, np.int32)), view_of(gains))
        return gains

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:
        """Return the change of the potential (K,) if a pod moves from ``node`` to each destination."""
        return changes_of(self.rule, cls, node, replacement, destinations)


def changes_of(
    rule: Rule, cls: int, node: int, replacement: int, destinations: Int32s, pod: int = -1
) -> Floats:
    """Return the change of a rule's value (K,) if a pod moves from ``node`` to each destination.

    ``pod``: for rules that judge single pods; -1: any pod of the class.
    """
    changes = np.zeros(len(destinations))
    nodes = view_of(np.ascontiguousarray(destinations, np.int32))
    write_changes(rule, PodMove(pod, cls, replacement, node, nodes), view_of(changes))
    return changes
