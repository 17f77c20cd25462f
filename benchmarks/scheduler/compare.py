"""The model against one decision of the real scheduler: feasible set, reasons and every score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from benchmarks.scheduler.journal import Decision
from rebalancer.scheduler.model import Evaluation, SchedulerModel
from rebalancer.scheduler.profile import DEFAULT_WEIGHTS, SchedulerProfile
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.state import ClusterState


@dataclass
class Tally:
    """What was compared, and what differed."""

    decisions: int = 0
    scored: int = 0
    refused: int = 0
    failed: int = 0
    """Attempts that ended with an error of the scheduler."""
    unmodelled: Counter[str] = field(default_factory=Counter)
    rejected: int = 0
    """Pods that the API server would not take: no decision."""
    values: Counter[str] = field(default_factory=Counter)
    """Compared scores by plug-in."""
    varying: Counter[str] = field(default_factory=Counter)
    """Those in columns that vary between nodes."""
    node_predicted: int = 0
    """Decisions whose node was among those predicted."""
    sampled: int = 0
    schedulers: Counter[str] = field(default_factory=Counter)
    """Decisions by the profile that the pod names."""
    differences: list[str] = field(default_factory=list)


def compare(
    tally: Tally, snapshot: Snapshot, name: str, decision: Decision, profile: SchedulerProfile
) -> list[str]:
    """Compare one decision; add it to the tally and return the differences, in words."""
    model = SchedulerModel(snapshot, profile)
    state = ClusterState(snapshot)
    cls = int(snapshot.pods.cls[list(snapshot.pods.name).index(name)])
    unmodelled = model.find_unmodelled(cls)
    if unmodelled:
        tally.unmodelled.update(unmodelled)
        return []
    if not decision.done:
        feasible = model.feasible(state, cls).any()
        return [f"{name}: not looked at, but feasible"] if feasible else []
    tally.decisions += 1
    tally.schedulers[snapshot.classes[cls].spec.scheduler_name] += 1
    if decision.refused is not None:
        tally.refused += 1
        differences = _refusal(model, state, cls, decision.refused)
    elif decision.failed is not None:
        tally.failed += 1
        differences = _failure(model, state, cls, decision.failed)
    elif not decision.scores:
        differences = _single(model, state, cls, snapshot, decision)
    else:
        tally.scored += 1
        differences = _scores(tally, model, state, cls, snapshot, decision)
    landing = model.predict(state, cls)
    names = {snapshot.nodes.names[node] for node in landing.nodes}
    tally.node_predicted += not decision.node or decision.node in names
    differences = [f"{name}: {difference}" for difference in differences]
    tally.differences += differences
    return differences


def _refusal(model: SchedulerModel, state: ClusterState, cls: int, said: str) -> list[str]:
    evaluation = model.evaluate(state, cls)
    if evaluation.feasible.any():
        count = int(evaluation.feasible.sum())
        return [f"{count} nodes feasible, but the scheduler says: {said}"]
    total = len(evaluation.feasible)
    expected = f"0/{total} nodes are available: {model.rejection(cls)}."
    if not model.rejection(cls):
        counted = Counter(text for node in range(total) for text in evaluation.reasons(node))
        histogram = ", ".join(sorted(f"{number} {reason}" for reason, number in counted.items()))
        expected = f"0/{total} nodes are available: {histogram}."
    said = said.replace('\\"', '"')
    return [] if said.startswith(expected) else [f"refused as {said!r}, expected {expected!r}"]


def _failure(model: SchedulerModel, state: ClusterState, cls: int, said: str) -> list[str]:
    prediction = model.predict(state, cls)
    if prediction.unmodelled and not len(prediction.nodes):
        return []
    return [f"predicted {prediction.nodes.tolist()}, but the scheduler fails with {said!r}"]


def _single(
    model: SchedulerModel, state: ClusterState, cls: int, snapshot: Snapshot, decision: Decision
) -> list[str]:
    feasible = [snapshot.nodes.names[n] for n in np.flatnonzero(model.feasible(state, cls))]
    return [] if feasible == [decision.node] else [f"only {decision.node} fits, not {feasible}"]


def _scores(
    tally: Tally,
    model: SchedulerModel,
    state: ClusterState,
    cls: int,
    snapshot: Snapshot,
    decision: Decision,
) -> list[str]:
    index = snapshot.nodes.index
    sampled = np.array(sorted(index[node] for node in decision.scored), np.int32)
    feasible = np.flatnonzero(model.feasible(state, cls))
    limit = model.of(cls).profile.nodes_to_find(len(snapshot.nodes))
    names = snapshot.nodes.names
    if len(feasible) <= limit and feasible.tolist() != sampled.tolist():
        wrong = sorted(names[n] for n in set(feasible.tolist()) ^ set(sampled.tolist()))
        return [f"feasible sets differ in {wrong}"]
    if not set(sampled.tolist()) <= set(feasible.tolist()):
        return [f"infeasible: {[names[n] for n in set(sampled.tolist()) - set(feasible.tolist())]}"]
    if len(sampled) != min(len(feasible), limit):
        return [f"{len(sampled)} nodes scored, not {min(len(feasible), limit)}"]
    tally.sampled += len(feasible) > limit
    evaluation = model.evaluate(state, cls, among=sampled)
    differences = [
        d for plugin in DEFAULT_WEIGHTS for d in _column(tally, plugin, evaluation, decision, index)
    ]
    # Further plug-ins (DynamicResources) may speak up, as long as they say nothing.
    others = [p for p in decision.scores if p not in DEFAULT_WEIGHTS]
    return differences + [f"{p} scores, too" for p in others if any(decision.scores[p].values())]


def _column(
    tally: Tally, plugin: str, ours: Evaluation, decision: Decision, index: Mapping[str, int]
) -> list[str]:
    theirs = decision.scores.get(plugin, {})
    column = ours.scores.get(plugin)
    differences = []
    for node in sorted(decision.scored):
        mine = 0 if column is None else int(column[index[node]])
        if mine != theirs.get(node, 0):
            differences.append(
                f"{plugin} on {node}: {mine}, the scheduler's is {theirs.get(node, 0)}"
            )
    tally.values[plugin] += len(decision.scored)
    if len(set(theirs.values())) > 1:
        tally.varying[plugin] += len(theirs)
    return differences[:3]
