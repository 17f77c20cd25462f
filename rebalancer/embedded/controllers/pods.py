"""Shared code of the workload controllers: their loop, and pods created from templates, counted and ordered."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rebalancer.embedded.apiserver.defaults import admit, charge
from rebalancer.embedded.apiserver.kinds import POD, Json, Kind, is_ready
from rebalancer.embedded.apiserver.store import Change, Key, Store, clone
from rebalancer.embedded.engine import Controller
from rebalancer.wire.deletion_order import read_replicas, sort_replicas
from rebalancer.wire.pods import FINISHED


class WorkloadController(Controller):
    """Reconciles the objects of one kind, each when it or one of its dependents has changed."""

    kind: Kind
    dependents: Kind = POD

    def observe(self, change: Change) -> None:
        """Queue an object that changed, or the controller of a dependent that changed."""
        if change.kind is self.kind and change.new is not None:
            self.note(change.key)
        elif change.kind is self.dependents:
            key = owner_key(change.object, self.kind)
            if key is not None:
                self.note(key)

    def sync(self, key: Key) -> None:
        """Reconcile the object of this key, unless it is deleted or being deleted."""
        obj = self.store.find(self.kind, *key)
        if obj is not None and not is_terminating(obj):
            self.reconcile(obj, key)

    @abstractmethod
    def reconcile(self, obj: Json, key: Key) -> None:
        """Bring the dependents of an object closer to its spec, and write its status."""


def controller_of(obj: Mapping[str, Any]) -> Mapping[str, str] | None:
    """Return the owner reference of an object's controller."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return None


def owner_key(obj: Mapping[str, Any], kind: Kind) -> tuple[str, str] | None:
    """Return namespace and name of an object's controller, if it is of this kind."""
    reference = controller_of(obj)
    if reference is None or reference["kind"] != kind.kind:
        return None
    return obj["metadata"]["namespace"], reference["name"]


def reference_to(kind: Kind, owner: Mapping[str, Any]) -> Json:
    """Return the owner reference of a controller."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def create_pod(
    store: Store,
    kind: Kind,
    owner: Json,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    amend: Callable[[Json], None] | None = None,
) -> Json:
    """Create a pod from its owner's template; its name is generated unless it is given.

    ``amend`` may change the spec. Raises ApiError where admission refuses (a quota).
    """
    template = owner["spec"]["template"]
    of_template = template.get("metadata") or {}
    metadata: Json = {
        "labels": {**of_template.get("labels", {}), **(labels or {})},
        "ownerReferences": [reference_to(kind, owner)],
    }
    if of_template.get("annotations"):
        metadata["annotations"] = dict(of_template["annotations"])
    if name:
        metadata["name"] = name
    else:
        metadata["generateName"] = f"{owner['metadata']['name']}-"
    pod = {"metadata": metadata, "spec": clone(template["spec"])}
    if amend is not None:
        amend(pod["spec"])
    namespace = owner["metadata"]["namespace"]
    made = admit(store, POD, namespace, pod)
    charge(store, POD, namespace, made)
    return store.create(POD, namespace, made)


def is_terminating(obj: Mapping[str, Any]) -> bool:
    """Whether an object is being deleted."""
    return "deletionTimestamp" in obj["metadata"]


def is_active(pod: Mapping[str, Any]) -> bool:
    """Whether a pod counts as a replica: neither finished nor terminating."""
    return pod["status"].get("phase") not in FINISHED and not is_terminating(pod)


def counts(pods: Sequence[Json]) -> dict[str, int]:
    """Return the numbers of replicas in the status of a workload with these pods."""
    ready = sum(is_ready(pod) for pod in pods)
    return {"replicas": len(pods), "readyReplicas": ready, "availableReplicas": ready}


def first_to_go(store: Store, pods: Sequence[Json]) -> list[Json]:
    """Return pods in the order in which a ReplicaSet deletes them when it is scaled down."""
    order = sort_replicas(read_replicas(pods), store.clock.now())
    return [pods[row] for row in order]
