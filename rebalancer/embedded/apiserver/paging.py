"""Lists: filtered by selectors, cut into pages of one consistent version, linked by continue tokens.

Source: ``k8s.io/apiserver/pkg/storage/continue.go`` and ``etcd3/errors.go``. A first page keeps the items
of its version; when that is compacted, the next page answers 410 with a token that continues from the
present (an inconsistent list), as the server does.

Source: ``k8s.io/apiserver/pkg/storage/cacher`` (events, bookmarks, ERROR events for versions that are too
old) and ``pkg/endpoints/handlers/watch.go`` (the stream).
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from rebalancer.base.errors import PolicyError
from rebalancer.embedded.apiserver import kinds
from rebalancer.embedded.apiserver.kinds import Json, Kind, Target, bad_request, version_expiry
from rebalancer.embedded.apiserver.store import Change, Store
from rebalancer.policy.select import parse_selector
from rebalancer.snapshot.labels import matches

_PINNED = 64
_CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new "
    "list without the continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the results. Continuing with the provided token results in an inconsistent list - "
    "objects that were created, modified, or deleted between the time the first chunk was returned and "
    "now may show up in the list."
)
_INCONSISTENT = -1


Test = Callable[[Mapping[str, Any]], bool]

_FIELD = re.compile(r"\s*([^\s,=!()]+)\s*(==|=|!=)\s*([^\s,=!()]*)\s*\Z")

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "Pod": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "Node": ("spec.unschedulable",),
    "Namespace": ("status.phase",),
    "ReplicaSet": ("status.replicas",),
    "ReplicationController": ("status.replicas",),
    "Job": ("status.successful",),
    "Event": ("reason", "type", "regarding.kind", "regarding.name", "regarding.namespace"),
}


_MAX_WATCH_SECONDS = 1800.0
_POLL = 0.5
_BOOKMARK_SECONDS = 1.0


def label_selector(text: str) -> Test:
    """Return the test of a ``labelSelector`` query; 400 if it cannot be parsed."""
    try:
        selector = parse_selector(text).wire()
    except PolicyError:
        raise bad_request(f"unable to parse requirement in label selector {text!r}") from None
    return lambda obj: matches(selector, obj["metadata"].get("labels") or {})


def field_selector(kind: Kind, text: str) -> Test:
    """Return the test of a ``fieldSelector`` query; 400 for a field that this kind does not support."""
    tests = [_field_test(kind, part, text) for part in text.split(",") if part.strip()]
    return lambda obj: all(test(obj) for test in tests)


def _field_test(kind: Kind, part: str, whole: str) -> Test:
    match = _FIELD.match(part)
    if match is None:
        raise bad_request(f"invalid field selector: {whole!r}")
    field, operator, wanted = match.groups()
    if field not in ("metadata.name", "metadata.namespace", *_FIELDS.get(kind.kind, ())):
        raise bad_request(
            f'Unable to find "{kind.group}/{kind.version}, Resource={kind.plural}" that match label '
            f'selector "", field selector "{whole}": field label not supported: {field}'
        )
    path = field.split(".")
    return lambda obj: (_text(obj, path) == wanted) is not (operator == "!=")


def _text(obj: Mapping[str, Any], path: list[str]) -> str:
    value: Any = obj
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "false" if path[-1] in ("unschedulable", "hostNetwork") else ""
    return str(value)


@dataclass(frozen=True, slots=True)
class Selection:
    """The label and field selectors of a query."""

    labels: Test | None
    fields: Test | None

    @classmethod
    def of(cls, kind: Kind, query: Mapping[str, str]) -> Selection:
        """Parse the selectors of a query; 400 if one cannot be parsed."""
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        return cls(
            label_selector(labels) if labels else None,
            field_selector(kind, fields) if fields else None,
        )

    @property
    def everything(self) -> bool:
        """Whether there is no selector."""
        return self.labels is None and self.fields is None

    def matches(self, obj: Mapping[str, Any]) -> bool:
        """Whether an object is selected."""
        return (self.labels is None or self.labels(obj)) and (
            self.fields is None or self.fields(obj)
        )


@dataclass(frozen=True, slots=True)
class Page:
    """One answer to a list request."""

    items: Sequence[Json]
    metadata: Json


class Pager:
    """Answers list requests, and keeps the versions of lists until their last page is sent."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pinned: OrderedDict[tuple[Kind, str, int], Sequence[Json]] = OrderedDict()

    def forget(self) -> None:
        """Compact: drop all kept versions, so that their tokens answer 410."""
        self._pinned.clear()

    def page(self, target: Target, query: Mapping[str, str]) -> Page:
        """Return the page of a query; 400 for an invalid token, 410 for an expired one."""
        selection = Selection.of(target.kind, query)
        limit = _number(query, "limit")
        version, start, items = self._from(target, query.get("continue", ""))
        if version == _INCONSISTENT:
            version = self._store.version
        position = bisect_left(items, start, key=_path)
        chosen: list[Json] = []
        while position < len(items) and (not limit or len(chosen) < limit):
            if selection.matches(items[position]):
                chosen.append(items[position])
            position += 1
        metadata: Json = {"resourceVersion": str(version)}
        # The server offers a further page only if it would not be empty.
        if any(selection.matches(item) for item in items[position:]):
            metadata["continue"] = _token(version, _path(chosen[-1]) + "\0")
            if selection.everything:
                metadata["remainingItemCount"] = len(items) - position
            self._pin((target.kind, target.namespace, version), items)
        return Page(chosen, metadata)

    def _from(self, target: Target, token: str) -> tuple[int, str, Sequence[Json]]:
        if not token:
            return self._store.version, "", self._store.items(target.kind, target.namespace)
        version, start = _parse(token)
        if version == _INCONSISTENT:
            return version, start, self._store.items(target.kind, target.namespace)
        pinned = self._pinned.get((target.kind, target.namespace, version))
        if pinned is None:
            raise version_expiry(_CONTINUE_EXPIRED, {"continue": _token(_INCONSISTENT, start)})
        return version, start, pinned

    def _pin(self, key: tuple[Kind, str, int], items: Sequence[Json]) -> None:
        self._pinned[key] = items
        while len(self._pinned) > _PINNED:
            self._pinned.popitem(last=False)


def _path(obj: Mapping[str, Any]) -> str:
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def _token(version: int, start: str) -> str:
    token = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": version, "start": start})
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def _parse(token: str) -> tuple[int, str]:
    try:
        padded = token + "=" * (-len(token) % 4)
        parts = msgspec.json.decode(base64.urlsafe_b64decode(padded))
        return int(parts["rv"]), str(parts["start"])
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise bad_request(f"continue key is not valid: {error}") from None


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "") or "0"
    if not text.isdecimal():
        raise bad_request(f'Invalid value: "{text}": {name} is not a number')
    return int(text)


class WatchStream:
    """One watch. It starts when it is created, which must happen under the store's lock."""

    def __init__(
        self,
        store: Store,
        target: Target,
        query: Mapping[str, str],
        shape: Callable[[Json], Json],
    ) -> None:
        """``shape`` converts a stored object to the form in an event."""
        self._store, self._target, self._shape = store, target, shape
        self._selection = Selection.of(target.kind, query)
        self._bookmarks = query.get("allowWatchBookmarks", "") in ("1", "true", "True")
        text = query.get("timeoutSeconds", "")
        self._seconds = float(text) if text.isdecimal() and int(text) else _MAX_WATCH_SECONDS
        self._wanted = query.get("resourceVersion", "")
        if self._wanted and not self._wanted.isdecimal():
            raise kinds.bad_request(f'Invalid value: "{self._wanted}": resourceVersion')
        self._version = int(self._wanted or 0) or store.version
        streams = query.get("sendInitialEvents", "") in ("1", "true", "True")
        begins = streams or self._wanted in ("", "0")
        self._first = list(self._present()) if begins else []
        if streams:
            # A streaming list (KEP-3157): what is there, then a bookmark that says so.
            self._first.append(self._bookmark({"k8s.io/initial-events-end": "true"}))

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
            except kinds.ApiError as error:
                yield _encode("ERROR", error.status())
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
        return _encode(kind, self._shape(obj))

    def _bookmark(self, annotations: Mapping[str, str] | None = None) -> bytes:
        metadata: Json = {"resourceVersion": str(self._version), "creationTimestamp": None}
        if annotations is not None:
            metadata["annotations"] = annotations
        of = self._target.kind
        bookmark = {"kind": of.kind, "apiVersion": of.api_version, "metadata": metadata}
        return _encode("BOOKMARK", bookmark)


def _encode(kind: str, obj: Json) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"
