"""A plan by one strategy alone, with no other rule of a policy."""

from __future__ import annotations

from typing import Any

from rebalancer.cost.strategy import Strategy
from rebalancer.plan.plan import Plan
from rebalancer.planner.plan import plan
from rebalancer.planner.problem import Contribution, Problem
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.policy.protect import Protect
from rebalancer.policy.values import Limit
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope, protect

UNBOUNDED = Budgets(per_run=Limit.parse("100%"), per_hour=Limit.parse("100%"))


def plan_alone(
    snapshot: Snapshot, name: str, strategy: Strategy, params: Any, settings: Settings
) -> Plan:
    """Return the plan by a strategy of a name with its parameters, by the scheduler's defaults and the default protections."""
    of = Contribution(
        name,
        1.0,
        observed=False,
        terms=lambda view: strategy.terms(view, params),
        asks=lambda view: strategy.asks(view, params),
    )
    problem = Problem(
        snapshot,
        SchedulerModel(snapshot, SchedulerProfile.for_version(snapshot.version)),
        [of],
        protect(snapshot, Protect(), Scope()),
    )
    return plan(problem, settings).plan
