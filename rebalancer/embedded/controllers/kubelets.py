"""Kubelets: nodes report, pods start after a while, end after their grace, and Jobs' pods complete.

Single objects are steered by annotations, with the names that the tests on a real control plane use, too.
"""

from __future__ import annotations

import re
from functools import partial

from rebalancer.embedded.apiserver.deletion import FINISHED, delete
from rebalancer.embedded.apiserver.kinds import NODE, POD
from rebalancer.embedded.apiserver.store import Change, Json, Key
from rebalancer.embedded.conditions import is_ready, set_condition
from rebalancer.embedded.controllers.pods import controller_of, is_terminating
from rebalancer.embedded.engine import Controller, Engine

READY_AFTER = "rebalancer.test/ready-after"
"""On a pod: a Go duration ("5s") from its binding until it is Ready."""
NEVER_READY = "rebalancer.test/never-ready"
"""On a pod: "true" makes it Running but not Ready; may be set and taken away while it runs."""
NEVER_ENDS = "rebalancer.test/never-ends"
"""On a pod: "true" keeps it terminating once it was deleted; may be set and taken away meanwhile."""
COMPLETE_AFTER = "rebalancer.test/complete-after"
"""On a pod: a Go duration that it runs before it completes; Jobs' pods complete without it, too."""
FAILS = "rebalancer.test/fails"
"""On a pod that completes: "true" makes it fail."""
NODE_NOT_READY = "rebalancer.test/not-ready"
"""On a node: "true" makes its kubelet report NotReady; may be set and taken away."""
NODE_LOST = "rebalancer.test/lost"
"""On a node: "true" makes its kubelet fall silent; may be set and taken away."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


class NodeKubelets(Controller):
    """Reports for every node: Ready after its start, then heartbeats, NotReady where it is told to."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._started: set[str] = set()

    def observe(self, change: Change) -> None:
        """A node joined, went, or was told to report something else."""
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
        """The control plane writes what it does not know, as the kubelet no longer does."""
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
    truth = "True" if ready else "False"
    set_condition(status, "Ready", truth, now, lastHeartbeatTime=now, reason=reason)


class PodKubelets(Controller):
    """Runs the pods of Ready nodes: start, readiness, completion, end. On other nodes all stands still."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._bound: set[str] = set()
        self._ending: dict[str, float] = {}

    def observe(self, change: Change) -> None:
        """A pod of a node changed, or a node became ready and goes on with its pods."""
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
        """Have the pod's next step happen, now or when it is due."""
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
        self.store.modify(POD, pod, lambda new: _ended(new, phase, self.store.timestamp()))

    def _end(self, pod: Json, key: Key) -> None:
        """Stop the containers after a while, at the latest when the grace is over, then remove the pod."""
        uid, grace = pod["metadata"]["uid"], pod["metadata"].get("deletionGracePeriodSeconds", 0)
        now = self.store.clock.now()
        end = now + min(grace, self.engine.timings.shutdown)
        if pod["status"]["phase"] in FINISHED:
            end = now
        if end < self._ending.get(uid, float("inf")):
            self._ending[uid] = end
            self.engine.after(end - now, partial(self._gone, key, uid))

    def _gone(self, key: Key, uid: str) -> None:
        pod = self._same(key, uid)
        if pod is None:
            return
        if not self._node_is_ready(pod) or _flag(pod, NEVER_ENDS):
            self._ending.pop(uid, None)
            return
        owner = controller_of(pod)
        if owner is not None and owner["kind"] == "Job" and pod["status"]["phase"] not in FINISHED:
            # What is killed is Failed before it is gone, and its Job counts it.
            pod = self.store.modify(
                POD, pod, lambda new: _ended(new, "Failed", self.store.timestamp())
            )
        delete(self.store, POD, pod, {"gracePeriodSeconds": 0})


def _became_ready(change: Change) -> bool:
    before = change.old is not None and is_ready(change.old)
    return change.new is not None and is_ready(change.new) and not before


def _running(pod: Json, ready: bool, now: str) -> None:
    status, truth = pod["status"], "True" if ready else "False"
    status["phase"] = "Running"
    status.setdefault("startTime", now)
    for kind in ("PodReadyToStartContainers", "Initialized"):
        set_condition(status, kind, "True", now)
    for kind in ("Ready", "ContainersReady"):
        set_condition(status, kind, truth, now)
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


def _ended(pod: Json, phase: str, now: str) -> None:
    status, failed = pod["status"], phase == "Failed"
    status["phase"] = phase
    for kind in ("Ready", "ContainersReady"):
        set_condition(status, kind, "False", now, reason="PodFailed" if failed else "PodCompleted")
    terminated = {"exitCode": int(failed), "reason": "Error" if failed else "Completed"}
    for container in status.get("containerStatuses", ()):
        container |= {"ready": False, "state": {"terminated": {**terminated, "finishedAt": now}}}


def _flag(found: Json, annotation: str) -> bool:
    return (found["metadata"].get("annotations") or {}).get(annotation) == "true"


def _duration(pod: Json, annotation: str, default: float) -> float:
    """Return a Go duration from an annotation; what cannot be read is the default."""
    text = (pod["metadata"].get("annotations") or {}).get(annotation, "")
    parts = _DURATION.findall(text)
    if not parts or "".join(a + b for a, b in parts) != text:
        return default
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
