"""Groups whose potential is a sum over domains: caps, conflicts, attractions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rebalancer.cost.groups import Domains
from rebalancer.cost.potentials import conflict_minimum
from rebalancer.cost.term import View
from rebalancer.snapshot.columns import Floats, Int32s, Ints

_NO_CLASSES = np.zeros(0, np.int32)
# So many domains are named.
_SHOWN = 6


@dataclass(slots=True)
class _Occupied:
    """What a group's domains hold while its members' pods stay where they are."""

    stamp: object
    at: Ints
    """(M,) the domains, ascending, that hold any."""
    counts: Ints
    """(roles, M)"""
    covers: Ints
    """(M,) what has to leave each."""
    total: int
    hopeless: int
    gains: Ints | None = None
    """(M,) the most that one pod leaving each domain can gain."""


class _SeparableGroup:
    """Groups whose potential is a sum over domains: a move changes two of them only.

    An empty domain has none, so only those that hold pods are looked at, however many there are.
    """

    label: str
    weight: float
    members: Int32s
    movers: Int32s

    def __init__(self, view: View, domains: Domains, roles: Sequence[Int32s]) -> None:
        """``roles`` are disjoint sets of classes; the potential of a domain is a function of their counts."""
        self._view, self.domains, self._roles = view, domains, roles
        self._known: _Occupied | None = None

    @cached_property
    def _role_of(self) -> dict[int, int]:
        return {cls: role for role, of in enumerate(self._roles) for cls in of.tolist()}

    def _cover(self, counts: Ints) -> Ints:
        """Return the pods (...,) that have to leave, for role counts (roles, ...); 0 where all are 0."""
        raise NotImplementedError

    def _hopeless(self, counts: Ints) -> int:  # noqa: ARG002  # most groups know no such thing
        """Return how much of the potential no placement can fix, for role counts (roles, M)."""
        return 0

    def _now(self) -> _Occupied:
        """Return what holds until a member's pod is moved."""
        stamp = self._view.state.stamp(self.members)
        if self._known is None or self._known.stamp != stamp:
            at, counts = self._counts()
            covers = self._cover(counts)
            total = int(covers.sum())
            self._known = _Occupied(stamp, at, counts, covers, total, self._hopeless(counts))
        return self._known

    def _counts(self) -> tuple[Ints, Ints]:
        """Return the domains (M,) that hold members' pods, and how many of each role (roles, M)."""
        roles = [self.domains.occupied(self._view, role) for role in self._roles]
        filled = [domains for domains, _ in roles if len(domains)]
        if len(filled) == 1:
            at = filled[0]
        else:
            at = np.unique(np.concatenate([np.zeros(0, np.int64), *filled]))
        counts = np.zeros((len(roles), len(at)), np.int64)
        for role, (domains, of_role) in enumerate(roles):
            counts[role, np.searchsorted(at, domains)] = of_role
        return at, counts

    def _shown(self, words: Callable[[Ints], str], nothing: str, *, crowded: bool = False) -> str:
        """Return ``words`` for the counts (roles,) of up to six domains, those with most to fix first.

        ``crowded``: only of domains where something is to be fixed.
        """
        now = self._now()
        order = np.lexsort((now.at, -now.counts.sum(axis=0), -now.covers))
        order = order[now.covers[order] > 0] if crowded else order[now.counts[:, order].any(axis=0)]
        names = self.domains.names
        shown = [
            f"{names[int(now.at[place])]} {words(now.counts[:, place])}"
            for place in order[:_SHOWN].tolist()
        ]
        more = f" and {len(order) - _SHOWN} more" if len(order) > _SHOWN else ""
        return f"{', '.join(shown)}{more}" if shown else nothing

    def potential(self) -> float:
        now = self._now()
        return float(max(0, now.total - now.hopeless))

    def minimum(self) -> float:
        return self.potential()

    def gains(self) -> Floats:
        per_domain = np.zeros(len(self.domains.names) + 1)
        per_domain[self._now().at] = self._gains(self._now())
        return per_domain[self.domains.of_node]

    def gains_at(self, nodes: Int32s) -> Floats:
        now = self._now()
        place, there = _places(now.at, self.domains.of_node[nodes])
        gains = np.zeros(len(nodes))
        gains[there] = self._gains(now)[place[there]]
        return gains

    def _gains(self, now: _Occupied) -> Ints:
        if now.gains is None:
            best = np.zeros(len(now.at), np.int64)
            if now.total > now.hopeless:
                for role in range(len(self._roles)):
                    less = now.counts.copy()
                    less[role] -= 1
                    gain = now.covers - self._cover(np.maximum(less, 0))
                    best = np.maximum(best, np.where(now.counts[role] > 0, gain, 0))
            now.gains = best
        return now.gains

    def seen_from(self, node: int) -> Hashable:
        """See :func:`rebalancer.cost.groups.seen_from`."""
        domain = int(self.domains.of_node[node])
        if domain < 0 or not self.domains.are_nodes:
            return domain
        now = self._now()
        place = int(np.searchsorted(now.at, domain))
        if place == len(now.at) or now.at[place] != domain:
            return ()
        return tuple(now.counts[:, place].tolist())

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:
        now = self._now()
        at, counts, covers = now.at, now.counts, now.covers
        source = int(self.domains.of_node[node])
        role, joins = self._role_of.get(cls), self._role_of.get(replacement)
        if role is not None and source >= 0:
            at, counts, covers = self._without(now, role, source)
        left = int(covers.sum()) - now.total
        change = np.full(len(destinations), left, np.int64)
        if joins is not None:
            targets = self.domains.of_node[destinations]
            alone = np.zeros((len(self._roles), 1), np.int64)
            alone[joins] = 1
            change[targets >= 0] += int(self._cover(alone)[0])
            place, there = _places(at, targets)
            more = counts.copy()
            more[joins] += 1
            change[there] = left + (self._cover(more) - covers)[place[there]]
        floor = max(0, now.total - now.hopeless)
        return (np.maximum(0, now.total + change - now.hopeless) - floor).astype(float)

    def _without(self, now: _Occupied, role: int, source: int) -> tuple[Ints, Ints, Ints]:
        """Return domains, counts and covers with one pod of ``role`` less in ``source``."""
        at, counts = now.at, now.counts
        place = int(np.searchsorted(at, source))
        if place == len(at) or at[place] != source:
            at, counts = np.insert(at, place, source), np.insert(counts, place, 0, axis=1)
        left = counts.copy()
        left[role, place] -= 1
        return at, left, self._cover(left)


class CapGroup(_SeparableGroup):
    """At most ``cap`` pods per domain."""

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
        above: Ints = np.maximum(0, counts[0] - self.cap)
        return above

    def satisfied(self, least: int, most: int) -> bool:  # noqa: ARG002  # a cap has no lower end
        """See Counted."""
        return most <= self.cap

    def unsatisfiable(self) -> str | None:
        """None: the caller derives the cap from what is possible."""
        return None

    def describe(self, node: int) -> str:
        """See Group."""
        here = self._view.state.count_on(self.members, node)
        return f"{self.label}: {here} on one node, at most {self.cap} needed"

    def requirement(self) -> str:
        """See Described."""
        return f"at most {self.cap} on one node"

    def standing(self) -> str:
        """See Described."""
        return self._shown(lambda counts: f"{int(counts[0])}", "none anywhere")


class ConflictGroup(_SeparableGroup):
    """Pods that own an anti-affinity term apart from the pods it matches.

    The fewest of both leave; of the ``fixed`` classes, which the term matches, none does.
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
        """``fixed``: classes of ``matched``, none of them in ``owners``."""
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
        """See Counted: a pod alone in its domain repels no other."""
        return most <= 1

    def _cover(self, counts: Ints) -> Ints:
        both, owners, matched, fixed = counts
        fewest = conflict_minimum(both[..., None], owners[..., None], matched[..., None])
        return np.where(fixed > 0, both + owners, fewest)

    def minimum(self) -> float:
        """See Group; the fixed ones might leave for another reason, after which fewer have to."""
        if not len(self._roles[3]):
            return self.potential()
        both, owners, matched, fixed = self._now().counts
        return float(conflict_minimum(both, owners, matched + fixed))

    def _hopeless(self, counts: Ints) -> int:
        if not self._mutual:
            return 0
        return max(0, int(counts[0].sum()) - len(self.domains.names))

    @property
    def _mutual(self) -> bool:
        """Whether every pod repels every other."""
        return not any(map(len, self._roles[1:]))

    def unsatisfiable(self) -> str | None:
        """Return so when there are more pods than domains."""
        if (more := self._now().hopeless) == 0:
            return None
        pods, domains = int(self._now().counts[0].sum()), len(self.domains.names)
        return f"{pods} pods, {domains} domains: {more} must share"

    def describe(self, node: int) -> str:
        """See Group."""
        domain = int(self.domains.of_node[node])
        if domain < 0:
            return self.label
        here = int(self._now().counts[:, self._now().at == domain].sum())
        return f"{self.label}: {here} that repel each other in {self.domains.names[domain]}"

    def requirement(self) -> str:
        """See Described."""
        return "at most 1 in a domain" if self._mutual else "none beside one that it repels"

    def standing(self) -> str:
        """See Described."""
        if not self._mutual:
            return self._shown(
                lambda c: f"{int(c[0] + c[1])} beside {int(c[0] + c[2] + c[3])} that they repel",
                "none that repel each other",
                crowded=True,
            )
        return self._shown(lambda counts: f"{int(counts[0])}", "none anywhere")


class AttractionGroup(_SeparableGroup):
    """Pods with a required affinity term, each of which needs a pod it matches in its domain.

    A guard: no pod is moved for it, but no move may take the last match away.
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
        return np.where(both + matched == 0, alone, 0)

    def requirement(self) -> str:
        """See Described."""
        return "each beside one that it matches"

    def standing(self) -> str:
        """See Described."""
        now = self._now()
        return f"{now.total} without a match" if now.total else "all have a match"

    def unsatisfiable(self) -> str | None:
        """None: guards do not report."""
        return None

    def describe(self, node: int) -> str:  # noqa: ARG002  # guards are not described by place
        """See Group."""
        return self.label


def _places(at: Ints, wanted: Int32s) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the place in ``at`` (M,) of each ``wanted`` (K,), and which of them stand in it."""
    place = np.searchsorted(at, wanted)
    if not len(at):
        return place, np.zeros(0, np.intp)
    near = at[np.minimum(place, len(at) - 1)]
    return place, np.flatnonzero(near == wanted)
