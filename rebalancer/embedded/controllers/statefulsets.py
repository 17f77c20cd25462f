"""StatefulSets: a replacement bears its victim's name, so it comes when the victim is gone.

Source: ``k8s.io/kubernetes/pkg/controller/statefulset/stateful_set_control.go``. Claims of
volumeClaimTemplates are named in the pods but not made: nothing here provisions volumes.
"""

from __future__ import annotations

from rebalancer.embedded.apiserver.deletion import FINISHED, delete
from rebalancer.embedded.apiserver.kinds import POD, STATEFUL_SET
from rebalancer.embedded.apiserver.status import ApiError
from rebalancer.embedded.apiserver.store import Change, Json, Key
from rebalancer.embedded.conditions import is_ready
from rebalancer.embedded.controllers.deployments import template_hash
from rebalancer.embedded.controllers.pods import create_pod, is_active, is_terminating, owner_key
from rebalancer.embedded.engine import Controller

_REVISION = "controller-revision-hash"
_RETRY_SECONDS = 1.0


class StatefulSets(Controller):
    """Keeps the pods 0 .. replicas-1 of every StatefulSet."""

    def observe(self, change: Change) -> None:
        """A set whose spec or whose pods changed is to be looked at."""
        if change.kind is STATEFUL_SET and change.new is not None:
            self.note(change.key)
        elif change.kind is POD:
            key = owner_key(change.object, STATEFUL_SET)
            if key is not None:
                self.note(key)

    def sync(self, key: Key) -> None:
        """Create what is missing, delete what is too much or outdated, report."""
        found = self.store.find(STATEFUL_SET, *key)
        if found is None or "deletionTimestamp" in found["metadata"]:
            return
        self._scale(found, key)
        self._report(found)

    def _pod(self, found: Json, ordinal: int) -> Json | None:
        metadata = found["metadata"]
        return self.store.find(POD, metadata["namespace"], f"{metadata['name']}-{ordinal}")

    def _scale(self, found: Json, key: Key) -> None:
        """Create pods in order, then delete from the highest ordinal, then update one."""
        replicas = found["spec"]["replicas"]
        ordered = found["spec"]["podManagementPolicy"] == "OrderedReady"
        for ordinal in range(replicas):
            pod = self._pod(found, ordinal)
            if pod is None and not self._create(found, ordinal, key):
                return
            if pod is not None and pod["status"]["phase"] in FINISHED and not is_terminating(pod):
                delete(self.store, POD, pod, {})
            if ordered and not (pod is not None and is_ready(pod) and not is_terminating(pod)):
                return
        owned = self.store.dependents(found["metadata"]["uid"], POD)
        surplus = [pod for pod in owned if _ordinal(pod) >= replicas]
        for pod in sorted(surplus, key=_ordinal, reverse=True):
            if not is_terminating(pod):
                delete(self.store, POD, pod, {})
            if ordered:
                return
        self._update(found)

    def _create(self, found: Json, ordinal: int, key: Key) -> bool:
        name = f"{found['metadata']['name']}-{ordinal}"
        labels = {
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(ordinal),
            _REVISION: _revision(found),
        }

        def amend(spec: Json) -> None:
            spec["hostname"] = name
            if found["spec"].get("serviceName"):
                spec["subdomain"] = found["spec"]["serviceName"]
            claims = found["spec"].get("volumeClaimTemplates") or ()
            if claims:
                spec["volumes"] = [
                    *spec.get("volumes", ()),
                    *(_volume(claim["metadata"]["name"], name) for claim in claims),
                ]

        try:
            create_pod(self.store, STATEFUL_SET, found, name, labels, amend)
        except ApiError:
            self.engine.after(_RETRY_SECONDS, lambda: self.note(key))
            return False
        return True

    def _update(self, found: Json) -> None:
        """Delete the highest outdated pod, if all above it are updated and ready."""
        strategy = found["spec"]["updateStrategy"]
        if strategy["type"] != "RollingUpdate":
            return
        partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
        for ordinal in range(found["spec"]["replicas"] - 1, partition - 1, -1):
            pod = self._pod(found, ordinal)
            if pod is None or is_terminating(pod):
                return
            if pod["metadata"]["labels"].get(_REVISION) != _revision(found):
                delete(self.store, POD, pod, {})
                return
            if not is_ready(pod):
                return

    def _report(self, found: Json) -> None:
        revision = _revision(found)
        owned = self.store.dependents(found["metadata"]["uid"], POD)
        active = [pod for pod in owned if is_active(pod)]
        ready = sum(is_ready(pod) for pod in active)
        updated = sum(p["metadata"]["labels"].get(_REVISION) == revision for p in active)

        def report(new: Json) -> None:
            status = new["status"]
            done = updated == len(active) == new["spec"]["replicas"]
            status |= {
                "replicas": len(owned),
                "readyReplicas": ready,
                "availableReplicas": ready,
                "updatedReplicas": updated,
                "updateRevision": revision,
                "currentRevision": revision if done else status.get("currentRevision", revision),
                "observedGeneration": new["metadata"]["generation"],
            }
            status["currentReplicas"] = sum(
                p["metadata"]["labels"].get(_REVISION) == status["currentRevision"] for p in active
            )

        self.store.modify(STATEFUL_SET, found, report)


def _revision(found: Json) -> str:
    return f"{found['metadata']['name']}-{template_hash(found)}"


def _ordinal(pod: Json) -> int:
    return int(pod["metadata"]["name"].rsplit("-", 1)[1])


def _volume(claim: str, pod: str) -> Json:
    return {"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{pod}"}}
