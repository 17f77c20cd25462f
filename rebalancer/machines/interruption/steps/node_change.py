"""Shared code of steps that make one change of the node, record it as ours, and undo only that."""

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
        """Return the change to make; None if others have made it."""
        raise NotImplementedError

    @staticmethod
    def reverse(node: NodeView) -> NodeChange | None:
        """Return the change that undoes it; None if that is done already."""
        raise NotImplementedError

    def act(self, context: StepContext, params: StepParams) -> StepOutcome:  # noqa: ARG002  # the contract's
        """Change the node, unless others have done so."""
        return (
            DONE if context.change(self.change, OURS) is not None else skipped("the node is gone")
        )

    def undo(self, context: StepContext, params: StepParams) -> None:  # noqa: ARG002  # the contract's
        """Undo the change if it was ours."""
        ours = context.left == OURS
        context.change(
            lambda node: self.reverse(node) if ours or is_handed_over(node, self.claims) else None,
            "",
        )
