"""Exclude: load balancers send nothing more to a node that will go."""

from __future__ import annotations

from rebalancer.interruption.steps.node_change import NodeChangeStep
from rebalancer.kube.nodes import NodeChange, NodeView
from rebalancer.policy.interruption import StepParams
from rebalancer.snapshot.leaving import EXCLUDE

LABEL = EXCLUDE


class ExcludeParams(StepParams):
    """The step exclude has no options."""


class Exclude(NodeChangeStep):
    """Labels the node so that external load balancers leave it out; if the machine stays, our label is removed."""

    Params = ExcludeParams

    @staticmethod
    def change(node: NodeView) -> NodeChange | None:
        """See NodeChangeStep."""
        return None if LABEL in node.labels else NodeChange(labels={LABEL: "true"})

    @staticmethod
    def reverse(node: NodeView) -> NodeChange | None:
        """See NodeChangeStep."""
        return NodeChange(labels={LABEL: None}) if LABEL in node.labels else None
