"""What others have limited: PodDisruptionBudgets and ResourceQuotas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from rebalancer.snapshot.labels import ClassIndex
from rebalancer.snapshot.model import DisruptionBudget, Quota
from rebalancer.wire import objects as o
from rebalancer.wire.quantity import parse_resource

_Named = TypeVar("_Named", o.PodDisruptionBudget, o.ResourceQuota)


def fold_budgets(
    budgets: Iterable[o.PodDisruptionBudget], index: ClassIndex
) -> tuple[DisruptionBudget, ...]:
    """Return the budgets by namespace and name, over the classes of ``index``."""
    return tuple(_budget(budget, index) for budget in _by_ref(budgets))


def allowed(budget: o.PodDisruptionBudget) -> int:
    """Return how many disruptions a budget allows now: none until its controller has seen its newest spec."""
    seen = budget.status.observed_generation >= budget.metadata.generation
    return budget.status.disruptions_allowed if seen else 0


def fold_quotas(quotas: Iterable[o.ResourceQuota]) -> tuple[Quota, ...]:
    """Return the quotas by namespace and name."""
    return tuple(_quota(quota) for quota in _by_ref(quotas))


def _by_ref(objects: Iterable[_Named]) -> list[_Named]:
    return sorted(objects, key=lambda item: (item.metadata.namespace, item.metadata.name))


def _budget(budget: o.PodDisruptionBudget, index: ClassIndex) -> DisruptionBudget:
    return DisruptionBudget(
        namespace=budget.metadata.namespace,
        name=budget.metadata.name,
        classes=index.match([budget.metadata.namespace], budget.spec.selector),
        allowed=allowed(budget),
        healthy=budget.status.current_healthy,
        desired=budget.status.desired_healthy,
        always_allow_unhealthy=budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
        expected=budget.status.expected_pods,
    )


def _quota(quota: o.ResourceQuota) -> Quota:
    free: dict[str, int] = {}
    hard = quota.status.hard or quota.spec.hard or {}
    for name, text in hard.items():
        resource = name.removeprefix("requests.").removeprefix("limits.")
        used = (quota.status.used or {}).get(name, 0)
        try:
            free[name] = parse_resource(resource, text) - parse_resource(resource, used)
        except ValueError:
            free[name] = 0  # what cannot be read leaves no room
    return Quota(quota.metadata.namespace, quota.metadata.name, free, quota.spec)
