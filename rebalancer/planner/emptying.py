"""Choose the nodes to empty: nodes whose pods all have landings elsewhere, and whose emptying is worthwhile.

The value of a node is that of Karpenter's Balanced policy (designs/balanced-consolidation.md): its share of the
cluster's capacity, or of its price where the policy knows prices, divided by its share of the cluster's disruption. All nodes to be emptied are marked at once, so
that no pod lands on one of them; every other node is tried, pod after pod, with the prediction and the rules of
every plan. Work is counted in judgements, not in seconds, so that the same snapshot gives the same choice on any
machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rebalancer.base.plain_text import count
from rebalancer.cost.guards import guard_term
from rebalancer.cost.strategy import Emptiable
from rebalancer.plan.plan import Code, NodeCode, NodeVerdict, Plan
from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.gangs import units_of
from rebalancer.planner.judge import Judge
from rebalancer.planner.problem import Contribution
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.together import TogetherJudge, TogetherRules
from rebalancer.planner.trial import Trial
from rebalancer.policy.model import Eagerness
from rebalancer.snapshot.columns import Bools, Floats, Int32s, sum_by_node
from rebalancer.snapshot.marks import find_marked, find_marked_by_others
from rebalancer.snapshot.protect import ALONE, PASSING
from rebalancer.wire.marks import PINS


class LeavingPods:
    """Per node: the pods that must leave so that it becomes empty, and which of these pods cannot leave."""

    def __init__(self, draft: Draft, of: Contribution) -> None:
        snapshot, problem = draft.snapshot, draft.problem
        self._draft, self._of, pods = draft, of, snapshot.pods
        here = draft.state.unmoved()
        here = here[~snapshot.per_node[here]]
        most = np.maximum(1, snapshot.nodes.allocatable.max(axis=1, initial=1))
        size = (snapshot.requests / most[:, None]).max(axis=0, initial=0.0)
        # The largest first: they fit into few places.
        rank = draft.view.rank_equals()[here]
        self._pods = here[np.lexsort((rank, -size[pods.cls[here]], pods.node[here]))]
        self._starts = np.searchsorted(pods.node[self._pods], np.arange(len(snapshot.nodes) + 1))
        self._mine = np.ones(len(pods), bool) if of.selected is None else of.selected.pods(snapshot)
        forbidden = problem.disruptions.forbidden_pods()
        self.units = units_of(draft, self._mine)
        """Pod -> all pods of its gang, of gangs that may leave as a whole."""
        of_unit = np.zeros(len(pods), bool)
        of_unit[list(self.units)] = True
        protected = np.where(of_unit, problem.protected & ~ALONE, problem.protected)
        self._stays = ~self._mine | (protected != 0) | forbidden
        self._stays_for_good = ~self._mine | ((protected & ~PASSING) != 0)
        self._stays_for_good |= forbidden & problem.disruptions.unevictable_pods()
        costs = np.bincount(pods.node[here], problem.costs[here], minlength=len(snapshot.nodes))
        self.costs: Floats = costs + self._costs_elsewhere(here, problem.costs)
        """(N,) what it costs to evict the pods of each node, and those of their gangs on other nodes."""
        used = sum_by_node(snapshot.requests, pods.cls[here], pods.node[here], len(snapshot.nodes))
        total = np.maximum(1, snapshot.nodes.allocatable.sum(axis=1, keepdims=True))
        self.load: Floats = (used / total).max(axis=0, initial=0.0)
        """(N,) the largest share of all nodes' resources that the pods of each node request."""

    def _costs_elsewhere(self, here: Int32s, costs: Floats) -> Floats:
        """Return per node (N,) what it costs to evict the other pods of the gangs on it."""
        node_of = self._draft.snapshot.pods.node
        of_nodes: dict[int, set[int]] = {}
        for pod in here.tolist():
            if (unit := self.units.get(pod)) is not None:
                others = unit[node_of[unit] != node_of[pod]]
                of_nodes.setdefault(int(node_of[pod]), set()).update(others.tolist())
        extra = np.zeros(len(self._draft.snapshot.nodes))
        for node, others in of_nodes.items():
            extra[node] = costs[sorted(others)].sum()
        return extra

    def on(self, node: int) -> Int32s:
        """Return the pods that must leave ``node``, largest first."""
        return self._pods[self._starts[node] : self._starts[node + 1]]

    def staying(self, node: int, *, for_good: bool = False) -> Int32s:
        """Return the pods that cannot leave ``node``, largest first; ``for_good``: see :meth:`blocked`."""
        pods = self.on(node)
        return pods[(self._stays_for_good if for_good else self._stays)[pods]]

    def blocked(self, node: int, *, for_good: bool = False) -> NodeVerdict | None:
        """Return a verdict if a pod cannot leave ``node``; else None.

        ``for_good``: only obstacles that do not end by themselves count.
        """
        staying = self.staying(node, for_good=for_good)
        if not len(staying):
            return None
        others = f", and {len(staying) - 1} more" if len(staying) > 1 else ""
        text = (
            f"{self._draft.snapshot.pod_ref(int(staying[0]))}{others}: {self.why(int(staying[0]))}"
        )
        return NodeVerdict(NodeCode.POD_STAYS, text)

    def why(self, pod: int) -> str:
        """Return why a pod cannot leave its node."""
        draft, of = self._draft, self._of
        keeps = draft.keeps(pod) or draft.problem.disruptions.forbidden(
            int(draft.snapshot.pods.cls[pod]), int(draft.snapshot.pods.node[pod])
        )
        keeps = keeps or Refusal.of(Why.NOT_SELECTED, strategy=of.strategy)
        return keeps.text(draft.snapshot)


class EmptyingTrial:
    """Tries sets of nodes on a draft, whose state it leaves unchanged, with a limited number of judgements."""

    def __init__(
        self, draft: Draft, pods: LeavingPods, others: Int32s, *, removes: bool = False
    ) -> None:
        """``others``: further nodes that accept no pods, since something else empties them.

        ``removes``: scale-in cordons and taints the nodes before they are emptied; else they are marked.
        """
        self._keeping_off = draft.scheduler.removing if removes else draft.scheduler.marking
        self._draft, self._pods, self._others = draft, pods, others
        # A mark takes the place of the one that a node has because pods hold it, and a node has one of that key.
        pinned = find_marked(draft.snapshot, PINS) | find_marked_by_others(draft.snapshot, PINS)
        self._marked = pinned & (not removes)
        guard = guard_term(draft.view)
        self._judge = Judge(draft.view, draft.enforced, guard, draft.settings.threshold)
        self._together = TogetherJudge(draft, self._judge, draft.enforced, guard)
        self._left = Effort.of(len(draft.snapshot.nodes)).emptying

    @property
    def exhausted(self) -> bool:
        """Whether the limit of judgements is reached."""
        return self._left <= 0

    def failing(self, nodes: Sequence[int], *, one_will_do: bool = False) -> Mapping[int, Refusal]:
        """Return node -> why, for each node whose pods have no landings while all of ``nodes`` are marked.

        Nodes are tried in order, with the pods of earlier nodes placed where they would land. ``one_will_do``: stop
        at the first such node.
        """
        marked = np.array(sorted(nodes), np.int32)
        closed = np.union1d(marked, self._others).astype(np.int32)
        failing: dict[int, Refusal] = {}
        with self._keeping_off(marked[~self._marked[marked]]), Trial(self._draft.state) as trial:
            for node in nodes:
                before = trial.here()
                if (why := self._leave(trial, node, closed)) is not None:
                    trial.undo(before)
                    failing[node] = why
                    if one_will_do:
                        break
        return failing

    def _leave(self, trial: Trial, node: int, closed: Int32s) -> Refusal | None:
        """Move all pods of ``node`` in the state; return the first one without a landing and why, or None."""
        for pod in self._pods.on(node).tolist():
            unit = self._pods.units.get(pod)
            if unit is not None and not self._draft.state.at_home(np.array([pod], np.int32))[0]:
                continue  # with its gang
            self._left -= 1 if unit is None else len(unit)
            if self._left < 0:
                why: Refusal | None = Refusal.of(Why.TAKES_TOO_LONG)
            elif unit is None:
                why = self._move(trial, pod, node, closed)
            else:
                why = self._move_unit(trial, [pod, *unit[unit != pod].tolist()], closed)
            if why is not None:
                return why if why.why is Why.OF_POD else Refusal.of(Why.OF_POD, pod=pod, why=why)
        return None

    def _move(self, trial: Trial, pod: int, node: int, closed: Int32s) -> Refusal | None:
        """Move ``pod`` off ``node`` in the state, avoiding ``closed`` nodes; return why it cannot move, or None."""
        verdict = self._judge.harmless(pod, node)
        if verdict.refused is not None:
            return verdict.refused
        landings = verdict.prediction
        if landings.takers:
            return Refusal.of(Why.FEEDS_OTHERS, pod=landings.takers[0].pod)
        if (again := np.intersect1d(landings.nodes, closed)).size:
            return Refusal.of(Why.ON_CLOSED_NODE, node=int(again[0]))
        trial.move(pod, int(landings.nodes[0]))
        return None

    def _move_unit(self, trial: Trial, pods: Sequence[int], closed: Int32s) -> Refusal | None:
        """Move all pods of a gang, or of a Deployment whose rollout is restarted, in the state; return why they cannot move, or None."""
        node_of = self._draft.snapshot.pods.node
        named = [pod for pod in pods if node_of[pod] in closed]
        rules = TogetherRules(named=named, closed=closed)
        landing = self._together.land_together(trial, pods, rules)
        return landing if isinstance(landing, Refusal) else None


LEAST: Mapping[Eagerness, float] = {
    Eagerness.TIMID: 1.0,
    Eagerness.CAREFUL: 1 / 2,
    Eagerness.STEADY: 1 / 3,
    Eagerness.EAGER: 1 / 4,
    Eagerness.RELENTLESS: 0.0,
}
"""Least share saved per share disturbed. Karpenter requires a half: its longest chain of moves is then 4 long."""

_WEIGHED = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class EmptyingChoice:
    """The nodes to empty, and the verdicts on the other nodes."""

    nodes: Bools
    """(N,) the chosen nodes."""
    verdicts: Mapping[int, NodeVerdict] = field(default_factory=dict)
    """Node -> the decision on it."""


class Emptier:
    """Chooses the nodes to empty, on a draft whose state it leaves unchanged.

    In the draft, only ``others`` (N,) are marked: nodes outside of the strategy, or nodes that another release
    empties. None of them is chosen, and no pod lands on them.
    """

    def __init__(
        self,
        draft: Draft,
        of: Contribution,
        emptiable: Emptiable,
        others: Bools,
        *,
        removes: bool = False,
    ) -> None:
        """``removes``: see :class:`EmptyingTrial`."""
        self._draft, self._emptiable = draft, emptiable
        self._nodes = emptiable.nodes & ~others
        self._pods = LeavingPods(draft, of)
        closed = np.flatnonzero(others).astype(np.int32)
        self._trial = EmptyingTrial(draft, self._pods, closed, removes=removes)
        self._removes = removes
        # A node has one mark of that key: what another release has marked cannot be marked as to be empty.
        self._taken = find_marked_by_others(draft.snapshot, PINS) & (not removes)
        self._most_pods = Effort.of(len(draft.snapshot.nodes)).emptied_pods
        self._why: dict[int, NodeVerdict] = {}

    @property
    def empty(self) -> Bools:
        """The nodes (N,) that may be emptied and have no pods that must leave."""
        counts = [len(self._pods.on(node)) for node in range(len(self._nodes))]
        return self._nodes & (np.array(counts, np.int32) == 0)

    def staying(self, node: int) -> list[tuple[int, str]]:
        """Return (pod, reason) for each pod that cannot leave ``node``, largest first."""
        return [(pod, self._pods.why(pod)) for pod in self._pods.staying(node).tolist()]

    def still(self, begun: Bools) -> EmptyingChoice:
        """Return which nodes ``begun`` (N,), which earlier runs began to empty, can still be emptied."""
        able: list[int] = []
        for node in np.flatnonzero(begun).tolist():
            text = self._emptiable.kept.get(node) if self._emptiable.counted[node] else None
            if text is not None:
                self._keep(node, NodeVerdict(NodeCode.NOT_ELIGIBLE, text))
            elif (why := self._pods.blocked(node, for_good=True)) is not None:
                self._keep(node, why)
            else:
                able.append(node)
        return self._choice(self._fitting(able), begun)

    def able(self, nodes: Sequence[int]) -> list[int]:
        """Return which of ``nodes`` are worth emptying, and can be emptied together once temporary obstacles have ended."""
        worth, least = self._worth(), LEAST[self._draft.settings.eagerness]
        worthy = [
            node
            for node in nodes
            if self._nodes[node]
            and self._pods.blocked(node, for_good=True) is None
            and self._too_cheap(node) is None
            and (worth[node] >= least or not len(self._pods.on(node)))
        ]
        return self._fitting(worthy)

    def waiting(self, begun: Bools) -> EmptyingChoice:
        """Return a choice of exactly the nodes ``begun`` (N,): other moves come before new nodes."""
        why = "moves for rules, and nodes that were begun, come first"
        for node in list(self._candidates(begun)):
            # Of one that was begun, and cannot be emptied any more, it is known why.
            self._why.setdefault(node, NodeVerdict(NodeCode.WAITS, why))
        return self._choice(np.flatnonzero(begun).tolist(), begun)

    def more(self, begun: Bools, first: Bools | None = None) -> EmptyingChoice:
        """Return the nodes to empty: those in ``begun`` (N,) and as many others as possible.

        Those worth most come first, or those whose pods need the least room, or with prices the dearest: whatever
        saves more. ``first`` (N,): these before all others.
        """
        kept, prices = np.flatnonzero(begun).tolist(), self._emptiable.prices
        candidates = _in_turn(list(self._candidates(begun)), first)
        by_load = sorted(candidates, key=lambda node: self._pods.load[node])
        turns = [candidates, _in_turn(by_load, first)]
        needed = max(1, self._emptiable.needed)
        most = int(np.count_nonzero(self._emptiable.counted)) - needed
        tried = []
        if prices is not None:  # what is dear comes first, while judgements last
            dear = sorted(candidates, key=lambda node: (-prices.known[node], node))
            tried.append(self._grow(kept, _in_turn(dear, first), most))
        tried += [self._choose(kept, turn, most) for turn in turns]
        if prices is None:
            tried += [self._grow(kept, turn, most) for turn in turns]
        best = max(tried, key=lambda of: (self._sum_savings(of), -self._pods.costs[of].sum()))
        if prices is not None and not self._removes:
            best = self._exchange(kept, best, candidates, prices.known)
        text = "its pods, together with those of the nodes that are emptied, have no landings elsewhere"
        if len(best) >= most:
            text = f"the requests of all pods need at least {count(needed, 'node')}"
        elif self._trial.exhausted:
            text = "whether its pods have landings elsewhere takes too long to say in one run"
        for node in set(candidates) - set(best) - self._why.keys():
            self._keep(node, NodeVerdict(NodeCode.NO_PLACE, text))
        return self._choice(best, begun)

    def _sum_savings(self, nodes: Sequence[int]) -> float:
        """Return what ``nodes`` save: their price for an hour where prices are known, else their number."""
        if (prices := self._emptiable.prices) is None:
            return len(nodes)
        # Sums of the same prices in another order are the same.
        return round(float(prices.known[list(nodes)].sum()), 9)

    def _choose(self, kept: Sequence[int], candidates: Sequence[int], most: int) -> list[int]:
        """Return ``kept`` and as many of ``candidates`` as can also be emptied: first all at once without those that fail, then one by one.

        ``most``: nodes in all. For many nodes this takes few judgements; with :meth:`_grow` no node fails because of later ones.
        """
        together = self._few_enough(candidates[: max(0, most - len(kept))])
        chosen = self._fitting([*kept, *together], fixed=len(kept))
        others = [node for node in candidates if node not in chosen]
        return self._grow(chosen, others, most, one_by_one=True)

    def _grow(
        self,
        kept: Sequence[int],
        candidates: Sequence[int],
        most: int,
        *,
        one_by_one: bool = False,
    ) -> list[int]:
        """Return ``kept`` and, in order, each of ``candidates`` that can be emptied beside those before it.

        ``most``: nodes in all. ``one_by_one``: most of them fail, so that more at once are not worth a try.
        """
        chosen, start, step = list(kept), 0, 1
        while start < len(candidates) and len(chosen) < most and not self._trial.exhausted:
            more = candidates[start : start + min(step, most - len(chosen))]
            trial = [*chosen, *more]
            if not self._too_many(more[0], trial) and not self._failing(trial, one_will_do=True):
                chosen, start = trial, start + len(more)
                step = 1 if one_by_one else 2 * step
            elif len(more) > 1:
                step = len(more) // 2
            else:
                start += 1
        return chosen

    def _exchange(
        self,
        kept: Sequence[int],
        chosen: Sequence[int],
        candidates: Sequence[int],
        known: Floats,
    ) -> list[int]:
        """Return ``chosen`` with dearer ``candidates`` in the place of cheaper nodes, where that pays what it disturbs.

        A node that was begun (``kept``) is given back only if it is empty: its room may be what a dearer one needs.
        ``known`` (N,): the prices.
        """
        chosen = list(chosen)
        full = {node for node in kept if len(self._pods.on(node))}
        worth, least = self._worth(), LEAST[self._draft.settings.eagerness]
        for dear in sorted(set(candidates) - set(chosen), key=lambda node: (-known[node], node)):
            for cheap in sorted(set(chosen) - full, key=lambda node: (known[node], node)):
                saved = 1.0 - known[cheap] / known[dear] if known[dear] else 0.0
                if saved <= 0 or worth[dear] * saved < least or self._trial.exhausted:
                    break
                trial = [*(node for node in chosen if node != cheap), dear]
                if not self._too_many(dear, trial) and not self._failing(trial, one_will_do=True):
                    chosen = trial
                    self._keep(
                        cheap,
                        NodeVerdict(
                            NodeCode.NO_PLACE,
                            f"it has the room for pods of {self._draft.snapshot.nodes.names[dear]}, whose price is higher",
                        ),
                    )
                    break
        return chosen

    def _choice(self, chosen: Sequence[int], like: Bools) -> EmptyingChoice:
        nodes = np.zeros(len(like), bool)
        nodes[list(chosen)] = True
        why = {node: why for node, why in self._why.items() if not nodes[node]}
        prices = self._emptiable.prices
        for node in chosen:
            pods, price = len(self._pods.on(node)), ""
            if prices is not None and not np.isnan(prices.hourly[node]):
                price = f"; its price is {prices.hourly[node]:g} an hour"
            why[node] = (
                NodeVerdict(
                    NodeCode.EMPTIED,
                    f"pods that have to leave it: {pods}; all of them have landings elsewhere, together{price}",
                )
                if pods
                else NodeVerdict(
                    NodeCode.EMPTY,
                    f"only pods that belong to it are on it; it is marked, so that it stays empty{price}",
                )
            )
        return EmptyingChoice(nodes, why)

    def _keep(self, node: int, why: NodeVerdict) -> None:
        self._why[node] = why

    # -- what a node is worth --------------------------------------------------------------------------

    def _candidates(self, begun: Bools) -> Iterator[int]:
        """Yield the nodes that may be emptied, most valuable first; record why the others are not emptied."""
        worth, least = self._worth(), LEAST[self._draft.settings.eagerness]
        for node, text in self._emptiable.kept.items():
            self._keep(node, NodeVerdict(NodeCode.NOT_ELIGIBLE, text))
        for node in np.flatnonzero(self._emptiable.nodes & ~self._nodes).tolist():
            self._keep(node, NodeVerdict(NodeCode.NOT_ELIGIBLE, "another release keeps it empty"))
        nodes = np.flatnonzero(self._nodes & ~begun)
        for node in nodes[np.lexsort((nodes, -worth[nodes]))].tolist():
            why = self._pods.blocked(node) or self._too_cheap(node)
            if why is not None:
                self._keep(node, why)
            elif worth[node] < least and len(self._pods.on(node)):
                text = (
                    f"what it saves is {worth[node]:.2f} of what it disturbs, as shares of the cluster's;"
                    f" the policy asks for {least:.2f}"
                )
                self._keep(node, NodeVerdict(NodeCode.LOW_GAIN, text))
            elif self._taken[node]:
                text = "another release has marked it, since pods hold it"
                self._keep(node, NodeVerdict(NodeCode.NOT_ELIGIBLE, text))
            else:
                yield node

    def _too_cheap(self, node: int) -> NodeVerdict | None:
        """Return a verdict if the saving of a node with pods is unknown, or less than the policy requires; else None."""
        prices, pods = self._emptiable.prices, len(self._pods.on(node))
        if prices is None or not pods:
            return None
        hourly = float(prices.hourly[node])
        if np.isnan(hourly):
            return NodeVerdict(NodeCode.NOT_ELIGIBLE, "prices do not say what it costs")
        if hourly / pods >= prices.least_saving:
            return None
        text = (
            f"it saves {hourly:g} an hour for {count(pods, 'pod')} that would be evicted, {hourly / pods:.2g} each;"
            f" prices.leastSaving asks for {prices.least_saving:g}"
        )
        return NodeVerdict(NodeCode.LOW_GAIN, text)

    def _worth(self) -> Floats:
        """Return per node (N,) its share of the price, or of the capacity, divided by its share of the disruption."""
        counted, snapshot = self._emptiable.counted, self._draft.snapshot
        rows = [snapshot.resources.index(name) for name in _WEIGHED if name in snapshot.resources]
        prices = self._emptiable.prices
        worth_of = snapshot.nodes.allocatable[rows] if prices is None else prices.known[None, :]
        room = worth_of * counted
        saved = (room / np.maximum(1e-9, room.sum(axis=1, keepdims=True))).mean(axis=0)
        disturbed = 1.0 + self._pods.costs
        share = disturbed / np.maximum(1e-9, disturbed[counted].sum())
        worth: Floats = saved / share
        return worth

    # -- whether it can be done ------------------------------------------------------------------------

    def _few_enough(self, nodes: Sequence[int]) -> Sequence[int]:
        """Return the first of ``nodes``, up to the most pods of one choice; of a single node all may leave."""
        pods = np.cumsum([len(self._pods.on(node)) for node in nodes])
        return nodes[: max(1, int(np.searchsorted(pods, self._most_pods, side="right")))]

    def _too_many(self, node: int, nodes: Sequence[int]) -> bool:
        """Return whether ``nodes``, among them ``node``, have too many pods for one choice; record it if no better reason is known."""
        too_many = len(self._few_enough(nodes)) < len(nodes)
        if too_many:
            text = f"a choice is of nodes with {self._most_pods} pods at most"
            self._why.setdefault(node, NodeVerdict(NodeCode.NO_PLACE, text))
        return too_many

    def _fitting(self, nodes: Sequence[int], fixed: int = 0) -> list[int]:
        """Return the ``nodes`` that can be emptied together; the first ``fixed`` are known to fit."""
        while len(nodes) > fixed and (failing := self._failing(nodes)):
            left = [node for node in nodes[fixed:] if node not in failing]
            # Where only those that were begun fail, the last of the others is one too many.
            nodes = [*nodes[:fixed], *(left if len(left) < len(nodes) - fixed else left[:-1])]
        return list(nodes)

    def _failing(self, nodes: Sequence[int], *, one_will_do: bool = False) -> set[int]:
        """Return the nodes that cannot be emptied while all of ``nodes`` are marked; record why.

        A trial that takes too long replaces no earlier reason.
        """
        failing = self._trial.failing(nodes, one_will_do=one_will_do)
        for node, why in failing.items():
            verdict = NodeVerdict(NodeCode.NO_PLACE, why.text(self._draft.snapshot))
            if not (self._trial.exhausted and node in self._why):
                self._keep(node, verdict)
        return set(failing)


def _in_turn(nodes: Sequence[int], first: Bools | None) -> list[int]:
    """Return ``nodes`` in their order, but those of ``first`` (N,) before the others."""
    return sorted(nodes, key=lambda node: first is not None and not first[node])


def half_emptied(plan: Plan, strategy: str, names: Sequence[str], nodes: Bools) -> list[int]:
    """Return the nodes (N,) that the plan would not empty completely, for a reason other than budgets."""
    stays = {
        skip.node
        for skip in plan.skips
        if skip.strategy == strategy and skip.code is not Code.BUDGET
    }
    return [node for node in np.flatnonzero(nodes).tolist() if names[node] in stays]
