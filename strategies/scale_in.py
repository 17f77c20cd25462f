"""Scale-in: drain unneeded nodes and terminate their machines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar, Literal

from pydantic import Field

from rebalancer.api import (
    Duration,
    Params,
    Strategy,
    Term,
    View,
)
from strategies.priced_nodes import EmptiedNodesTerm


class ScaleInParams(Params):
    """Options of scale-in. The defaults are those of Cluster Autoscaler, except for giveUpAfter."""

    scales: ClassVar[Literal["in", "out"] | None] = "in"

    unneeded_for: Duration = Field(
        default=timedelta(minutes=10),
        description="A node is drained once it is unneeded for so long, without a break.",
    )
    unready_for: Duration = Field(
        default=timedelta(minutes=20), description="The same of a node that is not Ready."
    )
    at_once: int = Field(
        default=10, ge=1, le=1000, description="Most nodes that are being removed at once."
    )
    draining_at_once: int = Field(
        default=1,
        ge=0,
        le=1000,
        description="Most of them that have pods to move; 0: only empty ones go.",
    )
    give_up_after: Duration = Field(
        default=timedelta(minutes=15),
        description="The scale-in of a node that is not empty after so long is cancelled.",
    )
    cool_down_after_growth: Duration = Field(
        default=timedelta(minutes=10),
        description="No further node is drained while one of any group is younger, or machines of its own group are upcoming.",
    )
    cool_down_after_failure: Duration = Field(
        default=timedelta(minutes=3),
        description="No further node is drained for so long after a scale-in has failed.",
    )


class ScaleIn(Strategy):
    """Removes unneeded nodes, after all of their pods have moved to other nodes.

    ``rebalancer capacity`` shows which nodes can be removed. A node is cordoned and tainted; its pods leave by this
    strategy's term, within budgets and PodDisruptionBudgets; then its machine is terminated
    (``rebalancer.machines.capacity.scale_in``).
    """

    Params = ScaleInParams

    def terms(self, view: View, params: ScaleInParams) -> Sequence[Term]:  # noqa: ARG002
        """Return one hard term: each pod on a node to be removed still has to move."""
        nodes = view.snapshot.nodes
        going = [
            node
            for node, notices in nodes.notices.items()
            if any(notice.kind == "scale-in" for notice in notices)
        ]
        return [
            EmptiedNodesTerm(
                view, going, lambda node: f"{nodes.names[node]} is removed from its group"
            )
        ]
