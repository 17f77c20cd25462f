"""ReplicaSets and ReplicationControllers: a replacement is created while the evicted pod terminates."""

from __future__ import annotations

from rebalancer.embedded.apiserver.conditions import set_condition
from rebalancer.embedded.apiserver.deletion import delete
from rebalancer.embedded.apiserver.kinds import POD, REPLICA_SET, Json, Kind
from rebalancer.embedded.apiserver.status import ApiError
from rebalancer.embedded.apiserver.store import Key
from rebalancer.embedded.controllers.pods import (
    WorkloadController,
    controller_of,
    counts,
    create_pod,
    first_to_go,
    is_active,
    is_terminating,
    reference_to,
)
from rebalancer.embedded.engine import Engine
from rebalancer.snapshot.labels import object_selector

_RETRY_SECONDS = 1.0


class ReplicaSets(WorkloadController):
    """Keeps ``replicas`` active pods, and adopts matching pods that have no controller."""

    def __init__(self, engine: Engine, kind: Kind = REPLICA_SET) -> None:
        super().__init__(engine)
        self.kind = kind

    def reconcile(self, replica_set: Json, key: Key) -> None:
        """Create or delete pods, and write the status."""
        self._adopt(replica_set)
        active, failure = self._active(replica_set), ""
        missing = replica_set["spec"]["replicas"] - len(active)
        for pod in first_to_go(self.store, active)[: max(0, -missing)]:
            delete(self.store, POD, pod, {})
        try:
            for _ in range(missing):
                create_pod(self.store, self.kind, replica_set)
        except ApiError as refusal:
            # Usually a quota. The real controller retries with growing delays.
            failure = refusal.message
            self.engine.after(_RETRY_SECONDS, lambda: self.note(key))
        self._report(replica_set, failure)

    def _adopt(self, replica_set: Json) -> None:
        """Adopt orphans (``pkg/controller/controller_ref_manager.go``)."""
        selector = replica_set["spec"]["selector"]
        if "matchLabels" not in selector and "matchExpressions" not in selector:
            selector = {"matchLabels": selector}  # a ReplicationController's
        matches = object_selector(selector)
        for pod in self.store.items(POD, replica_set["metadata"]["namespace"]):
            orphan = controller_of(pod) is None and is_active(pod)
            if orphan and matches(pod["metadata"].get("labels") or {}):
                self.store.modify(POD, pod, lambda new: self._claim(new, replica_set))

    def _claim(self, pod: Json, replica_set: Json) -> None:
        references = pod["metadata"].setdefault("ownerReferences", [])
        references.append(reference_to(self.kind, replica_set))

    def _active(self, replica_set: Json) -> list[Json]:
        owned = self.store.dependents(replica_set["metadata"]["uid"], POD)
        return [pod for pod in owned if is_active(pod)]

    def _report(self, replica_set: Json, failure: str) -> None:
        owned = self.store.dependents(replica_set["metadata"]["uid"], POD)
        active = [pod for pod in owned if is_active(pod)]
        terminating = sum(is_terminating(pod) for pod in owned)

        def report(new: Json) -> None:
            new["status"] |= {
                **counts(active),
                "fullyLabeledReplicas": len(active),
                "terminatingReplicas": terminating,
                "observedGeneration": new["metadata"]["generation"],
            }
            if failure:
                now = self.store.timestamp()
                set_condition(
                    new["status"],
                    "ReplicaFailure",
                    "True",
                    now,
                    reason="FailedCreate",
                    message=failure,
                )
            else:
                new["status"].pop("conditions", None)

        self.store.modify(self.kind, replica_set, report)
