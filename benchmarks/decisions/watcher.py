"""Watches all pods while pods are evicted: what went, what came where, and whether a budget was breached."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from tests.controlplane import ApiError, ControlPlane, operations, wait_until

Object = Mapping[str, Any]
_MARK = "benchmarks.decisions/mark"


@dataclass
class Seen:
    """What happened to the pods."""

    evicted: list[tuple[str, str]] = field(default_factory=list)
    """(uid, namespace/name), in order."""
    twice: int = 0
    """Evictions of pods that had come for an evicted one."""
    breaches: list[str] = field(default_factory=list)
    samples: int = 0
    """Events looked at."""


class Watcher:
    """Follows the server's own stream of events, so that nothing falls between two samples."""

    def __init__(self, plane: ControlPlane) -> None:
        self._api = plane.api
        self.seen = Seen()
        self._end = threading.Event()
        self._error: BaseException | None = None
        self._marks = 0
        answer = self._api.get("/api/v1/pods?limit=1")
        self._version = answer["metadata"]["resourceVersion"]
        self._pods = {p["metadata"]["uid"]: p for p in operations.pods(self._api)}
        self._first = set(self._pods)
        budgets = self._api.list_all("/apis/policy/v1/poddisruptionbudgets")
        self._budgets = [_Budget(b, self._pods.values()) for b in budgets]
        self._gone: set[str] = {u for u, p in self._pods.items() if _leaving(p)}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(10)
        if self._error is not None:
            raise RuntimeError("the watch of the pods ended early") from self._error

    def catch_up(self) -> None:
        """Wait until all is seen that has happened: a change of our own, on any pod, comes last of all."""
        for pod in operations.pods(self._api):
            metadata = pod["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            self._marks += 1
            mark = {"metadata": {"annotations": {_MARK: str(self._marks)}}}
            try:
                version = int(self._api.patch(path, mark)["metadata"]["resourceVersion"])
            except ApiError as error:
                if error.status != 404:
                    raise
                continue  # gone meanwhile
            wait_until(partial(self._has_seen, version), 30, "the watcher to hear of it all")
            return

    def _has_seen(self, version: int) -> bool:
        if self._error is not None:
            raise RuntimeError("the watch of the pods ended early") from self._error
        return int(self._version) >= version

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                self._follow()
        except (ApiError, OSError) as error:
            self._error = error

    def _follow(self) -> None:
        path = f"/api/v1/pods?resourceVersion={self._version}&allowWatchBookmarks=true"
        for event in self._api.watch(path, 2.0):
            if event["type"] == "ERROR":
                raise OSError(str(event["object"]))
            if event["type"] != "BOOKMARK":
                self._note(event["type"], event["object"])
            self._version = event["object"]["metadata"]["resourceVersion"]

    def _note(self, kind: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        self.seen.samples += 1
        if (kind == "DELETED" or _leaving(pod)) and uid not in self._gone:
            self._gone.add(uid)
            ref = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            self.seen.evicted.append((uid, ref))
            self.seen.twice += uid not in self._first
        for budget in self._budgets:
            if (breach := budget.note(kind, pod)) is not None:
                self.seen.breaches.append(breach)


class _Budget:
    """Counts the healthy pods of one PodDisruptionBudget."""

    def __init__(self, budget: Object, pods: Any) -> None:
        self._name = budget["metadata"]["name"]
        self._namespace = budget["metadata"]["namespace"]
        self._labels = budget["spec"]["selector"]["matchLabels"]
        self._desired = budget["status"]["desiredHealthy"]
        self._healthy = {
            p["metadata"]["uid"] for p in pods if self._selects(p) and operations.is_ready(dict(p))
        }

    def note(self, kind: str, pod: Object) -> str | None:
        """Count a changed pod; return what was breached by it."""
        if not self._selects(pod):
            return None
        before = len(self._healthy)
        if kind != "DELETED" and operations.is_ready(dict(pod)):
            self._healthy.add(pod["metadata"]["uid"])
        else:
            self._healthy.discard(pod["metadata"]["uid"])
        if len(self._healthy) < min(before, self._desired):
            return f"{self._name}: {len(self._healthy)} healthy of {self._desired} desired"
        return None

    def _selects(self, pod: Object) -> bool:
        labels = pod["metadata"].get("labels") or {}
        same = pod["metadata"]["namespace"] == self._namespace
        return same and all(labels.get(k) == v for k, v in self._labels.items())


def _leaving(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]
