"""Deployments, StatefulSets, DaemonSets and Jobs.

Source: ``k8s.io/kubernetes/pkg/controller/deployment`` (sync.go, rolling.go, recreate.go), without
roll-back, proportional scaling and progress deadlines.

Source: ``k8s.io/kubernetes/pkg/controller/statefulset/stateful_set_control.go``. Claims of volumeClaimTemplates are
named in the pods but not created: no volumes are provisioned here.

Source: ``k8s.io/kubernetes/pkg/controller/job``, for NonIndexed Jobs without pod failure policy actions. A
replacement is created after the back-off that an eviction starts, even if the evicted pod still
terminates; with ``podReplacementPolicy: Failed`` or a podFailurePolicy (KEP-3939), the back-off begins
when that pod is deleted.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from rebalancer.embedded.apiserver.eviction import delete
from rebalancer.embedded.apiserver.kinds import (
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    KINDS,
    NAMESPACE,
    NODE,
    POD,
    REPLICA_SET,
    STATEFUL_SET,
    ApiError,
    Json,
    condition,
    is_ready,
    set_condition,
)
from rebalancer.embedded.apiserver.store import Change, Key, clone
from rebalancer.embedded.controllers.nodes import tolerates
from rebalancer.embedded.controllers.pods import (
    WorkloadController,
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
from rebalancer.snapshot.labels import NodeLabels, object_selector
from rebalancer.wire.objects import Affinity
from rebalancer.wire.pods import FINISHED
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
        """Scale the old ReplicaSets down, unready pods first, so that ``least`` pods remain available."""
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

    kind = REPLICA_SET

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
            # The real controller retries with growing delays.
            failure = refusal.message
            self.engine.after(_RETRY_SECONDS, lambda: self.note(key))
        self._report(replica_set, failure)

    def _adopt(self, replica_set: Json) -> None:
        """Adopt orphans (``pkg/controller/controller_ref_manager.go``)."""
        matches = object_selector(replica_set["spec"]["selector"])
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


_REVISION = "controller-revision-hash"


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
        """Create missing pods, delete those that must not remain on their nodes, write the status."""
        fits = {one["metadata"]["name"]: _judge(daemon_set, one) for one in self.store.items(NODE)}
        wanted = {name for name, fit in fits.items() if fit is DaemonFit.RUNS}
        staying = {name for name, fit in fits.items() if fit is not DaemonFit.NONE}
        # A replacement waits until the old pod is deleted: there is one per node.
        by_node = {
            _node_of(pod): pod for pod in self.store.dependents(daemon_set["metadata"]["uid"], POD)
        }
        for name in sorted(wanted - set(by_node)):
            create_pod(self.store, DAEMON_SET, daemon_set, amend=partial(_pin, node=name))
        for name in sorted(set(by_node) - staying):
            if is_active(by_node[name]):
                delete(self.store, POD, by_node[name], {})
        self._report(daemon_set, wanted)

    def _report(self, daemon_set: Json, wanted: Collection[str]) -> None:
        owned = self.store.dependents(daemon_set["metadata"]["uid"], POD)
        every = [pod for pod in owned if is_active(pod)]
        active = [pod for pod in every if _node_of(pod) in wanted]
        ready = sum(is_ready(pod) for pod in active)

        def report(new: Json) -> None:
            new["status"] |= {
                "desiredNumberScheduled": len(wanted),
                "currentNumberScheduled": len(active),
                "updatedNumberScheduled": len(active),
                "numberReady": ready,
                "numberAvailable": ready,
                "numberMisscheduled": len(every) - len(active),
                "observedGeneration": new["metadata"]["generation"],
            }

        self.store.modify(DAEMON_SET, daemon_set, report)


class DaemonFit(enum.Enum):
    """Whether a DaemonSet runs a pod on a node (``daemon_controller.go``: ``NodeShouldRunDaemonPod``)."""

    RUNS = "runs"
    """It has a pod there."""
    STAYS = "stays"
    """A pod that runs there is kept, and none is created: a taint ``NoSchedule`` is not tolerated."""
    NONE = "none"
    """It has no pod there."""


def _judge(daemon_set: Json, node: Json) -> DaemonFit:
    spec = daemon_set["spec"]["template"]["spec"]
    name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return DaemonFit.NONE
    affinity = msgspec.convert(spec.get("affinity") or {}, Affinity).node_affinity
    required = affinity.required if affinity is not None else None
    if required is not None and not NodeLabels([name], [labels]).selector(required)[0]:
        return DaemonFit.NONE
    tolerations = [*(spec.get("tolerations") or ()), *_tolerations()]
    refused = {
        taint["effect"]
        for taint in node["spec"].get("taints") or ()
        if not any(tolerates(one, taint) for one in tolerations)
    }
    if "NoExecute" in refused:
        return DaemonFit.NONE
    return DaemonFit.STAYS if "NoSchedule" in refused else DaemonFit.RUNS


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


# Ten minutes for a first pause of ten seconds.
_MAX_BACKOFF = 60


@dataclass
class _Record:
    """How the pods of one Job ended: uid to phase, and the failures in a row."""

    ended: dict[str, str] = field(default_factory=dict)
    failures: int = 0
    """Since the last success."""
    last_failure: float = 0.0


class Jobs(WorkloadController):
    """Keeps ``parallelism`` pods running until ``completions`` have succeeded."""

    kind = JOB

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._records: dict[str, _Record] = {}

    def observe(self, change: Change) -> None:
        """Record how a pod of a Job ended, and queue the Job."""
        if change.kind is POD and (key := owner_key(change.object, JOB)) is not None:
            self._count(change, key)
        super().observe(change)

    def _count(self, change: Change, key: Key) -> None:
        """Record how a pod ended: it counts for its Job even after it is deleted."""
        pod, job = change.object, self.store.find(JOB, *key)
        phase = pod["status"]["phase"]
        early = is_terminating(pod) and job is not None and not _waits(job["spec"])
        if phase not in FINISHED and (change.new is None or early):
            # Unless the Job waits for its end, a pod counts as failed as soon as it is being deleted.
            phase = "Failed"
        record = self._records.setdefault(pod["metadata"]["ownerReferences"][0]["uid"], _Record())
        uid = pod["metadata"]["uid"]
        if phase not in FINISHED or uid in record.ended:
            return
        record.ended[uid] = phase
        record.failures = record.failures + 1 if phase == "Failed" else 0
        record.last_failure = self.store.clock.now()

    def reconcile(self, job: Json, key: Key) -> None:
        """Create or delete pods, and write the status."""
        spec = job["spec"]
        record = self._records.setdefault(job["metadata"]["uid"], _Record())
        ended = list(record.ended.values())
        succeeded, failed = ended.count("Succeeded"), ended.count("Failed")
        owned = self.store.dependents(job["metadata"]["uid"], POD)
        active = [pod for pod in owned if is_active(pod)]
        waiting = sum(is_terminating(pod) for pod in owned) if _waits(spec) else 0
        over = self._over(job, succeeded, failed)
        wanted = 0 if over else min(spec["parallelism"], spec["completions"] - succeeded)
        for pod in active[max(0, wanted) :]:
            delete(self.store, POD, pod, {})
        missing = wanted - len(active) - waiting
        pause = self._pause(record) if missing > 0 else 0.0
        if pause > 0:
            self.engine.after(pause, lambda: self.note(key))
        else:
            for _ in range(missing):
                create_pod(self.store, JOB, job)
        self._report(job, succeeded, failed, over)

    def _pause(self, record: _Record) -> float:
        """Return how long the next pod has to wait (``backoff_utils.go: getRemainingTime``)."""
        if not record.failures:
            return 0.0
        first = self.engine.timings.job_backoff
        pause = min(first * 2 ** (record.failures - 1), first * _MAX_BACKOFF)
        return max(0.0, record.last_failure + pause - self.store.clock.now())

    def _over(self, job: Json, succeeded: int, failed: int) -> str:
        if succeeded >= job["spec"]["completions"]:
            return "Complete"
        return "Failed" if failed > job["spec"]["backoffLimit"] else ""

    def _report(self, job: Json, succeeded: int, failed: int, over: str) -> None:
        owned = self.store.dependents(job["metadata"]["uid"], POD)
        active = [pod for pod in owned if is_active(pod)]
        now = self.store.timestamp()

        def report(new: Json) -> None:
            status = new["status"]
            status |= {
                "active": len(active),
                "ready": sum(is_ready(pod) for pod in active),
                "terminating": sum(is_terminating(pod) for pod in owned),
                "succeeded": succeeded,
                "failed": failed,
            }
            status.setdefault("startTime", now)
            if over and condition(status, over) is None:
                set_condition(status, over, "True", now)
                if over == "Complete":
                    status["completionTime"] = now

        self.store.modify(JOB, job, report)


def _waits(spec: Json) -> bool:
    """Whether a replacement is created only when the failed pod has ended."""
    return spec.get("podReplacementPolicy") == "Failed" or bool(spec.get("podFailurePolicy"))


class GarbageCollector(Controller):
    """Deletes the dependents of deleted owners."""

    def observe(self, change: Change) -> None:
        """Queue the uid of an object that was removed."""
        if change.new is None and change.old is not None:
            self.note(change.old["metadata"]["uid"])

    def sync(self, key: str) -> None:
        """Delete the dependents that have no other owner."""
        for kind, (namespace, name) in self.store.all_dependents(key):
            dependent = self.store.find(kind, namespace, name)
            if dependent is None:
                continue
            others = [r["uid"] for r in dependent["metadata"]["ownerReferences"] if r["uid"] != key]
            if not any(self._exists(uid) for uid in others):
                delete(self.store, kind, dependent, {})

    def _exists(self, uid: str) -> bool:
        return any(
            obj["metadata"]["uid"] == uid for kind in KINDS for obj in self.store.items(kind)
        )


class NamespaceController(Controller):
    """Empties namespaces that are being deleted, then removes them."""

    def observe(self, change: Change) -> None:
        """Queue a namespace that is being deleted, or from which an object was removed."""
        if change.kind is NAMESPACE:
            if change.new is not None and "deletionTimestamp" in change.new["metadata"]:
                self.note(change.key[1])
        elif change.new is None and change.key[0]:
            self.note(change.key[0])

    def sync(self, key: str) -> None:
        """Delete the contents, pods with their grace period."""
        namespace = self.store.find(NAMESPACE, "", key)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            return
        contents = [
            (kind, obj) for kind in KINDS if kind.namespaced for obj in self.store.items(kind, key)
        ]
        for kind, obj in contents:
            if "deletionTimestamp" not in obj["metadata"]:
                delete(self.store, kind, obj, {})
        if not contents:
            self.store.remove(NAMESPACE, namespace)
