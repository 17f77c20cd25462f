"""Budgets: the maximum number of evictions at once, per run and per hour."""

from __future__ import annotations

from pydantic import Field

from rebalancer.policy.values import Limit, LimitField, Section

# Lower limit of a share, so that moves are possible in small clusters, too.
_FLOORS = {"in_flight": 5, "per_node": 1, "per_owner": 1, "per_run": 10, "per_hour": 20}

_FEWEST_MARKS = 10


class Budgets(Section):
    """Limits on evictions: counts, or shares. A share is rounded down, but not to 0.

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
        """Return the maximum number of pods in flight, given the number of movable pods."""
        return self.in_flight.of(movable, _FLOORS["in_flight"])

    def per_node_of(self, pods: int) -> int:
        """Return the maximum number of pods in flight from one node, given the number of its pods."""
        return self.per_node.of(pods, _FLOORS["per_node"])

    def per_owner_of(self, replicas: int) -> int:
        """Return the maximum number of pods in flight of one owner, given the number of its replicas."""
        return self.per_owner.of(replicas, _FLOORS["per_owner"])

    def per_run_of(self, movable: int) -> int:
        """Return the maximum number of evictions per run, given the number of movable pods."""
        return self.per_run.of(movable, _FLOORS["per_run"])

    def per_hour_of(self, movable: int) -> int:
        """Return the maximum number of evictions per hour, given the number of movable pods."""
        return self.per_hour.of(movable, _FLOORS["per_hour"])

    def per_namespace_of(self, movable: int) -> int | None:
        """Return the maximum number of evictions per run in one namespace; None: no limit.

        ``movable``: the number of movable pods in the namespace.
        """
        return None if self.per_namespace is None else self.per_namespace.of(movable)

    def per_zone_of(self, pods: int) -> int | None:
        """Return the maximum number of pods in flight from one zone, given its pods; None: no limit."""
        return None if self.per_zone is None else self.per_zone.of(pods)

    def marks_of(self, nodes: int) -> int:
        """Return the maximum number of nodes with a mark at the same time, given the number of nodes."""
        return self.marks.of(nodes, _FEWEST_MARKS)


class StrategyBudgets(Section):
    """Budgets for the moves of one strategy, in addition to the policy's. An absent key sets no limit."""

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
        """Return the budgets for this strategy's moves; an absent one is taken from ``outer``."""
        own = {
            name: value
            for name in StrategyBudgets.model_fields
            if (value := getattr(self, name)) is not None
        }
        return outer.model_copy(update=own)
