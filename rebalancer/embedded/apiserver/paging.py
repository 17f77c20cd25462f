"""Lists: selected, cut into pages of one consistent version, and told apart by continue tokens.

Source: ``k8s.io/apiserver/pkg/storage/continue.go`` and ``etcd3/errors.go``. A first page pins the items
of its version; when that is forgotten, the next page answers 410 with a token that goes on from the
present (an inconsistent list), as the server does after a compaction.
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

from rebalancer.embedded.apiserver.kinds import Kind, Target
from rebalancer.embedded.apiserver.selectors import Test, field_selector, label_selector
from rebalancer.embedded.apiserver.status import bad_request, expired
from rebalancer.embedded.apiserver.store import Json, Store

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
    """What a query's selectors choose."""

    labels: Test | None
    fields: Test | None

    @classmethod
    def of(cls, kind: Kind, query: Mapping[str, str]) -> Selection:
        """Read the selectors of a query; 400 if they make no sense."""
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        return cls(
            label_selector(labels) if labels else None,
            field_selector(kind, fields) if fields else None,
        )

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
        return self.labels is None and self.fields is None

    def chooses(self, found: Mapping[str, Any]) -> bool:
        """Whether an object is selected."""
        return (self.labels is None or self.labels(found)) and (
            self.fields is None or self.fields(found)
        )


@dataclass(frozen=True, slots=True)
class Page:
    """One answer to a list request."""

    items: Sequence[Json]
    metadata: Json


class Pager:
    """Answers list requests, and remembers the versions of lists that are being paged through."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pinned: OrderedDict[tuple[Kind, str, int], Sequence[Json]] = OrderedDict()

    def forget(self) -> None:
        """Forget all pinned versions: tokens given out so far answer 410."""
        self._pinned.clear()

    def page(self, target: Target, query: Mapping[str, str]) -> Page:
        """Return the page that a query asks for; 400 or 410 where its token does not serve."""
        selection = Selection.of(target.kind, query)
        limit = _number(query, "limit")
        version, start, items = self._from(target, query.get("continue", ""))
        if version == _INCONSISTENT:
            version = self._store.version
        position = bisect_left(items, start, key=_path)
        chosen: list[Json] = []
        while position < len(items) and (not limit or len(chosen) < limit):
            if selection.chooses(items[position]):
                chosen.append(items[position])
            position += 1
        metadata: Json = {"resourceVersion": str(version)}
        # The server tells of a further page only if it would hold something.
        if any(selection.chooses(item) for item in items[position:]):
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


def _path(found: Mapping[str, Any]) -> str:
    metadata = found["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def _token(version: int, start: str) -> str:
    made = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": version, "start": start})
    return base64.urlsafe_b64encode(made).decode().rstrip("=")


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
