"""Terminate the machines of drained nodes (Cluster Autoscaler: ``core/scaledown/actuation``)."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from rebalancer.base.durations import format_duration
from rebalancer.base.errors import ClusterReadError, ProviderError, ProviderRefusalError
from rebalancer.kube.client import Client
from rebalancer.machines.capacity.codes import ScaleInCode
from rebalancer.machines.capacity.scale_in_nodes import ScaleInNodes, age
from rebalancer.machines.capacity.writing import delay_of, enter_ending, left_on
from rebalancer.plan.machines import ActStatus, MachineAct
from rebalancer.providers.contract import NodeGroup
from rebalancer.providers.guarded import GroupSizeError
from rebalancer.wire.scale_in import Phase, ScaleIn
from rebalancer.wire.times import rfc3339

_CORDONED = 5.0
"""Seconds for which a node must be cordoned before it counts as empty: the scheduler may have chosen it just before."""
_EXCLUDED = 15.0
"""Seconds from the node's exclusion from load balancers to its end: connections that come through the node would break."""
_LONGEST_DELAY = 120.0
"""Seconds for which an empty node is waited for at most (``--node-deletion-delay-timeout``)."""
_LATEST = 20.0
"""Seconds after the note on the node within which the request is sent, or not at all; sending it takes up to 13 more."""
_SETTLED = timedelta(minutes=1)
"""Until a machine whose termination was requested is known as such: DescribeAutoScalingGroups may lag behind."""


def terminate_if_empty(nodes: ScaleInNodes, node: int, state: ScaleIn) -> MachineAct:
    """Terminate the machine of a draining node if all pods on it are bound to the node."""
    context, client = nodes.context, nodes.context.client
    if context.suspended is not None or client is None:
        after = nodes.options.give_up_after
        if nodes.is_past(state.at, after):
            return nodes.cancel(
                node, f"not removed for {format_duration(after)}: {context.suspended}"
            )
        text = f"it is drained since {state.at} ({context.suspended})"
        return nodes.act(node, ScaleInCode.DRAINING, ActStatus.PLANNED, text)
    if not nodes.may_go_on(node):
        text = "whether it can be removed is judged by the next run"
        return nodes.act(node, ScaleInCode.DRAINING, ActStatus.WAITS, text)
    if age(state.at, context.now()) < (_EXCLUDED if state.excluded else _CORDONED):
        text = f"closed at {state.at}: the scheduler may have chosen it, and load balancers use it still"
        return nodes.act(node, ScaleInCode.DRAINING, ActStatus.WAITS, text)
    group = nodes.group(node)
    try:
        left = left_on(
            client,
            nodes.name(node),
            clock=context.now,
            version=nodes.snapshot.version,
            ready=bool(nodes.snapshot.nodes.ready[node]),
        )
        if left:
            return _emptying(nodes, node, state, left)
        if group is None:
            return _emptying(nodes, node, state, "its machine is in no group of the provider")
        return _delayed(client, nodes, node, state) or _terminate(client, nodes, node, state, group)
    except (ClusterReadError, ProviderError) as error:
        return nodes.act(node, ScaleInCode.FAILED, ActStatus.FAILED, str(error))


def _delayed(client: Client, nodes: ScaleInNodes, node: int, state: ScaleIn) -> MachineAct | None:
    """Return an act if the termination of an empty node's machine is delayed; None to go on, also after a long delay."""
    if (why := delay_of(client, nodes.name(node))) is None:
        return None
    if not state.empty:
        seen = msgspec.structs.replace(state, empty=rfc3339(nodes.context.now()))
        return nodes.write(node, seen, ScaleInCode.DRAINING, f"it is empty, and {why}")
    if age(state.empty, nodes.context.now()) >= _LONGEST_DELAY:
        return None
    return nodes.act(node, ScaleInCode.DRAINING, ActStatus.WAITS, f"it is empty, and {why}")


def terminating(nodes: ScaleInNodes, node: int, state: ScaleIn) -> MachineAct:
    """Return the progress of a node whose machine is being terminated."""
    text = f"the termination of its machine was requested at {state.at}: a later run looks again"
    if nodes.group(node) is None:
        text = f"its machine was terminated at {state.at}: the cloud controller removes the node"
    return nodes.act(node, ScaleInCode.TERMINATING, ActStatus.WAITS, text)


def is_overdue(nodes: ScaleInNodes, node: int, state: ScaleIn) -> bool:
    """Return whether a machine is still in its group long after its termination was requested."""
    return nodes.is_past(state.at, _SETTLED) and nodes.group(node) is not None


def try_again(nodes: ScaleInNodes, node: int, state: ScaleIn) -> MachineAct:
    """Let the next run judge a node again whose machine should be gone; at the second time its scale-in has failed."""
    text = f"the termination of its machine was requested at {state.at}, and it is still there"
    if state.why:
        return nodes.cancel(node, text, failed=True)
    again = msgspec.structs.replace(
        state, phase=Phase.LEAVING, at=rfc3339(nodes.now), by=nodes.context.by, why=text
    )
    return nodes.write(node, again, ScaleInCode.DRAINING, text, gives_back=True)


def _emptying(nodes: ScaleInNodes, node: int, state: ScaleIn, left: str) -> MachineAct:
    after = nodes.options.give_up_after
    if nodes.is_past(state.at, after):
        return nodes.cancel(node, f"not empty after {format_duration(after)}: {left}", failed=True)
    return nodes.act(node, ScaleInCode.DRAINING, ActStatus.WAITS, left)


def _terminate(
    client: Client, nodes: ScaleInNodes, node: int, state: ScaleIn, group: NodeGroup
) -> MachineAct:
    """Terminate the machine of an empty node.

    First the group is read. Then the phase "ending" is written on the current version of the node, so that a killed
    process cancels nothing. Then the request is sent, with nothing in between.
    """
    refused: MachineAct | None = None

    def may_be_sent() -> bool:
        nonlocal refused
        refused = _last_look(client, nodes, node, state)
        return refused is None

    instance = nodes.snapshot.nodes.provider_id[node] or nodes.name(node)
    try:
        requested = nodes.context.guarded.terminate(group.name, instance, may_be_sent)
    except GroupSizeError as error:
        return nodes.cancel(node, str(error))
    except ProviderRefusalError as error:
        # Where a reply was lost it may have been done all the same: then the node stays cordoned.
        return nodes.cancel(node, str(error), failed=True)
    if refused is None and not requested:
        # It may be about to end: no pod is to come to it.
        refused = _last_look(client, nodes, node, state)
        text = f"its machine has left {group.name}: the cloud controller removes the node"
        return refused or nodes.act(node, ScaleInCode.TERMINATING, ActStatus.WAITS, text)
    text = f"{instance} is terminated, and the size of {group.name} is decreased by one"
    return refused or nodes.act(node, ScaleInCode.TERMINATED, ActStatus.DONE, text)


def _last_look(client: Client, nodes: ScaleInNodes, node: int, state: ScaleIn) -> MachineAct | None:
    """Write the phase "ending" on a node; return another act if the request must not be sent, else None.

    Since the run has read the node, someone may have protected it or may want it for something else. After
    ``_SETTLED`` another process treats the request as lost, so it must not be sent later than ``_LATEST``.
    """
    context, stop = nodes.context, nodes.context.stop
    if (stopped := stop.reason()) is not None:
        return nodes.act(node, ScaleInCode.DRAINING, ActStatus.WAITS, stopped)
    ending = msgspec.structs.replace(
        state, phase=Phase.ENDING, at=rfc3339(context.now()), by=context.by
    )
    began = stop.now()
    if (why := enter_ending(client, nodes.name(node), ending)) is not None:
        return nodes.cancel(node, why)
    nodes.states[node] = ending
    if (stopped := stop.reason()) is not None:
        return nodes.act(node, ScaleInCode.TERMINATING, ActStatus.WAITS, stopped)
    if stop.now() - began > _LATEST:
        text = f"it took more than {_LATEST:.0f} s to note that its machine is ended: the next run tries again"
        return nodes.write(node, state, ScaleInCode.DRAINING, text)
    return None
