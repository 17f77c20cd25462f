"""What calls for a plan at once, and not only when the next one is due: nodes that come, go or change, pods that wait."""

from __future__ import annotations

import math
import threading
from typing import Any

from rebalancer.base.stop import Clock
from rebalancer.snapshot.leaving import LEAVE, NoticeKind, notices_of
from rebalancer.wire.marks import KEYS
from rebalancer.wire.objects import Node
from rebalancer.wire.pods import PodRecord

QUIET = 0.2
"""Seconds without another change after which a plan is made: changes come in bursts."""
_LONGEST_BURST = 1.0
GAP = 10.0
"""Seconds after a run in which changes do not call for another."""
GAP_AFTER_NOTICE = 1.0
"""As many where a node says that it will go: it may have two minutes in all."""
SOON = 0.05
"""As ``QUIET``, without any gap, where a node is to be left: pods of a machine that goes wait for the plan."""
_OURS = frozenset(KEYS.values())
"""Keys of the taints by which runs mark nodes themselves."""


class Early:
    """Collects changes since a run began; an observer of ``rebalancer.kube.follow.Follower``."""

    def __init__(self, clock: Clock) -> None:
        self.news = threading.Event()
        """Set while there are changes that call for a plan."""
        self._clock, self._lock = clock, threading.Lock()
        self._first = self._last = -math.inf
        self._gap, self._quiet = GAP, QUIET
        self._why = self._seen = ""
        """What came first, in words: since the last run began, and before it."""
        self._unschedulable_since = -math.inf
        """Server's time, in whole seconds, since which the newest of the pods waits that no node takes."""
        self._unschedulable: set[str] = set()
        """uids of the pods that wait since then."""

    def begin(self) -> None:
        """Forget what came so far: a run sees it now."""
        with self._lock:
            self.news.clear()
            self._gap, self._quiet = GAP, QUIET
            self._seen, self._why = self._why, ""

    def again(self) -> None:
        """Take back that a run saw it: it failed, and what called for it calls for another."""
        if self._seen:
            self._note(self._seen, GAP)

    def due(self, ended: float) -> float:
        """Return when to begin a run, infinite if nothing calls for one. ``ended``: when the last one had."""
        with self._lock:
            if not self.news.is_set():
                return math.inf
            quiet = min(self._last + self._quiet, self._first + _LONGEST_BURST)
            return max(quiet, ended + self._gap)

    @property
    def why(self) -> str:
        """What came first, in words."""
        return self._why

    def pod_changed(self, pod: PodRecord) -> None:
        """See Observer. A pod counts once, when the scheduler has given it up for now."""
        if pod.node or pod.deleting:
            return
        for condition in pod.state.conditions:
            waits = condition.type == "PodScheduled" and condition.reason == "Unschedulable"
            if not waits or condition.since < self._unschedulable_since:
                continue
            if condition.since > self._unschedulable_since:
                self._unschedulable_since = condition.since
                self._unschedulable.clear()
            if pod.uid not in self._unschedulable:
                self._unschedulable.add(pod.uid)
                self._note("pods wait that no node takes", GAP)

    def object_changed(self, kind: str, before: Any | None, after: Any | None) -> None:
        """See Observer."""
        if kind != "Node":
            return
        if after is None:
            gone = "nodes were listed again" if before is None else "a node was removed"
            self._note(gone, GAP)
        elif before is None:
            self._note(f"node {after.metadata.name} was added", GAP)
        elif _leave(before) != _leave(after):
            self._note(f"node {after.metadata.name} is to be left", 0.0, SOON)
        elif notices(before) != notices(after):
            self._note(f"node {after.metadata.name} says something else", GAP_AFTER_NOTICE)
        elif _offers(before) != _offers(after):
            self._note(f"node {after.metadata.name} has changed", GAP)

    def _note(self, why: str, gap: float, quiet: float = QUIET) -> None:
        now = self._clock.now()
        with self._lock:
            if not self.news.is_set():
                self._first, self._why = now, why
            self._last = now
            self._gap, self._quiet = min(self._gap, gap), min(self._quiet, quiet)
            self.news.set()


def notices(node: Node) -> tuple[object, ...]:
    """Return what a node says of itself, and others say of it: by these it is announced that it will go.

    What runs set themselves, and what changes with each heartbeat, is left out; so are annotations that say nothing of
    that, which some controllers rewrite every few seconds, and what signals say: their steps call for a plan in their turn.
    """
    taints = sorted(
        (taint.key, taint.value or "", taint.effect)
        for taint in node.spec.taints or ()
        if taint.key not in _OURS
    )
    ready = [each.status for each in node.status.conditions or () if each.type == "Ready"]
    return (
        node.spec.unschedulable,
        taints,
        ready,
        node.metadata.deletion_timestamp,
        tuple(one for one in notices_of(node) if one.kind is not NoticeKind.NOTED),
    )


def _leave(node: Node) -> str | None:
    return (node.metadata.annotations or {}).get(LEAVE)


def _offers(node: Node) -> object:
    """Return what pods may be placed by."""
    return node.status.allocatable, node.metadata.labels or {}
