"""Cordon and exclude: keep new pods and external load balancers away from a node whose machine will end."""

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
    """A step that changes the node once, and changes it back if the interruption is cancelled."""

    Params: ClassVar[type[StepParams]]
    claims: ClassVar[Claims]
    """The one thing that the change makes: another one of ours may have made it, and left it to this step."""

    def _change(self, node: NodeView) -> NodeChange | None:
        if _stands(node, self.claims):
            return None
        labels = {EXCLUDE: "true"} if self.claims.exclude else {}
        return NodeChange(unschedulable=self.claims.cordon or None, labels=labels)

    def act(self, context: StepContext, params: StepParams) -> StepOutcome:  # noqa: ARG002  # the contract's
        """Change the node, unless others have done so."""
        changed = context.change(self._change, OURS)
        return skip_step("the node is gone") if changed is None else DONE

    def undo(self, context: StepContext, params: StepParams) -> None:  # noqa: ARG002  # the contract's
        """Undo the change if it was ours."""

        def reverse(node: NodeView) -> NodeChange | None:
            ours = context.left == OURS or is_handed_over(node, self.claims)
            return let_go(node, STATE, self.claims) if ours and _stands(node, self.claims) else None

        context.change(reverse, "")


def _stands(node: NodeView, claims: Claims) -> bool:
    return node.unschedulable if claims.cordon else EXCLUDE in node.labels


class CordonParams(StepParams):
    """The step cordon has no options."""

    changes_node: ClassVar[bool] = True


class Cordon(NodeChangeStep):
    """Cordons the node. If the machine stays after all, it is uncordoned, unless others had cordoned it before."""

    Params = CordonParams
    claims = Claims(cordon=True)


class ExcludeParams(StepParams):
    """The step exclude has no options."""

    changes_node: ClassVar[bool] = True


class Exclude(NodeChangeStep):
    """Labels the node so that external load balancers leave it out. If the machine stays, our label is removed."""

    Params = ExcludeParams
    claims = Claims(exclude=True)
