"""Deployments: one ReplicaSet per template, and rolling updates from the old ones to the new one.

Source: ``k8s.io/kubernetes/pkg/controller/deployment`` (sync.go, rolling.go, recreate.go), without
roll-back, proportional scaling and progress deadlines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from rebalancer.embedded.apiserver.deletion import delete
from rebalancer.embedded.apiserver.kinds import (
    DEPLOYMENT,
    POD,
    REPLICA_SET,
    Json,
    Kind,
    set_condition,
)
from rebalancer.embedded.apiserver.status import ApiError
from rebalancer.embedded.apiserver.store import Key, clone
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
from rebalancer.wire.quantity import share_of

HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


_RETRY_SECONDS = 1.0


class Deployments(WorkloadController):
    """Keeps the ReplicaSets of every Deployment."""

    kind = DEPLOYMENT
    dependents = REPLICA_SET

    def reconcile(self, deployment: Json, _key: Key) -> None:
        """Create the newest ReplicaSet, scale it and the old ones one step, write the status."""
        if not deployment["spec"].get("paused"):
            newest = self._newest(deployment)
            name = newest["metadata"]["name"]
            old = [s for s in self._sets(deployment) if s["metadata"]["name"] != name]
            if deployment["spec"]["strategy"]["type"] == "Recreate":
                self._recreate(deployment, newest, old)
            else:
                self._roll(deployment, newest, old)
        self._report(deployment)

    def _sets(self, deployment: Json) -> Sequence[Json]:
        return self.store.dependents(deployment["metadata"]["uid"], REPLICA_SET)

    def _newest(self, deployment: Json) -> Json:
        revision = template_hash(deployment)
        for owned in self._sets(deployment):
            if owned["metadata"]["labels"][HASH] == revision:
                return owned
        spec, metadata = clone(deployment["spec"]), deployment["metadata"]
        template = spec["template"]
        labels = {**template["metadata"].get("labels", {}), HASH: revision}
        template["metadata"]["labels"] = labels
        selector = spec["selector"]
        selector["matchLabels"] = {**selector.get("matchLabels", {}), HASH: revision}
        made = {
            "metadata": {
                "name": f"{metadata['name']}-{revision}",
                "labels": labels,
                "annotations": {REVISION: str(len(self._sets(deployment)) + 1)},
                "ownerReferences": [reference_to(DEPLOYMENT, deployment)],
            },
            "spec": {"replicas": 0, "selector": selector, "template": template},
            "status": {"replicas": 0},
        }
        return self.store.create(REPLICA_SET, metadata["namespace"], made)

    def _scale(self, replica_set: Json, replicas: int) -> None:
        self.store.modify(
            REPLICA_SET, replica_set, lambda new: new["spec"].update(replicas=replicas)
        )

    def _recreate(self, deployment: Json, newest: Json, old: Sequence[Json]) -> None:
        for replica_set in old:
            self._scale(replica_set, 0)
        all_gone = all(
            not s["status"].get("replicas") and not s["status"].get("terminatingReplicas")
            for s in old
        )
        if all_gone:
            self._scale(newest, deployment["spec"]["replicas"])

    def _roll(self, deployment: Json, newest: Json, old: Sequence[Json]) -> None:
        replicas = deployment["spec"]["replicas"]
        rolling = deployment["spec"]["strategy"].get("rollingUpdate") or {}
        surge = share_of(rolling.get("maxSurge", "25%"), replicas, up=True)
        unavailable = share_of(rolling.get("maxUnavailable", "25%"), replicas, up=False)
        if not surge and not unavailable:
            unavailable = 1
        total = sum(s["spec"]["replicas"] for s in (newest, *old))
        current = newest["spec"]["replicas"]
        if current > replicas:
            self._scale(newest, replicas)
        elif current < replicas:
            self._scale(newest, min(replicas, current + max(0, replicas + surge - total)))
        self._shrink(self._sets(deployment), newest["metadata"]["name"], replicas - unavailable)

    def _shrink(self, sets: Sequence[Json], newest: str, least: int) -> None:
        """Scale the old ReplicaSets down while ``least`` pods stay available, unready pods first."""
        old = [s for s in sets if s["metadata"]["name"] != newest and s["spec"]["replicas"]]
        spare = sum(s["status"].get("availableReplicas", 0) for s in sets) - least
        for replica_set in old:
            wanted = replica_set["spec"]["replicas"]
            available = replica_set["status"].get("availableReplicas", 0)
            cut = min(wanted, wanted - available + max(0, min(spare, available)))
            spare -= max(0, cut - (wanted - available))
            self._scale(replica_set, wanted - cut)

    def _report(self, deployment: Json) -> None:
        sets, replicas = self._sets(deployment), deployment["spec"]["replicas"]
        totals = {
            field: sum(s["status"].get(field, 0) for s in sets)
            for field in ("replicas", "readyReplicas", "availableReplicas", "terminatingReplicas")
        }
        revision = template_hash(deployment)
        updated = sum(
            s["status"].get("replicas", 0)
            for s in sets
            if s["metadata"]["labels"][HASH] == revision
        )
        enough = totals["availableReplicas"] >= replicas - share_of(
            (deployment["spec"]["strategy"].get("rollingUpdate") or {}).get("maxUnavailable", 0),
            replicas,
            up=False,
        )

        def report(new: Json) -> None:
            new["status"] |= {
                **totals,
                "updatedReplicas": updated,
                "unavailableReplicas": max(0, replicas - totals["availableReplicas"]),
                "observedGeneration": new["metadata"]["generation"],
            }
            set_condition(
                new["status"],
                "Available",
                "True" if enough else "False",
                self.store.timestamp(),
                reason="MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            )
            new["metadata"]["annotations"] = {
                **(new["metadata"].get("annotations") or {}),
                REVISION: str(len(sets)),
            }

        self.store.modify(DEPLOYMENT, deployment, report)


def template_hash(deployment: Json) -> str:
    """Return the hash of a workload's pod template: ten characters of the server's alphabet."""
    encoded = msgspec.json.encode(deployment["spec"]["template"], order="sorted")
    digest = hashlib.sha256(encoded).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:10])


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
