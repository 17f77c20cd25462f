"""ReplicaSets and ReplicationControllers: a replacement is created at once, while the victim terminates."""

from __future__ import annotations

from rebalancer.embedded.apiserver.deletion import delete
from rebalancer.embedded.apiserver.kinds import POD, REPLICA_SET, Kind
from rebalancer.embedded.apiserver.selectors import object_selector
from rebalancer.embedded.apiserver.status import ApiError
from rebalancer.embedded.apiserver.store import Change, Json, Key
from rebalancer.embedded.conditions import set_condition
from rebalancer.embedded.controllers.pods import (
    controller_of,
    counts,
    create_pod,
    first_to_go,
    is_active,
    is_terminating,
    owner_key,
    reference_to,
)
from rebalancer.embedded.engine import Controller, Engine

_RETRY_SECONDS = 1.0


class ReplicaSets(Controller):
    """Keeps as many active pods as wanted; pods without a controller that its selector matches are its own."""

    def __init__(self, engine: Engine, kind: Kind = REPLICA_SET) -> None:
        super().__init__(engine)
        self._kind = kind

    def observe(self, change: Change) -> None:
        """A set whose spec or whose pods changed is to be looked at."""
        if change.kind is self._kind and change.new is not None:
            self.note(change.key)
        elif change.kind is POD:
            key = owner_key(change.object, self._kind)
            if key is not None:
                self.note(key)

    def sync(self, key: Key) -> None:
        """Create or delete pods, and report how many there are."""
        found = self.store.find(self._kind, *key)
        if found is None or "deletionTimestamp" in found["metadata"]:
            return
        self._adopt(found)
        active, failure = self._active(found), ""
        missing = found["spec"]["replicas"] - len(active)
        for pod in first_to_go(self.store, active)[: max(0, -missing)]:
            delete(self.store, POD, pod, {})
        try:
            for _ in range(missing):
                create_pod(self.store, self._kind, found)
        except ApiError as refusal:
            # A quota, usually: the server's controller tries again with a growing pause.
            failure = refusal.message
            self.engine.after(_RETRY_SECONDS, lambda: self.note(key))
        self._report(self.store.get(self._kind, *key), failure)

    def _adopt(self, found: Json) -> None:
        """Claim orphans (``pkg/controller/controller_ref_manager.go``)."""
        selector = found["spec"]["selector"]
        if "matchLabels" not in selector and "matchExpressions" not in selector:
            selector = {"matchLabels": selector}  # a ReplicationController's
        matches = object_selector(selector)
        for pod in self.store.items(POD, found["metadata"]["namespace"]):
            orphan = controller_of(pod) is None and is_active(pod)
            if orphan and matches(pod["metadata"].get("labels") or {}):
                self.store.modify(POD, pod, lambda new: self._claim(new, found))

    def _claim(self, pod: Json, found: Json) -> None:
        references = pod["metadata"].setdefault("ownerReferences", [])
        references.append(reference_to(self._kind, found))

    def _active(self, found: Json) -> list[Json]:
        owned = self.store.dependents(found["metadata"]["uid"], POD)
        return [pod for pod in owned if is_active(pod)]

    def _report(self, found: Json, failure: str) -> None:
        owned = self.store.dependents(found["metadata"]["uid"], POD)
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

        self.store.modify(self._kind, found, report)
