"""The Eviction subresource with its PodDisruptionBudget arithmetic, step by step as the server does it.

Source: ``k8s.io/kubernetes/pkg/registry/core/pod/storage/eviction.go``. Pods that are pending,
finished or terminating are evicted whatever their budget says. A disruption is taken off the budget before
the uid precondition is checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rebalancer.embedded.apiserver import status
from rebalancer.embedded.apiserver.deletion import check_preconditions, delete
from rebalancer.embedded.apiserver.kinds import (
    BUDGET,
    POD,
    Json,
    Kind,
    condition,
    is_ready,
    set_condition,
)
from rebalancer.embedded.apiserver.store import Store
from rebalancer.snapshot.labels import object_selector
from rebalancer.wire.pods import FINISHED

_TOO_MANY = "Cannot evict pod as it would violate the pod's disruption budget."
_MAX_DISRUPTED = 2000
_BUDGET_IN_MESSAGES = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudget")


def evict(store: Store, namespace: str, name: str, eviction: Mapping[str, Any]) -> Json:
    """Evict a pod, and return the Status of success.

    Raises :class:`status.ApiError`: 404 no such pod, 409 another uid, 429 a budget forbids it (with the
    cause DisruptionBudget), 500 more than one budget selects it.
    """
    if (eviction.get("metadata") or {}).get("name") != name:
        raise status.bad_request("name in URL does not match name in Eviction object")
    options = eviction.get("deleteOptions") or {}
    pod = store.get(POD, namespace, name)
    if not _can_ignore_budgets(pod):
        _spend(store, pod, dry_run="All" in (options.get("dryRun") or ()))
    _mark_and_delete(store, pod, options)
    return status.success(code=201)


def _can_ignore_budgets(pod: Json) -> bool:
    phase = pod.get("status", {}).get("phase")
    return phase in (*FINISHED, "Pending") or "deletionTimestamp" in pod["metadata"]


def _spend(store: Store, pod: Json, *, dry_run: bool) -> None:
    budgets = _budgets_of(store, pod)
    if len(budgets) > 1:
        raise status.ApiError(
            500,
            "",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
            "support.",
        )
    if not budgets:
        return
    budget = budgets[0]
    budget_status = budget["status"]
    if not is_ready(pod):
        if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
            return
        if budget_status["currentHealthy"] >= budget_status["desiredHealthy"] > 0:
            return
    _check(budget)
    if not dry_run:
        store.modify(BUDGET, budget, lambda new: _decrement(store, new, pod["metadata"]["name"]))


def _budgets_of(store: Store, pod: Json) -> Sequence[Json]:
    labels = pod["metadata"].get("labels") or {}
    return [
        budget
        for budget in store.items(BUDGET, pod["metadata"]["namespace"])
        if object_selector(budget["spec"].get("selector"))(labels)
    ]


def _check(budget: Json) -> None:
    name, budget_status = budget["metadata"]["name"], budget["status"]
    if budget_status.get("observedGeneration", 0) < budget["metadata"]["generation"]:
        raise _refuse(f"The disruption budget {name} is still being processed by the server.", 10)
    if budget_status["disruptionsAllowed"] < 0:
        raise status.forbidden(_BUDGET_IN_MESSAGES, name, "pdb disruptions allowed is negative")
    if len(budget_status.get("disruptedPods", {})) > _MAX_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise status.forbidden(_BUDGET_IN_MESSAGES, name, why)
    if budget_status["disruptionsAllowed"] == 0:
        raise _refuse(_why(name, budget_status), 0)


def _why(name: str, budget_status: Mapping[str, Any]) -> str:
    allowed = condition(budget_status, "DisruptionAllowed") or {}
    message = allowed.get("message", "") if allowed.get("status") == "False" else ""
    if message and allowed["reason"] == "SyncFailed":
        return (
            f"The disruption budget {name} does not allow evicting pods currently because it failed "
            f"sync: {message}"
        )
    desired, healthy = budget_status["desiredHealthy"], budget_status["currentHealthy"]
    if healthy <= desired:
        return (
            f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        )
    return f"The disruption budget {name} does not allow evicting pods currently"


def _refuse(cause: str, retry_after: int) -> status.ApiError:
    details: Json = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    return status.ApiError(429, "TooManyRequests", _TOO_MANY, details)


def _decrement(store: Store, budget: Json, pod: str) -> None:
    budget_status = budget["status"]
    budget_status["disruptionsAllowed"] -= 1
    if budget_status["disruptionsAllowed"] == 0:
        set_allowed_condition(budget, store.timestamp())
    # The controller counts this pod as disrupted until it sees the deletion.
    budget_status.setdefault("disruptedPods", {})[pod] = store.timestamp()


def set_allowed_condition(budget: Json, now: str) -> None:
    """Set the condition DisruptionAllowed from ``status.disruptionsAllowed``, in place."""
    allowed = budget["status"]["disruptionsAllowed"] > 0
    set_condition(
        budget["status"],
        "DisruptionAllowed",
        "True" if allowed else "False",
        now,
        reason="SufficientPods" if allowed else "InsufficientPods",
        message="",
        observedGeneration=budget["status"].get("observedGeneration", 0),
    )


def _mark_and_delete(store: Store, pod: Json, options: Mapping[str, Any]) -> None:
    wanted = options.get("preconditions") or {}
    check_preconditions(POD, pod, wanted)
    if "All" in (options.get("dryRun") or ()):
        return
    marked = store.modify(
        POD,
        pod,
        lambda new: set_condition(
            new["status"],
            "DisruptionTarget",
            "True",
            store.timestamp(),
            reason="EvictionByEvictionAPI",
            message="Eviction API: evicting",
        ),
    )
    if wanted.get("resourceVersion"):
        # The version was the caller's until we wrote the condition ourselves.
        version = marked["metadata"]["resourceVersion"]
        options = {**options, "preconditions": {**wanted, "resourceVersion": version}}
    delete(store, POD, marked, options)
