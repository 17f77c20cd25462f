"""Spread groups: counts per domain that should be even, by Kubernetes' own rule."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rebalancer.cost.groups import Domains
from rebalancer.cost.potentials import small_spread_minimum, spread_minimum
from rebalancer.cost.term import View
from rebalancer.snapshot.columns import Bools, Floats, Int32s, Ints

# Up to so many domains every destination is evaluated by itself; above, one per distinct count.
_FEW = 64
# Of so few domains, plain integers are faster than arrays.
_SMALL = 8


@dataclass(slots=True)
class _SpreadNow:
    """What a spread comes to while its members' pods stay where they are."""

    stamp: object
    counts: Ints
    """(D,) pods in each domain."""
    kept: Bools
    """(D,) domains that count."""
    minimum: float = 0.0
    gains: Floats | None = None
    """(D + 1,) gain of a pod that leaves each domain; the last entry is for nodes without one."""
    columns: list[tuple[int, int, bool]] = field(default_factory=list)
    """Of few domains: each that counts, how many of its pods cannot be moved, whether it is open."""
    minima: dict[tuple[int, ...], int] = field(default_factory=dict)
    """Counts of few domains -> the fewest moves."""
    changes: dict[tuple[int, bool], Floats] = field(default_factory=dict)
    """(domain left or -1, whether the replacement counts) -> change (D + 1,) by the domain it enters."""


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
        if len(movers) == len(counted) == 1 and movers[0] == counted[0]:
            self.movers = movers  # as most are: no need for set operations
        else:
            self.movers = np.intersect1d(movers, counted).astype(np.int32)
        self._view, self.domains = view, domains
        self._max_skew, self._min_domains = max_skew, min_domains
        self._known: _SpreadNow | None = None

    # Most groups hold trivially, and what follows is never computed for them.

    @cached_property
    def _counted(self) -> frozenset[int]:
        return frozenset(self.members.tolist())

    @cached_property
    def _immobile(self) -> Ints:
        """(D,) pods that cannot be moved."""
        domains = self.domains.of_node[self._view.immobile(self.members, self.movers)]
        return np.bincount(domains[domains >= 0], minlength=len(self.domains.names))

    @cached_property
    def _open(self) -> Bools:
        """(D,) domains with a node that could take a pod."""
        if not len(self.movers):
            return np.zeros(len(self.domains.names), bool)
        takes = self._view.scheduler.static_mask(int(self.movers[0]))
        # Thousands of groups ask this of the same two arrays, which are kept here with the answer.
        made = self._view.made.get(identity := ("open", id(takes), id(self.domains)))
        if not isinstance(made, tuple):
            open_ = self.domains.sum(takes.astype(np.int32)) > 0
            made = self._view.made[identity] = open_, takes, self.domains
        takers: Bools = made[0]
        return takers

    def satisfied(self, least: int, most: int) -> bool:
        """See Counted: counts within ``max_skew`` of each other are what the rule asks for.

        With fewer domains than it asks for, its potential may be 0 all the same, but it cannot hold.
        """
        enough = len(self.domains.names) >= max(1, self._min_domains or 0)
        return enough and most - least <= self._max_skew

    def _now(self) -> _SpreadNow:
        """Return what holds until a member's pod is moved."""
        stamp = self._view.state.stamp(self.members)
        if self._known is None or self._known.stamp != stamp:
            counts = self.domains.count(self._view, self.members)
            # A closed and empty domain is no place to even out to: the scheduler will not fill it.
            now = _SpreadNow(stamp, counts, self._open | (counts > 0))
            if len(counts) <= _SMALL:
                kept = now.kept.nonzero()[0]
                parts = (kept, self._immobile[kept], self._open[kept])
                now.columns = list(zip(*(part.tolist() for part in parts), strict=True))
            now.minimum = float(self._minimum(counts[None, :], now)[0])
            self._known = now
        return self._known

    def _minimum(self, rows: Ints, now: _SpreadNow) -> Ints:
        """Return the fewest moves (K,) for hypothetical counts (K, D)."""
        if rows.shape[1] <= _SMALL:
            return np.array([self._minimum_of(tuple(row), now) for row in rows.tolist()], np.int64)
        few = self._min_domains is not None and rows.shape[1] < self._min_domains
        rows = rows[:, now.kept]
        immobile = np.minimum(self._immobile[now.kept], rows)
        return spread_minimum(rows, immobile, self._open[now.kept], self._max_skew, too_few=few)

    def _minimum_of(self, row: tuple[int, ...], now: _SpreadNow) -> int:
        minimum = now.minima.get(row)
        if minimum is None:
            few = self._min_domains is not None and len(row) < self._min_domains
            counts = [row[domain] for domain, _, _ in now.columns]
            fixed = [min(stays, row[domain]) for domain, stays, _ in now.columns]
            open_ = [is_open for _, _, is_open in now.columns]
            minimum = small_spread_minimum(counts, fixed, open_, self._max_skew, too_few=few)
            now.minima[row] = minimum
        return minimum

    def potential(self) -> float:
        """Return the moves that remain."""
        return self._now().minimum

    def minimum(self) -> float:
        """Return the same: the potential is the exact minimum."""
        return self.potential()

    def unsatisfiable(self) -> str | None:
        """Return which pods or domains make the rule impossible, if any do."""
        counts = self._now().counts
        if not len(counts):
            return "no node that its pods may use has this label"
        few = self._min_domains is not None and len(counts) < self._min_domains
        holds = not few and counts.max() - counts.min() <= self._max_skew
        if holds or self.potential() > 0:
            return None
        shown = self._shown(counts)
        closed = [n for n, o in zip(self.domains.names, self._open, strict=True) if not o]
        if closed:
            cause = f"no node of {', '.join(closed[:3])} takes another of its pods"
        elif few:
            cause = f"{len(counts)} domains, minDomains {self._min_domains}"
        else:
            cause = f"{int(self._immobile.sum())} of {int(counts.sum())} pods cannot be moved"
        return f"{shown}, maxSkew {self._max_skew}: {cause}"

    def gains(self) -> Floats:
        """See Group."""
        return self._gains(self._now())[self.domains.of_node]

    def gains_at(self, nodes: Int32s) -> Floats:
        """See Group."""
        return self._gains(self._now())[self.domains.of_node[nodes]]

    def _gains(self, now: _SpreadNow) -> Floats:
        if now.gains is not None:
            return now.gains
        counts = now.counts
        per_domain = np.zeros(len(counts) + 1)
        # With skew s > 1 a potential of 0 still means nothing to gain: only what is broken is fixed.
        if now.minimum > 0:
            low = np.where(self._open, counts, np.iinfo(np.int64).max)
            # Domains of protected pods as well: the report says what holds them.
            for sources in _alike(counts * 2 + (self._immobile < counts)):
                if counts[sources[0]] == 0:
                    continue
                after = counts.copy()
                after[sources[0]] -= 1
                low_here = low.copy()
                low_here[sources[0]] = np.iinfo(np.int64).max
                after[int(np.argmin(low_here))] += 1
                gain = now.minimum - float(self._minimum(after[None, :], now)[0])
                per_domain[sources] = max(gain, 0.0)
        now.gains = per_domain
        return per_domain

    def seen_from(self, node: int) -> Hashable:
        """See :func:`rebalancer.cost.groups.seen_from`."""
        domain = int(self.domains.of_node[node])
        if domain < 0 or not self.domains.are_nodes:
            return domain
        return int(self._now().counts[domain]), int(self._immobile[domain])

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:
        """See Group."""
        now = self._now()
        source, targets = int(self.domains.of_node[node]), self.domains.of_node[destinations]
        leaves = source if cls in self._counted else -1
        enters = replacement in self._counted
        if len(now.counts) <= _FEW:
            # All domains at once: other pods of the class, and the next landing, ask for the same.
            changes = now.changes.get((leaves, enters))
            if changes is None:
                everywhere = np.arange(-1, len(now.counts), dtype=np.int32)
                of_domains = self._evaluated(now, leaves, everywhere, enters=enters)
                changes = now.changes[leaves, enters] = np.roll(of_domains, -1)
            return changes[targets]
        present = np.unique(targets)
        return self._evaluated(now, leaves, present, enters=enters)[
            np.searchsorted(present, targets)
        ]

    def _evaluated(self, now: _SpreadNow, leaves: int, present: Int32s, *, enters: bool) -> Floats:
        """Return the change with a pod gone from ``leaves`` and one more in each of ``present`` (K,).

        -1 stands for no domain. Of many domains, those alike in what they hold share one evaluation.
        """
        left = now.counts.copy()
        if leaves >= 0:
            left[leaves] -= 1
        inside = (present >= 0) & enters
        if len(left) <= _FEW:
            rows = np.repeat(left[None, :], len(present), axis=0)
            rows[np.flatnonzero(inside), present[inside]] += 1
            return self._minimum(rows, now).astype(float) - now.minimum
        result = np.zeros(len(present))
        added = np.where(present >= 0, left[present], -1)
        shut = np.where(present >= 0, ~self._open[present], False)
        for same in _alike(added * 2 + shut):
            row = left.copy()
            row[present[same[:1]]] += inside[same[:1]]
            result[same] = float(self._minimum(row[None, :], now)[0])
        return result - now.minimum

    def describe(self, node: int) -> str:  # noqa: ARG002  # every domain matters to a spread
        """See Group."""
        return f"{self.label}: {self._shown(self._now().counts)}, maxSkew {self._max_skew}"

    def requirement(self) -> str:
        """See Described."""
        few = f", minDomains {self._min_domains}" if self._min_domains is not None else ""
        return f"at most {self._max_skew} apart (maxSkew {self._max_skew}{few})"

    def standing(self) -> str:
        """See Described."""
        return self._shown(self._now().counts)

    def _shown(self, counts: Ints) -> str:
        return _shown(self.domains.names, counts)


def _alike(keys: Ints) -> list[NDArray[np.intp]]:
    """Return the rows with equal keys (K,), one index array per distinct key."""
    order = np.argsort(keys, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)


def _shown(names: Sequence[str], counts: Ints) -> str:
    """``zone-a 3, zone-b 1``: up to six domains, fullest first."""
    order = np.argsort(-counts, kind="stable")
    shown = ", ".join(f"{names[d]} {int(counts[d])}" for d in order[:6].tolist())
    return (
        shown
        if len(counts) <= 6
        else f"{shown} and {len(counts) - 6} more (least {int(counts.min())})"
    )
