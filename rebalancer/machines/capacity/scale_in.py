"""Scale-in: the steps from noticing that a node is unneeded to terminating its machine.

All data that later runs need are on the node (``rebalancer.wire.scale_in``). Each step is one write, after which the
process may be killed: the next run reads the record and continues.

    can be removed -> unneeded: since when is noted, until it is needed again
    long enough    -> leaving: cordoned, tainted; the planner moves its pods, by the strategy's term
    empty          -> ending: its machine is terminated, its group smaller by one; the cloud controller removes the Node
    needed again, or not empty in time -> cancelled: untainted, and uncordoned if it was us who cordoned it

The order, the times and the obstacles are those of Cluster Autoscaler (``core/scaledown``).
"""

from __future__ import annotations

from collections.abc import Iterator

from rebalancer.machines.capacity import unneeded
from rebalancer.machines.capacity.codes import RemovalCode, ScaleInCode
from rebalancer.machines.capacity.scale_in_nodes import ScaleInNodes
from rebalancer.machines.capacity.scaling import ScalerContext
from rebalancer.machines.capacity.termination import (
    is_overdue,
    terminate_if_empty,
    terminating,
    try_again,
)
from rebalancer.plan.machines import MachineAct
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.scale_in import with_scale_ins
from rebalancer.wire.scale_in import GOING, Phase, ScaleIn


class NodeScaleIn:
    """Removes nodes; see :class:`rebalancer.machines.capacity.scaling.Scaler`."""

    def __init__(self, context: ScalerContext) -> None:
        self._context, self._nodes = context, ScaleInNodes(context)

    @property
    def awaits_end(self) -> bool:
        """Whether some node may become empty after the plan."""
        return any(state.phase in GOING for state in self._nodes.states.values())

    def seen(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the nodes to be drained cordoned, also in a dry run."""
        return with_scale_ins(snapshot, self._nodes.changed)

    def before(self) -> Iterator[MachineAct]:
        """Check each node again, note which are unneeded, and start draining those unneeded for long enough."""
        for node, state in list(self._nodes.states.items()):
            yield from self._look_again(node, state)
        yield from unneeded.note_new(self._nodes)
        yield from unneeded.start_draining(self._nodes)

    def _look_again(self, node: int, state: ScaleIn) -> Iterator[MachineAct]:
        nodes = self._nodes
        removal, cool_down = nodes.removal[node], nodes.options.cool_down_after_failure
        match state.phase:
            case Phase.UNNEEDED | Phase.FAILED if removal.code is RemovalCode.NO_GROUP:
                pass  # it is of the groups of another release, which looks after it
            case Phase.UNNEEDED if not removal.removable:
                yield nodes.write(node, None, ScaleInCode.NEEDED, removal.message)
            case Phase.UNNEEDED:
                yield from unneeded.note(nodes, node, state)
            case Phase.FAILED if nodes.is_past(state.at, cool_down):
                yield nodes.write(node, None, ScaleInCode.COOLDOWN, "its cool-down is over")
            case Phase.LEAVING | Phase.ENDING if not nodes.snapshot.nodes.unschedulable[node]:
                yield nodes.cancel(node, "another client has uncordoned it")
            case Phase.LEAVING if not nodes.may_go_on(node):
                yield nodes.cancel(node, f"it cannot be removed any more: {removal.message}")
            case Phase.ENDING if is_overdue(nodes, node, state):
                yield try_again(nodes, node, state)
            case _:
                pass

    def after(self) -> Iterator[MachineAct]:
        """Terminate the machines of empty nodes."""
        nodes = self._nodes
        for node, state in list(nodes.states.items()):
            if state.phase in GOING and self._context.stop.reason() is None:
                ending = state.phase is Phase.ENDING
                yield (terminating if ending else terminate_if_empty)(nodes, node, state)
