"""Groups: one rule of one workload over the domains of one topology key.

A :class:`SpreadGroup` wants counts even, a :class:`CapGroup` wants at most so many per domain, a
:class:`ConflictGroup` wants pods apart that repel each other. A strategy declares groups;
``rebalancer.cost.domain_term`` makes a term of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rebalancer.cost.potentials import conflict_minimum, joint_minimum, spread_minimum
from rebalancer.cost.term import View
from rebalancer.snapshot.columns import Bools, Floats, Int32s, Ints

# Up to so many domains every destination is evaluated by itself; above, one per distinct count.
_FEW = 64
_NOBODY = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class Domains:
    """The domains of a topology key among the nodes that count."""

    of_node: Int32s
    """(N,) domain of each node, -1 where it has none or does not count."""
    names: Sequence[str]
    """Label value of each domain."""

    @staticmethod
    def of(view: View, key: str, eligible: Bools) -> Domains:
        """Return the domains of ``key`` among ``eligible`` nodes (N,); equal ones are made once."""
        made = view.made.get(identity := (key, eligible.tobytes()))
        if not isinstance(made, Domains):
            made = view.made[identity] = Domains._of(view, key, eligible)
        return made

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
        """Return every node as a domain of its own."""
        names = view.snapshot.nodes.names
        return Domains(np.arange(len(names), dtype=np.int32), names)

    def count(self, view: View, classes: Int32s) -> Ints:
        """Return how many pods of ``classes`` are in each domain (D,) now."""
        return view.state.counts_by(classes, self.of_node, len(self.names))

    def sum(self, per_node: NDArray[np.int32]) -> Ints:
        """Sum a per-node count (N,) over the domains (D,)."""
        inside = self.of_node >= 0
        return np.bincount(
            self.of_node[inside], per_node[inside], minlength=len(self.names)
        ).astype(np.int64)


class Group(Protocol):
    """One rule. Values are unweighted; ``weight`` scales them into the term."""

    label: str
    weight: float
    members: Int32s
    """Classes whose moves change the group."""
    movers: Int32s
    """Classes that may be moved to mend it."""

    def potential(self) -> float:
        """Return what is left to mend, in moves."""

    def unsatisfiable(self) -> str | None:
        """Say what no placement can mend, if anything."""

    def gains(self) -> Floats:
        """Return per node (N,) the most that one mover leaving it can gain."""

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:
        """Return the change of the potential (K,) if a pod moves from ``node`` to each destination."""

    def minimum(self) -> float:
        """Return a lower bound on the moves that mend the group."""

    def describe(self, node: int) -> str:
        """Return one phrase with numbers about the group, as seen from ``node``."""


class Counted(Protocol):
    """A group that can tell by the extremes of its members' counts that nothing is to be mended.

    Asked for thousands of groups at once, whose counts are made together.
    """

    members: Int32s
    domains: Domains

    def at_ease(self, least: int, most: int) -> bool:
        """Tell whether counts per domain from ``least`` to ``most`` prove a potential of 0.

        ``False`` proves nothing.
        """


class SpreadGroup:
    """Counts per domain within ``max_skew`` of each other, by Kubernetes' own rule."""

    def __init__(
        self,
        view: View,
        *,
        label: str,
        domains: Domains,
        counted: Int32s,
        movers: Int32s,
        max_skew: int,
        min_domains: int | None = None,
        weight: float = 1.0,
    ) -> None:
        self.label, self.weight = label, weight
        self.members = counted
        self.movers = (
            np.unique(movers)
            if np.array_equal(movers, counted)
            else np.intersect1d(movers, counted).astype(np.int32)
        )
        self._view, self.domains = view, domains
        self._max_skew, self._min_domains = max_skew, min_domains

    # Most groups are at ease and are never asked for what follows.

    @cached_property
    def _counted(self) -> frozenset[int]:
        return frozenset(self.members.tolist())

    @cached_property
    def _immobile(self) -> Ints:
        return self.domains.sum(self._view.immobile(self.members, self.movers))

    @cached_property
    def _open(self) -> Bools:
        """(D,) domains with a node that could take a pod."""
        takes = np.zeros(len(self._view.snapshot.nodes), bool)
        for mover in self.movers[:1].tolist():
            takes = self._view.scheduler.static_mask(mover)
        return self.domains.sum(takes.astype(np.int32)) > 0

    def at_ease(self, least: int, most: int) -> bool:
        """See Counted: counts within ``max_skew`` of each other are what the rule asks for."""
        few = self._min_domains is not None and len(self.domains.names) < self._min_domains
        return most - (0 if few else least) <= self._max_skew

    def _counts(self) -> Ints:
        return self.domains.count(self._view, self.members)

    def _minimum(self, counts: Ints) -> Ints:
        # A closed and empty domain is no place to even out to: the scheduler will not fill it.
        kept = self._open | (self._counts() > 0)
        few = self._min_domains is not None and len(kept) < self._min_domains
        return spread_minimum(
            counts[..., kept],
            np.minimum(self._immobile[kept], counts[..., kept]),
            self._open[kept],
            self._max_skew,
            too_few=few,
        )

    def potential(self) -> float:
        """Return the moves that remain."""
        return float(self._minimum(self._counts()))

    def minimum(self) -> float:
        """Return the same: the potential is the exact minimum."""
        return self.potential()

    def unsatisfiable(self) -> str | None:
        """Say which pods or domains make the rule impossible, if any do."""
        counts = self._counts()
        if not len(counts) or counts.max() - self._floor(counts) <= self._max_skew:
            return None
        if self.potential() > 0:
            return None
        shown = self._shown(counts)
        closed = [n for n, o in zip(self.domains.names, self._open, strict=True) if not o]
        if closed:
            cause = f"no node of {', '.join(closed[:3])} takes its pods"
        elif self._min_domains is not None and len(counts) < self._min_domains:
            cause = f"{len(counts)} domains, minDomains {self._min_domains}"
        else:
            cause = f"{int(self._immobile.sum())} of {int(counts.sum())} pods cannot be moved"
        return f"{self.label}: {shown}, maxSkew {self._max_skew}: {cause}"

    def _floor(self, counts: Ints) -> int:
        if self._min_domains is not None and len(counts) < self._min_domains:
            return 0
        return int(counts.min())

    def gains(self) -> Floats:
        """See Group."""
        counts = self._counts()
        now = float(self._minimum(counts))
        per_domain = np.zeros(len(counts))
        # With skew s > 1 a potential of 0 still means nothing to gain: only what is broken is mended.
        if now > 0:
            low = np.where(self._open, counts, np.iinfo(np.int64).max)
            # Domains of protected pods as well: the report says what holds them.
            for sources in _alike(counts, self._immobile < counts):
                if counts[sources[0]] == 0:
                    continue
                after = counts.copy()
                after[sources[0]] -= 1
                low_here = low.copy()
                low_here[sources[0]] = np.iinfo(np.int64).max
                after[int(np.argmin(low_here))] += 1
                per_domain[sources] = now - float(self._minimum(after))
        return _per_node(np.maximum(per_domain, 0.0), self.domains)

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:
        """See Group."""
        counts = self._counts()
        source, targets = int(self.domains.of_node[node]), self.domains.of_node[destinations]
        left = counts.copy()
        if source >= 0 and cls in self._counted:
            left[source] -= 1
        present = np.unique(targets)
        enters = np.where(present >= 0, replacement in self._counted, False)
        values = self._evaluated(left, present, enters) - float(self._minimum(counts))
        return values[np.searchsorted(present, targets)]

    def _evaluated(self, left: Ints, present: Int32s, enters: Bools) -> Floats:
        """Return the minimum with one pod more (or none) in each of the ``present`` domains (K,).

        Of many domains, those alike in what they hold share one evaluation.
        """
        if len(left) <= _FEW:
            rows = np.repeat(left[None, :], len(present), axis=0)
            rows[np.flatnonzero(enters), present[enters]] += 1
            return self._minimum(rows).astype(float)
        result = np.zeros(len(present))
        added = np.where(present >= 0, left[present], -1)
        shut = np.where(present >= 0, ~self._open[present], False)
        for same in _alike(added, shut):
            row = left.copy()
            row[present[same[:1]]] += enters[same[:1]]
            result[same] = float(self._minimum(row))
        return result

    def describe(self, node: int) -> str:  # noqa: ARG002  # every domain matters to a spread
        """See Group."""
        return f"{self.label}: {self._shown(self._counts())}, maxSkew {self._max_skew}"

    def joint(self, per_node: Int32s, cap: int) -> float:
        """Return the joint lower bound with a per-node cap, see ``joint_minimum``."""
        inside = self.domains.of_node >= 0
        return float(
            joint_minimum(
                per_node[inside].astype(np.int64),
                self.domains.of_node[inside],
                len(self.domains.names),
                self._max_skew,
                cap,
            )
        )

    def _shown(self, counts: Ints) -> str:
        return _shown(self.domains.names, counts)


class _SeparableGroup:
    """Groups whose potential is a sum over domains: a move changes two of them only."""

    label: str
    weight: float
    members: Int32s
    movers: Int32s

    def __init__(self, view: View, domains: Domains, roles: Sequence[Int32s]) -> None:
        """``roles`` are disjoint sets of classes; the potential of a domain is a function of their counts."""
        self._view, self.domains, self._roles = view, domains, roles
        self._role_of = {cls: role for role, of in enumerate(roles) for cls in of.tolist()}

    def _cover(self, counts: Ints) -> Ints:
        """Return the pods (...,) that have to leave, for role counts (roles, ...)."""
        raise NotImplementedError

    def _counts(self) -> Ints:
        return np.stack([self.domains.count(self._view, role) for role in self._roles])

    def potential(self) -> float:
        return float(max(0, self._cover(self._counts()).sum() - self._hopeless()))

    def _hopeless(self) -> int:
        """Return how much of the potential no placement can mend."""
        return 0

    def minimum(self) -> float:
        return self.potential()

    def gains(self) -> Floats:
        counts = self._counts()
        now = self._cover(counts)
        best = np.zeros(counts.shape[1])
        if self.potential() > 0:
            for role in range(len(self._roles)):
                less = counts.copy()
                less[role] -= 1
                gain = np.where(counts[role] > 0, now - self._cover(np.maximum(less, 0)), 0)
                best = np.maximum(best, gain)
        return _per_node(best, self.domains)

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:
        counts = self._counts()
        hopeless = self._hopeless()
        source, targets = int(self.domains.of_node[node]), self.domains.of_node[destinations]
        total = int(self._cover(counts).sum())
        floor = max(0, total - hopeless)
        left = counts.copy()
        role = self._role_of.get(cls)
        if role is not None and source >= 0:
            left[role, source] -= 1
        covers = self._cover(left)
        base = int(covers.sum())
        joins = self._role_of.get(replacement)
        change = np.full(len(destinations), base - total, np.int64)
        if joins is not None:
            inside = targets >= 0
            at = left[:, targets[inside]]
            more = at.copy()
            more[joins] += 1
            change[inside] += self._cover(more) - covers[targets[inside]]
        return (np.maximum(0, total + change - hopeless) - floor).astype(float)


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

    def at_ease(self, least: int, most: int) -> bool:  # noqa: ARG002  # a cap has no lower end
        """See Counted."""
        return most <= self.cap

    def unsatisfiable(self) -> str | None:
        """None: the caller derives the cap from what is possible."""
        return None

    def describe(self, node: int) -> str:
        """See Group."""
        here = int(self._view.state.counts(self.members)[node])
        return f"{self.label}: {here} on one node, at most {self.cap} needed"


class ConflictGroup(_SeparableGroup):
    """Pods that own an anti-affinity term apart from the pods it matches."""

    def __init__(
        self,
        view: View,
        *,
        label: str,
        domains: Domains,
        owners: Int32s,
        matched: Int32s,
        weight: float = 1.0,
    ) -> None:
        self.label, self.weight = label, weight
        if np.array_equal(owners, matched):
            # A workload apart from itself, as most are: no need for set operations.
            self.members = self.movers = np.unique(owners)
            super().__init__(view, domains, [self.members, _NOBODY, _NOBODY])
            return
        both = np.intersect1d(owners, matched).astype(np.int32)
        roles = [both, np.setdiff1d(owners, both), np.setdiff1d(matched, both)]
        self.members = self.movers = np.union1d(owners, matched).astype(np.int32)
        super().__init__(view, domains, [role.astype(np.int32) for role in roles])

    def at_ease(self, least: int, most: int) -> bool:  # noqa: ARG002  # empty domains are no matter
        """See Counted: whoever is alone in its domain repels nobody."""
        return most <= 1

    def _cover(self, counts: Ints) -> Ints:
        return conflict_minimum(*(count[..., None] for count in counts))

    def _hopeless(self) -> int:
        _, owners, matched = self._roles
        if len(owners) or len(matched):
            return 0
        return max(0, int(self._counts()[0].sum()) - len(self.domains.names))

    def unsatisfiable(self) -> str | None:
        """Say so when there are more pods than domains."""
        if (more := self._hopeless()) == 0:
            return None
        pods, domains = int(self._counts()[0].sum()), len(self.domains.names)
        return f"{self.label}: {pods} pods, {domains} domains: {more} must share"

    def describe(self, node: int) -> str:
        """See Group."""
        domain = int(self.domains.of_node[node])
        if domain < 0:
            return self.label
        counts = self._counts()[:, domain]
        return f"{self.label}: {int(counts.sum())} that repel each other in {self.domains.names[domain]}"


class AttractionGroup(_SeparableGroup):
    """Pods with a required affinity term, each of which needs a pod it matches in its domain.

    A guard: nobody is moved for it, but no move may take the last match away.
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

    def unsatisfiable(self) -> str | None:
        """None: guards do not report."""
        return None

    def describe(self, node: int) -> str:  # noqa: ARG002  # guards are not described by place
        """See Group."""
        return self.label


def _per_node(per_domain: Floats, domains: Domains) -> Floats:
    """Spread values per domain (D,) over their nodes (N,); 0 where a node has no domain."""
    padded = np.append(per_domain, 0.0)
    return padded[domains.of_node]


def _alike(*columns: NDArray[np.generic]) -> list[NDArray[np.intp]]:
    """Return the rows of equal values, one index array per distinct row."""
    _, inverse = np.unique(
        np.stack([c.astype(np.int64) for c in columns]), axis=1, return_inverse=True
    )
    flat = inverse.reshape(-1)
    order = np.argsort(flat, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(flat[order])) + 1)


def _shown(names: Sequence[str], counts: Ints) -> str:
    """``zone-a 3, zone-b 1``: up to six domains, fullest first."""
    order = np.argsort(-counts, kind="stable")
    shown = ", ".join(f"{names[d]} {int(counts[d])}" for d in order[:6].tolist())
    return (
        shown
        if len(counts) <= 6
        else f"{shown} and {len(counts) - 6} more (least {int(counts.min())})"
    )
