"""Deletion costs: the order in which a scale-in of a ReplicaSet deletes its pods, so that no rule breaks and few moves are needed.

The controller deletes pods that are not Ready first, then those with the lowest deletion cost
(:mod:`rebalancer.wire.deletion_order`). For each ReplicaSet the order is built pod by pod: the next pod is on a node
whose loss breaks no spread constraint, then on a node that is to be empty, then in the fullest domains, then on a Spot
machine. A scale-in to any size deletes the first pods of that order.

Costs are positive and rise with the order, with gaps between them. Pods without a cost count as 0 and are deleted first, so that a new
pod needs one only after a scale-out. Only pods that are out of order are written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rebalancer.cost.spread_group import SpreadGroup
from rebalancer.cost.term import Entry, Term
from rebalancer.plan.deletion_costs import CostChange, DeletionCosts, RepairedByScaleIn
from rebalancer.planner.draft import Draft
from rebalancer.planner.rules import History, RunRules
from rebalancer.policy.model import Mode
from rebalancer.snapshot.columns import Bools, Ints
from rebalancer.snapshot.labels import ZONE_KEYS
from rebalancer.snapshot.marks import to_be_empty
from rebalancer.snapshot.model import PodFlag, Snapshot
from rebalancer.snapshot.prices import is_spot
from rebalancer.wire.deletion_order import Replica, sort_replicas

_CONTROLLERS = ("ReplicaSet.apps", "ReplicationController")
_FIRST, _GAP = 1_000_000, 100
"""The lowest cost of a completely written order, and the distance between two costs."""
_LARGEST = 2**31 - 1
_TAKEN_BACK = "it is not ordered any more"


def find_ordering(rules: RunRules) -> str | None:
    """Return the name of the policy's strategy that writes deletion costs, in any mode; None if it has none.

    Of several the first one by name that is not off counts.
    """
    policy = rules.policy
    names = [name for name, of in sorted(policy.strategies.items()) if of.params.orders_deletions]
    return min(names, key=lambda name: policy.mode_of(name) is Mode.OFF, default=None)


def plan_deletion_costs(
    rules: RunRules,
    snapshot: Snapshot,
    history: History,
    emptied: frozenset[str] | None = None,
    standstill: Sequence[str] = (),
) -> DeletionCosts | None:
    """Return which deletion costs are to be written and taken back; None if the policy orders none.

    ``emptied``: names of the nodes that the plan empties; None: those that are marked in the snapshot.
    """
    if (name := find_ordering(rules)) is None:
        return None
    policy = rules.policy
    is_off = policy.mode_of(name) is Mode.OFF
    marked = None
    if emptied is not None:
        marked = np.array([node in emptied for node in snapshot.nodes.names], bool)
    problem = rules.problem(snapshot, history, marked)
    draft = Draft(problem, rules.settings(history))
    selected = next((of.selected for of in problem.contributions if of.strategy == name), None)
    mine = np.ones(len(snapshot.pods), bool)
    if selected is not None:
        mine = selected.pods(problem.snapshot)
    if problem.scoped is not None:
        mine &= problem.scoped.pods
    most: int = policy.strategies[name].params.pods_per_run  # type: ignore[attr-defined]
    held = _why_held(rules, name, snapshot.captured_at, problem.held, standstill)
    planner = _Planner(draft, mine, is_off=is_off)
    changes = planner.changes()
    return DeletionCosts(
        strategy=name,
        changes=tuple(changes[:most]),
        waiting=max(0, len(changes) - most),
        repaired=tuple(planner.repaired),
        within=policy.protect.after_scaling,
        held=held,
    )


def _why_held(rules: RunRules, name: str, at: float, closed: str, standstill: Sequence[str]) -> str:
    """Return why nothing is written now; empty if it may be."""
    if standstill:
        return f"standing still: {standstill[0]}"
    if closed:
        return closed
    mode = rules.policy.mode_of(name)
    if mode is Mode.OBSERVE:
        return "it only observes"
    if mode is Mode.ENFORCE and not rules.policy.allows(name, at):
        return "its window is closed"
    return ""


@dataclass(slots=True)
class _Planner:
    """The orders of all ReplicaSets of one snapshot."""

    draft: Draft
    mine: Bools
    """(P,) pods that the strategy selects."""
    is_off: bool
    repaired: list[RepairedByScaleIn] = field(default_factory=list)

    @property
    def snapshot(self) -> Snapshot:
        return self.draft.snapshot

    def changes(self) -> list[CostChange]:
        """Return all changes, ReplicaSet by ReplicaSet, beginning with the pods that are deleted last."""
        flags = self.snapshot.pods.flags
        ours = (flags & PodFlag.COST_OURS) != 0
        made: list[CostChange] = []
        for of_set in self._sets():
            rows = of_set.rows
            theirs = bool((flags[rows] & PodFlag.COST_OF_OTHERS).any())
            if self.is_off or theirs or not self.mine[rows].all():
                back = [row for row in rows.tolist() if ours[row] and self.mine[row]]
                why = (
                    "another cost in its ReplicaSet is another client's" if theirs else _TAKEN_BACK
                )
                made += [self._change(row, None, why) for row in back]
            elif not of_set.in_rollout and len(rows) > 1:
                made += self._order(of_set)
        return made

    def _order(self, of_set: _ReplicaSet) -> Iterator[CostChange]:
        order = of_set.order()
        values = assign(
            [of_set.value(row) for row in order.rows],
            order.count_loose(),
        )
        moves = of_set.moves_needed
        if moves and (pods := order.repaired_after()) is not None:
            self.repaired.append(RepairedByScaleIn(of_set.workload, moves, pods))
        numbered = list(zip(order.rows, values, order.reasons, strict=True))
        for place, (row, value, why) in reversed(list(enumerate(numbered, 1))):
            if value is not None:
                yield self._change(row, value, f"{place} of {len(numbered)} to go: {why}")

    def _change(self, row: int, value: int | None, why: str) -> CostChange:
        snapshot, pods = self.snapshot, self.snapshot.pods
        of_class = snapshot.classes[int(pods.cls[row])]
        owner = "" if of_class.owner < 0 else snapshot.owners[of_class.owner].ref
        node = snapshot.nodes.names[int(pods.node[row])]
        return CostChange(
            of_class.namespace, pods.name[row], pods.uid[row], owner, node, value, why
        )

    def _sets(self) -> Iterator[_ReplicaSet]:
        """Yield the ReplicaSets and ReplicationControllers with living pods, by namespace and name."""
        snapshot = self.snapshot
        of_controller: dict[tuple[str, str, str], list[int]] = {}
        for cls, of_class in enumerate(snapshot.classes):
            if of_class.controller in _CONTROLLERS and of_class.owner >= 0:
                key = of_class.namespace, of_class.controller_name, of_class.controller_uid
                of_controller.setdefault(key, []).append(cls)
        nodes = snapshot.nodes
        # Announced to go, marked to be emptied, or cordoned.
        going = nodes.leaving | to_be_empty(snapshot) | nodes.unschedulable
        labels = (nodes.labels.of(node) for node in range(len(nodes)))
        spot = np.array([is_spot(of) for of in labels], bool)
        for _, classes in sorted(of_controller.items()):
            rows = np.concatenate([self.draft.state.living_of(cls) for cls in classes])
            if len(rows):
                yield _ReplicaSet(self.draft, np.sort(rows), classes, going, spot)


@dataclass(slots=True)
class _Rule:
    """One spread constraint over the nodes of a ReplicaSet, with the counts of all pods that it counts."""

    domain: Ints
    """(M,) the domain of each node, -1 where its pods do not count."""
    counts: Ints
    """(D,) pods in each domain."""
    max_skew: int
    too_few: bool
    """There are fewer domains than ``minDomains``: the least is taken as 0."""
    is_hard: bool

    def excess_without(self, nodes: Ints) -> Ints:
        """Return by how much the skew is too large once one pod has gone from each of ``nodes`` (K,), one at a time."""
        counts, domain = self.counts, self.domain[nodes]
        ranked = np.sort(counts)
        most, second = int(ranked[-1]), int(ranked[-2]) if len(ranked) > 1 else 0
        after = counts[domain] - (domain >= 0)
        largest = np.where(counts[domain] == most, np.maximum(second, after), most)
        largest = np.where(domain >= 0, largest, most)
        least = np.minimum(int(ranked[0]), np.where(domain >= 0, after, ranked[0]))
        floor = np.zeros_like(least) if self.too_few else least
        return np.maximum(0, largest - floor - self.max_skew)

    @property
    def excess(self) -> int:
        """By how much the skew is too large."""
        least = 0 if self.too_few else int(self.counts.min())
        return max(0, int(self.counts.max()) - least - self.max_skew)

    def remove(self, node: int) -> None:
        if self.domain[node] >= 0:
            self.counts[self.domain[node]] -= 1

    def worst_of(self, taken: Ints) -> int:
        """Return the largest excess while up to ``taken`` (M,) pods of each node are deleted, in any order."""
        inside = self.domain >= 0
        of_domain = np.bincount(
            self.domain[inside], taken[inside], minlength=len(self.counts)
        ).astype(np.int64)
        if self.too_few or len(self.counts) < 2:  # the skew only falls
            return self.excess
        left = self.counts - of_domain
        ranked = np.sort(self.counts)
        most = np.where(self.counts == ranked[-1], ranked[-2], ranked[-1])
        worst = int((most - left).max(where=of_domain > 0, initial=0))
        return max(self.excess, worst - self.max_skew)


@dataclass(frozen=True, slots=True)
class _Order:
    """The order in which the pods of one ReplicaSet are to be deleted."""

    rows: list[int]
    reasons: list[str]
    nodes: list[int]
    """Place -> the node, among those of the ReplicaSet."""
    kinds: list[tuple[bool, bool]]
    """Place -> whether its node is not emptied, and whether it is no Spot machine."""
    excess: list[int]
    """Number of pods gone -> by how much the skews are too large, summed; from 0 on."""
    rules: list[_Rule]
    """The state before the first pod is deleted."""

    def repaired_after(self) -> int | None:
        """Return after how many deleted pods all rules are met; None if never, or if they are met already."""
        gone = next((gone for gone, excess in enumerate(self.excess) if not excess), None)
        return gone or None

    def count_loose(self) -> int:
        """Return how many of the first pods may be deleted in any order: none of them needs a cost."""
        if self.excess[0]:
            return 1
        taken = np.zeros(1 + max(self.nodes), np.int64)
        for place in range(len(self.rows)):
            taken[self.nodes[place]] += 1
            if self.kinds[place] != self.kinds[0]:
                return max(1, place)
            if any(rule.worst_of(taken) > 0 for rule in self.rules):
                return max(1, place)
        return len(self.rows)


@dataclass(frozen=True)
class _ReplicaSet:
    draft: Draft
    rows: Ints
    classes: list[int]
    going: Bools
    spot: Bools

    @property
    def _cls(self) -> int:
        """The class of most of its pods: they differ at most by what was resized in place."""
        pods = self.draft.snapshot.pods
        return min(Counter(pods.cls[self.rows].tolist()).items(), key=lambda of: (-of[1], of[0]))[0]

    @property
    def workload(self) -> str:
        snapshot = self.draft.snapshot
        return snapshot.owners[snapshot.classes[self._cls].owner].ref

    @property
    def in_rollout(self) -> bool:
        snapshot = self.draft.snapshot
        return snapshot.owners[snapshot.classes[self._cls].owner].rollout

    def value(self, row: int) -> int | None:
        """Return the cost of ours of a pod; None if it has none."""
        pods = self.draft.snapshot.pods
        return int(pods.deletion_cost[row]) if pods.flags[row] & PodFlag.COST_OURS else None

    @cached_property
    def _groups(self) -> list[tuple[Term, SpreadGroup]]:
        """The spread rules of the policy's strategies that its pods are moved for."""
        cls = self._cls
        return [
            (one.term, group)
            for one in self.draft.terms
            for group in one.term.groups_of(np.array([cls], np.int32))
            if isinstance(group, SpreadGroup) and cls in group.movers
        ]

    @property
    def moves_needed(self) -> int:
        """The moves that its unmet spread rules need now; the most of any rule, since one move can serve several."""
        return max((round(group.potential()) for _, group in self._groups), default=0)

    def _rules(self, nodes: Ints) -> list[_Rule]:
        """Return the constraints of its pods: their own, else the scheduler's defaults; and those of the policy."""
        cls, state, spread = self._cls, self.draft.state, self.draft.scheduler.spread
        rules: list[_Rule] = []
        for is_hard, constraints in ((True, spread.hard(cls)), (False, spread.soft(cls))):
            for one in constraints:
                if not (one.matches_itself and len(one.domains)):
                    continue
                place = np.full(one.topology.size + 1, -1, np.int64)
                place[one.domains] = np.arange(len(one.domains))
                of_node = np.where(one.eligible, place[one.topology.domain], -1)
                domain = of_node[nodes]
                of_all = of_node.astype(np.int32)
                counts = state.counts_by(one.classes, of_all, len(one.domains)).astype(np.int64)
                too_few = len(one.domains) < one.min_domains
                rules.append(_Rule(domain, counts, one.max_skew, too_few, is_hard))
        for term, group in self._groups:
            domains = group.domains
            if not domains.names:  # no node has the key
                continue
            counts = state.counts_by(group.members, domains.of_node, len(domains.names))
            of_node = domains.of_node[nodes].astype(np.int64)
            is_hard = term.entry is Entry.HARD
            rules.append(_Rule(of_node, counts.astype(np.int64), group.max_skew, False, is_hard))
        return rules

    def _waiting(self, place: Mapping[int, int]) -> list[list[int]]:
        """Return the pods on each node (M,), the first to be deleted at the end: by the costs that we wrote, then by the controller's order."""
        pods = self.draft.snapshot.pods
        rank = {row: at for at, row in enumerate(self._sort_as_controller())}
        on: list[list[int]] = [[] for _ in place]
        for row in sorted(self.rows.tolist(), key=lambda row: (self.value(row) or 0, rank[row])):
            on[place[int(pods.node[row])]].insert(0, row)
        return on

    def _sort_as_controller(self) -> list[int]:
        """Return the pods in the order in which the controller deletes them without our costs."""
        snapshot = self.draft.snapshot
        pods, owner = snapshot.pods, snapshot.classes[self._cls].owner
        every = self.draft.state.classes_of_owner(owner)
        together = self.draft.state.counts(every)
        rows = self.rows.tolist()
        replicas = [
            Replica(
                uid=pods.uid[row],
                node=snapshot.nodes.names[int(pods.node[row])],
                phase=(state := pods.states[int(pods.state[row])]).phase,
                ready=pods.is_ready(row),
                cost=0,
                together=int(together[int(pods.node[row])]),
                ready_since=float(pods.ready_since[row]),
                restarts=(state.restarts(init=False), 0),
                created=float(pods.created[row]),
            )
            for row in rows
        ]
        return [rows[at] for at in sort_replicas(replicas, snapshot.captured_at)]

    def order(self) -> _Order:
        """Return the order in which the pods are to be deleted."""
        snapshot = self.draft.snapshot
        nodes = np.unique(snapshot.pods.node[self.rows]).astype(np.int64)
        place = {node: at for at, node in enumerate(nodes.tolist())}
        on = self._waiting(place)
        rules, first = self._rules(nodes), self._rules(nodes)
        zone = snapshot.nodes.labels.column(ZONE_KEYS[0])[nodes].astype(np.int64)
        zone = np.where(zone < 0, zone.max(initial=0) + 1, zone)
        stays, steady = ~self.going[nodes], ~self.spot[nodes]
        left = np.array([len(rows) for rows in on], np.int64)
        tops = np.array([self._top(rows) for rows in on], np.int64)
        order = _Order([], [], [], [], [sum(rule.excess for rule in rules)], first)
        while left.any():
            at = self._next(rules, left, zone, (stays, steady), tops)
            order.reasons.append(self._why(int(nodes[at]), rules, at))
            order.rows.append(on[at].pop())
            order.nodes.append(at)
            order.kinds.append((bool(stays[at]), bool(steady[at])))
            left[at] -= 1
            tops[at] = self._top(on[at])
            for rule in rules:
                rule.remove(at)
            order.excess.append(sum(rule.excess for rule in rules))
        return order

    def _top(self, rows: Sequence[int]) -> tuple[int, int]:
        """Return the next pod of a node to be deleted, and the cost that we wrote for it; zeros if none is left."""
        return (rows[-1], self.value(rows[-1]) or 0) if rows else (0, 0)

    def _next(
        self,
        rules: Sequence[_Rule],
        left: Ints,
        zone: Ints,
        kinds: tuple[Bools, Bools],
        tops: Ints,
    ) -> int:
        """Return the node of the ReplicaSet whose pod is to be deleted next; ``tops`` (M, 2): see :meth:`_top`."""
        open_ = np.flatnonzero(left)
        stays, steady = kinds
        none = np.zeros(len(open_), np.int64)
        hard = sum((rule.excess_without(open_) for rule in rules if rule.is_hard), none)
        soft = sum((rule.excess_without(open_) for rule in rules if not rule.is_hard), none)
        in_zone = np.bincount(zone, left, minlength=int(zone.max()) + 1).astype(np.int64)[zone]
        row, cost = tops[open_].T
        keys = (
            row,
            -left[open_],
            -in_zone[open_],
            cost,
            steady[open_],
            soft,
            stays[open_],
            hard,
        )
        return int(open_[np.lexsort(keys)[0]])

    def _why(self, node: int, rules: Sequence[_Rule], at: int) -> str:
        """Return why the next pod is on this node."""
        name = self.draft.snapshot.nodes.names[node]
        if self.going[node]:
            return f"{name} is to be empty"
        unmet = [rule for rule in rules if rule.domain[at] >= 0]
        if any(rule.counts[rule.domain[at]] == rule.counts.max() for rule in unmet):
            return "its domain is among the fullest"
        return f"{name} is a Spot machine" if self.spot[node] else "it breaks no rule"


def assign(values: Sequence[int | None], loose: int) -> list[int | None]:
    """Return the costs to write so that costs rise from pod to pod, except among the first ``loose``; None: leave it.

    ``values``: the present cost of each pod, in the order of deletion; None: it has none, which counts as 0. As few costs
    as possible are written.
    """
    lowest = max([0, *(value for value in values[:loose] if value is not None)])
    rest = list(values[loose:])
    kept = set(_longest_rise(rest, lowest))
    made = _fill(rest, kept, lowest)
    if made is None:
        kept, first = set(), max(_FIRST, lowest + _GAP)
        made = [first + _GAP * place for place in range(len(rest))]
    return [*([None] * loose), *(None if at in kept else made[at] for at in range(len(rest)))]


def _longest_rise(values: Sequence[int | None], above: int) -> list[int]:
    """Return the places of a longest rising part of ``values``, all of it larger than ``above``."""
    ends: list[int] = []
    """Of the rising parts of each length, the place where the one with the lowest end ends."""
    before: dict[int, int] = {}
    for place, value in enumerate(values):
        if value is not None and value > above:
            at = bisect_left(ends, value, key=lambda end: values[end] or 0)
            before[place] = ends[at - 1] if at else -1
            ends[at : at + 1] = [place]
    part: list[int] = []
    place = ends[-1] if ends else -1
    while place >= 0:
        part.append(place)
        place = before[place]
    return part


def _fill(values: Sequence[int | None], kept: set[int], above: int) -> list[int] | None:
    """Return rising costs that agree with ``values`` where they are ``kept``; None if there is no room between these."""
    made, start, low = [value or 0 for value in values], 0, above
    for end in (*sorted(kept), len(values)):
        if end < len(values):
            gap = min(_GAP, (made[end] - low) // (end - start + 1))
            first = made[end] - gap * (end - start)
        else:
            gap = _GAP
            first = gap + (low if kept else max(low, _FIRST - gap))
        if gap < 1 or first + gap * (end - start - 1) > _LARGEST:
            return None
        made[start:end] = range(first, first + gap * (end - start), gap)
        start, low = end + 1, made[end] if end < len(values) else low
    return made
