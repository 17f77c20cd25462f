"""Groups whose potential is a sum over domains: caps, conflicts, attractions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rebalancer.cost.groups import Domains, conflict_minimum
from rebalancer.cost.view import View
from rebalancer.snapshot.columns import Floats, Int32s, Ints

_NO_CLASSES = np.zeros(0, np.int32)
_NO_DOMAINS = np.zeros(0, np.int64)
# So many domains are named.
_SHOWN = 6

Column = tuple[int, ...]
"""How many pods of each role one domain holds: domains that hold the same are alike."""


@dataclass(slots=True)
class _Occupied:
    """The contents of a group's domains; valid until a pod of its members moves."""

    stamp: object
    at: Ints
    """(K,) the domains that hold any pods, ascending."""
    counts: Ints
    """(R, K) pods of each role in them."""
    total: int
    """Pods that have to leave."""
    hopeless: int
    gains: Floats | None = None
    """(K,) the most that one pod leaving a domain can gain; None: not computed yet."""
    changes: dict[tuple[int | None, Column, int | None], tuple[Floats, float]] = field(
        default_factory=dict
    )
    """(role that leaves, what its domain holds, role that enters) -> change (D + 1,) by the domain entered, if that is
    another one, and if it is the same."""

    def column(self, domain: int) -> Column:
        """Return what a domain holds."""
        place = int(self.at.searchsorted(domain))
        if domain < 0 or place == len(self.at) or self.at[place] != domain:
            return (0,) * len(self.counts)
        return tuple(self.counts[:, place].tolist())


class _SeparableGroup:
    """A group whose potential is a sum over domains, so that a move changes two domains only.

    An empty domain contributes 0. So only domains with pods are computed, however many domains there are.
    """

    label: str
    weight: float
    members: Int32s
    movers: Int32s

    def __init__(self, view: View, domains: Domains, roles: Sequence[Int32s]) -> None:
        """``roles``: disjoint sets of classes. A domain's potential is a function of their counts."""
        self._view, self.domains, self._roles = view, domains, roles
        self._known: _Occupied | None = None

    @cached_property
    def _role_of(self) -> dict[int, int]:
        return {cls: role for role, of in enumerate(self._roles) for cls in of.tolist()}

    def _cover(self, counts: Ints) -> Ints:
        """Return the number of pods that have to leave domains (K,) with these counts (R, K); 0 where all are 0."""
        raise NotImplementedError

    def _hopeless(self, pods: int) -> int:  # noqa: ARG002  # most groups know no such thing
        """Return the part of the potential that no placement can fix, given the pods of the first role."""
        return 0

    def _now(self) -> _Occupied:
        """Return the current contents; cached until a pod of a member moves."""
        stamp = self._view.state.stamp(self.members)
        if self._known is None or self._known.stamp != stamp:
            at, counts = self._counts()
            total, pods = int(self._cover(counts).sum()), int(counts[0].sum())
            self._known = _Occupied(stamp, at, counts, total, self._hopeless(pods))
        return self._known

    def _counts(self) -> tuple[Ints, Ints]:
        """Return the domains (K,), ascending, that hold pods of members, and how many of each role (R, K)."""
        held = [
            self.domains.occupied(self._view, classes) if len(classes) else None
            for classes in self._roles
        ]
        some = [of_role for of_role in held if of_role is not None]
        if len(some) == 1:
            at = some[0][0]
        else:
            at = np.unique(np.concatenate([_NO_DOMAINS, *(domains for domains, _ in some)]))
        counts = np.zeros((len(held), len(at)), np.int64)
        for row, of_role in zip(counts, held, strict=True):
            if of_role is not None:
                row[at.searchsorted(of_role[0])] = of_role[1]
        return at, counts

    def _show(self, words: Callable[[Column], str], nothing: str, *, crowded: bool = False) -> str:
        """Return ``words`` for the contents of up to six domains, those with most to fix first.

        ``crowded``: only domains with something to fix. ``nothing`` is returned if there are none.
        """
        now, names = self._now(), self.domains.names
        cover = self._cover(now.counts)
        order = np.lexsort((now.at, -now.counts.sum(axis=0), -cover))
        order = order[cover[order] > 0] if crowded else order
        shown = [
            f"{names[domain]} {words(now.column(domain))}"
            for domain in now.at[order[:_SHOWN]].tolist()
        ]
        more = f" and {len(order) - _SHOWN} more" if len(order) > _SHOWN else ""
        return f"{', '.join(shown)}{more}" if shown else nothing

    def potential(self) -> float:
        now = self._now()
        return float(max(0, now.total - now.hopeless))

    def minimum(self) -> float:
        return self.potential()

    def gains(self) -> Floats:
        return self.gains_at(np.arange(len(self.domains.of_node), dtype=np.int32))

    def gains_at(self, nodes: Int32s) -> Floats:
        now = self._now()
        gains = np.zeros(len(nodes))
        if now.total <= now.hopeless or not len(now.at):
            return gains
        if now.gains is None:
            now.gains = self._gains(now)
        domains = self.domains.of_node[nodes]
        place = now.at.searchsorted(domains)
        place[place == len(now.at)] = 0
        held = now.at[place] == domains
        gains[held] = now.gains[place[held]]
        return gains

    def _gains(self, now: _Occupied) -> Floats:
        """Return the maximum gain (K,) of moving one pod out of each occupied domain."""
        cover = self._cover(now.counts)
        least = cover.copy()
        for role, pods in enumerate(now.counts):
            some = pods > 0
            if len(self._roles[role]) and some.any():
                rest = self._cover(_with(now.counts, role, -1))
                np.minimum(least, rest, out=least, where=some)
        return (cover - least).astype(float)

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:
        now = self._now()
        source, leaves = int(self.domains.of_node[node]), self._role_of.get(cls)
        here = now.column(source)
        move = leaves if source >= 0 else None, here, self._role_of.get(replacement)
        changes = now.changes.get(move)
        if changes is None:
            # All domains at once: other pods of the class, and the next landing, ask for the same.
            changes = now.changes[move] = self._changes(now, *move)
        entered = self.domains.of_node[destinations]
        of_destination = changes[0][entered]
        if source >= 0:
            of_destination[entered == source] = changes[1]
        return of_destination

    def _changes(
        self, now: _Occupied, leaves: int | None, here: Column, enters: int | None
    ) -> tuple[Floats, float]:
        """Return the change of the potential if a pod leaves a domain with the counts ``here``.

        The first value is per entered domain (D + 1,), the second is for a pod that enters the domain it has left.
        """
        before = np.array([here], np.int64).T
        rest = before if leaves is None else _with(before, leaves, -1)
        left = now.total + int(self._cover(rest)[0] - self._cover(before)[0])
        floor = max(0, now.total - now.hopeless)
        # Each occupied domain, an empty one, and the one that was left.
        entered = np.concatenate((now.counts, np.zeros_like(before), rest), axis=1)
        more = np.zeros(entered.shape[1], np.int64)
        if enters is not None:
            more = self._cover(_with(entered, enters, 1)) - self._cover(entered)
        change = np.maximum(0.0, left + more - now.hopeless) - floor
        changes = np.full(len(self.domains.names) + 1, change[-2])
        changes[now.at] = change[:-2]
        # The last is for nodes in no domain.
        changes[-1] = max(0, left - now.hopeless) - floor
        return changes, float(change[-1])


def _with(counts: Ints, role: int, more: int) -> Ints:
    """Return ``counts`` (R, K) with ``more`` added to one role."""
    changed = counts.copy()
    changed[role] += more
    return changed


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

    def _cover(self, counts: Ints) -> Ints:
        return np.maximum(0, counts[0] - self.cap)

    def satisfied(self, least: int, most: int) -> bool:  # noqa: ARG002  # a cap has no lower end
        """Return whether no domain exceeds the cap."""
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

        ``fixed``: classes of ``matched`` that must stay; none of them is in ``owners``.
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

    def _cover(self, counts: Ints) -> Ints:
        both, owners, matched, fixed = counts
        if self._mutual:
            return np.maximum(0, both - 1)
        leave: Ints = np.where(fixed > 0, both + owners, conflict_minimum(both, owners, matched))
        return leave

    def minimum(self) -> float:
        """Return a lower bound on the moves that fix the group.

        Pods of the ``fixed`` classes may leave for another reason, and then fewer moves are needed.
        """
        if not len(self._roles[3]):
            return self.potential()
        both, owners, matched, fixed = self._now().counts
        return float(conflict_minimum(both, owners, matched + fixed).sum())

    def _hopeless(self, pods: int) -> int:
        return max(0, pods - len(self.domains.names)) if self._mutual else 0

    @cached_property
    def _mutual(self) -> bool:
        """Whether every pod repels every other pod."""
        return not any(map(len, self._roles[1:]))

    def unsatisfiable(self) -> str | None:
        """Return a phrase if there are more pods that repel each other than domains; else None."""
        if (more := self._now().hopeless) == 0:
            return None
        domains = len(self.domains.names)
        pods = more + domains
        return f"{pods} pods, {domains} domains: {more} must share"

    def describe(self, node: int) -> str:
        """Return the pods in the node's domain that repel each other, in a phrase."""
        domain = int(self.domains.of_node[node])
        if domain < 0:
            return self.label
        here = sum(self._now().column(domain))
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

    def _cover(self, counts: Ints) -> Ints:
        both, alone, matched = counts
        return alone * (both + matched == 0)

    def requirement(self) -> str:
        """Return which pods must share a domain, in a few words."""
        return "each beside one that it matches"

    def standing(self) -> str:
        """Return the number of pods without a match."""
        now = self._now()
        return f"{now.total} without a match" if now.total else "all have a match"

    def unsatisfiable(self) -> str | None:
        """Return None: guards do not report."""
        return None

    def describe(self, node: int) -> str:  # noqa: ARG002  # guards are not described by place
        """Return the label: guards are not described by node."""
        return self.label
