"""Why a node was filtered out, in the scheduler's own words (the ``ErrReason`` constants of the plug-ins)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from rebalancer.scheduler.filters import FILTERS
from rebalancer.scheduler.model import Evaluation, SchedulerModel
from rebalancer.snapshot.state import ClusterState

_FIXED = {
    "NodeUnschedulable": "node(s) were unschedulable",
    "TaintToleration": "node(s) had untolerated taint(s)",
    "NodePorts": "node(s) didn't have free ports for the requested pod ports",
    "NodeVolumeLimits": "node(s) exceed max volume count",
    "VolumeZone": "node(s) had no available volume zone",
    "NodeDeclaredFeatures": "node(s) didn't match Pod's required features",
}
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


def _variable(
    model: SchedulerModel, state: ClusterState, cls: int
) -> dict[str, Callable[[int], list[str]]]:
    refusals = model.interpod.refusals(state, cls)

    def interpod(node: int) -> list[str]:
        if refusals.affinity is not None and refusals.affinity[node]:
            return ["node(s) didn't match pod affinity rules"]
        if refusals.own_anti_affinity is not None and refusals.own_anti_affinity[node]:
            return ["node(s) didn't match pod anti-affinity rules"]
        return ["node(s) didn't satisfy existing pods anti-affinity rules"]

    def spread(node: int) -> list[str]:
        lacking = model.spread.lacks_key_first(state, cls, node)
        return [f"{_SPREAD} (missing required label)" if lacking else _SPREAD]

    named, enforced = model.placement.named(cls), model.placement.enforced_mask()

    def affinity(node: int) -> list[str]:
        if named is not None and model.snapshot.nodes.names[node] not in named:
            return ["node(s) didn't satisfy plugin(s) [NodeAffinity]"]
        return [_AFFINITY if enforced is None or enforced[node] else _ENFORCED]

    free = model.filters.disks.free(state, cls)

    def restrictions(node: int) -> list[str]:
        return [_CLAIM_IN_USE if free is None or free[node] else _NO_DISK]

    rules = model.filters.volumes.of(cls)
    return {
        "VolumeRestrictions": restrictions,
        "NodeAffinity": affinity,
        "NodeResourcesFit": lambda node: model.resources.shortages(state, cls, node),
        "VolumeBinding": lambda node: rules.binding_reasons(node) if rules is not None else [],
        "PodTopologySpread": spread,
        "InterPodAffinity": interpod,
        "Unreadable": lambda node: [model.snapshot.nodes.unreadable[node]],
    }
