"""Lists: filtered by selectors, cut into pages of one consistent version, linked by continue tokens.

Source: ``k8s.io/apiserver/pkg/storage/continue.go`` and ``etcd3/errors.go``. A first page keeps the items
of its version; when that is compacted, the next page answers 410 with a token that continues from the
present (an inconsistent list), as the server does.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from rebalancer.embedded.apiserver.kinds import Json, Kind, Target
from rebalancer.embedded.apiserver.selectors import Test, field_selector, label_selector
from rebalancer.embedded.apiserver.status import bad_request, expired
from rebalancer.embedded.apiserver.store import Store

_PINNED = 64
_CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new "
    "list without the continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the results. Continuing with the provided token results in an inconsistent list - "
    "objects that were created, modified, or deleted between the time the first chunk was returned and "
    "now may show up in the list."
)
_INCONSISTENT = -1


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
    """Answers list requests, and keeps the versions of lists of which pages are still to come."""

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
            raise expired(_CONTINUE_EXPIRED, {"continue": _token(_INCONSISTENT, start)})
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
