"""Deletion and eviction: preconditions, grace periods, finalizers; PodDisruptionBudgets step by step as the server does it.

Source: ``k8s.io/apiserver/pkg/registry/rest/delete.go: BeforeDelete`` and
``k8s.io/kubernetes/pkg/registry/core/pod/strategy.go: CheckGracefulDelete``.

Source: ``k8s.io/kubernetes/pkg/registry/core/pod/storage/eviction.go``. Pods that are pending,
finished or terminating are evicted whatever their budget says. A disruption is subtracted from the budget before
the uid precondition is checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rebalancer.embedded.apiserver import kinds
from rebalancer.embedded.apiserver.kinds import (
    BUDGET,
    NAMESPACE,
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
from rebalancer.wire.times import rfc3339, unix_seconds


def delete(store: Store, kind: Kind, obj: Json, options: Mapping[str, Any]) -> Json:
    """Delete an object, or mark it as being deleted; return its last state.

    A pod on a node is only marked: its kubelet removes it after the grace period. 409 if a precondition
    is not met.
    """
    check_preconditions(kind, obj, options.get("preconditions") or {})
    if "All" in (options.get("dryRun") or ()):
        return obj
    if options.get("propagationPolicy") == "Orphan":
        _orphan(store, obj["metadata"]["uid"])
    if kind is POD:
        return _delete_pod(store, obj, options.get("gracePeriodSeconds"))
    if kind is NAMESPACE or obj["metadata"].get("finalizers"):
        return _mark(store, kind, obj)
    store.remove(kind, obj)
    return obj


def check_preconditions(kind: Kind, obj: Json, wanted: Mapping[str, str]) -> None:
    """Raise 409 where uid or resourceVersion differ from the preconditions."""
    metadata = obj["metadata"]
    for field, key in (("UID", "uid"), ("ResourceVersion", "resourceVersion")):
        if wanted.get(key) and wanted[key] != metadata[key]:
            raise kinds.precondition(kind, metadata["name"], field, wanted[key], metadata[key])


def _delete_pod(store: Store, pod: Json, requested: int | None) -> Json:
    metadata, spec = pod["metadata"], pod["spec"]
    grace = spec.get("terminationGracePeriodSeconds", 0) if requested is None else requested
    grace = 1 if grace < 0 else grace
    if not spec.get("nodeName") or pod.get("status", {}).get("phase") in FINISHED:
        grace = 0
    if "deletionTimestamp" in metadata:
        return _shorten(store, pod, grace if requested is not None else None)
    if grace == 0:
        store.remove(POD, pod)
        return pod

    def mark(new: Json) -> None:
        new["metadata"]["deletionTimestamp"] = rfc3339(store.clock.now() + grace)
        new["metadata"]["deletionGracePeriodSeconds"] = grace
        new["metadata"]["generation"] += 1

    return store.modify(POD, pod, mark, anything=True)


def _shorten(store: Store, pod: Json, grace: int | None) -> Json:
    """Shorten the grace period of a terminating pod; it cannot become longer."""
    current = pod["metadata"].get("deletionGracePeriodSeconds", 0)
    if grace is None or grace >= current:
        return pod
    if grace == 0:
        store.remove(POD, pod)
        return pod
    began = unix_seconds(pod["metadata"]["deletionTimestamp"]) - current

    def mark(new: Json) -> None:
        new["metadata"]["deletionTimestamp"] = rfc3339(max(began + grace, store.clock.now()))
        new["metadata"]["deletionGracePeriodSeconds"] = grace

    return store.modify(POD, pod, mark, anything=True)


def _mark(store: Store, kind: Kind, obj: Json) -> Json:
    """Set the deletion time; a controller removes the object, or its finalizers, later."""
    if "deletionTimestamp" in obj["metadata"]:
        return obj

    def mark(new: Json) -> None:
        new["metadata"]["deletionTimestamp"] = store.timestamp()
        if kind is NAMESPACE:
            new["status"]["phase"] = "Terminating"

    return store.modify(kind, obj, mark, anything=True)


def _orphan(store: Store, uid: str) -> None:
    for kind, (namespace, name) in store.all_dependents(uid):

        def disown(new: Json) -> None:
            references = new["metadata"]["ownerReferences"]
            new["metadata"]["ownerReferences"] = [r for r in references if r["uid"] != uid]

        store.modify(kind, store.get(kind, namespace, name), disown)


_TOO_MANY = "Cannot evict pod as it would violate the pod's disruption budget."
_MAX_DISRUPTED = 2000
_BUDGET_IN_MESSAGES = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudget")


def evict(store: Store, namespace: str, name: str, eviction: Mapping[str, Any]) -> Json:
    """Evict a pod, and return the Status of success.

    Raises :class:`kinds.ApiError`: 404 no such pod, 409 another uid, 429 a budget forbids it (with the
    cause DisruptionBudget), 500 more than one budget selects it.
    """
    if (eviction.get("metadata") or {}).get("name") != name:
        raise kinds.bad_request("name in URL does not match name in Eviction object")
    options = eviction.get("deleteOptions") or {}
    pod = store.get(POD, namespace, name)
    if not _can_ignore_budgets(pod):
        _spend(store, pod, dry_run="All" in (options.get("dryRun") or ()))
    _mark_and_delete(store, pod, options)
    return kinds.success(code=201)


def _can_ignore_budgets(pod: Json) -> bool:
    phase = pod.get("status", {}).get("phase")
    return phase in (*FINISHED, "Pending") or "deletionTimestamp" in pod["metadata"]


def _spend(store: Store, pod: Json, *, dry_run: bool) -> None:
    budgets = _budgets_of(store, pod)
    if len(budgets) > 1:
        raise kinds.ApiError(
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
        raise kinds.forbidden(_BUDGET_IN_MESSAGES, name, "pdb disruptions allowed is negative")
    if len(budget_status.get("disruptedPods", {})) > _MAX_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise kinds.forbidden(_BUDGET_IN_MESSAGES, name, why)
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


def _refuse(cause: str, retry_after: int) -> kinds.ApiError:
    details: Json = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    return kinds.ApiError(429, "TooManyRequests", _TOO_MANY, details)


def _decrement(store: Store, budget: Json, pod: str) -> None:
    budget_status = budget["status"]
    budget_status["disruptionsAllowed"] -= 1
    if budget_status["disruptionsAllowed"] == 0:
        set_allowed_condition(budget, store.timestamp())
    # The controller counts this pod as disrupted until it sees the deletion.
    budget_status.setdefault("disruptedPods", {})[pod] = store.timestamp()


def set_allowed_condition(budget: Json, now: str) -> None:
    """Set the condition DisruptionAllowed from ``kinds.disruptionsAllowed``, in place."""
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
