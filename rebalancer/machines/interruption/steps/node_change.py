"""What the steps have in common that are one change of the node: it is kept as ours, and only ours is undone."""

from __future__ import annotations

from typing import ClassVar

from rebalancer.kube.nodes import NodeChange, NodeView
from rebalancer.machines.interruption.model import DONE, StepContext, skipped
from rebalancer.node_record.cordons import is_handed_over
from rebalancer.node_record.protocol import Claims
from rebalancer.node_record.records import OURS
from rebalancer.plan.machines import StepOutcome
from rebalancer.policy.interruption import StepParams


class NodeChangeStep:
    """A step that changes the node once, and changes it back if the machine stays."""

    Params: ClassVar[type[StepParams]]
    claims: ClassVar[Claims]
    """What the change makes: another one of ours may have made it, and left it to this step."""

    @staticmethod
    def change(node: NodeView) -> NodeChange | None:
        """Return what to change; None where others have done so."""
        raise NotImplementedError

    @staticmethod
    def reverse(node: NodeView) -> NodeChange | None:
        """Return what to change back; None where that has been done."""
        raise NotImplementedError

    def act(self, context: StepContext, params: StepParams) -> StepOutcome:  # noqa: ARG002  # the contract's
        """See Step."""
        return (
            DONE if context.change(self.change, OURS) is not None else skipped("the node is gone")
        )

    def undo(self, context: StepContext, params: StepParams) -> None:  # noqa: ARG002  # the contract's
        """See Undoing."""
        ours = context.left == OURS
        context.change(
            lambda node: self.reverse(node) if ours or is_handed_over(node, self.claims) else None,
            "",
        )
