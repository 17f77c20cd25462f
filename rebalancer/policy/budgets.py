"""Budgets: how much may be disturbed at once, in a run and in an hour."""

from __future__ import annotations

from pydantic import Field

from rebalancer.policy.params import Section
from rebalancer.policy.values import Limit, LimitField

# What a share comes to at least, so that small clusters are mended, too.
_FLOORS = {"in_flight": 5, "per_node": 1, "per_owner": 1, "per_run": 10, "per_hour": 20}


class Budgets(Section):
    """How many pods may be disturbed; counts, or shares that are rounded down but never to never.

    PodDisruptionBudgets always hold besides, and what is in flight counts.
    """

    in_flight: LimitField = Field(
        default=Limit.parse("2%"),
        description="Replacements not yet Ready at once, of all movable pods; a share is at least 5. Pods that are not"
        " Ready before a run count too, for ten minutes from their creation.",
    )
    per_node: LimitField = Field(
        default=Limit.parse(5),
        description="Pods in flight that left one node, of the node's pods; a share is at least 1.",
    )
    per_owner: LimitField = Field(
        default=Limit.parse("10%"),
        description="Pods in flight of one owner, of its replicas; a share is at least 1.",
    )
    per_run: LimitField = Field(
        default=Limit.parse("10%"),
        description="Evictions in one run, of all movable pods; a share is at least 10.",
    )
    per_hour: LimitField = Field(
        default=Limit.parse("30%"),
        description="Evictions in any hour over all runs, of all movable pods; a share is at least 20.",
    )

    def in_flight_of(self, movable: int) -> int:
        """Return how many may be in flight at once, given the number of movable pods."""
        return self.in_flight.of(movable, _FLOORS["in_flight"])

    def per_node_of(self, pods: int) -> int:
        """Return how many may be in flight from a node that holds so many pods."""
        return self.per_node.of(pods, _FLOORS["per_node"])

    def per_owner_of(self, replicas: int) -> int:
        """Return how many may be in flight of an owner of so many replicas."""
        return self.per_owner.of(replicas, _FLOORS["per_owner"])

    def per_run_of(self, movable: int) -> int:
        """Return how many may be evicted in a run, given the number of movable pods."""
        return self.per_run.of(movable, _FLOORS["per_run"])

    def per_hour_of(self, movable: int) -> int:
        """Return how many may be evicted in any hour, given the number of movable pods."""
        return self.per_hour.of(movable, _FLOORS["per_hour"])


class StrategyBudgets(Section):
    """Budgets that one strategy's moves must keep besides the policy's; what is absent adds nothing."""

    in_flight: LimitField | None = Field(default=None, description="As in the policy's budgets.")
    per_node: LimitField | None = Field(default=None, description="As in the policy's budgets.")
    per_owner: LimitField | None = Field(default=None, description="As in the policy's budgets.")
    per_run: LimitField | None = Field(default=None, description="As in the policy's budgets.")
    per_hour: LimitField | None = Field(default=None, description="As in the policy's budgets.")

    def within(self, outer: Budgets) -> Budgets:
        """Return the budgets for this strategy's moves alone: its own, else the policy's."""
        own = {name: value for name in _FLOORS if (value := getattr(self, name)) is not None}
        return outer.model_copy(update=own)
