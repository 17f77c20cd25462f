"""Node controllers: taints by condition, eviction by taint, pods of deleted nodes.

Source: ``k8s.io/kubernetes/pkg/controller/{nodelifecycle,tainteviction,podgc}``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rebalancer.embedded.apiserver.defaults import NOT_READY, UNREACHABLE
from rebalancer.embedded.apiserver.eviction import delete
from rebalancer.embedded.apiserver.kinds import NODE, POD, Json, condition, is_ready, set_condition
from rebalancer.embedded.apiserver.store import Change, Key
from rebalancer.embedded.controllers.pods import is_terminating
from rebalancer.embedded.engine import Controller
from rebalancer.embedded.manifests import ZONE
from rebalancer.scheduler import placement
from rebalancer.wire.objects import Taint, Toleration
from rebalancer.wire.times import unix_seconds

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
