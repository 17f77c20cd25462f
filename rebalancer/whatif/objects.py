"""A snapshot file as plain objects, for edits that arrays do not support: nodes, replicas.

Source: ``pkg/controller/disruption/disruption.go``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from rebalancer.base.errors import PolicyError
from rebalancer.base.file_text import read_rest, unpack, yaml_documents
from rebalancer.snapshot.labels import object_selector
from rebalancer.snapshot.load import MAGIC, SnapshotArchive, load_snapshot
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.store import StoredList
from rebalancer.wire.pods import FINISHED
from rebalancer.wire.quantity import share_of

Json = dict[str, Any]
_DAMAGED = (ValueError, msgspec.DecodeError, RecursionError)


@dataclass(slots=True)
class Objects:
    """The objects of a file, mutable; ``snapshot`` folds them."""

    metadata: Mapping[str, Any]
    items: list[Json]

    def of_kind(self, *kinds: str) -> list[Json]:
        """Return the objects of these kinds, in the order of the file."""
        return [item for item in self.items if item["kind"] in kinds]

    def find(self, kind: str, name: str, namespace: str = "") -> Json | None:
        """Return one object; None if there is none. The case of the kind is ignored."""
        for item in self.items:
            metadata = item["metadata"]
            named = (metadata.get("name"), metadata.get("namespace", "")) == (name, namespace)
            if named and item["kind"].lower() == kind.lower():
                return item
        return None

    def pods_of(self, controllers: set[str]) -> list[Json]:
        """Return the active pods of the controllers with these uids."""
        return [
            pod
            for pod in self.of_kind("Pod")
            if controller(pod).get("uid") in controllers and is_active(pod)
        ]

    def snapshot(self, finished: frozenset[str] = frozenset()) -> Snapshot:
        """Return the snapshot of the current objects; ``finished``: see ``load_snapshot``."""
        text = msgspec.json.encode(
            {"kind": "List", "apiVersion": "v1", "metadata": self.metadata, "items": self.items}
        )
        return load_snapshot("-", stdin=BytesIO(text), finished=finished)


def controller(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the reference to the object's controller; empty if it has none."""
    for reference in item["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return {}


def is_active(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is running or pending: not finished, not terminating."""
    finished = (pod.get("status") or {}).get("phase") in FINISHED
    return not finished and not pod["metadata"].get("deletionTimestamp")


def is_ready(item: Mapping[str, Any]) -> bool:
    """Return whether a pod or a node has the condition Ready."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def unschedule(pod: Json) -> Json:
    """Return the pod as its controller would recreate it: without node, status and times."""
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {**pod, "spec": spec, "status": {"phase": "Pending"}}


def read_objects(data: bytes) -> Objects:
    """Return the objects of a snapshot file that ``load_snapshot`` could read.

    A run decodes some parts of an object only if it needs them; here all parts are decoded.

    Raises:
        PolicyError: a part is damaged.
    """
    try:
        stream = BytesIO(data)
        is_archive = data.startswith(MAGIC)
        return _of_archive(SnapshotArchive(stream)) if is_archive else _of_text(stream)
    except _DAMAGED as error:
        raise _not_editable(str(error)) from None


def _not_editable(why: str) -> PolicyError:
    return PolicyError([f"the snapshot cannot be edited: {why}"])


def _of_text(stream: BinaryIO) -> Objects:
    plain, head = unpack(stream)
    text = read_rest(plain, head).lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] == b"{":
        documents = [msgspec.json.decode(text)]
    else:
        documents = [document for document in yaml_documents(text) if document is not None]
    metadata: Mapping[str, Any] = {}
    items: list[Json] = []
    for document in documents:
        if document["kind"].endswith("List"):
            metadata = document.get("metadata") or {}
        items += _items(document)
    return Objects(metadata, items)


def _of_archive(archive: SnapshotArchive) -> Objects:
    items: list[Json] = []
    for stored in archive.manifest.lists:
        try:
            if stored.in_protobuf:
                objects = _from_protobuf(stored, archive.pieces(stored))
            else:
                objects = _items(msgspec.json.decode(b"".join(archive.pieces(stored))))
            items += ({"kind": stored.kind, **item} for item in objects)
        except _DAMAGED as error:
            raise _not_editable(f"{stored.file}: {error}") from None
    return Objects(archive.manifest.as_metadata(), items)


def _from_protobuf(stored: StoredList, pieces: Iterable[bytes]) -> Iterator[Json]:
    from rebalancer.wire.protobuf.frames import ListFrames  # noqa: PLC0415
    from rebalancer.wire.protobuf.lists import plain_objects  # noqa: PLC0415

    frames = ListFrames(length=stored.bytes)
    for piece in pieces:
        for run in frames.feed(piece):
            yield from plain_objects(stored.kind, run)


def _items(document: Mapping[str, Any]) -> Iterator[Json]:
    kind = document["kind"]
    if not kind.endswith("List"):
        yield dict(document)
        return
    for item in document.get("items") or ():
        yield {"kind": kind.removesuffix("List"), **item}


def read_data(path: str, stdin: BinaryIO) -> bytes:
    """Return the bytes of a file; ``-`` is ``stdin``.

    Raises:
        PolicyError: the file cannot be read.
    """
    if path == "-":
        return stdin.read()
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise PolicyError([f"{path}: cannot be read: {error.strerror or error}"]) from None


def renew_budgets(objects: Objects) -> None:
    """Update the status of every PodDisruptionBudget whose controllers are all known; leave the others."""
    replicas = _replicas(objects)
    for budget in objects.of_kind("PodDisruptionBudget"):
        spec, namespace = budget.get("spec") or {}, budget["metadata"].get("namespace")
        selects = object_selector(spec.get("selector"))
        pods = [
            pod
            for pod in objects.of_kind("Pod")
            if pod["metadata"].get("namespace") == namespace
            and is_active(pod)
            and selects(pod["metadata"].get("labels") or {})
        ]
        expected = _count_expected(spec, pods, replicas)
        if expected is None:
            continue
        total, desired = expected
        healthy = sum(is_ready(pod) for pod in pods)
        budget["status"] = {
            **(budget.get("status") or {}),
            "expectedPods": total,
            "desiredHealthy": desired,
            "currentHealthy": healthy,
            "disruptionsAllowed": max(0, healthy - desired) if total else 0,
        }


def _replicas(objects: Objects) -> dict[str, int]:
    """Return uid -> desired replicas, for all pod controllers. A ReplicaSet gets the number of its Deployment."""
    wanted: dict[str, int] = {}
    makers = objects.of_kind("Deployment", "StatefulSet", "ReplicationController", "ReplicaSet")
    for maker in makers:
        above = wanted.get(controller(maker).get("uid", ""))
        own = (maker.get("spec") or {}).get("replicas", 1)
        wanted[maker["metadata"].get("uid", "")] = int(own) if above is None else above
    return wanted


def _count_expected(
    spec: Json, pods: list[Json], replicas: dict[str, int]
) -> tuple[int, int] | None:
    """Return (expected pods, desired healthy pods); None if unknown."""
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if most is None and not isinstance(least, str):
        return len(pods), least or 0
    uids = {controller(pod).get("uid", "") for pod in pods}
    if not uids <= replicas.keys():
        return None
    total = sum(replicas[uid] for uid in uids)
    try:
        if most is not None:
            return total, max(0, total - share_of(most, total, up=True))
        return total, share_of(least or 0, total, up=True)
    except ValueError:
        return None
