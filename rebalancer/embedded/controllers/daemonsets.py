"""DaemonSets: one pod per node that would take it, placed by the scheduler through a node affinity."""

from __future__ import annotations

import msgspec

from rebalancer.embedded.apiserver.deletion import delete
from rebalancer.embedded.apiserver.kinds import DAEMON_SET, NODE, POD
from rebalancer.embedded.apiserver.store import Change, Json, Key
from rebalancer.embedded.conditions import is_ready
from rebalancer.embedded.controllers.nodes import tolerates
from rebalancer.embedded.controllers.pods import create_pod, is_active, owner_key
from rebalancer.embedded.engine import Controller
from rebalancer.snapshot.labels import NodeLabels
from rebalancer.wire.objects import Affinity

# k8s.io/kubernetes/pkg/controller/daemon/util: AddOrUpdateDaemonPodTolerations.
_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


class DaemonSets(Controller):
    """Keeps one pod on every node that the template's selectors and tolerations allow."""

    def observe(self, change: Change) -> None:
        """A set whose spec or pods changed; all of them when a node changed."""
        if change.kind is DAEMON_SET and change.new is not None:
            self.note(change.key)
        elif change.kind is POD:
            key = owner_key(change.object, DAEMON_SET)
            if key is not None:
                self.note(key)
        elif change.kind is NODE:
            for found in self.store.items(DAEMON_SET):
                self.note((found["metadata"]["namespace"], found["metadata"]["name"]))

    def sync(self, key: Key) -> None:
        """Create missing pods, delete those on nodes that no longer qualify, report."""
        found = self.store.find(DAEMON_SET, *key)
        if found is None or "deletionTimestamp" in found["metadata"]:
            return
        nodes = [node for node in self.store.items(NODE) if _qualifies(found, node)]
        wanted = {node["metadata"]["name"] for node in nodes}
        # A replacement waits until the old pod is gone: there is one per node.
        standing = {
            _node_of(pod): pod for pod in self.store.dependents(found["metadata"]["uid"], POD)
        }
        for name in sorted(wanted - set(standing)):
            create_pod(self.store, DAEMON_SET, found, amend=lambda spec, to=name: _pin(spec, to))  # type: ignore[misc]
        for name in sorted(set(standing) - wanted):
            if is_active(standing[name]):
                delete(self.store, POD, standing[name], {})
        self._report(found, len(wanted))

    def _report(self, found: Json, wanted: int) -> None:
        owned = self.store.dependents(found["metadata"]["uid"], POD)
        active = [pod for pod in owned if is_active(pod)]
        ready = sum(is_ready(pod) for pod in active)

        def report(new: Json) -> None:
            new["status"] |= {
                "desiredNumberScheduled": wanted,
                "currentNumberScheduled": len(active),
                "updatedNumberScheduled": len(active),
                "numberReady": ready,
                "numberAvailable": ready,
                "numberMisscheduled": 0,
                "observedGeneration": new["metadata"]["generation"],
            }

        self.store.modify(DAEMON_SET, found, report)


def _qualifies(found: Json, node: Json) -> bool:
    spec = found["spec"]["template"]["spec"]
    name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = msgspec.convert(spec.get("affinity") or {}, Affinity).node_affinity
    required = affinity.required if affinity is not None else None
    if required is not None and not NodeLabels([name], [labels]).selector(required)[0]:
        return False
    tolerations = [*(spec.get("tolerations") or ()), *_tolerations()]
    return all(
        taint["effect"] == "PreferNoSchedule" or any(tolerates(t, taint) for t in tolerations)
        for taint in node["spec"].get("taints") or ()
    )


def _tolerations() -> list[Json]:
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]


def _pin(spec: Json, node: str) -> None:
    """Let the scheduler place the pod on this node only, as the controller does since 1.12."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": [{"matchFields": [field]}]
    }
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *_tolerations()]


def _node_of(pod: Json) -> str:
    required = pod["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])
