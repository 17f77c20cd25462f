"""Counts what serves a workload, by every change that the API server makes: Ready pods, or ready endpoints of a Service."""

import threading
from collections.abc import Callable
from typing import Any, Self

from tests.controlplane import ApiClient, objects, operations

_PODS = "/api/v1/namespaces/default/pods"
_SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
_SERVICE = "kubernetes.io/service-name"
_END = "marker"
"""Name of the object by which the watch knows that it has seen all."""


class LeastReady:
    """Follows a list while inside, and keeps the least number of ready ones of each name; at first all have some."""

    def __init__(
        self,
        api: ApiClient,
        path: str,
        count: Callable[[dict[str, Any]], tuple[str, int]],
        end: dict[str, Any],
        seconds: float,
    ) -> None:
        """``count`` returns of an object the name that it counts for, and how many; ``end`` is made to end the watch."""
        self._api, self._path, self._count, self._end = api, path, count, end
        self._seconds = seconds
        self._ready: dict[str, dict[str, int]] = {}
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._version = ""
        self.least: dict[str, int] = {}
        self.events = 0

    def __enter__(self) -> Self:
        listed = self._api.get(self._path)
        self._version = listed["metadata"]["resourceVersion"]
        for one in listed["items"]:
            self._take(one, gone=False)
        self.least = {name: sum(ready.values()) for name, ready in self._ready.items() if name}
        assert all(self.least.values()), self.least
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # The watch is of the past: all that has happened comes before this mark.
        self._api.post(self._path, self._end)
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._api.delete(f"{self._path}/{_END}")

    def _follow(self) -> None:
        path = f"{self._path}?resourceVersion={self._version}"
        for event in self._api.watch(path, self._seconds):
            if event["object"]["metadata"]["name"] == _END:
                return
            self.events += 1
            name = self._take(event["object"], gone=event["type"] == "DELETED")
            if name in self.least:
                self.least[name] = min(self.least[name], sum(self._ready[name].values()))

    def _take(self, one: dict[str, Any], *, gone: bool) -> str:
        name, ready = self._count(one)
        self._ready.setdefault(name, {})[one["metadata"]["uid"]] = 0 if gone else ready
        return name


def ready_pods(api: ApiClient, seconds: float = 300) -> LeastReady:
    """Count the Ready pods of each label ``app``; a Service would send nothing to one that terminates."""

    def count(pod: dict[str, Any]) -> tuple[str, int]:
        return pod["metadata"].get("labels", {}).get("app", ""), int(operations.is_ready(pod))

    return LeastReady(api, _PODS, count, objects.pod(_END, nodeSelector={"pool": "none"}), seconds)


def ready_endpoints(api: ApiClient, seconds: float = 300) -> LeastReady:
    """Count the ready endpoints of each Service."""

    def count(part: dict[str, Any]) -> tuple[str, int]:
        ready = [one for one in part["endpoints"] or () if one["conditions"].get("ready") is True]
        return part["metadata"].get("labels", {}).get(_SERVICE, ""), len(ready)

    end = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": _END},
        "addressType": "IPv4",
        "endpoints": [],
    }
    return LeastReady(api, _SLICES, count, end, seconds)
