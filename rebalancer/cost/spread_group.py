"""Spread groups: the counts per domain should be equal, by the rule of topologySpreadConstraints."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rebalancer.base.plain_text import count
from rebalancer.cost.groups import Domains, Kind, fill, spread_minimum
from rebalancer.cost.term import Entry
from rebalancer.cost.view import View
from rebalancer.snapshot.columns import Bools, Floats, Int32s
from rebalancer.wire.objects import TopologySpreadConstraint

# So many domains are named.
_SHOWN = 6
# So many reasons why pods cannot be moved are.
_REASONS = 2
_EMPTY: Kind = (0, 0, True)


@dataclass(slots=True)
class _SpreadNow:
    """The counts and the potential of a spread group; valid until a pod of its members moves.

    Domains with equal pods, immobile pods and openness are one *kind*: thousands of nodes are a few kinds.
    """

    stamp: object
    held: dict[int, Kind]
    """Domain -> its kind, of the domains that hold pods, or held some that cannot be moved."""
    kinds: dict[Kind, int]
    """Kind -> how many of the domains that count are of it."""
    minimum: int
    minima: dict[tuple[Kind | None, Kind | None], int] = field(default_factory=dict)
    """(kind left, kind entered) -> the fewest moves afterwards."""
    gains: dict[Kind, int] = field(default_factory=dict)
    """Kind of a domain -> gain of a pod that leaves it for the emptiest open domain."""
    emptiest: tuple[int, int] | None = None
    """See :meth:`SpreadGroup._emptiest`."""
    changes: dict[tuple[Kind | None, bool], Floats] = field(default_factory=dict)
    """(kind left, whether the replacement counts) -> change (D + 1,) by the domain it enters, if that is another one."""


@dataclass(slots=True)
class _Kept:
    """Data shared by groups that count the same pods in the same domains by the same rule."""

    movable: Bools
    """Named by its identity, and kept for that."""
    now: _SpreadNow | None = None


@dataclass(frozen=True, slots=True)
class _Takers:
    """Which domains have a node that could take a pod."""

    open: Bools
    """(D,)"""
    each: list[bool]
    """The same, in plain values."""
    number: int

    @staticmethod
    def of(open_: Bools) -> _Takers:
        return _Takers(open_, open_.tolist(), int(np.count_nonzero(open_)))


def _matters(kind: Kind) -> bool:
    """Return whether domains of a kind count. A closed, empty domain does not: the scheduler cannot fill it."""
    return kind[0] > 0 or kind[2]


class SpreadGroup:
    """Counts per domain that may differ by ``max_skew`` at most, by the rule of topologySpreadConstraints."""

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
        without_nodes: Sequence[str] = (),
    ) -> None:
        """``without_nodes``: domains that its pods could be in, if these had nodes."""
        self.without_nodes = without_nodes
        self.label, self.weight = label, weight
        self.members = counted
        if len(movers) == len(counted) == 1 and movers[0] == counted[0]:
            self.movers = movers  # as most are: no need for set operations
        else:
            self.movers = np.intersect1d(movers, counted).astype(np.int32)
        self._view, self.domains = view, domains
        self._max_skew, self._min_domains = max_skew, min_domains

    # Most groups hold trivially, and what follows is never computed for them.

    @cached_property
    def _kept(self) -> _Kept:
        """Data shared with equal groups: the rule of a strategy may also be a guard."""
        view, sets = self._view, (self.members.tobytes(), self.movers.tobytes())
        rule = (id(self.domains), self._max_skew, self._min_domains, id(view.movable))
        made = view.made.get(identity := ("spread", *sets, *rule))
        if not isinstance(made, _Kept):
            made = view.made[identity] = _Kept(view.movable)
        return made

    @cached_property
    def _counted(self) -> frozenset[int]:
        return frozenset(self.members.tolist())

    @cached_property
    def _immobile(self) -> Counter[int]:
        """Domain -> number of its pods that cannot be moved."""
        _, domains = self._immobile_pods()
        return Counter(domains.tolist())

    def _immobile_pods(self) -> tuple[Int32s, Int32s]:
        """Return the immobile pods that are in a domain, and the domain of each."""
        pods = np.union1d(self._view.immobile(self.members, self.movers), self._pinned_pods())
        domains = self.domains.of_node[self._view.snapshot.pods.node[pods]]
        return pods[domains >= 0], domains[domains >= 0]

    def _pinned_pods(self) -> Int32s:
        """Return the living pods whose volumes leave them no domain but their own."""
        view, nodes = self._view, self._view.snapshot.pods.node
        parts = [np.zeros(0, np.int32)]
        for cls in self.movers.tolist():
            if view.scheduler.filters_of(cls).volumes.of(cls) is None:
                continue
            pods = view.state.living_of(cls)
            reached = np.unique(self.domains.of_node[view.usable(cls)])
            own = self.domains.of_node[nodes[pods]]
            parts.append(pods[~np.array([((reached >= 0) & (reached != at)).any() for at in own])])
        return np.concatenate(parts)

    @cached_property
    def _takers(self) -> _Takers:
        if not len(self.movers):
            return _Takers.of(np.zeros(len(self.domains.names), bool))
        masks = {id(of): of for of in map(self._view.usable, self.movers.tolist())}
        first, *others = masks.values()
        takes = self._view.shared(np.any(list(masks.values()), axis=0)) if others else first
        # Thousands of groups ask this of the same two arrays, which are kept here with the answer.
        made = self._view.made.get(identity := ("open", id(takes), id(self.domains)))
        if not isinstance(made, tuple):
            takers = _Takers.of(self.domains.sum(takes.astype(np.int32)) > 0)
            made = self._view.made[identity] = takers, takes, self.domains
        known: _Takers = made[0]
        return known

    @property
    def _too_few(self) -> bool:
        """Whether there are fewer domains than ``minDomains``."""
        return self._min_domains is not None and len(self.domains.names) < self._min_domains

    def lack(self) -> str:
        """Return which domains have no node, as far as that is known; empty if none is missing."""
        named = ", ".join(self.without_nodes[:3])
        if self._too_few:
            few = f"{count(len(self.domains.names), 'domain')} of minDomains {self._min_domains}"
            return f"{few} have nodes" + (f", {named} has none" if named else "")
        return f"{self.standing()}: {named} has no node" if named else ""

    def satisfied(self, least: int, most: int) -> bool:
        """Return whether the counts differ by ``max_skew`` at most; without a domain they do not.

        With fewer domains than ``minDomains`` the scheduler takes the global minimum as 0 (KEP-3022).
        """
        floor = 0 if self._too_few else least
        return bool(self.domains.names) and most - floor <= self._max_skew

    def _now(self) -> _SpreadNow:
        """Return the current counts and potential; cached until a pod of a member moves."""
        stamp = self._view.state.stamp(self.members)
        known = self._kept.now
        if known is None or known.stamp != stamp:
            counts = dict.fromkeys(self._immobile, 0) | self.domains.held(self._view, self.members)
            immobile, open_ = self._immobile, self._takers.each
            held = {d: (count, immobile.get(d, 0), open_[d]) for d, count in counts.items()}
            kinds = {kind: n for kind, n in Counter(held.values()).items() if _matters(kind)}
            of_open = sum(n for kind, n in kinds.items() if kind[2])
            if empty := self._takers.number - of_open:
                kinds[_EMPTY] = kinds.get(_EMPTY, 0) + empty
            known = self._kept.now = _SpreadNow(stamp, held, kinds, self._minimum(kinds))
        return known

    def _kind(self, now: _SpreadNow, domain: int) -> Kind | None:
        """Return the kind of a domain; None if it does not count."""
        kind = now.held.get(domain) or (0, 0, self._takers.each[domain])
        return kind if _matters(kind) else None

    def _minimum(self, kinds: Mapping[Kind, int]) -> int:
        return spread_minimum(kinds, self._max_skew, too_few=self._too_few)

    def _after(self, now: _SpreadNow, left: Kind | None, entered: Kind | None) -> int:
        """Return the minimum number of moves after a pod has left a domain and entered another one."""
        minimum = now.minima.get((left, entered))
        if minimum is None:
            kinds = dict(now.kinds)
            for kind, change in ((left, -1), (entered, 1)):
                if kind is not None:
                    kinds[kind] -= 1
                    other = (kind[0] + change, kind[1], kind[2])
                    kinds[other] = kinds.get(other, 0) + 1
            minimum = now.minima[left, entered] = self._minimum(kinds)
        return minimum

    def potential(self) -> float:
        """Return the minimum number of remaining moves."""
        return float(self._now().minimum)

    def minimum(self) -> float:
        """Return the potential, which is the exact minimum."""
        return self.potential()

    def unsatisfiable(self) -> str | None:
        """Return which pods or domains make the rule unsatisfiable; None if it is satisfiable."""
        names, counts = self.domains.names, self._counts()
        if not names:
            return "no node that its pods may use has this label"
        most = max(counts.values(), default=0)
        if self.satisfied(self._least(), most) or self.potential() > 0:
            return None
        closed = [n for n, takes in zip(names, self._takers.each, strict=True) if not takes]
        if closed and len(self.movers) and (unknown := self._find_unmodelled()):
            cause = f"where its pods may go is not known ({'; '.join(unknown)})"
        elif closed:
            cause = f"no node of {', '.join(closed[:3])} takes another of its pods"
        elif self._too_few:
            cause = f"{len(names)} domains, minDomains {self._min_domains}"
        else:
            pods, _ = self._immobile_pods()
            if self._view.leaves_out(pods):
                return None  # What the user left out of this run is no reason why the rule cannot hold.
            cause = f"{self._immobile.total()} of {sum(counts.values())} pods cannot be moved"
            cause += _reasons(self._view.kept_by(pods), len(pods))
        return f"{self.standing()}, maxSkew {self._max_skew}: {cause}"

    def _find_unmodelled(self) -> Sequence[str]:
        """Return the features of the movable pods that the prediction does not model."""
        of_each = map(self._view.scheduler.find_unmodelled, self.movers.tolist())
        return list(dict.fromkeys(reason for reasons in of_each for reason in reasons))

    def _counts(self) -> dict[int, int]:
        """Return domain -> number of pods, for the domains with pods or with immobile pods in the snapshot."""
        return {domain: kind[0] for domain, kind in self._now().held.items()}

    def _least(self) -> int:
        """Return the number of pods in the emptiest domain."""
        counts = self._counts()
        return min(counts.values()) if len(counts) == len(self.domains.names) else 0

    def gains(self) -> Floats:
        """Return per node (N,) the maximum gain of moving one pod off the node."""
        return self.gains_at(np.arange(len(self.domains.of_node), dtype=np.int32))

    def gains_at(self, nodes: Int32s) -> Floats:
        """Return the maximum gain (K,) of moving one pod off each of ``nodes``."""
        now = self._now()
        # With skew s > 1 a potential of 0 still means nothing to gain: only what is broken is fixed.
        # Domains of protected pods as well: the report says what holds them.
        if now.minimum <= 0:
            return np.zeros(len(nodes))
        domains = self.domains.of_node[nodes]
        if len(self.domains.names) >= len(nodes):
            return np.array([self._gain(now, domain) for domain in domains.tolist()], float)
        # The last is for nodes in no domain.
        of_domains = [self._gain(now, domain) for domain in range(len(self.domains.names))]
        return np.array([*of_domains, 0], float)[domains]

    def _gain(self, now: _SpreadNow, domain: int) -> int:
        """Return the gain of a pod that moves from ``domain`` (-1: no domain) to the emptiest other one."""
        left = now.held.get(domain)
        if left is None or not left[0]:
            return 0
        if now.emptiest is None:
            now.emptiest = self._emptiest(now)
        first, second = now.emptiest
        if domain == first:
            entered = self._kind(now, second)
            return 0 if first == second else max(0, now.minimum - self._after(now, left, entered))
        gain = now.gains.get(left)
        if gain is None:
            entered = _EMPTY if first < 0 else self._kind(now, first)
            gain = max(0, now.minimum - self._after(now, left, entered))
            now.gains[left] = gain
        return gain

    def _emptiest(self, now: _SpreadNow) -> tuple[int, int]:
        """Return the emptiest open domain and the second emptiest, for pods of the emptiest itself.

        -1 stands for a domain without any pod. If no other domain is open, the first one takes its place.
        """
        if _EMPTY in now.kinds:
            return -1, -1
        open_ = ((kind[0], domain) for domain, kind in now.held.items() if kind[2])
        first, second, *_ = (*(domain for _, domain in heapq.nsmallest(2, open_)), 0, 0)
        return first, second

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:
        """Return the change of the potential (K,) if a pod moves from ``node`` to each destination."""
        now = self._now()
        leaves = int(self.domains.of_node[node]) if cls in self._counted else -1
        left = self._kind(now, leaves) if leaves >= 0 else None
        enters = replacement in self._counted
        changes = now.changes.get((left, enters))
        if changes is None:
            # All domains at once: other pods of the class, and the next landing, ask for the same.
            changes = now.changes[left, enters] = self._changes(now, left, enters=enters)
        entered = self.domains.of_node[destinations]
        of_destination = changes[entered]
        if enters and leaves in now.held:
            of_destination[entered == leaves] = 0.0
        return of_destination

    def _changes(self, now: _SpreadNow, left: Kind | None, *, enters: bool) -> Floats:
        """Return the change of the potential per entered domain (D + 1,).

        ``left``: the kind of the domain that the pod leaves, None if it leaves none that counts.
        """
        outside = float(self._after(now, left, None) - now.minimum)
        changes = np.full(len(self.domains.names) + 1, outside)
        if not enters:
            return changes
        if _EMPTY in now.kinds:
            changes[:-1][self._takers.open] = self._after(now, left, _EMPTY) - now.minimum

        def change(entered: Kind) -> float:
            return self._after(now, left, entered) - now.minimum if _matters(entered) else outside

        return fill(changes, now.held, change)

    def describe(self, node: int) -> str:  # noqa: ARG002  # every domain matters to a spread
        """Return the counts of the fullest domains and the maximum skew, in a phrase."""
        return f"{self.label}: {self.standing()}; asks for at most {self._max_skew} apart"

    def requirement(self) -> str:
        """Return the maximum skew and the topology key, in a few words."""
        few = f", minDomains {self._min_domains}" if self._min_domains is not None else ""
        return f"at most {self._max_skew} apart (maxSkew {self._max_skew}{few})"

    def standing(self) -> str:
        """Return ``zone-a 3, zone-b 1`` for up to six domains, fullest first."""
        names, counts = self.domains.names, self._counts()
        order = sorted((d for d, n in counts.items() if n), key=lambda d: (-counts[d], d))[:_SHOWN]
        empty = (d for d in range(len(names)) if not counts.get(d))
        order += [d for _, d in zip(range(_SHOWN - len(order)), empty, strict=False)]
        shown = ", ".join(f"{names[d]} {counts.get(d, 0)}" for d in order)
        more = len(names) - len(order)
        return f"{shown} and {more} more (least {self._least()})" if more else shown


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """One constraint of one class, with all that distinguishes one group from another."""

    entry: Entry
    key: str
    max_skew: int
    min_domains: int | None
    counted: Int32s
    eligible: Bools
    """(N,) one array for all that are equal, see ``View.shared``."""
    what: str
    lasting: Bools | None = None
    """(N,) the same once taints have passed that show a node's state; None where these change nothing."""

    @staticmethod
    def of(view: View, cls: int) -> Sequence[SpreadRule]:
        """Return the topologySpreadConstraints of a class as rules. Cached, because strategies and guards ask.

        A node counts if it has all topology keys of the pod's constraints of that kind and passes the node inclusion
        policies (KEP-3094: affinity honoured, taints ignored, unless the constraint says otherwise). Source:
        ``pkg/scheduler/framework/plugins/podtopologyspread/common.go``.
        """
        constraints = view.snapshot.classes[cls].spec.topology_spread_constraints
        if not constraints:
            return ()
        made = view.made.get(identity := ("spread rules", cls))
        if not isinstance(made, tuple):
            made = view.made[identity] = tuple(_spread_rules(view, cls, constraints))
        return made

    def identity(self) -> tuple[object, ...]:
        """Return a key; classes with equal keys share one group."""
        return (
            self.entry,
            self.key,
            self.max_skew,
            self.min_domains,
            self.counted.tobytes(),
            id(self.eligible),
        )


def _spread_rules(
    view: View, cls: int, constraints: Sequence[TopologySpreadConstraint]
) -> Iterator[SpreadRule]:
    for when, entry, what in (
        ("DoNotSchedule", Entry.HARD, "hard"),
        ("ScheduleAnyway", Entry.SOFT, "soft"),
    ):
        of_kind = [c for c in constraints if c.when_unsatisfiable == when]
        keys = tuple(sorted({constraint.topology_key for constraint in of_kind}))
        for constraint in of_kind:
            affinity = constraint.node_affinity_policy != "Ignore"
            taints = constraint.node_taints_policy == "Honor"
            now, lasting = (
                _with_keys(
                    view,
                    keys,
                    view.eligible(cls, affinity=affinity, taints=taints, lasting=lasting),
                )
                for lasting in (False, True)
            )
            yield SpreadRule(
                entry=entry,
                key=constraint.topology_key,
                max_skew=constraint.max_skew,
                min_domains=constraint.min_domains if entry is Entry.HARD else None,
                counted=view.snapshot.spread_classes(cls, constraint),
                eligible=now,
                what=what,
                lasting=None if lasting is now else lasting,
            )


def _reasons(kept_by: Mapping[str, int], pods: int) -> str:
    """Return why immobile pods stay, most frequent reason first, as the end of a sentence on ``pods`` of them."""
    why = sorted(kept_by.items(), key=lambda item: (-item[1], item[0]))
    if [number for _, number in why] == [pods]:
        return f" ({why[0][0]})"
    words = [f"{number} {text}" for text, number in why[:_REASONS]]
    words += [count(more, "more reason")] if (more := len(why) - _REASONS) > 0 else []
    return f" ({'; '.join(words)})" if words else ""


def _with_keys(view: View, keys: tuple[str, ...], eligible: Bools) -> Bools:
    """Return which of the ``eligible`` nodes (N,) have all topology ``keys``; the array is shared."""
    made = view.made.get(identity := ("with keys", keys, id(eligible)))
    if not isinstance(made, np.ndarray):
        having = eligible.copy()
        for key in keys:
            having &= view.snapshot.nodes.labels.column(key) >= 0
        made = view.made[identity] = view.shared(having)
    return made
