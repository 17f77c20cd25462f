"""Decide which nodes can be removed: eligible nodes whose pods all have landings elsewhere, together.

Consolidation's code decides whether the pods can leave: by the policy's protections, PodDisruptionBudgets, and the
prediction. It runs twice, with the rules of the policy and without: Cluster Autoscaler knows only the scheduler's
rules.

The rules for eligible nodes and their order follow Cluster Autoscaler's (``core/scaledown/eligibility``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.base.plain_text import count
from rebalancer.cost.room_term import kept_free
from rebalancer.cost.strategy import Emptiable
from rebalancer.machines.capacity.groups import Groups, known_nodes, zone_of
from rebalancer.machines.capacity.limits import Floor
from rebalancer.machines.reasons import REMOVABLE_CODES, NodeStays, Reason, RemovalCode
from rebalancer.plan.plan import NodeCode as EmptyingCode
from rebalancer.plan.plan import NodeVerdict
from rebalancer.planner.draft import Draft
from rebalancer.planner.emptying import Emptier, EmptyingChoice
from rebalancer.planner.problem import Contribution, Problem
from rebalancer.planner.settings import Settings
from rebalancer.policy.cluster import CapacitySettings
from rebalancer.policy.model import Eagerness
from rebalancer.providers.contract import NodeGroup
from rebalancer.snapshot.buffers import find_chunks
from rebalancer.snapshot.columns import Bools, Floats, Ints, sum_by_node
from rebalancer.snapshot.leaving import NoticeKind
from rebalancer.snapshot.marks import find_marked_by_others
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.prices import NodePrices
from rebalancer.snapshot.zones import ZoneState, list_zones

GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915")
"""Resources of GPUs: if a node has one of them, its cpu and memory do not count."""
_WEIGHED = ("cpu", "memory")
_CLOSE = 1e-9
"""Shares that differ by so much are equal."""


def utilisation_of(draft: Draft, groups: Groups) -> dict[str, Floats]:
    """Return resource -> share (N,) that living pods request; -1 if a node has none of the resource.

    Pods of DaemonSets and static pods count; terminating ones do not. Where the group ignores DaemonSets, the
    requests of their pods are subtracted from both sides (``simulator/utilization/info.go``).
    """
    snapshot: Snapshot = draft.snapshot
    daemons = _sum_ignored_daemons(draft, groups)
    shares: dict[str, Floats] = {}
    for name in (*_WEIGHED, *GPUS):
        if name in snapshot.resources:
            row = snapshot.resources.index(name)
            room = snapshot.nodes.allocatable[row]
            asked = draft.state.lasting[row] - daemons[row]
            share = asked / np.maximum(1, room - daemons[row])
            shares[name] = np.where(room > 0, share, -1.0)
    return shares


def _sum_ignored_daemons(draft: Draft, groups: Groups) -> Ints:
    """Return what pods of DaemonSets request (R, N) on nodes whose group ignores it; 0 on others."""
    snapshot, here = draft.snapshot, draft.state.unmoved()
    ignoring = np.array(
        [groups.options_of(node).ignores_daemons for node in range(len(snapshot.nodes))], bool
    )
    of_class = np.array([cls.controller_kind == "DaemonSet" for cls in snapshot.classes], bool)
    cls, node = snapshot.pods.cls[here], snapshot.pods.node[here]
    counted = of_class[cls] & ignoring[node]
    return sum_by_node(snapshot.requests, cls[counted], node[counted], len(snapshot.nodes))


def relevant_shares(utilisation: Mapping[str, Floats], node: int) -> dict[str, float]:
    """Return resource -> share, for the resources that count: cpu and memory; with GPUs, only these."""
    shares = {name: float(share[node]) for name, share in utilisation.items()}
    gpus = {name: share for name, share in shares.items() if name in GPUS and share >= 0}
    return gpus or {name: shares[name] for name in _WEIGHED if shares.get(name, -1) >= 0}


_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")

_Kept = dict[int, Reason[RemovalCode]]
"""Node -> why it cannot be removed."""
_Rule = _Kept | tuple[Bools, Reason[RemovalCode]]
"""The nodes that one rule keeps, each with its reason; or (N,) nodes, and the reason for all of them."""


def _find_ineligible(rules: Iterable[_Rule]) -> _Kept:
    """Return the nodes that any rule keeps, each with the reason of the first such rule."""
    kept: _Kept = {}
    for rule in rules:
        if not isinstance(rule, dict):
            nodes, why = rule
            rule = dict.fromkeys(np.flatnonzero(nodes).tolist(), why)  # noqa: PLW2901
        kept = {**rule, **kept}
    return kept


def at_minimum(group: NodeGroup) -> Reason[RemovalCode]:
    """Return that a group is at its minimum."""
    have = group.desired if group.desired is None else min(group.desired, len(group.instances))
    return NodeStays.MIN_SIZE.of(group=group.name, have=have, least=group.minimum)


def to_spare(group: NodeGroup) -> float:
    """Return how many machines a group has above its minimum, counted by existing and by desired machines."""
    if group.desired is None or group.minimum is None:
        return math.inf
    return min(group.desired, len(group.instances)) - group.minimum


def _states(draft: Draft) -> Iterator[_Rule]:
    nodes = draft.snapshot.nodes
    yield {node: Reason(RemovalCode.NOT_READY, why) for node, why in nodes.unreadable.items()}
    yield nodes.leaving, NodeStays.LEAVING.of()
    for key in _CONTROL_PLANE:
        yield nodes.labels.column(key) >= 0, NodeStays.CONTROL_PLANE.of(key=key)
    yield {
        node: NodeStays.DISABLED.of(notice=keeps[0])
        for node, notices in nodes.notices.items()
        if (keeps := [one.text for one in notices if one.kind is NoticeKind.KEEP])
    }
    # Once its pods are given up, what is left of it can be removed.
    holding = np.zeros(len(nodes), bool)
    pods = draft.state.unmoved()
    holding[draft.snapshot.pods.node[pods[~draft.snapshot.per_node[pods]]]] = True
    yield ~nodes.ready & holding, NodeStays.NOT_READY.of()


def _memberships(snapshot: Snapshot, groups: Groups, *, has_provider: bool) -> Iterator[_Rule]:
    if has_provider:
        alone = set(range(len(snapshot.nodes))) - set(groups.of_node)
        yield dict.fromkeys(alone, NodeStays.NO_GROUP.of())
    of_node = {
        node: group for node in groups.of_node if (group := groups.group_of(node)) is not None
    }
    yield {node: NodeStays.BEING_REPLACED.of() for node, group in of_node.items() if group.note}
    yield _find_held(snapshot, groups)
    yield {node: at_minimum(group) for node, group in of_node.items() if to_spare(group) <= 0}


def _find_held(snapshot: Snapshot, groups: Groups) -> _Kept:
    """Return node -> why the provider cannot end its machine now."""
    if not any(group.held for group in groups.groups):
        return {}
    known = known_nodes(snapshot)
    return {
        node: Reason(RemovalCode.HELD, why)
        for node in groups.of_node
        if (group := groups.group_of(node)) is not None
        and (why := group.held.get(known[node].instance)) is not None
    }


def _find_refilled(draft: Draft) -> _Kept:
    """Return the nodes of zones that are back, and that an unmet rule of the policy over zones asks for: runs refill these."""
    snapshot, kept = draft.snapshot, _Kept()
    zone_of, names = snapshot.nodes.labels.zones()
    every = np.arange(len(snapshot.classes), dtype=np.int32)
    for zone in (one.name for one in list_zones(snapshot) if one.state is ZoneState.BACK):
        nodes = np.flatnonzero(zone_of == list(names).index(zone))
        for group in (group for one in draft.enforced for group in one.term.groups_of(every)):
            of_node = group.domains.of_node[nodes] if hasattr(group, "domains") else nodes[:0]
            if len(np.unique(of_node)) == 1 and of_node[0] >= 0 and group.potential() > 0:
                why = NodeStays.ZONE_BACK.of(zone=zone, rule=group.label)
                kept.update(dict.fromkeys(nodes.tolist(), why))
                break
    return kept


def _find_thresholds(groups: Groups, size: int, under: float) -> tuple[Floats, Floats]:
    """Return the requested share from which on each node (N,) is not removed, and the same if it has GPUs.

    Source: ``core/scaledown/eligibility: isNodeBelowUtilizationThreshold``. So 0 keeps all nodes.
    """
    plain, gpus = np.full(size, under), np.full(size, under)
    for node in range(size):
        options = groups.options_of(node)
        for thresholds, own in ((plain, options.threshold), (gpus, options.gpu_threshold)):
            if own is not None:
                thresholds[node] = own
    return plain, gpus


def _exclude_utilised(
    snapshot: Snapshot, groups: Groups, utilisation: Mapping[str, Floats], under: float
) -> Iterator[_Rule]:
    size = len(snapshot.nodes)
    thresholds = _find_thresholds(groups, size, under)
    of_gpus = np.zeros(size, bool)
    for name in GPUS:
        of_gpus |= utilisation.get(name, np.full(size, -1.0)) >= 0
    for name, share in utilisation.items():
        least = thresholds[name in GPUS]
        counts = (share >= 0) & (of_gpus if name in GPUS else ~of_gpus)
        full = counts & (share >= least - _CLOSE)
        yield {
            node: NodeStays.TOO_FULL.of(
                share=share[node],
                resource=name,
                group="" if least[node] == under else " of its group",
                least=least[node],
            )
            for node in np.flatnonzero(full).tolist()
        }


def _exclude_needed(snapshot: Snapshot, needed: Mapping[str, int]) -> _Kept:
    chunks = find_chunks(snapshot)
    return {
        snapshot.nodes.index[name]: (
            NodeStays.KEEPS_ROOM if chunks[pod] else NodeStays.FITS_POD
        ).of(pod=snapshot.pod_ref(pod))
        for name, pod in needed.items()
    }


@dataclass(frozen=True, slots=True)
class StayingPod:
    """A pod that cannot leave its node."""

    pod: int
    message: str


@dataclass(frozen=True, slots=True)
class NodeRemoval:
    """Whether a node can be removed, and why not."""

    node: int
    code: RemovalCode
    message: str
    group: str | None
    requested: Mapping[str, float]
    """Resource -> share of it that is requested: cpu and memory; of a node with GPUs, these."""
    pods: tuple[StayingPod, ...] = ()
    """The pods that may not be moved, if that is the reason."""

    @property
    def removable(self) -> bool:
        """Whether the node can be removed."""
        return self.code in REMOVABLE_CODES


def removals(
    problem: Problem,
    settings: Settings,
    groups: Groups,
    capacity: CapacitySettings,
    *,
    has_provider: bool,
    needed: Mapping[str, int],
    draining: Bools | None = None,
    unneeded: Bools | None = None,
    candidates: Bools | None = None,
    prices: NodePrices | None = None,
) -> list[NodeRemoval]:
    """Return for each node whether it can be removed, in the snapshot's order.

    ``capacity``: the most that may be used of a node, and the least that the cluster keeps. ``has_provider``: whether a
    provider was queried; then nodes in no group cannot be removed.
    ``needed``: see :class:`ScaleOutPlan`. ``draining`` (N,): nodes being drained, which are schedulable in the
    snapshot. They come first, and temporary obstacles of their pods are awaited. ``unneeded`` (N,): nodes that could
    be removed at the previous look; they come next, so that the choice is stable. ``candidates`` (N,): nodes that
    the strategy selects; None: all. ``prices``: of the nodes; None: as many nodes as possible are removed, else as much of
    their price.
    """
    snapshot, none = problem.snapshot, np.zeros(len(problem.snapshot.nodes), bool)
    draft = Draft(problem, replace(settings, eagerness=Eagerness.RELENTLESS))
    utilisation = utilisation_of(draft, groups)
    others = none if candidates is None else ~candidates
    floor = Floor(snapshot, capacity)
    limited = {n: why for n in range(len(none)) if (why := floor.why_not(n)) is not None}
    free = kept_free((one.term for one in draft.enforced), len(none))
    rules = (
        (others, NodeStays.NOT_SELECTED.of()),
        *_states(draft),
        *_memberships(snapshot, groups, has_provider=has_provider),
        limited,
        _find_refilled(draft),
        *_exclude_utilised(snapshot, groups, utilisation, capacity.under),
        _exclude_needed(snapshot, needed),
        (free, NodeStays.SLOT.of()),
    )
    kept, known = _find_ineligible(rules), none if unneeded is None else unneeded
    removal = _Removal(draft, groups, kept, capacity, known, prices)
    verdicts = removal.verdicts(none if draining is None else draining)
    return [
        NodeRemoval(
            node,
            *why,
            None if (group := groups.group_of(node)) is None else group.name,
            relevant_shares(utilisation, node),
            pods,
        )
        for node, (why, pods) in enumerate(verdicts)
    ]


_Verdict = tuple[Reason[RemovalCode], tuple[StayingPod, ...]]


class _Removal:
    def __init__(
        self,
        draft: Draft,
        groups: Groups,
        kept: _Kept,
        capacity: CapacitySettings,
        unneeded: Bools,
        prices: NodePrices | None,
    ) -> None:
        """``draft``: with the rules of the policy. ``kept``: node -> reason, for nodes that are not eligible."""
        self._draft, self._snapshot, self._groups = draft, draft.snapshot, groups
        self._kept, self._unneeded, self._prices = kept, unneeded, prices
        self._capacity = capacity
        self._of = Contribution("capacity", 1.0, observed=True, terms=lambda _: ())

    def verdicts(self, draining: Bools) -> list[_Verdict]:
        # Without the rules of the policy: what is left are the scheduler's, and what its hard rules ask for.
        of_scheduler = Draft(replace(self._draft.problem, contributions=()), self._draft.settings)
        emptier, choice = self._choose(self._draft, draining)
        _, also = self._choose(of_scheduler, choice.nodes)
        nodes = range(len(self._snapshot.nodes))
        return [self._verdict(node, emptier, choice, also) for node in nodes]

    def _choose(self, draft: Draft, draining: Bools) -> tuple[Emptier, EmptyingChoice]:
        """Return the nodes that can be removed by the rules of ``draft``: ``draining`` (N,) and more."""
        while True:
            emptier = self._emptier(draft)
            still = emptier.still(draining).nodes if draining.any() else draining
            choice = emptier.more(still, self._unneeded)
            choice = self._with_dead(choice)
            if not (surplus := self._surplus(choice, draining)):
                return emptier, choice
            # More of the others may be removable where these stay.
            self._kept |= surplus

    def _dead(self) -> Bools:
        """Return the nodes (N,) that are not Ready, have no pods, and are kept by no rule; no pod needs a place for these."""
        dead: Bools = ~self._snapshot.nodes.ready
        dead[list(self._kept)] = False
        return dead

    def _with_dead(self, choice: EmptyingChoice) -> EmptyingChoice:
        dead = self._dead()
        text = "it is not Ready, and only pods that belong to it are on it"
        empty = NodeVerdict(EmptyingCode.EMPTY, text)
        more = dict.fromkeys(np.flatnonzero(dead).tolist(), empty)
        return EmptyingChoice(choice.nodes | dead, {**choice.verdicts, **more})

    def _emptier(self, draft: Draft) -> Emptier:
        nodes = self._snapshot.nodes
        eligible = ~self._dead()
        eligible[list(self._kept)] = False
        emptiable = Emptiable(
            nodes=eligible,
            kept={node: why.message for node, why in self._kept.items()},
            counted=nodes.ready & ~nodes.leaving,
            needed=0,
            prices=self._prices,
        )
        others = find_marked_by_others(self._snapshot)
        return Emptier(draft, self._of, emptiable, others, removes=True)

    def _surplus(self, choice: EmptyingChoice, draining: Bools) -> _Kept:
        """Return node -> reason, for chosen nodes without which their group, or the cluster, would fall below its minimum."""
        left: Counter[str] = Counter()
        floor = Floor(self._snapshot, self._capacity)
        surplus: _Kept = {}
        for node in self._in_order(choice, draining):
            group = self._groups.group_of(node)
            if group is not None and left[group.name] >= to_spare(group):
                surplus[node] = at_minimum(group)
            elif (why := floor.why_not(node)) is not None:
                surplus[node] = why
            else:
                floor.take(node)
                if group is not None:
                    left[group.name] += 1
        return surplus

    def _in_order(self, choice: EmptyingChoice, draining: Bools) -> list[int]:
        """Return the chosen nodes in order of removal: draining, then unneeded, then those with fewest pods.

        Among equal nodes, the zone where their group has most nodes comes first, so that no zone loses all of them.
        """
        pods, chosen = self._draft.state.lasting_count, np.flatnonzero(choice.nodes)
        keys = (pods[chosen], ~self._unneeded[chosen], ~draining[chosen])
        left: dict[str, Counter[str | None]] = {}
        standing = np.zeros(len(self._snapshot.nodes), np.int64)
        for node in chosen[np.lexsort((chosen, *keys))].tolist():
            if (group := self._groups.group_of(node)) is None:
                continue
            if (zones := left.get(group.name)) is None:
                zones = left[group.name] = Counter(map(self._zone, self._groups.nodes_of(group)))
            standing[node] = zones[self._zone(node)]
            zones[self._zone(node)] -= 1
        order: list[int] = chosen[np.lexsort((chosen, -standing[chosen], *keys))].tolist()
        return order

    def _zone(self, node: int) -> str | None:
        return zone_of(self._snapshot.nodes.labels.of(node))

    def _verdict(
        self, node: int, emptier: Emptier, choice: EmptyingChoice, also: EmptyingChoice
    ) -> _Verdict:
        """Return the verdict on a node. ``also``: the choice by the scheduler's rules only."""
        if (kept := self._kept.get(node)) is not None:
            return kept, ()
        verdict = choice.verdicts[node]
        code, text, staying = RemovalCode.NO_PLACE, verdict.message, list[StayingPod]()
        match verdict.code:
            case EmptyingCode.EMPTY:
                code = RemovalCode.EMPTY
                if self._snapshot.nodes.ready[node]:
                    text = "only pods that belong to it are on it"
            case EmptyingCode.EMPTIED:
                code = RemovalCode.REMOVABLE
            case EmptyingCode.POD_STAYS:
                code = RemovalCode.POD_STAYS
                staying = [StayingPod(*one) for one in emptier.staying(node)]
            case EmptyingCode.NOT_ELIGIBLE:
                code = RemovalCode.BEING_REMOVED
            case _ if also.nodes[node]:
                code = RemovalCode.RULE_BREAKS
            case _:
                text = also.verdicts[node].message
                # Beside the removable ones alone it may have a place.
                if ruled := int((also.nodes & ~choice.nodes).sum()):
                    text = f"without the {count(ruled, 'node')} that only rules keep, too: {text}"
        return Reason(code, text), tuple(staying)
