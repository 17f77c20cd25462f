"""Cordon and exclude: keep new pods off a node that will go, and external load balancers away from it."""

from __future__ import annotations

from typing import ClassVar

from rebalancer.kube.nodes import NodeChange, NodeView
from rebalancer.machines.interruption.model import DONE, StepContext, skip_step
from rebalancer.node_record.protocol import EXCLUDE, Claims
from rebalancer.node_record.records import OURS, is_handed_over, let_go
from rebalancer.plan.machines import StepOutcome
from rebalancer.policy.interruption import StepParams
from rebalancer.signals.state import STATE


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
            DONE if context.change(self.change, OURS) is not None else skip_step("the node is gone")
        )

    def undo(self, context: StepContext, params: StepParams) -> None:  # noqa: ARG002  # the contract's
        """Undo the change if it was ours."""
        ours = context.left == OURS
        context.change(
            lambda node: self.reverse(node) if ours or is_handed_over(node, self.claims) else None,
            "",
        )


class CordonParams(StepParams):
    """The step cordon has no options."""

    changes_node: ClassVar[bool] = True


class Cordon(NodeChangeStep):
    """Cordons the node. If the machine stays after all, it is uncordoned, unless others had cordoned it before."""

    Params = CordonParams
    claims = Claims(cordon=True)

    @staticmethod
    def change(node: NodeView) -> NodeChange | None:
        """Return the change that cordons the node; None if it is cordoned already."""
        return None if node.unschedulable else NodeChange(unschedulable=True)

    @staticmethod
    def reverse(node: NodeView) -> NodeChange | None:
        """Return the change that uncordons the node; None if it is not cordoned."""
        return let_go(node, STATE, Cordon.claims) if node.unschedulable else None


class ExcludeParams(StepParams):
    """The step exclude has no options."""

    changes_node: ClassVar[bool] = True


class Exclude(NodeChangeStep):
    """Labels the node so that external load balancers leave it out. If the machine stays, our label is removed."""

    Params = ExcludeParams
    claims = Claims(exclude=True)

    @staticmethod
    def change(node: NodeView) -> NodeChange | None:
        """Return the change that adds the label; None if the node has it."""
        return None if EXCLUDE in node.labels else NodeChange(labels={EXCLUDE: "true"})

    @staticmethod
    def reverse(node: NodeView) -> NodeChange | None:
        """Return the change that removes the label; None if the node does not have it."""
        return let_go(node, STATE, Exclude.claims) if EXCLUDE in node.labels else None
