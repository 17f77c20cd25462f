"""Cordon: no new pods on a node that will go."""

from __future__ import annotations

from rebalancer.interruption.model import DONE, StepContext, skipped
from rebalancer.kube.nodes import NodeChange, NodeView
from rebalancer.policy.interruption import StepParams
from rebalancer.signals.model import StepOutcome

OURS = "ours"
"""Kept by a step with what it changed of the node: what others had changed before it stays."""


class CordonParams(StepParams):
    """The step cordon has no options."""


class Cordon:
    """Cordons the node; if the machine stays after all, it is uncordoned, unless others had cordoned it before."""

    Params = CordonParams

    def act(self, context: StepContext, params: CordonParams) -> StepOutcome:  # noqa: ARG002  # the contract's
        """See Step."""
        if context.change(_cordoned, OURS) is None:
            return skipped("the node is gone")
        return DONE

    def undo(self, context: StepContext, params: CordonParams) -> None:  # noqa: ARG002  # the contract's
        """See Undoing."""
        if context.left == OURS:
            context.change(_uncordoned, "")


def _cordoned(node: NodeView) -> NodeChange | None:
    return None if node.unschedulable else NodeChange(unschedulable=True)


def _uncordoned(node: NodeView) -> NodeChange | None:
    return NodeChange(unschedulable=False) if node.unschedulable else None
