"""StatefulSets: a replacement has its predecessor's name, so it is created after that pod is deleted.

Source: ``k8s.io/kubernetes/pkg/controller/statefulset/stateful_set_control.go``. Claims of volumeClaimTemplates are
named in the pods but not created: no volumes are provisioned here.
"""

from __future__ import annotations

from rebalancer.embedded.apiserver.deletion import delete
from rebalancer.embedded.apiserver.kinds import POD, STATEFUL_SET, Json, is_ready
from rebalancer.embedded.apiserver.status import ApiError
from rebalancer.embedded.apiserver.store import Key
from rebalancer.embedded.controllers.deployments import template_hash
from rebalancer.embedded.controllers.pods import (
    WorkloadController,
    create_pod,
    is_active,
    is_terminating,
)
from rebalancer.wire.pods import FINISHED

_REVISION = "controller-revision-hash"
_RETRY_SECONDS = 1.0


class StatefulSets(WorkloadController):
    """Keeps the pods 0 .. replicas-1 of every StatefulSet."""

    kind = STATEFUL_SET

    def reconcile(self, stateful_set: Json, key: Key) -> None:
        """Create missing pods, delete surplus and outdated ones, write the status."""
        self._scale(stateful_set, key)
        self._report(stateful_set)

    def _pod(self, stateful_set: Json, ordinal: int) -> Json | None:
        metadata = stateful_set["metadata"]
        return self.store.find(POD, metadata["namespace"], f"{metadata['name']}-{ordinal}")

    def _scale(self, stateful_set: Json, key: Key) -> None:
        """Create pods in order, then delete from the highest ordinal, then update one."""
        replicas = stateful_set["spec"]["replicas"]
        ordered = stateful_set["spec"]["podManagementPolicy"] == "OrderedReady"
        for ordinal in range(replicas):
            pod = self._pod(stateful_set, ordinal)
            if pod is None and not self._create(stateful_set, ordinal, key):
                return
            if pod is not None and pod["status"]["phase"] in FINISHED and not is_terminating(pod):
                delete(self.store, POD, pod, {})
            if ordered and not (pod is not None and is_ready(pod) and not is_terminating(pod)):
                return
        owned = self.store.dependents(stateful_set["metadata"]["uid"], POD)
        surplus = [pod for pod in owned if _ordinal(pod) >= replicas]
        for pod in sorted(surplus, key=_ordinal, reverse=True):
            if not is_terminating(pod):
                delete(self.store, POD, pod, {})
            if ordered:
                return
        self._update(stateful_set)

    def _create(self, stateful_set: Json, ordinal: int, key: Key) -> bool:
        name = f"{stateful_set['metadata']['name']}-{ordinal}"
        labels = {
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(ordinal),
            _REVISION: _revision(stateful_set),
        }

        def amend(spec: Json) -> None:
            spec["hostname"] = name
            if stateful_set["spec"].get("serviceName"):
                spec["subdomain"] = stateful_set["spec"]["serviceName"]
            claims = stateful_set["spec"].get("volumeClaimTemplates") or ()
            if claims:
                spec["volumes"] = [
                    *spec.get("volumes", ()),
                    *(_volume(claim["metadata"]["name"], name) for claim in claims),
                ]

        try:
            create_pod(self.store, STATEFUL_SET, stateful_set, name, labels, amend)
        except ApiError:
            self.engine.after(_RETRY_SECONDS, lambda: self.note(key))
            return False
        return True

    def _update(self, stateful_set: Json) -> None:
        """Delete the highest outdated pod, if all above it are updated and ready."""
        strategy = stateful_set["spec"]["updateStrategy"]
        if strategy["type"] != "RollingUpdate":
            return
        partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
        for ordinal in range(stateful_set["spec"]["replicas"] - 1, partition - 1, -1):
            pod = self._pod(stateful_set, ordinal)
            if pod is None or is_terminating(pod):
                return
            if pod["metadata"]["labels"].get(_REVISION) != _revision(stateful_set):
                delete(self.store, POD, pod, {})
                return
            if not is_ready(pod):
                return

    def _report(self, stateful_set: Json) -> None:
        revision = _revision(stateful_set)
        owned = self.store.dependents(stateful_set["metadata"]["uid"], POD)
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

        self.store.modify(STATEFUL_SET, stateful_set, report)


def _revision(stateful_set: Json) -> str:
    return f"{stateful_set['metadata']['name']}-{template_hash(stateful_set)}"


def _ordinal(pod: Json) -> int:
    return int(pod["metadata"]["name"].rsplit("-", 1)[1])


def _volume(claim: str, pod: str) -> Json:
    return {"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{pod}"}}
