"""Why a group does not help a pending pod, judged by one more node in each of its zones."""

from __future__ import annotations

from collections.abc import Sequence

from rebalancer.machines.capacity.codes import GroupCode
from rebalancer.machines.capacity.packing import Packing
from rebalancer.machines.capacity.scale_out_plan import GroupRefusal, ScaleOutInputs
from rebalancer.providers.contract import NodeGroup
from rebalancer.scheduler.messages import reasons


def refusals_of(
    group: NodeGroup,
    classes: Sequence[int],
    packing: Packing | None,
    inputs: ScaleOutInputs,
    full: str | None = None,
) -> dict[int, GroupRefusal]:
    """Return class -> why the group helps none of its pods.

    ``full``: why the cluster may not add nodes. ``packing``: has candidates of the group, at least one per zone;
    None if the group's template is unknown.
    """
    if packing is None:
        text = "it has no live node, and the provider does not say what a new one would be"
        return {cls: GroupRefusal(group.name, GroupCode.NO_TEMPLATE, text) for cls in classes}
    rows = packing.open_all()
    return {cls: _refusal(group, cls, packing, rows, inputs, full) for cls in classes}


def _refusal(
    group: NodeGroup,
    cls: int,
    packing: Packing,
    rows: Sequence[int],
    inputs: ScaleOutInputs,
    full: str | None,
) -> GroupRefusal:
    evaluation = packing.model.evaluate(packing.state, cls)
    if evaluation.feasible[rows].any():
        if (blocked := inputs.blocked.get(group.name)) is not None:
            return blocked
        if full is not None and group.desired != group.maximum:
            return GroupRefusal(group.name, GroupCode.CLUSTER_FULL, full)
        text = f"it has {group.desired} nodes and may have {group.maximum}"
        return GroupRefusal(group.name, GroupCode.MAX_SIZE, text)
    words = list(reasons(packing.model, packing.state, cls, evaluation))
    texts = dict.fromkeys(text for row in rows for text in words[row])
    return GroupRefusal(group.name, GroupCode.FILTERED, ", ".join(texts))
