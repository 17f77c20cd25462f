"""PodDisruptionBudgets after an edit: their status as the disruption controller would write it.

Source: ``pkg/controller/disruption/disruption.go``.
"""

from __future__ import annotations

from rebalancer.snapshot.labels import object_selector
from rebalancer.whatif.objects import Json, Objects, controller, is_active, is_ready
from rebalancer.wire.share import share_of


def renew_budgets(objects: Objects) -> None:
    """Write the status of every PodDisruptionBudget whose controllers are all known; leave the others."""
    replicas = _replicas(objects)
    for budget in objects.of_kind("PodDisruptionBudget"):
        spec, namespace = budget.get("spec") or {}, budget["metadata"].get("namespace")
        selects = object_selector(spec.get("selector"))
        pods = [
            pod
            for pod in objects.of_kind("Pod")
            if pod["metadata"].get("namespace") == namespace
            and is_active(pod)
            and selects(pod["metadata"].get("labels") or {})
        ]
        expected = _expected(spec, pods, replicas)
        if expected is None:
            continue
        total, desired = expected
        healthy = sum(is_ready(pod) for pod in pods)
        budget["status"] = {
            **(budget.get("status") or {}),
            "expectedPods": total,
            "desiredHealthy": desired,
            "currentHealthy": healthy,
            "disruptionsAllowed": max(0, healthy - desired) if total else 0,
        }


def _replicas(objects: Objects) -> dict[str, int]:
    """Return uid -> replicas wanted of everything that creates pods; a ReplicaSet's are its Deployment's."""
    wanted: dict[str, int] = {}
    makers = objects.of_kind("Deployment", "StatefulSet", "ReplicationController", "ReplicaSet")
    for maker in makers:
        above = wanted.get(controller(maker).get("uid", ""))
        own = (maker.get("spec") or {}).get("replicas", 1)
        wanted[maker["metadata"].get("uid", "")] = int(own) if above is None else above
    return wanted


def _expected(spec: Json, pods: list[Json], replicas: dict[str, int]) -> tuple[int, int] | None:
    """Return how many pods there should be and how many of them healthy, None if that is unknown."""
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if most is None and not isinstance(least, str):
        return len(pods), least or 0
    uids = {controller(pod).get("uid", "") for pod in pods}
    if not uids <= replicas.keys():
        return None
    total = sum(replicas[uid] for uid in uids)
    try:
        if most is not None:
            return total, max(0, total - share_of(most, total, up=True))
        return total, share_of(least or 0, total, up=True)
    except ValueError:
        return None
