"""A term made of groups, the base of every strategy that counts pods per domain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from rebalancer.core.rules import Rule
from rebalancer.core.tallies import find_extremes
from rebalancer.cost.groups import Room, class_set
from rebalancer.cost.near_group import NearGroup
from rebalancer.cost.term import (
    Bound,
    Candidates,
    Entry,
    Group,
    Term,
    Unmet,
    gains_at,
    rule_of,
)
from rebalancer.cost.view import View
from rebalancer.snapshot.columns import Bools, Floats, Int32s, unite


def satisfied(view: View, groups: Sequence[Any]) -> Bools:
    """Return which groups (G,) certainly have a potential of 0 now.

    False proves nothing. Only groups with a method ``satisfied`` are judged, by the least and the most pods in one of
    their domains. So thousands of groups can be judged without creating a rule for each.
    """
    holds = np.zeros(len(groups), bool)
    tally, pods = Room.of(view).tally, view.state.living
    for index, group in enumerate(groups):
        if hasattr(group, "satisfied"):
            find_extremes(tally, class_set(view, group.members), pods, group.domains.lowered)
            holds[index] = group.satisfied(tally.least, tally.most)
    return holds


class DomainTerm(Term):
    """The weighted sum of the potentials of ``groups``.

    Groups without a violation may be omitted from ``groups``. When a move first concerns a class, ``later`` returns its
    omitted group (None: there is none), so that every violation by a move is noticed.
    """

    Near: TypeAlias = NearGroup
    """Groups of pods with affinity to other pods."""

    def __init__(
        self,
        view: View,
        entry: Entry,
        groups: Sequence[Group],
        later: Callable[[int], Group | None] | None = None,
    ) -> None:
        self.entry = entry
        self._view, self._made_later = view, later
        # What is about unselected pods only is not this strategy's business.
        self._groups = [group for group in groups if view.any_selected(group.movers)]
        self._rules: dict[int, Rule] = {}
        """Index of a group -> its rule, of those that a move has concerned."""
        self._of_class: dict[int, list[int]] = {}
        for index, group in enumerate(self._groups):
            for cls in group.members.tolist():
                self._of_class.setdefault(cls, []).append(index)

    def _later(self, cls: int) -> Group | None:
        """Return the omitted group of a class when a move first concerns the class; None if there is none."""
        group = self._made_later(cls) if self._made_later is not None else None
        return group if group is not None and self._view.any_selected(group.movers) else None

    def _of(self, cls: int) -> Sequence[int]:
        """Return the indices of the groups of which ``cls`` is a member."""
        indices = self._of_class.get(cls)
        if indices is None and self._made_later is not None:
            indices = self._of_class[cls] = []
            if (group := self._later(cls)) is not None:
                self._add(group)
        return indices or ()

    def _add(self, group: Group) -> None:
        for cls in group.members.tolist():
            self._of_class.setdefault(cls, []).append(len(self._groups))
        self._groups.append(group)

    def potential(self) -> float:
        """Return the weighted sum of the groups' potentials."""
        values = self._potentials()
        return float(sum(g.weight * p for g, p in zip(self._groups, values, strict=True) if p))

    def _potentials(self) -> Sequence[float]:
        eased = satisfied(self._view, self._groups).tolist()
        return [
            0.0 if ease else group.potential()
            for group, ease in zip(self._groups, eased, strict=True)
        ]

    def _indices(self, classes: Iterable[int]) -> list[int]:
        """Return the indices, ascending, of the groups with a member among ``classes``."""
        parts = [of_class for cls in classes if (of_class := self._of(cls))]
        if len(parts) == 1:
            return list(parts[0])
        return sorted({index for part in parts for index in part})

    def violated(self) -> int:
        """Return the number of groups whose potential is not 0."""
        return sum(value > 0 for value in self._potentials())

    def unmet(self) -> Sequence[Unmet]:
        """Return the violated groups as rules with names."""
        values = self._potentials()
        return [
            Unmet(
                group.label,
                group.movers,
                self._nodes_to_leave(group),
                amount=group.weight * value,
                lack=group.lack() if hasattr(group, "lack") else "",
            )
            for group, value in zip(self._groups, values, strict=True)
            if value > 0
        ]

    def _nodes_to_leave(self, group: Group) -> Int32s:
        """Return the nodes that a mover of ``group`` should leave."""
        nodes = unite(self._view.state.home_nodes(cls) for cls in group.movers.tolist())
        return nodes[gains_at(group, nodes) > 0] if len(nodes) else nodes

    def unsatisfiable(self) -> Sequence[str]:
        """Return the violations that no placement can fix, as sentences, for all groups."""
        eased = satisfied(self._view, self._groups)
        asked = (self._groups[index] for index in np.flatnonzero(~eased).tolist())
        sentences = [f"{g.label}: {why}" for g in asked if (why := g.unsatisfiable()) is not None]
        # A rule may hold only because of what is missing.
        held = ((index, g) for index, g in self._lacking if eased[index])
        return [*sentences, *(f"{g.label}: {g.lack()}" for _, g in held)]

    @cached_property
    def _lacking(self) -> list[tuple[int, Any]]:
        """The groups, by index, that lack something in the cluster."""
        return [
            (index, group)
            for index, group in enumerate(self._groups)
            if getattr(group, "without_nodes", ())
        ]

    def groups_of(self, classes: Int32s) -> Sequence[Group]:
        """Return the groups of ``classes``, including omitted ones. The term itself does not change."""
        indices = {index for cls in classes.tolist() for index in self._of_class.get(cls, ())}
        groups = [self._groups[index] for index in sorted(indices)]
        covered: set[int] = set()
        for cls in classes.tolist():
            if self._made_later is None or cls in self._of_class or cls in covered:
                continue
            if (group := self._later(cls)) is not None:
                covered.update(group.members.tolist())
                groups.append(group)
        return groups

    def candidates(self, classes: Int32s | None = None) -> Candidates:
        """Return the (class, node) pairs whose move may fix something in a group; only of ``classes`` if given."""
        if not self._groups and self._made_later is None:
            return Candidates.none()
        wanted = None if classes is None else set(classes.tolist())
        asked = None if classes is None else self._indices(classes.tolist())
        if asked is not None and not asked:
            return Candidates.none()
        parts: list[Candidates] = []
        for index in self._find_violated() if asked is None else asked:
            group = self._groups[index]
            # Where nothing is left to fix, nothing can be gained.
            if group.potential() <= 0:
                continue
            movers = [cls for cls in group.movers.tolist() if wanted is None or cls in wanted]
            if movers:
                homes = [self._view.state.home_nodes(cls) for cls in movers]
                nodes = np.concatenate(homes)
                of_nodes = np.repeat(np.array(movers, np.int32), list(map(len, homes)))
                parts.append(Candidates(of_nodes, nodes, gains_at(group, nodes) * group.weight))
        return Candidates.all_of(parts)

    def _find_violated(self) -> Sequence[int]:
        """Return the indices of the groups that are not satisfied for certain."""
        violated: list[int] = np.flatnonzero(~satisfied(self._view, self._groups)).tolist()
        return violated

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:
        """Return the change (K,) of the weighted sum, see :meth:`Term.delta`."""
        total = np.zeros(len(destinations))
        for group in (self._groups[index] for index in self._indices({cls, replacement})):
            total += group.weight * group.delta(cls, node, replacement, destinations)
        return total

    def rules_of_move(self, cls: int, replacement: int) -> Sequence[tuple[Rule, float]]:
        """Return the rules of the groups that a move may change, with their weights."""
        of_both = cls != replacement
        indices = self._indices({cls, replacement}) if of_both else self._of(cls)
        return [(self._rule_of(index), self._groups[index].weight) for index in indices]

    def _rule_of(self, index: int) -> Rule:
        rule = self._rules.get(index)
        if rule is None:
            rule = self._rules[index] = rule_of(self._groups[index])
        return rule

    def value_for(self, classes: Iterable[int]) -> float:
        """Return the part of the potential that the groups of these classes add."""
        groups = [self._groups[index] for index in self._indices(classes)]
        return float(sum(group.weight * group.potential() for group in groups))

    def concerns(self, cls: int, replacement: int) -> bool:
        """Return whether a move may change the potential; if not, every :meth:`delta` is 0."""
        return bool(self._of(cls) or self._of(replacement))

    def related(self, cls: int) -> Int32s:
        """Return the classes that share a group with ``cls``."""
        members = unite(self._groups[index].members for index in self._of(cls))
        return members if len(members) else np.array([cls], np.int32)

    def bounds(self) -> Iterable[Bound]:
        """Yield the bound of each group. Groups without a movable pod are omitted: no plan changes them."""
        for group, potential in zip(self._groups, self._potentials(), strict=True):
            if potential > 0 and self._view.any_movable(group.members):
                classes = getattr(group, "fixed_by", group.movers)
                yield Bound(group.minimum(), classes, group.weight)

    def describe(self, cls: int, node: int) -> str:
        """Describe the group of the class with the largest gain on the node."""
        best, text = -1.0, ""
        for index in self._of_class.get(cls, ()):
            group = self._groups[index]
            gain = 0.0
            if group.potential() > 0:
                gain = group.weight * float(gains_at(group, np.array([node], np.int32))[0])
            if gain > best:
                best, text = gain, group.describe(node)
        return text
