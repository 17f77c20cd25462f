"""Cordon: keep new pods off a node that will go."""

from __future__ import annotations

from typing import ClassVar

from rebalancer.kube.nodes import NodeChange, NodeView
from rebalancer.machines.interruption.steps.node_change import NodeChangeStep
from rebalancer.node_record.cordons import let_go
from rebalancer.node_record.protocol import Claims
from rebalancer.policy.interruption import StepParams
from rebalancer.signals.state import STATE


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
