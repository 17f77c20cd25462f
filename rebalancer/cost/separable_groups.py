"""Groups whose potential is a sum over domains: caps, conflicts, attractions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from rebalancer.core.counts import PodNodes
from rebalancer.core.rules import (
    AttractionRule,
    CapRule,
    ConflictRule,
    SeparableRule,
    cover_at,
    read,
)
from rebalancer.core.tallies import ClassSet, DomainMap, Tally
from rebalancer.cost.groups import Domains, Room, RuledGroup, class_set
from rebalancer.cost.view import View
from rebalancer.snapshot.columns import Int32s, Ints

_NO_CLASSES = np.zeros(0, np.int32)
# So many domains are named.
_SHOWN = 6

Column = tuple[int, ...]
"""The number of pods of each role in one domain; domains with equal numbers share one column."""


class _SeparableGroup(RuledGroup):
    """A group whose potential is a sum over domains, so that a move changes two domains only.

    An empty domain contributes 0.
    """

    label: str
    weight: float
    members: Int32s
    movers: Int32s

    def __init__(self, view: View, domains: Domains, roles: Sequence[Int32s]) -> None:
        """``roles``: disjoint sets of classes. A domain's potential is a function of their counts."""
        self._view, self.domains, self._roles = view, domains, roles

    def _given(self) -> tuple[ClassSet, list[ClassSet], PodNodes, DomainMap, Tally]:
        """Return what all rules of this kind are made of."""
        roles = [class_set(self._view, of) for of in self._roles]
        movers = roles[0] if self.movers is self._roles[0] else class_set(self._view, self.movers)
        tally = Room.of(self._view).tally
        return movers, roles, self._view.state.living, self.domains.lowered, tally

    def _contents(self) -> tuple[Ints, Ints]:
        """Return the domains (K,), ascending, with pods of members, and the number of each role (R, K)."""
        read(self.rule)
        tally = Room.of(self._view).tally
        at = np.sort(np.asarray(tally.touched)[: tally.used])
        counts = np.asarray(tally.counts).reshape(-1, 4)[at].T
        return at, counts[: len(self._roles)].copy()

    def _column(self, domain: int) -> Column:
        """Return the numbers of pods in a domain."""
        at, counts = self._contents()
        here = counts[:, at == domain]
        return tuple(here[:, 0].tolist()) if here.size else (0,) * len(counts)

    def _show(self, words: Callable[[Column], str], nothing: str, *, crowded: bool = False) -> str:
        """Return ``words`` for the contents of up to six domains, those with most to fix first.

        ``crowded``: only domains with something to fix. ``nothing`` is returned if there are none.
        """
        (at, counts), names = self._contents(), self.domains.names
        rule = cast(SeparableRule, self.rule)
        cover = np.array([cover_at(rule, domain) for domain in at.tolist()], np.int64)
        order = np.lexsort((at, -counts.sum(axis=0), -cover))
        order = order[cover[order] > 0] if crowded else order
        columns = counts.T.tolist()
        shown = [f"{names[at[place]]} {words(tuple(columns[place]))}" for place in order[:_SHOWN]]
        more = f" and {len(order) - _SHOWN} more" if len(order) > _SHOWN else ""
        return f"{', '.join(shown)}{more}" if shown else nothing

    def minimum(self) -> float:
        """Return a lower bound on the number of moves that fix the group."""
        return self.potential()


class CapGroup(_SeparableGroup):
    """A limit of ``cap`` pods per domain."""

    def __init__(
        self,
        view: View,
        *,
        label: str,
        domains: Domains,
        counted: Int32s,
        cap: int,
        weight: float = 1.0,
    ) -> None:
        self.label, self.weight, self.cap = label, weight, cap
        self.members = self.movers = counted
        super().__init__(view, domains, [counted])

    def _lower(self) -> CapRule:
        return CapRule(*self._given(), self.cap)

    def satisfied(self, least: int, most: int) -> bool:  # noqa: ARG002  # a cap has no lower end
        """Return whether no domain exceeds the cap. ``most``: the most pods in a domain; ``least`` is not used."""
        return most <= self.cap

    def unsatisfiable(self) -> str | None:
        """Return None: the caller chooses a cap that is satisfiable."""
        return None

    def describe(self, node: int) -> str:
        """Return the number of pods in the node's domain and the cap, in a phrase."""
        here = self._view.state.count_on(self.members, node)
        return f"{self.label}: {here} on one node, at most {self.cap} needed"

    def requirement(self) -> str:
        """Return the cap, in a few words."""
        return f"at most {self.cap} on one node"

    def standing(self) -> str:
        """Return the number of pods in the fullest domains."""
        return self._show(lambda counts: f"{counts[0]}", "none anywhere")


class ConflictGroup(_SeparableGroup):
    """Separates the pods that declare an anti-affinity term from the pods that it matches.

    In each domain the smaller set leaves. Pods of the ``fixed`` classes, which the term matches, never leave.
    """

    def __init__(
        self,
        view: View,
        *,
        label: str,
        domains: Domains,
        owners: Int32s,
        matched: Int32s,
        fixed: Int32s = _NO_CLASSES,
        weight: float = 1.0,
    ) -> None:
        """``owners`` declare the term, ``matched`` are matched by it.

        ``fixed``: classes of ``matched`` that cannot be moved; none of them is in ``owners``.
        """
        self.label, self.weight = label, weight
        if np.array_equal(owners, matched):
            # A workload apart from itself, as most are: no need for set operations.
            self.members = self.movers = owners if len(owners) == 1 else np.unique(owners)
            self.fixed_by = self.movers
            super().__init__(view, domains, [self.members, _NO_CLASSES, _NO_CLASSES, _NO_CLASSES])
            return
        both = np.intersect1d(owners, matched)
        free = np.setdiff1d(matched, fixed)
        roles = [both, np.setdiff1d(owners, both), np.setdiff1d(free, both), np.unique(fixed)]
        self.members = np.union1d(owners, matched).astype(np.int32)
        self.movers = np.union1d(owners, free).astype(np.int32)
        self.fixed_by = self.members
        super().__init__(view, domains, [role.astype(np.int32) for role in roles])

    def satisfied(self, least: int, most: int) -> bool:  # noqa: ARG002  # empty domains are no matter
        """Return whether no domain has more than one pod: a single pod repels no other."""
        return most <= 1

    def _lower(self) -> ConflictRule:
        return ConflictRule(*self._given(), mutual=self._mutual)

    def minimum(self) -> float:
        """Return a lower bound on the moves that fix the group.

        Pods of the ``fixed`` classes may leave for another reason, and then fewer moves are needed.
        """
        if not len(self._roles[3]):
            return self.potential()
        both, owners, matched, fixed = self._contents()[1]
        stay = np.maximum(np.maximum(np.minimum(both, 1), owners), matched + fixed)
        return float((both + owners + matched + fixed - stay).sum())

    @property
    def _mutual(self) -> bool:
        """Whether every pod repels every other pod."""
        return not any(map(len, self._roles[1:]))

    def unsatisfiable(self) -> str | None:
        """Return a phrase if there are more pods that repel each other than domains; else None."""
        domains, pods = len(self.domains.names), int(self._contents()[1][0].sum())
        if not self._mutual or (more := pods - domains) <= 0:
            return None
        return f"{pods} pods, {domains} domains: {more} must share"

    def describe(self, node: int) -> str:
        """Return the pods in the node's domain that repel each other, in a phrase."""
        domain = int(self.domains.of_node[node])
        if domain < 0:
            return self.label
        here = sum(self._column(domain))
        return f"{self.label}: {here} that repel each other in {self.domains.names[domain]}"

    def requirement(self) -> str:
        """Return which pods must be separated, in a few words."""
        return "at most 1 in a domain" if self._mutual else "none beside one that it repels"

    def standing(self) -> str:
        """Return the numbers of pods in the domains with conflicts."""
        if not self._mutual:
            return self._show(
                lambda c: f"{c[0] + c[1]} beside {c[0] + c[2] + c[3]} that they repel",
                "none that repel each other",
                crowded=True,
            )
        return self._show(lambda counts: f"{counts[0]}", "none anywhere")


class AttractionGroup(_SeparableGroup):
    """Pods with a required affinity term; each needs a matching pod in its domain.

    A guard: no pod is moved for it, but no move may remove the last match.
    """

    def __init__(
        self, view: View, *, label: str, domains: Domains, owners: Int32s, matched: Int32s
    ) -> None:
        self.label, self.weight = label, 1.0
        both = np.intersect1d(owners, matched).astype(np.int32)
        alone = np.setdiff1d(owners, both).astype(np.int32)
        self.members = np.union1d(owners, matched).astype(np.int32)
        self.movers = np.zeros(0, np.int32)
        super().__init__(view, domains, [both, alone, np.setdiff1d(matched, both).astype(np.int32)])

    def _lower(self) -> AttractionRule:
        return AttractionRule(*self._given())

    def requirement(self) -> str:
        """Return which pods must share a domain, in a few words."""
        return "each beside one that it matches"

    def standing(self) -> str:
        """Return the number of pods without a match."""
        apart = int(self.potential())
        return f"{apart} without a match" if apart else "all have a match"

    def unsatisfiable(self) -> str | None:
        """Return None: guards do not report."""
        return None

    def describe(self, node: int) -> str:  # noqa: ARG002  # guards are not described by place
        """Return the label: guards are not described by node."""
        return self.label
