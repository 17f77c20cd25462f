"""Explain a landing: the verdict of every plug-in on every node, and the resulting distribution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rebalancer.base.plain_text import and_more, count
from rebalancer.scheduler.filters import FILTERS
from rebalancer.scheduler.model import Evaluation, SchedulerModel
from rebalancer.scheduler.prediction import Prediction
from rebalancer.scheduler.profile import DYNAMIC_RESOURCES
from rebalancer.scheduler.topology import ZONE
from rebalancer.snapshot.labels import MISSING
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.state import ClusterState
from rebalancer.snapshot.zones import asked_without_nodes, may_use_zone
from rebalancer.wire.objects import SchedulingSpec

_FIXED = {
    "NodeUnschedulable": "node(s) were unschedulable",
    "TaintToleration": "node(s) had untolerated taint(s)",
    "NodePorts": "node(s) didn't have free ports for the requested pod ports",
    "NodeVolumeLimits": "node(s) exceed max volume count",
    "VolumeZone": "node(s) had no available volume zone",
    "NodeDeclaredFeatures": "node(s) didn't match Pod's required features",
}
_NO_DEVICES = "cannot allocate all claims"
_NOT_THERE = "resourceclaim not available on the node"
_NO_DISK = "node(s) had no available disk"
_CLAIM_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)
_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
_ENFORCED = "node(s) didn't match scheduler-enforced node affinity"
_SPREAD = "node(s) didn't match pod topology spread constraints"


def reasons(
    model: SchedulerModel, state: ClusterState, cls: int, evaluation: Evaluation
) -> Iterator[tuple[str, ...]]:
    """Yield for each node the plug-in's reasons for filtering it out; empty for feasible nodes."""
    model = model.of(cls)
    rejected = model.rejection(cls)
    variable = _variable(model, state, cls)
    for node, index in enumerate(evaluation.filtered_by.tolist()):
        name = FILTERS[index]
        if not name:
            yield ()
        elif rejected:
            yield (rejected,)
        elif name in variable:
            yield tuple(variable[name](node))
        else:
            yield (_FIXED[name],)


def unschedulable_message(model: SchedulerModel, state: ClusterState, cls: int) -> str:
    """Return why no node is feasible for a class, in the words of the scheduler's pod condition."""
    counts: Counter[str] = Counter()
    for words in reasons(model, state, cls, model.evaluate(state, cls)):
        counts.update(words)
    total = len(model.snapshot.nodes)
    listed = ", ".join(f"{count} {text}" for text, count in sorted(counts.items()))
    return f"0/{total} nodes are available: {listed}" if listed else "there is no node"


def missing_zone(
    model: SchedulerModel, cls: int, without_nodes: Sequence[str], present: set[str]
) -> str:
    """Return which zone a class waits for that has no node; empty if none is known.

    ``without_nodes``: the zones that are known to have none; ``present``: those that have.
    """
    snapshot = model.snapshot
    if asked := asked_without_nodes(snapshot, cls, present):
        return _have_no_node(asked)
    hard = [one for one in model.spread.hard(cls) if one.topology.key == ZONE]
    spec = snapshot.classes[cls].spec
    empty = [zone for zone in without_nodes if hard and may_use_zone(spec, zone)]
    for one in hard:
        if len(one.domains) < one.min_domains:
            few = f"{count(len(one.domains), 'domain')} of minDomains {one.min_domains} have nodes"
            return f"{few}; {_have_no_node(empty)}" if empty else few
    return _have_no_node(empty) if empty else ""


def _have_no_node(zones: Sequence[str]) -> str:
    return f"{and_more(zones, 3)} {'has' if len(zones) == 1 else 'have'} no node"


def _variable(
    model: SchedulerModel, state: ClusterState, cls: int
) -> dict[str, Callable[[int], list[str]]]:
    far, repelling = model.lowering.find_refusals(state, cls)
    unlabelled = model.lowering.find_unlabelled(state, cls)

    def interpod(node: int) -> list[str]:
        if far[node]:
            return ["node(s) didn't match pod affinity rules"]
        if repelling[node]:
            return ["node(s) didn't match pod anti-affinity rules"]
        return ["node(s) didn't satisfy existing pods anti-affinity rules"]

    def spread(node: int) -> list[str]:
        return [f"{_SPREAD} (missing required label)" if unlabelled[node] else _SPREAD]

    named, enforced = model.placement.listed_names(cls), model.placement.enforced_mask()

    def affinity(node: int) -> list[str]:
        if named is not None and model.snapshot.nodes.names[node] not in named:
            return ["node(s) didn't satisfy plugin(s) [NodeAffinity]"]
        return [_AFFINITY if enforced is None or enforced[node] else _ENFORCED]

    users = model.filters.disks.rivals(cls)

    def restrictions(node: int) -> list[str]:
        here = users is not None and state.counts(users, terminating=True)[node]
        return [_NO_DISK if here else _CLAIM_IN_USE]

    held = model.snapshot.devices
    pinned = None if held is None else held.pinned.get(cls)

    def devices(node: int) -> list[str]:
        return [_NO_DEVICES if pinned is None or pinned[node] else _NOT_THERE]

    rules = model.filters.volumes.of(cls)
    return {
        "VolumeRestrictions": restrictions,
        "NodeAffinity": affinity,
        "NodeResourcesFit": lambda node: model.lowering.list_shortages(state, cls, node),
        "VolumeBinding": lambda node: rules.binding_reasons(node) if rules is not None else [],
        "PodTopologySpread": spread,
        DYNAMIC_RESOURCES: devices,
        "InterPodAffinity": interpod,
        "Unreadable": lambda node: [model.snapshot.nodes.unreadable[node]],
    }


@dataclass(frozen=True, slots=True)
class ExplainedNode:
    """The scheduler's verdict on one node."""

    name: str
    feasible: bool
    filtered_by: tuple[str, str] | None
    """(plug-in, message) of the filter that refuses it."""
    scores: Mapping[str, int]
    """Plug-in -> weighted score, as the scheduler logs it; empty if filtered."""
    total: int | None


@dataclass(frozen=True, slots=True)
class ExplainedLanding:
    """One node where the replacement may land."""

    node: str
    domains: Mapping[str, str]
    """Topology key -> value, for the keys that the pod's own rules name, and the zone."""
    probability: float


@dataclass(frozen=True, slots=True)
class ExplainedPending:
    """A pending pod that takes the room which the eviction frees."""

    pod: str
    """``namespace/name``"""
    node: str


@dataclass(frozen=True, slots=True)
class LandingExplanation:
    """What the scheduler would do now with the replacement of a pod."""

    pod: str
    """``namespace/name``"""
    nodes: tuple[ExplainedNode, ...]
    landings: tuple[ExplainedLanding, ...]
    pending: tuple[ExplainedPending, ...]
    """Pending pods that get a node because the pod leaves, or before it if it is pending, too; in that order."""
    unmodelled: tuple[str, ...]
    """Why the landing cannot be predicted, if so."""
    assumptions: tuple[str, ...]
    """What is taken for granted of the replacement."""
    note: str
    """Which scheduler version stands in for the cluster's, if another one does."""
    waits: bool = False
    """Whether the pod itself is pending: then it lands, and no replacement of it."""

    def as_json(self) -> dict[str, Any]:
        """Return the explanation as plain data for JSON."""
        return {
            "pod": self.pod,
            "nodes": [_node_json(node) for node in self.nodes],
            "landings": [
                {
                    "node": landing.node,
                    "domains": dict(landing.domains),
                    "probability": landing.probability,
                }
                for landing in self.landings
            ],
            "pending": [{"pod": one.pod, "node": one.node} for one in self.pending],
            "unmodelled": list(self.unmodelled),
            "assumptions": list(self.assumptions),
            "note": self.note,
        }


def explain_pod(
    snapshot: Snapshot, model: SchedulerModel, state: ClusterState, pod: int
) -> LandingExplanation:
    """Explain where the replacement of ``pod`` (a row of the snapshot) would land if the pod were evicted now.

    At that time the victim is terminating, or gone if its owner waits until then. For a pending pod, the pod itself
    is explained, with the pods that are before it in the queue on their nodes. ``state`` is the same afterwards.
    """
    cls, waits = int(state.cls_of[pod]), bool(state.node_of[pod] < 0)
    if waits:
        with model.pending.before_turn(state, pod) as first:
            nodes = tuple(_nodes(snapshot, model, state, cls))
            prediction = replace(model.predict(state, cls), takers=first)
    else:
        cls = snapshot.classes[cls].replacement
        with model.pending.before_landing(state, pod):
            nodes = tuple(_nodes(snapshot, model, state, cls))
        prediction = model.pending.foresee(state, pod)
    return LandingExplanation(
        pod=snapshot.pod_ref(pod),
        nodes=nodes,
        landings=tuple(_landings(snapshot, cls, prediction)),
        pending=tuple(
            ExplainedPending(snapshot.pod_ref(taker.pod), snapshot.nodes.names[taker.node])
            for taker in prediction.takers
        ),
        unmodelled=prediction.unmodelled,
        assumptions=snapshot.classes[int(snapshot.pods.cls[pod])].assumed,
        note=model.profile.note,
        waits=waits,
    )


def _nodes(
    snapshot: Snapshot, model: SchedulerModel, state: ClusterState, cls: int
) -> Iterator[ExplainedNode]:
    evaluation = model.evaluate(state, cls)
    refused = reasons(model, state, cls, evaluation)
    for node, (name, why) in enumerate(zip(snapshot.nodes.names, refused, strict=True)):
        feasible = bool(evaluation.feasible[node])
        plugin = FILTERS[int(evaluation.filtered_by[node])]
        yield ExplainedNode(
            name=name,
            feasible=feasible,
            filtered_by=None if feasible else (plugin, ", ".join(why)),
            scores={key: int(score[node]) for key, score in evaluation.scores.items()}
            if feasible
            else {},
            total=int(evaluation.total[node]) if feasible else None,
        )


def _landings(snapshot: Snapshot, cls: int, prediction: Prediction) -> Iterator[ExplainedLanding]:
    keys = tuple(dict.fromkeys((*_own_keys(snapshot.classes[cls].spec), ZONE)))
    for node, probability in zip(
        prediction.nodes.tolist(), prediction.probability.tolist(), strict=True
    ):
        domains = {}
        for key in keys:
            value = int(snapshot.nodes.labels.column(key)[node])
            if value != MISSING:
                domains[key] = snapshot.nodes.labels.values(key)[value]
        yield ExplainedLanding(snapshot.nodes.names[node], domains, probability)


def _own_keys(spec: SchedulingSpec) -> Iterator[str]:
    yield from (c.topology_key for c in spec.topology_spread_constraints or ())
    affinity = spec.affinity
    for part in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ():
        if part is not None:
            yield from (term.topology_key for term in part.required or ())
            yield from (w.pod_affinity_term.topology_key for w in part.preferred or ())


def _node_json(node: ExplainedNode) -> dict[str, Any]:
    refused = node.filtered_by
    return {
        "name": node.name,
        "feasible": node.feasible,
        "filteredBy": None if refused is None else {"plugin": refused[0], "message": refused[1]},
        "scores": dict(node.scores),
        "total": node.total,
    }
