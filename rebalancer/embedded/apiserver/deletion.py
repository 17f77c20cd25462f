"""Deletion: preconditions, grace periods, finalizers.

Source: ``k8s.io/apiserver/pkg/registry/rest/delete.go: BeforeDelete`` and
``k8s.io/kubernetes/pkg/registry/core/pod/strategy.go: CheckGracefulDelete``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rebalancer.embedded.apiserver import status
from rebalancer.embedded.apiserver.kinds import NAMESPACE, POD, Json, Kind
from rebalancer.embedded.apiserver.store import Store
from rebalancer.wire.pods import FINISHED
from rebalancer.wire.times import rfc3339, unix_seconds


def delete(store: Store, kind: Kind, obj: Json, options: Mapping[str, Any]) -> Json:
    """Delete an object, or mark it as being deleted; return its last state.

    A pod on a node is only marked: its kubelet removes it after the grace period. 409 where a precondition
    does not hold.
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
            raise status.precondition(kind, metadata["name"], field, wanted[key], metadata[key])


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
