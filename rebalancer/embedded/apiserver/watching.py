"""Watches: changes since a version as lines of JSON, with bookmarks.

Source: ``k8s.io/apiserver/pkg/storage/cacher`` (events, bookmarks, ERROR events for versions that are too
old) and ``pkg/endpoints/handlers/watch.go`` (the stream).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import msgspec

from rebalancer.embedded.apiserver import status
from rebalancer.embedded.apiserver.kinds import Json, Target
from rebalancer.embedded.apiserver.paging import Selection
from rebalancer.embedded.apiserver.store import Change, Store

_LONGEST = 1800.0
_POLL = 0.5
_BOOKMARK_SECONDS = 1.0


class Watch:
    """One watch, from the moment of its construction, which needs the store's lock."""

    def __init__(
        self,
        store: Store,
        target: Target,
        query: Mapping[str, str],
        shape: Callable[[Json], Json],
    ) -> None:
        """``shape`` makes of a stored object what an event carries."""
        self._store, self._target, self._shape = store, target, shape
        self._selection = Selection.of(target.kind, query)
        self._bookmarks = query.get("allowWatchBookmarks", "") in ("1", "true", "True")
        text = query.get("timeoutSeconds", "")
        self._seconds = float(text) if text.isdecimal() and int(text) else _LONGEST
        self._wanted = query.get("resourceVersion", "")
        if self._wanted and not self._wanted.isdecimal():
            raise status.bad_request(f'Invalid value: "{self._wanted}": resourceVersion')
        self._version = int(self._wanted or 0) or store.version
        self._first = [] if self._wanted not in ("", "0") else list(self._present())

    def _present(self) -> Iterator[bytes]:
        """Yield the present objects: a watch without a version, or with 0, begins with them."""
        for obj in self._store.items(self._target.kind, self._target.namespace):
            if self._concerns(obj):
                yield self._line("ADDED", obj)

    def lines(self) -> Iterator[bytes]:
        """Yield the events until the requested time is over, and empty pieces while there are none.

        An empty piece is not sent: the caller uses it to check whether its client is still connected.
        """
        yield from self._first
        end = time.monotonic() + self._seconds
        bookmark = time.monotonic() + _BOOKMARK_SECONDS
        while (now := time.monotonic()) < end:
            try:
                changes = self._wait(min(_POLL, end - now))
            except status.ApiError as error:
                yield _encoded("ERROR", error.status())
                return
            for change in changes:
                yield from self._events(change)
            if not changes:
                yield b""
            if self._bookmarks and time.monotonic() >= bookmark:
                yield self._bookmark()
                bookmark = time.monotonic() + _BOOKMARK_SECONDS
        if self._bookmarks:
            yield self._bookmark()

    def _wait(self, seconds: float) -> list[Change]:
        with self._store.lock:
            if self._store.version == self._version:
                self._store.changed.wait(seconds)
            changes = list(self._store.changes_since(self._version))
            self._version = max(self._version, self._store.version)
            return changes

    def _events(self, change: Change) -> Iterator[bytes]:
        if change.kind is not self._target.kind:
            return
        before = change.old is not None and self._concerns(change.old)
        after = change.new is not None and self._concerns(change.new)
        if after:
            yield self._line("MODIFIED" if before else "ADDED", change.object)
        elif before:
            # An object that no longer matches is deleted for this watch: last matching state, new version.
            removal = change if change.new is None else replace(change, new=None)
            yield self._line("DELETED", removal.object)

    def _concerns(self, obj: Json) -> bool:
        wanted, namespace = self._target.namespace, obj["metadata"].get("namespace", "")
        return (not wanted or wanted == namespace) and self._selection.matches(obj)

    def _line(self, kind: str, obj: Json) -> bytes:
        return _encoded(kind, self._shape(obj))

    def _bookmark(self) -> bytes:
        metadata = {"resourceVersion": str(self._version), "creationTimestamp": None}
        of = self._target.kind
        bookmark = {"kind": of.kind, "apiVersion": of.api_version, "metadata": metadata}
        return _encoded("BOOKMARK", bookmark)


def _encoded(kind: str, obj: Json) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"
