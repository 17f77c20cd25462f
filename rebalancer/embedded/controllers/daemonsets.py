"""DaemonSets: one pod per eligible node, bound by the scheduler through a node affinity."""

from __future__ import annotations

from functools import partial

import msgspec

from rebalancer.embedded.apiserver.deletion import delete
from rebalancer.embedded.apiserver.kinds import DAEMON_SET, NODE, POD, Json, is_ready
from rebalancer.embedded.apiserver.store import Change, Key
from rebalancer.embedded.controllers.nodes import tolerates
from rebalancer.embedded.controllers.pods import WorkloadController, create_pod, is_active
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


class DaemonSets(WorkloadController):
    """Keeps one pod on every node that the template's selectors and tolerations allow."""

    kind = DAEMON_SET

    def observe(self, change: Change) -> None:
        """Queue a DaemonSet when it or its pods changed, and all of them when a node changed."""
        super().observe(change)
        if change.kind is NODE:
            for daemon_set in self.store.items(DAEMON_SET):
                self.note((daemon_set["metadata"]["namespace"], daemon_set["metadata"]["name"]))

    def reconcile(self, daemon_set: Json, _key: Key) -> None:
        """Create missing pods, delete those on nodes that are no longer eligible, write the status."""
        nodes = [node for node in self.store.items(NODE) if _is_eligible(daemon_set, node)]
        wanted = {node["metadata"]["name"] for node in nodes}
        # A replacement waits until the old pod is deleted: there is one per node.
        by_node = {
            _node_of(pod): pod for pod in self.store.dependents(daemon_set["metadata"]["uid"], POD)
        }
        for name in sorted(wanted - set(by_node)):
            create_pod(self.store, DAEMON_SET, daemon_set, amend=partial(_pin, node=name))
        for name in sorted(set(by_node) - wanted):
            if is_active(by_node[name]):
                delete(self.store, POD, by_node[name], {})
        self._report(daemon_set, len(wanted))

    def _report(self, daemon_set: Json, wanted: int) -> None:
        owned = self.store.dependents(daemon_set["metadata"]["uid"], POD)
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

        self.store.modify(DAEMON_SET, daemon_set, report)


def _is_eligible(daemon_set: Json, node: Json) -> bool:
    spec = daemon_set["spec"]["template"]["spec"]
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
    """Restrict the pod to this node by node affinity, as the controller does since 1.12."""
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
