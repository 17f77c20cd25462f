"""Exclude: remove a node that will go from external load balancers."""

from __future__ import annotations

from typing import ClassVar

from rebalancer.kube.nodes import NodeChange, NodeView
from rebalancer.machines.interruption.steps.node_change import NodeChangeStep
from rebalancer.node_record.cordons import let_go
from rebalancer.node_record.protocol import EXCLUDE, Claims
from rebalancer.policy.interruption import StepParams
from rebalancer.signals.state import STATE


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
