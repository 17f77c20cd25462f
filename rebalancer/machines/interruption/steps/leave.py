"""Leave: let the planner move the pods off a node that will go."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.nodes import NodeChange, NodeView
from rebalancer.machines.interruption.model import DONE, StepContext, skipped, timed_out
from rebalancer.machines.interruption.steps.pods import pods_to_leave, shown
from rebalancer.plan.machines import StepOutcome
from rebalancer.policy.interruption import StepParams
from rebalancer.snapshot.leaving import LEAVE

_NOW = "now"
_NONE = "none"
"""Kept where there was no annotation before ours; else, what it said."""
_LOOK, _LONGEST_LOOK = 1.0, 10.0
"""Seconds between two looks at the node's pods; without a deadline, looks become less frequent."""


class LeaveParams(StepParams):
    """The step leave has no options: how pods leave is the policy's, and the strategy leaving's."""

    strategy: ClassVar[str | None] = "leaving"
    changes_node: ClassVar[bool] = True

    def part(self) -> timedelta | float | None:
        """Return None: pods have all the time that the other steps leave."""
        return None


class Leave:
    """Annotates the node rebalancer/leave: now, so that the strategy leaving moves its pods, and waits for them."""

    Params = LeaveParams

    def act(self, context: StepContext, params: LeaveParams) -> StepOutcome:  # noqa: ARG002  # the contract's
        """Annotate the node and wait until its pods have left."""
        kept = context.left or None
        before = _NONE

        def wanted(node: NodeView) -> NodeChange | None:
            return (
                None
                if node.annotations.get(LEAVE) == _NOW
                else NodeChange(annotations={LEAVE: _NOW})
            )

        if kept is None:
            there = context.change(lambda _: None, "")
            before = _NONE if there is None else there.annotations.get(LEAVE, _NONE)
        view = context.change(wanted, kept or before)
        if view is None:
            return skipped("the node is gone")
        # Where others have uncordoned it they had their reasons; but pods that land on it again cannot leave.
        open_ = "" if view.unschedulable else "; it is not cordoned, and takes new pods"
        context.plan()
        trouble = self._emptied(context)
        return timed_out(f"{trouble}{open_}") if trouble else DONE

    @staticmethod
    def _emptied(context: StepContext) -> str:
        """Wait until all pods have left; return what remains or is unknown when the time is over, else empty."""
        look, trouble = _LOOK, ""
        while True:
            try:
                left = pods_to_leave(context)
            except ForbiddenError:
                raise
            except ClusterReadError as error:
                # A look that is cut off, since the time is over, says less than the one before.
                if context.stop.reason() is None or not trouble:
                    trouble = str(error)
            else:
                if not left:
                    return ""
                trouble = shown(left)
            if context.stop.wait(look) is not None:
                return trouble
            if context.deadline is None:
                look = min(1.1 * look, _LONGEST_LOOK)

    def undo(self, context: StepContext, params: LeaveParams) -> None:  # noqa: ARG002  # the contract's
        """Remove the annotation."""
        if not context.left:
            return
        before = None if context.left == _NONE else context.left

        def wanted(node: NodeView) -> NodeChange | None:
            ours = node.annotations.get(LEAVE) == _NOW
            return NodeChange(annotations={LEAVE: before}) if ours else None

        context.change(wanted, "")
