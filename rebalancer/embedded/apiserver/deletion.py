"""Deleting: preconditions, grace periods, finalizers.

Source: ``k8s.io/apiserver/pkg/registry/rest/delete.go: BeforeDelete`` and
``k8s.io/kubernetes/pkg/registry/core/pod/strategy.go: CheckGracefulDelete``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rebalancer.embedded.apiserver import status
from rebalancer.embedded.apiserver.kinds import NAMESPACE, POD, Kind
from rebalancer.embedded.apiserver.store import Json, Store
from rebalancer.wire.times import rfc3339, unix_seconds

FINISHED = ("Succeeded", "Failed")


def delete(store: Store, kind: Kind, found: Json, options: Mapping[str, Any]) -> Json:
    """Delete an object, or mark it as being deleted; return its last state.

    A scheduled pod goes by grace: it is marked, and its kubelet takes it away. 409 where a precondition
    does not hold.
    """
    check_preconditions(kind, found, options.get("preconditions") or {})
    if "All" in (options.get("dryRun") or ()):
        return found
    if options.get("propagationPolicy") == "Orphan":
        _orphan(store, found["metadata"]["uid"])
    if kind is POD:
        return _delete_pod(store, found, options.get("gracePeriodSeconds"))
    if kind is NAMESPACE or found["metadata"].get("finalizers"):
        return _mark(store, kind, found)
    store.remove(kind, found)
    return found


def check_preconditions(kind: Kind, found: Json, wanted: Mapping[str, str]) -> None:
    """Raise 409 where the object is not the one that the caller means."""
    metadata = found["metadata"]
    for field, key in (("UID", "uid"), ("ResourceVersion", "resourceVersion")):
        if wanted.get(key) and wanted[key] != metadata[key]:
            raise status.precondition(kind, metadata["name"], field, wanted[key], metadata[key])


def _delete_pod(store: Store, pod: Json, asked: int | None) -> Json:
    metadata, spec = pod["metadata"], pod["spec"]
    grace = spec.get("terminationGracePeriodSeconds", 0) if asked is None else asked
    grace = 1 if grace < 0 else grace
    if not spec.get("nodeName") or pod.get("status", {}).get("phase") in FINISHED:
        grace = 0
    if "deletionTimestamp" in metadata:
        return _shorten(store, pod, grace if asked is not None else None)
    if grace == 0:
        store.remove(POD, pod)
        return pod

    def mark(new: Json) -> None:
        new["metadata"]["deletionTimestamp"] = rfc3339(store.clock.now() + grace)
        new["metadata"]["deletionGracePeriodSeconds"] = grace
        new["metadata"]["generation"] += 1

    return store.modify(POD, pod, mark, anything=True)


def _shorten(store: Store, pod: Json, grace: int | None) -> Json:
    """A pod that is being deleted may only be deleted sooner."""
    given = pod["metadata"].get("deletionGracePeriodSeconds", 0)
    if grace is None or grace >= given:
        return pod
    if grace == 0:
        store.remove(POD, pod)
        return pod
    began = unix_seconds(pod["metadata"]["deletionTimestamp"]) - given

    def mark(new: Json) -> None:
        new["metadata"]["deletionTimestamp"] = rfc3339(max(began + grace, store.clock.now()))
        new["metadata"]["deletionGracePeriodSeconds"] = grace

    return store.modify(POD, pod, mark, anything=True)


def _mark(store: Store, kind: Kind, found: Json) -> Json:
    """Namespaces and objects with finalizers wait for whoever has to finish them."""
    if "deletionTimestamp" in found["metadata"]:
        return found

    def mark(new: Json) -> None:
        new["metadata"]["deletionTimestamp"] = store.timestamp()
        if kind is NAMESPACE:
            new["status"]["phase"] = "Terminating"

    return store.modify(kind, found, mark, anything=True)


def _orphan(store: Store, uid: str) -> None:
    for kind, (namespace, name) in store.all_dependents(uid):

        def disown(new: Json) -> None:
            references = new["metadata"]["ownerReferences"]
            new["metadata"]["ownerReferences"] = [r for r in references if r["uid"] != uid]

        store.modify(kind, store.get(kind, namespace, name), disown)
