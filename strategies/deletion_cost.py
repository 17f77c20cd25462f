"""Deletion cost: choose which pods a scale-in of a ReplicaSet deletes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from rebalancer.api import Params, Strategy, Term, View


class DeletionCostParams(Params):
    """Options of deletion-cost. Whether moves wait for a scale-in is said by ``protect.afterScaling``."""

    orders_deletions: ClassVar[bool] = True

    pods_per_run: int = Field(
        default=100,
        ge=1,
        le=10_000,
        description="Most pods whose annotation is written or taken back in one run.",
    )


class DeletionCost(Strategy):
    """Sets controller.kubernetes.io/pod-deletion-cost, so that a scale-in takes surplus pods instead of breaking rules.

    It moves no pods. First go pods on nodes that are to be empty, then those of the fullest zones and nodes by the
    workload's spread constraints, then those on Spot machines (``rebalancer.planner.deletion_costs``). With ``mode: off``
    runs take back what they wrote.
    """

    Params = DeletionCostParams

    def terms(self, view: View, params: DeletionCostParams) -> Sequence[Term]:  # noqa: ARG002
        """Return no terms: the strategy does not judge where pods are."""
        return ()
