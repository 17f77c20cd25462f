"""Lists in protobuf: as structs, of other kinds than Pod that come in numbers; and as they are kept in a snapshot file."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import lru_cache
from typing import Any

import msgspec

from rebalancer.wire import objects as o
from rebalancer.wire.annotations import OURS, READ
from rebalancer.wire.opt_outs import EVICT
from rebalancer.wire.protobuf.pods import scheduling_spec, strings
from rebalancer.wire.protobuf.schema import (
    as_broken_list,
    message,
    message_of_stored,
    plain,
    share,
    to_struct,
)


def decode_run(kind: str, run: bytes, wanted: Container[str] | None = None) -> tuple[Any, ...]:
    """Return the objects of a run (``rebalancer.wire.protobuf.frames``) of one of ``KINDS``.

    With ``wanted``, only objects with these uids are converted and returned.

    Raises:
        BrokenListError: the run contains no objects of this kind.
    """
    convert = _CONVERSIONS[kind]
    with as_broken_list(f"these are no {kind}s"):
        items = message(f"{kind}List").FromString(run).items
        return tuple(
            convert(item) for item in items if wanted is None or item.metadata.uid in wanted
        )


def plain_objects(kind: str, run: bytes) -> list[dict[str, Any]]:
    """Return the objects of a run of any kind in protobuf as the dictionaries of their JSON.

    Only fields declared in ``objects.proto`` are included.

    Raises:
        BrokenListError: the run holds no such objects.
    """
    with as_broken_list(f"these are no {kind}s"):
        return [plain(item) for item in message(f"{kind}List").FromString(run).items]


# The beginning of the entry of a map: the tag of the key, its length, the key.
_EVICT = b"\n" + bytes([len(EVICT)]) + EVICT.encode()


@lru_cache(65536)
def _image(item: bytes) -> o.ContainerImage:
    """Decode an image; cached, since every node that has the image sends the same bytes."""
    return to_struct(message("ContainerImage").FromString(item), o.ContainerImage)


def _node(node: Any) -> o.Node:
    status = node.status
    images = tuple(map(_image, status.images)) or None
    status.ClearField("images")
    converted = to_struct(node, o.Node)
    return msgspec.structs.replace(
        converted, status=msgspec.structs.replace(converted.status, images=images)
    )


def _workload(item: Any) -> o.Workload:
    template = _template(item.spec.template) if item.spec.HasField("template") else None
    item.spec.ClearField("template")
    meta = _meta(item.metadata)
    item.ClearField("metadata")
    workload = to_struct(item, o.Workload)
    return msgspec.structs.replace(
        workload, metadata=meta, spec=msgspec.structs.replace(workload.spec, template=template)
    )


def _meta(of: Any) -> o.ObjectMeta:
    """Return the metadata of a workload, with the one annotation that is used."""
    mine = [entry for entry in of.annotations if entry.startswith(_EVICT)]
    of.ClearField("annotations")
    metadata = to_struct(of, o.ObjectMeta)
    return msgspec.structs.replace(metadata, annotations=strings(mine)) if mine else metadata


def _template(template: Any) -> o.PodTemplate:
    return o.PodTemplate(
        metadata=o.ObjectMeta(labels=share(template.metadata.labels) or None),
        spec=scheduling_spec(template.spec, template.spec.volumes),
    )


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "Node": _node,
    "ReplicaSet": _workload,
    "Deployment": _workload,
}

KINDS = frozenset(_CONVERSIONS)
"""The others are few or small, and are read as JSON."""


_READ = frozenset(name.encode() for name in READ)
_OURS = OURS.encode()


def strip_run(kind: str, run: bytes) -> tuple[bytes, int]:
    """Return a run (``rebalancer.wire.protobuf.frames``) in stored form, and its number of objects.

    Omitted are the list's metadata, and the fields that ``rebalancer.snapshot.store`` names. All other fields are kept, known or
    not.

    Raises:
        BrokenListError: the run holds no such objects.
    """
    with as_broken_list(f"these are no {kind}s"):
        listed = message_of_stored(f"{kind}List").FromString(run)
    listed.ClearField("metadata")
    for item in listed.items:
        if kind == "Node":
            _slim_metadata(item)
        elif kind == "Pod":
            _slim_pod(item)
            _slim_statuses(item.status)
        else:
            _slim_metadata(item)
            _slim_pod(item.spec.template)
    return listed.SerializeToString(), len(listed.items)


# Below, parts are looked at before they are changed: to clear a field of a message that is absent would make the message.


def _slim_metadata(of: Any) -> None:
    metadata = of.metadata
    if metadata.managedFields:
        metadata.ClearField("managedFields")
    if metadata.annotations:
        kept = [entry for entry in metadata.annotations if _is_read(entry)]
        if len(kept) < len(metadata.annotations):
            metadata.ClearField("annotations")
            metadata.annotations.extend(kept)


def _is_read(entry: bytes) -> bool:
    """Return whether the entry of a map is of an annotation that is read; all of these have a length in one byte."""
    name = entry[2 : 2 + entry[1]] if len(entry) > 1 else b""
    return name in _READ or name.startswith(_OURS)


def _slim_pod(pod: Any) -> None:
    _slim_metadata(pod)
    spec = pod.spec
    for container in (*spec.containers, *spec.initContainers):
        container.DiscardUnknownFields()
    for ephemeral in spec.ephemeralContainers:
        if ephemeral.HasField("common"):
            ephemeral.common.DiscardUnknownFields()
    for volume in spec.volumes:
        source = volume.volumeSource
        if source.HasField("ephemeral"):
            # No other source is beside it; and of the claim all is kept but the metadata.
            _slim_metadata(source.ephemeral.volumeClaimTemplate)
        else:
            source.DiscardUnknownFields()


def _slim_statuses(status: Any) -> None:
    for one in (
        *status.containerStatuses,
        *status.initContainerStatuses,
        *status.ephemeralContainerStatuses,
    ):
        one.DiscardUnknownFields()
