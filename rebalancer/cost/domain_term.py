"""A term made of groups: the shape of every strategy that counts pods per domain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from rebalancer.cost.groups import Group
from rebalancer.cost.term import Bound, Candidates, Entry, View
from rebalancer.snapshot.columns import Floats, Int32s


class DomainTerm:
    """The weighted sum of the potentials of ``groups``.

    Groups that are as they should be need not be given: ``later`` makes the one of a class, or None, when
    a move first concerns that class, so that what holds now is not broken unseen.
    """

    def __init__(
        self,
        view: View,
        entry: Entry,
        groups: Sequence[Group],
        later: Callable[[int], Group | None] | None = None,
    ) -> None:
        self.entry = entry
        self._view, self._later = view, later
        self._groups: list[Group] = []
        self._made = -1
        self._values: Sequence[float] = ()
        self._of_class: dict[int, list[int]] = {}
        for group in groups:
            self._add(group)

    def _add(self, group: Group) -> None:
        for cls in group.members.tolist():
            self._of_class.setdefault(cls, []).append(len(self._groups))
        self._groups.append(group)
        self._made = -1

    def _indices(self, cls: int) -> Sequence[int]:
        """Return the groups that ``cls`` is a member of, by their indices."""
        found = self._of_class.get(cls)
        if found is None and self._later is not None:
            self._of_class[cls] = []
            if (group := self._later(cls)) is not None:
                self._add(group)
            found = self._of_class[cls]
        return found or ()

    def potential(self) -> float:
        """See Term."""
        values = self._potentials()
        return float(sum(g.weight * p for g, p in zip(self._groups, values, strict=True)))

    def _potentials(self) -> Sequence[float]:
        """Return the groups' potentials, made once per version of the state."""
        version = self._view.state.version
        if self._made != version:
            self._values = [group.potential() for group in self._groups]
            self._made = version
        return self._values

    def violated(self) -> int:
        """See Term."""
        return sum(value > 0 for value in self._potentials())

    def unsatisfiable(self) -> Sequence[str]:
        """See Term."""
        return [text for group in self._groups if (text := group.unsatisfiable()) is not None]

    def candidates(self, classes: Int32s | None = None) -> Candidates:
        """See Term."""
        wanted = None if classes is None else set(classes.tolist())
        parts: list[Candidates] = []
        for group in self._touching(classes):
            gains: Floats | None = None
            for cls in group.movers.tolist():
                if wanted is not None and cls not in wanted:
                    continue
                gains = group.gains() if gains is None else gains
                nodes = self._view.state.home_nodes(cls)
                nodes = nodes[gains[nodes] > 0]
                if len(nodes):
                    of = np.full(len(nodes), cls, np.int32)
                    parts.append(Candidates(of, nodes, gains[nodes] * group.weight))
        return Candidates.join(parts)

    def _touching(self, classes: Int32s | None) -> Iterable[Group]:
        if classes is None:
            return self._groups
        indices = {index for cls in classes.tolist() for index in self._indices(cls)}
        return (self._groups[index] for index in sorted(indices))

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:
        """See Term."""
        total = np.zeros(len(destinations))
        for group in self._touching(np.unique(np.array([cls, replacement], np.int32))):
            total += group.weight * group.delta(cls, node, replacement, destinations)
        return total

    def related(self, cls: int) -> Int32s:
        """See Term."""
        parts = [self._groups[index].members for index in self._indices(cls)]
        return np.unique(np.concatenate(parts)) if parts else np.array([cls], np.int32)

    def bounds(self) -> Iterable[Bound]:
        """See Term: groups none of whose pods can be moved stay as they are in every plan."""
        for group, potential in zip(self._groups, self._potentials(), strict=True):
            if potential > 0 and self._view.any_movable(group.members):
                yield Bound(group.minimum(), group.movers, group.weight)

    def describe(self, cls: int, node: int) -> str:
        """See Term: the group of the class with the most to gain on the node."""
        best, text = -1.0, ""
        for index in self._of_class.get(cls, ()):
            group = self._groups[index]
            gain = group.weight * float(group.gains()[node])
            if gain > best:
                best, text = gain, group.describe(node)
        return text
