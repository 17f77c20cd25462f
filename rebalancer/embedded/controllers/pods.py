"""Shared code of workload controllers: their loop, and pods created from templates, counted and ordered; and PodDisruptionBudgets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rebalancer.embedded.apiserver.defaults import admit
from rebalancer.embedded.apiserver.eviction import set_allowed_condition
from rebalancer.embedded.apiserver.kinds import (
    BUDGET,
    CONTROLLER,
    DEPLOYMENT,
    POD,
    REPLICA_SET,
    STATEFUL_SET,
    Json,
    Kind,
    is_ready,
    set_condition,
)
from rebalancer.embedded.apiserver.store import Change, Key, Store, clone
from rebalancer.embedded.engine import Controller
from rebalancer.snapshot.labels import object_selector
from rebalancer.wire.deletion_order import read_replicas, sort_replicas
from rebalancer.wire.pods import FINISHED
from rebalancer.wire.quantity import share_of
from rebalancer.wire.times import unix_seconds


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

    ``amend`` may change the spec. Raises ApiError where admission refuses.
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


_SCALED = {kind.kind: kind for kind in (REPLICA_SET, STATEFUL_SET, CONTROLLER)}
_DELETION_TIMEOUT = 120.0


class DisruptionController(Controller):
    """Keeps the status of every PodDisruptionBudget.

    Source: ``k8s.io/kubernetes/pkg/controller/disruption/disruption.go``.
    """

    def observe(self, change: Change) -> None:
        """Queue a budget when it changed, or a pod or a workload of its namespace did."""
        if change.kind is BUDGET and change.new is not None:
            self.note(change.key)
        elif change.kind is POD or change.kind.kind in _SCALED or change.kind is DEPLOYMENT:
            for budget in self.store.items(BUDGET, change.key[0]):
                self.note((change.key[0], budget["metadata"]["name"]))

    def sync(self, key: Key) -> None:
        """Write the budget's status."""
        budget = self.store.find(BUDGET, *key)
        if budget is None:
            return
        selects = object_selector(budget["spec"].get("selector"))
        pods = [
            pod
            for pod in self.store.items(POD, key[0])
            if selects(pod["metadata"].get("labels") or {})
        ]
        try:
            expected, desired = self._count_expected(budget["spec"], pods)
        except ValueError as error:
            failure = str(error)
            now = self.store.timestamp()
            self.store.modify(BUDGET, budget, lambda new: _fail(new, failure, now))
            return
        disrupted = self._list_disrupted(budget, pods)
        if disrupted:
            oldest = min(unix_seconds(granted) for granted in disrupted.values())
            expires = oldest + _DELETION_TIMEOUT + 1 - self.store.clock.now()
            self.engine.after(expires, lambda: self.note(key))
        healthy = sum(
            is_ready(pod) and not is_terminating(pod) and pod["metadata"]["name"] not in disrupted
            for pod in pods
        )

        def report(new: Json) -> None:
            conditions = new["status"].get("conditions", [])
            new["status"] = {
                "currentHealthy": healthy,
                "desiredHealthy": desired,
                "expectedPods": expected,
                "disruptionsAllowed": max(0, healthy - desired) if expected > 0 else 0,
                "observedGeneration": new["metadata"]["generation"],
                "conditions": conditions,
            }
            if disrupted:
                new["status"]["disruptedPods"] = disrupted
            set_allowed_condition(new, self.store.timestamp())

        self.store.modify(BUDGET, budget, report)

    def _count_expected(self, spec: Json, pods: Sequence[Json]) -> tuple[int, int]:
        least = spec.get("minAvailable")
        if "maxUnavailable" in spec:
            expected = self._scale(pods)
            return expected, max(0, expected - share_of(spec["maxUnavailable"], expected, up=True))
        if isinstance(least, str):
            expected = self._scale(pods)
            return expected, share_of(least, expected, up=True)
        return len(pods), least or 0

    def _scale(self, pods: Sequence[Json]) -> int:
        """Return the sum of the replicas of the pods' controllers; pods without one do not count."""
        scales: dict[str, int] = {}
        for pod in pods:
            reference = controller_of(pod)
            if reference is not None and reference["uid"] not in scales:
                scales[reference["uid"]] = self._scale_of(pod, reference["kind"], reference["name"])
        return sum(scales.values())

    def _scale_of(self, pod: Json, kind: str, name: str) -> int:
        namespace = pod["metadata"]["namespace"]
        controller = self.store.find(_SCALED[kind], namespace, name) if kind in _SCALED else None
        if controller is None:
            raise ValueError(f'found no controllers for pod "{pod["metadata"]["name"]}"')
        parent = controller_of(controller)
        if parent is not None and parent["kind"] == "Deployment":
            controller = self.store.find(DEPLOYMENT, namespace, parent["name"]) or controller
        return int(controller["spec"]["replicas"])

    def _list_disrupted(self, budget: Json, pods: Sequence[Json]) -> dict[str, str]:
        """Return the pods whose eviction was granted and whose deletion has not been seen."""
        granted = budget["status"].get("disruptedPods") or {}
        now = self.store.clock.now()
        return {
            name: granted[name]
            for pod in pods
            if (name := pod["metadata"]["name"]) in granted
            and not is_terminating(pod)
            and unix_seconds(granted[name]) + _DELETION_TIMEOUT >= now
        }


def _fail(budget: Json, message: str, now: str) -> None:
    budget["status"]["disruptionsAllowed"] = 0
    set_condition(
        budget["status"],
        "DisruptionAllowed",
        "False",
        now,
        reason="SyncFailed",
        message=message,
        observedGeneration=budget["status"].get("observedGeneration", 0),
    )
