"""The objects with their versions, and the log of changes that watches read.

Objects are plain dictionaries without ``kind`` and ``apiVersion`` (the server's lists have none either).
A stored object is never changed in place: every write stores a new dictionary, so readers may keep an old
one.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from rebalancer.embedded.apiserver import kinds
from rebalancer.embedded.apiserver.kinds import Json, Kind
from rebalancer.wire.times import rfc3339


class EmbeddedClock:
    """Unix seconds of the cluster.

    Without a ``source``, the time does not change until :meth:`set`. With one (``time.time``), it runs at the
    source's pace from ``start``: a cluster can begin an hour in the past and catch up.
    """

    def __init__(self, start: float, source: Callable[[], float] | None = None) -> None:
        self._source = source
        self._base = start - (source() if source else 0.0)

    @property
    def runs(self) -> bool:
        """Whether time passes without :meth:`set`."""
        return self._source is not None

    def now(self) -> float:
        """Return the cluster's time."""
        return self._base + (self._source() if self._source else 0.0)

    def set(self, to: float) -> None:
        """Advance the time to ``to``; it never decreases."""
        self._base += max(0.0, to - self.now())

    def lag(self) -> float:
        """Return by how many seconds the cluster is behind its source, 0 without one."""
        return -self._base if self._source else 0.0


Key = tuple[str, str]
"""(namespace, name); the namespace is empty for kinds without."""

_LOG = 20_000
_FIRST_VERSION = 1
# Metadata that only the server writes.
_KEPT = (
    "namespace",
    "name",
    "uid",
    "creationTimestamp",
    "generation",
    "resourceVersion",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


@dataclass(frozen=True, slots=True)
class Change:
    """One write. ``old`` is None for a creation, ``new`` is None for a removal."""

    version: int
    kind: Kind
    key: Key
    old: Json | None
    new: Json | None

    @property
    def object(self) -> Json:
        """The object after this change; a removed object in its last state, with the new version."""
        if self.new is not None:
            return self.new
        last = dict(self.old or {})
        last["metadata"] = {**last["metadata"], "resourceVersion": str(self.version)}
        return last


def clone(obj: Mapping[str, Any]) -> Json:
    """Return a deep copy of JSON data, at a fraction of the cost of ``copy.deepcopy``."""
    copied: Json = msgspec.json.decode(msgspec.json.encode(obj))
    return copied


class Store:
    """All objects of one cluster. Hold :attr:`lock` around reads and writes that belong together."""

    def __init__(self, clock: EmbeddedClock, seed: int) -> None:
        self.clock = clock
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        """Notified after every write."""
        self.listeners: list[Callable[[Change], None]] = []
        """Called after the write, while the lock is still taken."""
        self.version = _FIRST_VERSION
        self._seed = seed
        self._names: dict[str, int] = {}
        self._objects: dict[Kind, dict[Key, Json]] = {}
        self._dependents: dict[str, dict[tuple[Kind, Key], None]] = {}
        self._log: list[Change] = []
        self._forgotten = 0

    # -- reading -----------------------------------------------------------------------------------

    def find(self, kind: Kind, namespace: str, name: str) -> Json | None:
        """Return an object, or None; callers must not change it."""
        return self._objects.get(kind, {}).get((namespace, name))

    def get(self, kind: Kind, namespace: str, name: str) -> Json:
        """Return an object; 404 if there is none."""
        obj = self.find(kind, namespace, name)
        if obj is None:
            raise kinds.not_found(kind, name)
        return obj

    def items(self, kind: Kind, namespace: str = "") -> Sequence[Json]:
        """Return all objects of a kind, or of one namespace, in the order of ``namespace/name``."""
        objects = self._objects.get(kind, {})
        keys = [key for key in objects if not namespace or key[0] == namespace]
        return [objects[key] for key in sorted(keys, key="/".join)]

    def dependents(self, uid: str, kind: Kind) -> Sequence[Json]:
        """Return the objects of a kind that name this uid among their owners, by name."""
        owned = self._dependents.get(uid, {})
        keys = sorted(key for of_kind, key in owned if of_kind is kind)
        return [self._objects[kind][key] for key in keys]

    def all_dependents(self, uid: str) -> Sequence[tuple[Kind, Key]]:
        """Return kind and key of everything that names this uid among its owners."""
        return list(self._dependents.get(uid, ()))

    def changes_since(self, version: int) -> Sequence[Change]:
        """Return the changes after ``version``; 410 if some of them were dropped from the log."""
        if version < self._forgotten:
            raise kinds.version_expiry(f"too old resource version: {version} ({self._forgotten})")
        start = bisect_right(self._log, version, key=lambda change: change.version)
        return self._log[start:]

    # -- writing -----------------------------------------------------------------------------------

    def create(self, kind: Kind, namespace: str, made: Json) -> Json:
        """Store a new object; 409 if its name exists. The store owns ``made`` from then on: callers must not change it."""
        metadata = made["metadata"]
        name = metadata.get("name") or self.generate_name(kind, namespace, metadata["generateName"])
        if (namespace, name) in self._objects.get(kind, {}):
            raise kinds.already_exists(kind, name)
        metadata["name"] = name
        if kind.namespaced:
            metadata["namespace"] = namespace
        metadata["uid"] = self._new_uid(kind, namespace, name)
        metadata["creationTimestamp"] = self.timestamp()
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            metadata.pop(field, None)
        if kind.counts_generations:
            metadata["generation"] = 1
        return self._write(kind, (namespace, name), None, made)

    def replace(self, kind: Kind, old: Json, new: Json, *, status_only: bool = False) -> Json:
        """Store a new state of an object and return it; a write without a difference makes no new version.

        ``metadata.resourceVersion`` of ``new``, if given, must be that of ``old`` (409 otherwise). The
        main resource keeps the old status, the status subresource keeps everything else.
        """
        metadata, before = new["metadata"], old["metadata"]
        wanted = metadata.get("resourceVersion")
        if wanted and wanted != before["resourceVersion"]:
            raise kinds.write_conflict(kind, before["name"])
        if status_only:
            new = {**old, "status": new.get("status", {})}
            if "status" not in old and not new["status"]:
                del new["status"]
        else:
            new = self._finalize(kind, old, new)
        if new == old:
            return old
        return self._write(kind, (before.get("namespace", ""), before["name"]), old, new)

    def _finalize(self, kind: Kind, old: Json, new: Json) -> Json:
        """Return ``new`` with everything that a client cannot change taken from ``old``."""
        before = old["metadata"]
        metadata = {key: value for key, value in new["metadata"].items() if key not in _KEPT}
        metadata |= {key: before[key] for key in _KEPT if key in before}
        settled = {**new, "metadata": metadata}
        if "status" in kind.subresources:
            settled.pop("status", None)
            if "status" in old:
                settled["status"] = old["status"]
        if kind.counts_generations and settled.get("spec") != old.get("spec"):
            metadata["generation"] = before["generation"] + 1
        return settled

    def modify(
        self, kind: Kind, obj: Json, change: Callable[[Json], None], *, anything: bool = False
    ) -> Json:
        """Apply ``change`` to a copy of an object and store that, status included.

        For controllers: with ``anything``, fields that clients cannot write (deletion times) may change, and the
        generation does not.
        """
        new = clone(obj)
        change(new)
        if new == obj:
            return obj
        if not anything and kind.counts_generations and new.get("spec") != obj.get("spec"):
            new["metadata"]["generation"] += 1
        return self._write(kind, _key(obj), obj, new)

    def remove(self, kind: Kind, obj: Json) -> None:
        """Remove an object at once."""
        key = _key(obj)
        if self._objects.get(kind, {}).get(key) is not None:
            self._write(kind, key, self._objects[kind][key], None)

    def forget(self) -> None:
        """Compact: drop the log, so that older versions answer 410 from now on."""
        self._forgotten = self.version
        self._log.clear()

    def timestamp(self) -> str:
        """Return the cluster's time as the API writes it."""
        return rfc3339(self.clock.now())

    def digest(self, *parts: str) -> bytes:
        """Return 32 bytes that depend only on the cluster's seed and the parts."""
        return hashlib.sha256("\0".join((str(self._seed), *parts)).encode()).digest()

    def generate_name(self, kind: Kind, namespace: str, prefix: str) -> str:
        """Return a name that begins with ``prefix`` and ends with five characters, as generateName does."""
        alphabet = "bcdfghjklmnpqrstvwxz2456789"
        while True:
            count = self._count("name", kind.kind, namespace, prefix)
            digest = self.digest("name", kind.kind, namespace, prefix, str(count))
            name = prefix + "".join(alphabet[byte % len(alphabet)] for byte in digest[:5])
            if self.find(kind, namespace, name) is None:
                return name

    def _new_uid(self, kind: Kind, namespace: str, name: str) -> str:
        count = self._count("uid", kind.kind, namespace, name)
        digest = self.digest("uid", kind.kind, namespace, name, str(count))
        return str(uuid.UUID(bytes=digest[:16], version=4))

    def _count(self, *parts: str) -> int:
        # Counted per prefix or name, so that a name does not depend on other objects.
        key = "\0".join(parts)
        self._names[key] = self._names.get(key, 0) + 1
        return self._names[key]

    def _write(self, kind: Kind, key: Key, old: Json | None, new: Json | None) -> Json:
        with self.lock:
            self.version += 1
            if new is not None:
                new["metadata"] = {**new["metadata"], "resourceVersion": str(self.version)}
                self._objects.setdefault(kind, {})[key] = new
            else:
                del self._objects[kind][key]
            self._index(kind, key, old, new)
            change = Change(self.version, kind, key, old, new)
            self._log.append(change)
            if len(self._log) == 2 * _LOG:
                self._forgotten = self._log[_LOG - 1].version
                del self._log[:_LOG]
            for listener in self.listeners:
                listener(change)
            self.changed.notify_all()
            return new if new is not None else {}

    def _index(self, kind: Kind, key: Key, old: Json | None, new: Json | None) -> None:
        before, after = set(_owners(old)), set(_owners(new))
        for uid in before - after:
            self._dependents[uid].pop((kind, key), None)
            if not self._dependents[uid]:
                del self._dependents[uid]
        for uid in after - before:
            self._dependents.setdefault(uid, {})[kind, key] = None


def _owners(obj: Json | None) -> Iterable[str]:
    references = (obj or {}).get("metadata", {}).get("ownerReferences") or ()
    return [reference["uid"] for reference in references]


def _key(obj: Json) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
