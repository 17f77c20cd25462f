"""Since when nodes are unneeded, and which of them to drain now (Cluster Autoscaler: ``core/scaledown/unneeded``)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from rebalancer.base.durations import format_duration
from rebalancer.machines.capacity.codes import ScaleInCode
from rebalancer.machines.capacity.scale_in_nodes import ScaleInNodes
from rebalancer.plan.machines import ActStatus, MachineAct
from rebalancer.wire.scale_in import GOING, Phase, ScaleIn
from rebalancer.wire.times import rfc3339

_MOST_NEW = 50
"""Most nodes that one run notes as unneeded: each is a write."""


def note_new(nodes: ScaleInNodes) -> Iterator[MachineAct]:
    """Record the nodes that newly can be removed, empty ones first."""
    known = nodes.states.keys() | nodes.others
    new = [node for node, of in nodes.removal.items() if of.removable and node not in known]
    for node in sorted(new, key=lambda node: not nodes.is_empty(node))[:_MOST_NEW]:
        yield from note(nodes, node)


def note(nodes: ScaleInNodes, node: int, state: ScaleIn | None = None) -> Iterator[MachineAct]:
    """Record since when a node is unneeded. The time starts again after a long pause between runs."""
    at, needed = rfc3339(nodes.now), nodes.needed_for(node)
    if state is None or nodes.is_past(state.at, needed):
        fresh = ScaleIn(Phase.UNNEEDED, at, at, nodes.context.by, release=nodes.context.release)
        text = f"{nodes.removal[node].message}; it is drained once it is unneeded for {format_duration(needed)}"
        if state is not None:
            text += f" from now on: no run has looked since {state.at}"
        yield nodes.write(node, fresh, ScaleInCode.UNNEEDED, text)
    elif nodes.is_past(state.at, needed / 2):
        # Written only now and then: every run would be many writes for nothing.
        later = msgspec.structs.replace(state, at=at)
        act = nodes.write(node, later, ScaleInCode.UNNEEDED, "")
        if act.status is ActStatus.FAILED:
            yield act
    if state is not None and not _is_due(nodes, node):
        text = (
            f"since {state.since}; it is drained once it is unneeded for {format_duration(needed)}"
        )
        yield nodes.act(node, ScaleInCode.UNNEEDED, ActStatus.WAITS, text)


def start_draining(nodes: ScaleInNodes) -> Iterator[MachineAct]:
    """Cordon and taint as many of the due nodes as may be removed at once, empty ones first."""
    due = sorted(
        (node for node in nodes.states if _is_due(nodes, node)),
        key=lambda node: (not nodes.is_empty(node), nodes.states[node].since, node),
    )
    for node in due:
        if (cooling := _cool_down(nodes, node)) is not None:
            yield nodes.act(node, ScaleInCode.COOLDOWN, ActStatus.WAITS, cooling)
        elif (full := _at_limit(nodes, node)) is not None:
            yield nodes.act(node, ScaleInCode.ENOUGH_AT_ONCE, ActStatus.WAITS, full)
        else:
            yield _cordon(nodes, node)


def _cordon(nodes: ScaleInNodes, node: int) -> MachineAct:
    state = nodes.states[node]
    leaving = msgspec.structs.replace(
        state,
        phase=Phase.LEAVING,
        at=rfc3339(nodes.now),
        by=nodes.context.by,
        release=nodes.context.release,
    )
    text = f"unneeded since {state.since}: {nodes.removal[node].message}"
    return nodes.write(node, leaving, ScaleInCode.DRAIN_STARTED, text)


def _is_due(nodes: ScaleInNodes, node: int) -> bool:
    state = nodes.states.get(node)
    return (
        state is not None
        and state.phase is Phase.UNNEEDED
        and nodes.removal[node].removable
        and nodes.is_past(state.since, nodes.needed_for(node))
    )


def _at_limit(nodes: ScaleInNodes, node: int) -> str | None:
    """Return which limit on concurrent removals forbids one more; None if none does."""
    options = nodes.options
    going = [one for one, state in nodes.states.items() if state.phase in GOING]
    if len(going) >= options.at_once:
        return f"{len(going)} nodes are being removed, and atOnce is {options.at_once}"
    draining = [one for one in going if not nodes.is_empty(one)]
    if not nodes.is_empty(node) and len(draining) >= options.draining_at_once:
        most = options.draining_at_once
        return f"{len(draining)} nodes are being drained, and drainingAtOnce is {most}"
    return None


def _cool_down(nodes: ScaleInNodes, node: int) -> str | None:
    """Return why a node must not be drained for now; None if it may be.

    Judged by the cluster and the provider: the youngest node, upcoming machines, and failures on nodes.
    """
    groups, after = nodes.context.report.groups, nodes.options.cool_down_after_growth
    group = groups.group_of(node)
    desired = 0 if group is None or not after else group.desired or 0
    if group is not None and len(group.instances) < desired:
        return f"{group.name} has {len(group.instances)} of {desired} machines"
    names, created = nodes.snapshot.nodes.names, nodes.snapshot.nodes.created
    youngest = max(groups.of_node, key=lambda one: (created[one], one), default=None)
    if youngest is not None and nodes.now - created[youngest] < after.total_seconds():
        return f"{names[youngest]} has joined less than {format_duration(after)} ago"
    for one, state in nodes.states.items():
        if state.phase is Phase.FAILED:
            return f"the scale-in of {names[one]} has failed at {state.at}"
    return None
