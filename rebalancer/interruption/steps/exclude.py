"""Exclude: load balancers send nothing more to a node that will go."""

from __future__ import annotations

from rebalancer.interruption.model import DONE, StepContext, skipped
from rebalancer.interruption.steps.cordon import OURS
from rebalancer.kube.nodes import NodeChange, NodeView
from rebalancer.policy.interruption import StepParams
from rebalancer.signals.model import StepOutcome

LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
"""Well-known label: the service controller and load balancer controllers take such nodes out of their targets."""


class ExcludeParams(StepParams):
    """The step exclude has no options."""


class Exclude:
    """Labels the node so that external load balancers leave it out; if the machine stays, our label is removed."""

    Params = ExcludeParams

    def act(self, context: StepContext, params: ExcludeParams) -> StepOutcome:  # noqa: ARG002  # the contract's
        """See Step."""
        if context.change(_labelled, OURS) is None:
            return skipped("the node is gone")
        return DONE

    def undo(self, context: StepContext, params: ExcludeParams) -> None:  # noqa: ARG002  # the contract's
        """See Undoing."""
        if context.left == OURS:
            context.change(_without, "")


def _labelled(node: NodeView) -> NodeChange | None:
    return None if LABEL in node.labels else NodeChange(labels={LABEL: "true"})


def _without(node: NodeView) -> NodeChange | None:
    return NodeChange(labels={LABEL: None}) if LABEL in node.labels else None
