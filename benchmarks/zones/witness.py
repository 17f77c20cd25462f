"""Counts serving endpoints from the API server's EndpointSlices alone; shares no code with the product."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

from tests.controlplane import ApiError, ControlPlane

Object = Mapping[str, Any]
_PATH = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
_SERVICE = "kubernetes.io/service-name"


class Witness:
    """Follows the endpoints of all Services, from a thread of its own.

    An endpoint serves if it is ready and not in the closed zone, by the first letter of its node. It is a breach where fewer serve than
    before, and fewer than are to be available.
    """

    def __init__(self, plane: ControlPlane, least: Mapping[str, int], closed: str) -> None:
        self.closed = closed
        self.breaches: list[str] = []
        self._api, self._least = plane.client(plane.admin_token), least
        self._end = threading.Event()
        self._error: BaseException | None = None
        listed = self._api.get(_PATH)
        self._version = listed["metadata"]["resourceVersion"]
        self._slices: dict[str, Object] = {one["metadata"]["name"]: one for one in listed["items"]}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(30)
        self._api.close()
        if self._error is not None:
            raise RuntimeError("the watch of the endpoints ended early") from self._error

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                self._follow()
        except (ApiError, OSError) as error:
            self._error = error

    def _follow(self) -> None:
        path = f"{_PATH}?resourceVersion={self._version}&allowWatchBookmarks=true"
        for event in self._api.watch(path, 2.0):
            if event["type"] == "ERROR":
                raise OSError(str(event["object"]))
            self._note(event["type"], event["object"])
            self._version = event["object"]["metadata"]["resourceVersion"]

    def _note(self, kind: str, of: Object) -> None:
        if kind == "BOOKMARK":
            return
        # As endpoints only of the zone that is closed now count otherwise, before and after are counted alike.
        closed = self.closed
        before = self._count(closed)
        if kind == "DELETED":
            self._slices.pop(of["metadata"]["name"], None)
        else:
            self._slices[of["metadata"]["name"]] = of
        after = self._count(closed)
        for name, least in self._least.items():
            if after[name] < min(before[name], least):
                self.breaches.append(f"{name}: {after[name]} of {least} serve")

    def _count(self, closed: str) -> Counter[str]:
        return Counter(
            one["metadata"]["labels"].get(_SERVICE, "")
            for one in self._slices.values()
            for endpoint in one.get("endpoints") or ()
            if endpoint["conditions"].get("ready") and endpoint.get("nodeName", " ")[0] != closed
        )
