"""Nodes: their kubelets, which start and end pods, and the controllers of taints, evictions by taint and lost pods.

Annotations control single objects; the tests on a real control plane use the same names.

Source: ``k8s.io/kubernetes/pkg/controller/{nodelifecycle,tainteviction,podgc}``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from rebalancer.base.durations import parse_go_duration
from rebalancer.embedded.apiserver.defaults import NOT_READY, UNREACHABLE
from rebalancer.embedded.apiserver.eviction import delete
from rebalancer.embedded.apiserver.kinds import NODE, POD, Json, condition, is_ready, set_condition
from rebalancer.embedded.apiserver.store import Change, Key
from rebalancer.embedded.controllers.pods import controller_of, is_terminating
from rebalancer.embedded.engine import Controller, Engine
from rebalancer.embedded.manifests import ZONE
from rebalancer.scheduler import placement
from rebalancer.wire.objects import Taint, Toleration
from rebalancer.wire.pods import FINISHED
from rebalancer.wire.times import unix_seconds

READY_AFTER = "rebalancer.test/ready-after"
"""Annotation on a pod: a Go duration ("5s") from its binding until it is Ready."""
NEVER_READY = "rebalancer.test/never-ready"
"""On a pod: "true" makes it Running but not Ready; may be set and removed while it runs."""
NEVER_ENDS = "rebalancer.test/never-ends"
"""On a pod: "true" keeps it terminating once it was deleted; may be set and removed meanwhile."""
COMPLETE_AFTER = "rebalancer.test/complete-after"
"""On a pod: a Go duration from its start until it completes; pods of Jobs also complete without it."""
FAILS = "rebalancer.test/fails"
"""Annotation on a pod that completes: "true" makes it fail."""
NODE_NOT_READY = "rebalancer.test/not-ready"
"""On a node: "true" makes its kubelet report NotReady; may be set and removed."""
NODE_LOST = "rebalancer.test/lost"
"""On a node: "true" makes its kubelet stop reporting; may be set and removed."""


class NodeKubelets(Controller):
    """Reports the status of every node: Ready after its start, then heartbeats; NotReady by annotation."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._started: set[str] = set()

    def observe(self, change: Change) -> None:
        """A node was added or removed, or its annotations changed."""
        if change.kind is not NODE:
            return
        if change.new is None:
            self._started.discard(change.object["metadata"]["uid"])
        elif change.old is None:
            uid = change.new["metadata"]["uid"]
            begin = partial(self._start, change.key, uid)
            self.engine.after(self.engine.timings.node_start_up, begin)
        elif _flag(change.old, NODE_LOST) < _flag(change.new, NODE_LOST):
            lose = partial(self._lose, change.key, change.new["metadata"]["uid"])
            self.engine.after(self.engine.timings.monitor_grace, lose)
        elif any(_flag(change.old, a) != _flag(change.new, a) for a in (NODE_NOT_READY, NODE_LOST)):
            self.note(change.key)

    def _lose(self, key: Key, uid: str) -> None:
        """Set the conditions to Unknown, as the node controller does when a kubelet stops reporting."""
        node = self.store.find(NODE, *key)
        if node is not None and node["metadata"]["uid"] == uid and _flag(node, NODE_LOST):
            self.store.modify(NODE, node, lambda new: _unknown(new, self.store.timestamp()))

    def _start(self, key: Key, uid: str) -> None:
        node = self.store.find(NODE, *key)
        if node is not None and node["metadata"]["uid"] == uid:
            self._started.add(uid)
            self.note(key)
            self._beat(key, uid)

    def _beat(self, key: Key, uid: str) -> None:
        if uid in self._started:
            self.note(key)
            self.engine.after(self.engine.timings.heartbeat, partial(self._beat, key, uid))

    def sync(self, key: Key) -> None:
        """Write the node's conditions."""
        node = self.store.find(NODE, *key)
        if node is None or node["metadata"]["uid"] not in self._started or _flag(node, NODE_LOST):
            return
        ready = not _flag(node, NODE_NOT_READY)
        self.store.modify(NODE, node, lambda new: _report(new, ready, self.store.timestamp()))


def _unknown(node: Json, now: str) -> None:
    for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready"):
        set_condition(node["status"], kind, "Unknown", now, reason="NodeStatusUnknown")


def _report(node: Json, ready: bool, now: str) -> None:
    status = node["status"]
    status.setdefault("capacity", dict(status.get("allocatable", {})))
    status.setdefault("allocatable", dict(status["capacity"]))
    status.setdefault("addresses", [{"type": "Hostname", "address": node["metadata"]["name"]}])
    for kind in ("MemoryPressure", "DiskPressure", "PIDPressure"):
        set_condition(status, kind, "False", now, lastHeartbeatTime=now)
    reason = "KubeletReady" if ready else "KubeletNotReady"
    value = "True" if ready else "False"
    set_condition(status, "Ready", value, now, lastHeartbeatTime=now, reason=reason)


class PodKubelets(Controller):
    """Runs the pods of Ready nodes: start, readiness, completion, end. Pods of other nodes do not change."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._bound: set[str] = set()
        self._ending: dict[str, float] = {}

    def observe(self, change: Change) -> None:
        """Queue a pod that is bound to a node, and all pods of a node that became Ready."""
        if change.kind is POD and change.new is None:
            uid = change.object["metadata"]["uid"]
            self._bound.discard(uid)
            self._ending.pop(uid, None)
        elif change.kind is POD and change.new is not None and change.new["spec"].get("nodeName"):
            self.note(change.key)
        elif change.kind is NODE and _became_ready(change):
            for pod in self.store.items(POD):
                if pod["spec"].get("nodeName") == change.key[1]:
                    self.note((pod["metadata"]["namespace"], pod["metadata"]["name"]))

    def sync(self, key: Key) -> None:
        """Do the pod's next step, or set a timer for it."""
        pod = self.store.find(POD, *key)
        if pod is None or not self._node_is_ready(pod):
            return
        uid = pod["metadata"]["uid"]
        if is_terminating(pod):
            if not _flag(pod, NEVER_ENDS):
                self._end(pod, key)
        elif pod["status"]["phase"] == "Pending" and uid not in self._bound:
            self._bound.add(uid)
            delay = _duration(pod, READY_AFTER, self.engine.timings.start_up)
            self.engine.after(delay, partial(self._start, key, uid))
        elif pod["status"]["phase"] == "Running" and is_ready(pod) is _flag(pod, NEVER_READY):
            self._run(pod)

    def _node_is_ready(self, pod: Json) -> bool:
        node = self.store.find(NODE, "", pod["spec"].get("nodeName", ""))
        return node is not None and is_ready(node) and not _flag(node, NODE_LOST)

    def _same(self, key: Key, uid: str) -> Json | None:
        pod = self.store.find(POD, *key)
        return pod if pod is not None and pod["metadata"]["uid"] == uid else None

    def _start(self, key: Key, uid: str) -> None:
        pod = self._same(key, uid)
        if pod is None or is_terminating(pod):
            return
        if not self._node_is_ready(pod):
            self._bound.discard(uid)
            return
        self._run(pod)
        complete = COMPLETE_AFTER in (pod["metadata"].get("annotations") or {})
        owner = controller_of(pod)
        if complete or (owner is not None and owner["kind"] == "Job"):
            delay = _duration(pod, COMPLETE_AFTER, self.engine.timings.job)
            self.engine.after(delay, partial(self._complete, key, uid))

    def _run(self, pod: Json) -> None:
        now, ready = self.store.timestamp(), not _flag(pod, NEVER_READY)
        self.store.modify(POD, pod, lambda new: _running(new, ready, now))

    def _complete(self, key: Key, uid: str) -> None:
        pod = self._same(key, uid)
        if pod is None or is_terminating(pod) or not self._node_is_ready(pod):
            return
        phase = "Failed" if _flag(pod, FAILS) else "Succeeded"
        self.store.modify(POD, pod, lambda new: _set_ended(new, phase, self.store.timestamp()))

    def _end(self, pod: Json, key: Key) -> None:
        """Set a timer to remove the pod after its shutdown time, at the latest after its grace period."""
        uid, grace = pod["metadata"]["uid"], pod["metadata"].get("deletionGracePeriodSeconds", 0)
        now = self.store.clock.now()
        end = now + min(grace, self.engine.timings.shutdown)
        if pod["status"]["phase"] in FINISHED:
            end = now
        if end < self._ending.get(uid, float("inf")):
            self._ending[uid] = end
            self.engine.after(end - now, partial(self._remove, key, uid))

    def _remove(self, key: Key, uid: str) -> None:
        pod = self._same(key, uid)
        if pod is None:
            return
        if not self._node_is_ready(pod) or _flag(pod, NEVER_ENDS):
            self._ending.pop(uid, None)
            return
        owner = controller_of(pod)
        if owner is not None and owner["kind"] == "Job" and pod["status"]["phase"] not in FINISHED:
            # A killed pod is Failed before it is removed, and its Job counts that.
            pod = self.store.modify(
                POD, pod, lambda new: _set_ended(new, "Failed", self.store.timestamp())
            )
        delete(self.store, POD, pod, {"gracePeriodSeconds": 0})


def _became_ready(change: Change) -> bool:
    before = change.old is not None and is_ready(change.old)
    return change.new is not None and is_ready(change.new) and not before


def _running(pod: Json, ready: bool, now: str) -> None:
    status, value = pod["status"], "True" if ready else "False"
    status["phase"] = "Running"
    status.setdefault("startTime", now)
    for kind in ("PodReadyToStartContainers", "Initialized"):
        set_condition(status, kind, "True", now)
    for kind in ("Ready", "ContainersReady"):
        set_condition(status, kind, value, now)
    status["containerStatuses"] = [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "ready": ready,
            "restartCount": 0,
            "state": {"running": {"startedAt": status["startTime"]}},
        }
        for container in pod["spec"]["containers"]
    ]


def _set_ended(pod: Json, phase: str, now: str) -> None:
    status, failed = pod["status"], phase == "Failed"
    status["phase"] = phase
    for kind in ("Ready", "ContainersReady"):
        set_condition(status, kind, "False", now, reason="PodFailed" if failed else "PodCompleted")
    terminated = {"exitCode": int(failed), "reason": "Error" if failed else "Completed"}
    for container in status.get("containerStatuses", ()):
        container |= {"ready": False, "state": {"terminated": {**terminated, "finishedAt": now}}}


def _flag(obj: Json, annotation: str) -> bool:
    return (obj["metadata"].get("annotations") or {}).get(annotation) == "true"


def _duration(pod: Json, annotation: str, default: float) -> float:
    """Return a Go duration from an annotation, ``default`` if it is absent or malformed."""
    text = (pod["metadata"].get("annotations") or {}).get(annotation, "")
    try:
        return parse_go_duration(text).total_seconds()
    except ValueError:
        return default


UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_UNHEALTHY = 0.55
_SMALL_ZONE = 50
_OURS = (NOT_READY, UNREACHABLE, UNSCHEDULABLE)


class NodeLifecycle(Controller):
    """Taints nodes that are not Ready or cordoned; marks the pods of unreachable nodes not Ready."""

    def observe(self, change: Change) -> None:
        """Queue a node that changed, and all NotReady nodes if its readiness changed."""
        if change.kind is not NODE:
            return
        if change.new is not None:
            self.note(change.key)
        if change.old is None or change.new is None or is_ready(change.old) != is_ready(change.new):
            for node in self.store.items(NODE):
                if not is_ready(node):
                    self.note(("", node["metadata"]["name"]))

    def sync(self, key: Key) -> None:
        """Write the taints that follow from conditions and spec; pods of an unreachable node are not Ready."""
        node = self.store.find(NODE, *key)
        if node is None:
            return
        ready = condition(node.get("status") or {}, "Ready")
        value = ready["status"] if ready else ""
        before = node["spec"].get("taints") or []
        wanted = [taint for taint in before if taint["key"] not in _OURS]
        if value != "True":
            name = UNREACHABLE if value == "Unknown" else NOT_READY
            wanted.append(_taint(before, name, "NoSchedule", ""))
            if value and self._may_evict(node, before):
                # Before its first report a node only has NoSchedule.
                wanted.append(_taint(before, name, "NoExecute", self.store.timestamp()))
        if node["spec"].get("unschedulable"):
            wanted.append(_taint(before, UNSCHEDULABLE, "NoSchedule", self.store.timestamp()))
        self.store.modify(NODE, node, lambda new: _set_taints(new, wanted))
        if value == "Unknown":
            self._mark_pods(key[1])

    def _may_evict(self, node: Json, taints: Sequence[Json]) -> bool:
        """Return whether the pods of a failed node are to be evicted.

        False if no node is Ready, because the network may be the cause. In a small zone with most of its nodes
        failed, no further node's pods are evicted (``node_lifecycle_controller.go: handleDisruption``).
        """
        nodes = self.store.items(NODE)
        if not any(is_ready(other) for other in nodes):
            return False
        zone = _zone(node)
        alike = [is_ready(other) for other in nodes if _zone(other) == zone]
        failed = alike.count(False)
        partial = any(alike) and failed > 2 and failed / len(alike) >= _UNHEALTHY
        tainted = any(t["key"] in _OURS and t["effect"] == "NoExecute" for t in taints)
        return tainted or not (partial and len(alike) <= _SMALL_ZONE)

    def _mark_pods(self, node: str) -> None:
        for pod in self.store.items(POD):
            if pod["spec"].get("nodeName") == node and is_ready(pod):
                self.store.modify(POD, pod, self._mark_pod)

    def _mark_pod(self, pod: Json) -> None:
        set_condition(pod["status"], "Ready", "False", self.store.timestamp())


def _zone(node: Json) -> tuple[str, str]:
    labels = node["metadata"].get("labels") or {}
    return labels.get("topology.kubernetes.io/region", ""), labels.get(ZONE, "")


def _taint(before: Sequence[Json], key: str, effect: str, now: str) -> Json:
    for taint in before:
        if taint["key"] == key and taint["effect"] == effect:
            return taint
    return {"key": key, "effect": effect, **({"timeAdded": now} if now else {})}


def _set_taints(node: Json, taints: list[Json]) -> None:
    node["spec"].pop("taints", None)
    if taints:
        node["spec"]["taints"] = taints


class TaintEviction(Controller):
    """Deletes pods that do not tolerate a NoExecute taint, at once or after their tolerationSeconds."""

    def observe(self, change: Change) -> None:
        """Queue a node whose spec changed, or to which a pod was bound."""
        if change.new is None or change.old is None:
            return
        before, after = change.old.get("spec", {}), change.new.get("spec", {})
        if change.kind is NODE and before != after:
            self.note(change.key[1])
        elif change.kind is POD and before.get("nodeName") != after.get("nodeName"):
            self.note(after["nodeName"])

    def sync(self, key: str) -> None:
        """Delete the pods whose toleration has ended, and set a timer for the others."""
        node = self.store.find(NODE, "", key)
        taints = [] if node is None else _no_execute(node)
        if not taints:
            return
        now = self.store.clock.now()
        for pod in self.store.items(POD):
            if pod["spec"].get("nodeName") != key or is_terminating(pod):
                continue
            due = _deletion_time(pod["spec"].get("tolerations") or (), taints)
            if due is None:
                continue
            if due <= now:
                delete(self.store, POD, pod, {})
            else:
                self.engine.after(due - now, lambda: self.note(key))


def _no_execute(node: Json) -> list[Json]:
    return [t for t in node["spec"].get("taints") or () if t["effect"] == "NoExecute"]


def _deletion_time(tolerations: Sequence[Json], taints: Sequence[Json]) -> float | None:
    """Return when a pod is to be deleted (Unix seconds), 0 for at once, None for never."""
    ends: list[float] = []
    for taint in taints:
        matching = [t for t in tolerations if tolerates(t, taint)]
        if not matching:
            return 0.0
        limits = [
            t["tolerationSeconds"] for t in matching if t.get("tolerationSeconds") is not None
        ]
        if limits:
            ends.append(unix_seconds(taint.get("timeAdded")) + max(0, min(limits)))
    return min(ends) if ends else None


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Whether a toleration tolerates a taint, both as plain data."""
    return placement.tolerates(
        [msgspec.convert(toleration, Toleration)], msgspec.convert(taint, Taint)
    )


class PodCollector(Controller):
    """Removes the pods of deleted nodes after a quarantine."""

    def observe(self, change: Change) -> None:
        """Set a timer to queue a node that was removed."""
        if change.kind is NODE and change.new is None:
            name = change.key[1]
            self.engine.after(self.engine.timings.orphan, lambda: self.note(name))

    def sync(self, key: str) -> None:
        """Delete without a grace period: no kubelet will end these pods."""
        if self.store.find(NODE, "", key) is not None:
            return
        for pod in self.store.items(POD):
            if pod["spec"].get("nodeName") == key:
                delete(self.store, POD, pod, {"gracePeriodSeconds": 0})
