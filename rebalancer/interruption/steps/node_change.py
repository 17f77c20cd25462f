"""What the steps have in common that are one change of the node: it is kept as ours, and only ours is undone."""

from __future__ import annotations

from typing import ClassVar

from rebalancer.interruption.model import DONE, StepContext, skipped
from rebalancer.kube.nodes import NodeChange, NodeView
from rebalancer.node_record.cordons import OURS
from rebalancer.plan.machines import StepOutcome
from rebalancer.policy.interruption import StepParams


class NodeChangeStep:
    """A step that changes the node once, and changes it back if the machine stays."""

    Params: ClassVar[type[StepParams]]

    @staticmethod
    def change(node: NodeView) -> NodeChange | None:
        """Return what to change; None where others have done so."""
        raise NotImplementedError

    @staticmethod
    def reverse(node: NodeView) -> NodeChange | None:
        """Return what to change back; None where that has been done."""
        raise NotImplementedError

    @staticmethod
    def is_handed_over(_node: NodeView) -> bool:
        """Return whether another one of ours has made the change, and left it to this step."""
        return False

    def act(self, context: StepContext, params: StepParams) -> StepOutcome:  # noqa: ARG002  # the contract's
        """See Step."""
        return (
            DONE if context.change(self.change, OURS) is not None else skipped("the node is gone")
        )

    def undo(self, context: StepContext, params: StepParams) -> None:  # noqa: ARG002  # the contract's
        """See Undoing."""
        ours = context.left == OURS
        context.change(
            lambda node: self.reverse(node) if ours or self.is_handed_over(node) else None, ""
        )
