"""Spread groups: the counts per domain should be equal, by the rule of topologySpreadConstraints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.base.plain_text import count
from rebalancer.core.rules import read
from rebalancer.core.spread import EvenRule, OpenDomains
from rebalancer.core.tallies import ClassSet
from rebalancer.core.views import view_of
from rebalancer.cost.groups import Domains, Room, RuledGroup, class_set
from rebalancer.cost.term import Entry
from rebalancer.cost.view import View
from rebalancer.snapshot.columns import Bools, Int32s, Same
from rebalancer.wire.objects import TopologySpreadConstraint

# So many domains are named.
_SHOWN = 6
# So many reasons why pods cannot be moved are.
_REASONS = 2


class SpreadGroup(RuledGroup):
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
        key: str = "",
        without_nodes: Sequence[str] = (),
    ) -> None:
        """``key``: the topology key; ``without_nodes``: see :class:`~rebalancer.cost.term.Group`."""
        self.key, self.without_nodes = key, without_nodes
        self.label, self.weight = label, weight
        self.members = counted
        if len(movers) == len(counted) == 1 and movers[0] == counted[0]:
            self.movers = movers  # as most are: no need for set operations
        else:
            self.movers = np.intersect1d(movers, counted).astype(np.int32)
        self._view, self.domains = view, domains
        self._max_skew, self._min_domains = max_skew, min_domains

    def _lower(self) -> EvenRule:
        """Return one rule for all equal groups: that of a strategy may also be a guard."""
        view = self._view
        members = class_set(view, self.members)
        movers = members if self.movers is self.members else class_set(view, self.movers)
        rule = (self.domains, self._max_skew, self._min_domains, Same(view.in_time))
        identity = "spread", members, movers, *rule
        return view.once(identity, lambda: self._make_rule(members, movers))

    def _make_rule(self, members: ClassSet, movers: ClassSet) -> EvenRule:
        room = Room.of(self._view)
        immobile = None
        if pods := self._immobile():
            immobile = view_of(np.array(sorted(pods.items()), np.int64).reshape(-1))
        return EvenRule(
            movers,
            members,
            self._view.state.living,
            self.domains.lowered,
            room.tally,
            self._takers,
            immobile,
            self._max_skew,
            room.sums,
            too_few=self._too_few,
        )

    @property
    def max_skew(self) -> int:
        """The largest allowed difference in pods."""
        return self._max_skew

    @property
    def missing_domains(self) -> int:
        """How many more domains with nodes ``minDomains`` requires; 0 if there are enough."""
        return max(0, (self._min_domains or 0) - len(self.domains.names))

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
            leaves = [((reached >= 0) & (reached != at)).any() for at in own]
            parts.append(pods[~np.array(leaves, bool)])
        return np.concatenate(parts)

    @property
    def _takers(self) -> OpenDomains:
        """The domains that have a node that could take a pod."""
        if not len(self.movers):
            return _open_of(np.zeros(len(self.domains.names), bool))
        masks = dict.fromkeys(map(Same, map(self._view.usable, self.movers.tolist())))
        first, *others = (mask.array for mask in masks)
        takes = self._view.shared(np.any([first, *others], axis=0)) if others else first
        # Thousands of groups ask this of the same two arrays.
        return self._view.once(
            ("open", Same(takes), self.domains),
            lambda: _open_of(self.domains.sum(takes.astype(np.int32)) > 0),
        )

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

        With fewer domains than ``minDomains`` the scheduler uses 0 as the global minimum (KEP-3022).
        """
        floor = 0 if self._too_few else least
        return bool(self.domains.names) and most - floor <= self._max_skew

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
        closed = [name for name, takes in zip(names, self._takers.flags, strict=True) if not takes]
        if closed and len(self.movers) and (unknown := self._find_unmodelled()):
            cause = f"where its pods may go is not known ({'; '.join(unknown)})"
        elif closed:
            cause = f"no node of {', '.join(closed[:3])} takes another of its pods"
        elif self._too_few:
            cause = f"{len(names)} domains, minDomains {self._min_domains}"
        else:
            pods, _ = self._immobile_pods()
            cause = f"{len(pods)} of {sum(counts.values())} pods cannot be moved"
            cause += _reasons(self._view.kept_by(pods), len(pods))
        return f"{self.standing()}, maxSkew {self._max_skew}: {cause}"

    def _find_unmodelled(self) -> Sequence[str]:
        """Return the features of the movable pods that the prediction does not model."""
        of_each = map(self._view.scheduler.find_unmodelled, self.movers.tolist())
        return list(dict.fromkeys(reason for reasons in of_each for reason in reasons))

    def _counts(self) -> dict[int, int]:
        """Return domain -> number of pods, for the domains with pods or with immobile pods in the snapshot."""
        read(self.rule)
        tally = Room.of(self._view).tally
        at = np.sort(np.asarray(tally.touched)[: tally.used])
        return dict(zip(at.tolist(), np.asarray(tally.counts)[4 * at].tolist(), strict=True))

    def _least(self) -> int:
        """Return the number of pods in the emptiest domain."""
        counts = self._counts()
        return min(counts.values()) if len(counts) == len(self.domains.names) else 0

    def describe(self, node: int) -> str:  # noqa: ARG002  # every domain matters to a spread
        """Return the counts of the fullest domains and the maximum skew, in a phrase."""
        return f"{self.label}: {self.standing()}; asks for at most {self._max_skew} apart"

    def requirement(self) -> str:
        """Return the maximum skew and the topology key, in a few words."""
        few = f" (minDomains {self._min_domains})" if self._min_domains is not None else ""
        return f"at most {self._max_skew} apart{few}"

    def standing(self) -> str:
        """Return ``zone-a 3, zone-b 1`` for up to six domains, fullest first."""
        names, counts = self.domains.names, self._counts()
        order = sorted((d for d, n in counts.items() if n), key=lambda d: (-counts[d], d))[:_SHOWN]
        empty = (d for d in range(len(names)) if not counts.get(d))
        order += [d for _, d in zip(range(_SHOWN - len(order)), empty, strict=False)]
        shown = ", ".join(f"{names[d]} {counts.get(d, 0)}" for d in order)
        more = len(names) - len(order)
        return f"{shown} and {more} more (least {self._least()})" if more else shown


def _open_of(open_: Bools) -> OpenDomains:
    return OpenDomains(view_of(open_), int(np.count_nonzero(open_)))


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
        """Return the topologySpreadConstraints of a class as rules. Cached, because strategies and guards call it.

        A node counts if it has all topology keys of the pod's constraints of that kind and passes the node inclusion
        policies (KEP-3094: affinity honoured, taints ignored, unless the constraint specifies otherwise). Source:
        ``pkg/scheduler/framework/plugins/podtopologyspread/common.go``.
        """
        constraints = view.snapshot.classes[cls].spec.topology_spread_constraints
        if not constraints:
            return ()
        return view.once(
            ("spread rules", cls), lambda: tuple(_spread_rules(view, cls, constraints))
        )

    def identity(self) -> tuple[object, ...]:
        """Return a key; classes with equal keys share one group."""
        return (
            self.entry,
            self.key,
            self.max_skew,
            self.min_domains,
            self.counted.tobytes(),
            Same(self.eligible),
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
    """Return why immobile pods cannot be moved, most frequent reason first, as the end of a sentence on ``pods`` of them."""
    why = sorted(kept_by.items(), key=lambda item: (-item[1], item[0]))
    if [number for _, number in why] == [pods]:
        return f" ({why[0][0]})"
    words = [f"{number} {text}" for text, number in why[:_REASONS]]
    words += [count(more, "more reason")] if (more := len(why) - _REASONS) > 0 else []
    return f" ({'; '.join(words)})" if words else ""


def _with_keys(view: View, keys: tuple[str, ...], eligible: Bools) -> Bools:
    """Return which of the ``eligible`` nodes (N,) have all topology ``keys``; the array is shared."""

    def find() -> Bools:
        columns = (view.snapshot.nodes.labels.column(key) >= 0 for key in keys)
        return view.shared(np.logical_and.reduce([eligible, *columns]))

    return view.once(("with keys", keys, Same(eligible)), find)
