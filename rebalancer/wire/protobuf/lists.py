"""Lists in protobuf: as structs, of other kinds than Pod that come in numbers; and as they are kept in a snapshot file."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import lru_cache
from typing import Any

import msgspec

from rebalancer.wire import objects as o
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
        BrokenListError: the run holds no objects of this kind.
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


@lru_cache(4096)
def _status(item: bytes) -> o.WorkloadStatus:
    """Decode a workload status; cached, since most settled workloads have one of a few numbers of replicas."""
    return to_struct(message("ReplicaSetStatus").FromString(item), o.WorkloadStatus)


def _drop_undeclared(of: Any) -> bytes:
    """Return the bytes of a message without undeclared fields (a status has times in its conditions)."""
    of.DiscardUnknownFields()
    written: bytes = of.SerializePartialToString()
    return written


def _node(node: Any) -> o.Node:
    status = node.status
    images = tuple(map(_image, status.images)) or None
    status.ClearField("images")
    converted = to_struct(node, o.Node)
    return msgspec.structs.replace(
        converted, status=msgspec.structs.replace(converted.status, images=images)
    )


def _replica_set(item: Any) -> o.Workload:
    spec = item.spec
    return o.Workload(
        metadata=_meta(item.metadata),
        spec=o.WorkloadSpec(
            replicas=spec.replicas if spec.HasField("replicas") else None,
            selector=plain(spec.selector) if spec.HasField("selector") else None,
            template=_template(spec.template),
        ),
        status=_status(_drop_undeclared(item.status)),
    )


def _deployment(item: Any) -> o.Workload:
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
    "ReplicaSet": _replica_set,
    "Deployment": _deployment,
}

KINDS = frozenset(_CONVERSIONS)
"""The others are few or small, and stay JSON."""


_LAST_APPLIED = b"kubectl.kubernetes.io/last-applied-configuration"
_ENTRY = b"\n" + bytes([len(_LAST_APPLIED)]) + _LAST_APPLIED
"""How its entry in a map begins: the tag of the key, its length, the key."""


def strip_run(kind: str, run: bytes) -> tuple[bytes, int]:
    """Return a run (``rebalancer.wire.protobuf.frames``) in stored form, and its number of objects.

    Omitted are the list's metadata, ``managedFields``, the annotation ``last-applied-configuration``, and ``env``
    and ``envFrom`` of all containers. All other fields are kept, known or not.

    Raises:
        BrokenListError: the run holds no such objects.
    """
    with as_broken_list(f"these are no {kind}s"):
        listed = message_of_stored(f"{kind}List").FromString(run)
    listed.ClearField("metadata")
    for item in listed.items:
        _slim_metadata(item.metadata)
        if kind == "Pod":
            _slim_pod_spec(item.spec)
        elif kind != "Node":
            template = item.spec.template
            _slim_metadata(template.metadata)
            _slim_pod_spec(template.spec)
    return listed.SerializeToString(), len(listed.items)


def _slim_metadata(metadata: Any) -> None:
    # Looked at before it is cleared: to clear a field of a message that is absent would make the message.
    if metadata.managedFields:
        metadata.ClearField("managedFields")
    kept = [entry for entry in metadata.annotations if not entry.startswith(_ENTRY)]
    if len(kept) < len(metadata.annotations):
        metadata.ClearField("annotations")
        metadata.annotations.extend(kept)


def _slim_pod_spec(spec: Any) -> None:
    for container in (*spec.containers, *spec.initContainers):
        _slim_container(container)
    for ephemeral in spec.ephemeralContainers:
        _slim_container(ephemeral.common)


def _slim_container(container: Any) -> None:
    if container.env:
        container.ClearField("env")
    if container.envFrom:
        container.ClearField("envFrom")
