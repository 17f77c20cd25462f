"""Exclude: load balancers send nothing more to a node that will go."""

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
    """Labels the node so that external load balancers leave it out; if the machine stays, our label is removed."""

    Params = ExcludeParams
    claims = Claims(exclude=True)

    @staticmethod
    def change(node: NodeView) -> NodeChange | None:
        """See NodeChangeStep."""
        return None if EXCLUDE in node.labels else NodeChange(labels={EXCLUDE: "true"})

    @staticmethod
    def reverse(node: NodeView) -> NodeChange | None:
        """See NodeChangeStep."""
        return let_go(node, STATE, Exclude.claims) if EXCLUDE in node.labels else None
