"""Explain a landing: the verdict of every plug-in on every node, and the resulting distribution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from rebalancer.base.plain_text import and_more, count
from rebalancer.scheduler.filters import FILTERS
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.prediction import Prediction
from rebalancer.scheduler.topology import ZONE
from rebalancer.snapshot.labels import MISSING
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.state import ClusterState
from rebalancer.snapshot.zones import asked_without_nodes, may_use_zone


def unschedulable_message(model: SchedulerModel, state: ClusterState, cls: int) -> str:
    """Return why no node is feasible for a class, in the words of the scheduler's pod condition."""
    counts: Counter[str] = Counter()
    evaluation, total = model.evaluate(state, cls), len(model.snapshot.nodes)
    for node in range(total):
        counts.update(evaluation.reasons(node))
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


class Refused(msgspec.Struct, frozen=True, order=True):
    """The first filter that refuses a node, and the scheduler's words."""

    plugin: str = ""
    message: str = ""


class ExplainedNode(msgspec.Struct, frozen=True, rename="camel"):
    """The scheduler's verdict on one node."""

    name: str
    feasible: bool
    filtered_by: Refused | None
    scores: Mapping[str, int]
    """Plug-in -> weighted score, as the scheduler logs it; empty if filtered."""
    total: int | None


class ExplainedLanding(msgspec.Struct, frozen=True):
    """One node where the replacement may land."""

    node: str
    domains: Mapping[str, str]
    """Topology key -> value, for the keys that the pod's own rules name, and the zone."""
    probability: float


class ExplainedPending(msgspec.Struct, frozen=True):
    """A pending pod that is placed in the room which the eviction frees."""

    pod: str
    """The pod as ``namespace/name``."""
    node: str


class LandingExplanation(msgspec.Struct, frozen=True):
    """The scheduler's present decision on the replacement of a pod; ``-o json`` has all but ``waits``."""

    pod: str
    """The pod as ``namespace/name``."""
    nodes: tuple[ExplainedNode, ...]
    landings: tuple[ExplainedLanding, ...]
    pending: tuple[ExplainedPending, ...]
    """Pending pods that get a node because the pod leaves, or before it if it is pending, too; in that order."""
    unmodelled: tuple[str, ...]
    """Why the landing cannot be predicted, if so."""
    assumptions: tuple[str, ...]
    """The assumptions about the replacement."""
    note: str
    """Which scheduler version is used instead of the cluster's; empty if its own is."""
    waits: bool = False
    """Whether the pod itself is pending: then it lands, and no replacement of it."""

    def as_json(self) -> dict[str, Any]:
        """Return the explanation as plain data for JSON."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        del data["waits"]
        return data


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
    for node, name in enumerate(snapshot.nodes.names):
        feasible = bool(evaluation.feasible[node])
        plugin = FILTERS[int(evaluation.filtered_by[node])]
        yield ExplainedNode(
            name=name,
            feasible=feasible,
            filtered_by=None if feasible else Refused(plugin, ", ".join(evaluation.reasons(node))),
            scores={key: int(score[node]) for key, score in evaluation.scores.items()}
            if feasible
            else {},
            total=int(evaluation.total[node]) if feasible else None,
        )


def _landings(snapshot: Snapshot, cls: int, prediction: Prediction) -> Iterator[ExplainedLanding]:
    keys = tuple(dict.fromkeys((*snapshot.classes[cls].spec.topology_keys(), ZONE)))
    for node, probability in zip(
        prediction.nodes.tolist(), prediction.probability.tolist(), strict=True
    ):
        domains = {}
        for key in keys:
            value = int(snapshot.nodes.labels.column(key)[node])
            if value != MISSING:
                domains[key] = snapshot.nodes.labels.values(key)[value]
        yield ExplainedLanding(snapshot.nodes.names[node], domains, probability)
