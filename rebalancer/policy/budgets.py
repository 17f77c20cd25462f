"""Budgets: how many pods may be evicted at once, in a run and in an hour."""

from __future__ import annotations

from pydantic import Field

from rebalancer.policy.values import Limit, LimitField, Section

# Lower limit of a share, so that moves are possible in small clusters, too.
_FLOORS = {"in_flight": 5, "per_node": 1, "per_owner": 1, "per_run": 10, "per_hour": 20}

_FEWEST_MARKS = 10


class Budgets(Section):
    """Limits of evictions: counts, or shares that are rounded down, but not to 0.

    They hold in addition to PodDisruptionBudgets. A pod is in flight until its replacement is Ready.
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
    per_namespace: LimitField | None = Field(
        default=None,
        description="Evictions in one run in one namespace, of its movable pods; a share is at least 1; absent: any.",
    )
    per_zone: LimitField | None = Field(
        default=None,
        description="Pods in flight that left one zone, of its pods; a share is at least 1; absent: any.",
    )

    marks: LimitField = Field(
        default=Limit.parse("25%"),
        description="Nodes that carry a mark at once, of all nodes, where the policy steers; a share is at least 10.",
    )

    def in_flight_of(self, movable: int) -> int:
        """Return the pods that may be in flight at once, given the number of movable pods."""
        return self.in_flight.of(movable, _FLOORS["in_flight"])

    def per_node_of(self, pods: int) -> int:
        """Return the pods that may be in flight from a node with this number of pods."""
        return self.per_node.of(pods, _FLOORS["per_node"])

    def per_owner_of(self, replicas: int) -> int:
        """Return the pods that may be in flight of an owner with this number of replicas."""
        return self.per_owner.of(replicas, _FLOORS["per_owner"])

    def per_run_of(self, movable: int) -> int:
        """Return the evictions allowed in a run, given the number of movable pods."""
        return self.per_run.of(movable, _FLOORS["per_run"])

    def per_hour_of(self, movable: int) -> int:
        """Return the evictions allowed in any hour, given the number of movable pods."""
        return self.per_hour.of(movable, _FLOORS["per_hour"])

    def per_namespace_of(self, movable: int) -> int | None:
        """Return the evictions allowed in a run in a namespace with so many movable pods; None: any number."""
        return None if self.per_namespace is None else self.per_namespace.of(movable)

    def per_zone_of(self, pods: int) -> int | None:
        """Return the pods that may be in flight from a zone with this number of pods; None: any number."""
        return None if self.per_zone is None else self.per_zone.of(pods)

    def marks_of(self, nodes: int) -> int:
        """Return the largest number of nodes, out of so many, that may carry a mark at the same time."""
        return self.marks.of(nodes, _FEWEST_MARKS)


class StrategyBudgets(Section):
    """Budgets of one strategy's moves, in addition to the policy's; absent ones are not limited further."""

    in_flight: LimitField | None = Field(default=None, description="As in the policy's budgets.")
    per_node: LimitField | None = Field(default=None, description="As in the policy's budgets.")
    per_owner: LimitField | None = Field(default=None, description="As in the policy's budgets.")
    per_run: LimitField | None = Field(default=None, description="As in the policy's budgets.")
    per_hour: LimitField | None = Field(default=None, description="As in the policy's budgets.")
    per_namespace: LimitField | None = Field(
        default=None, description="As in the policy's budgets."
    )
    per_zone: LimitField | None = Field(default=None, description="As in the policy's budgets.")

    def within(self, outer: Budgets) -> Budgets:
        """Return the budgets of this strategy's moves: its own, and the policy's for absent ones."""
        own = {
            name: value
            for name in StrategyBudgets.model_fields
            if (value := getattr(self, name)) is not None
        }
        return outer.model_copy(update=own)
