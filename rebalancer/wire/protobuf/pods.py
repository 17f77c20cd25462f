"""Pods in protobuf as records: the same as from JSON, without parsing what is like another pod's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError

from rebalancer.wire.pods import ANNOTATION_NAMES, NO_ANNOTATIONS, PodAnnotations, PodRecord
from rebalancer.wire.protobuf import BrokenListError
from rebalancer.wire.protobuf.podspec import (
    forget_pinned_node,
    scheduling_spec,
    spec_key,
    strings,
)
from rebalancer.wire.protobuf.schema import message

# Copied from the node at binding (see ``rebalancer.wire.pods``): the beginnings of their entries.
_PLACEMENT = tuple(
    b"\n" + bytes([len(name)]) + name
    for name in (b"topology.kubernetes.io/zone", b"topology.kubernetes.io/region")
)
_FIELD_OF = {name.encode(): field for field, name in ANNOTATION_NAMES.items()}


def pod_records(run: bytes) -> Iterator[PodRecord]:
    """Yield the records of a run of pods (``rebalancer.wire.protobuf.frames``).

    Raises:
        BrokenListError: these are no pods.
    """
    try:
        pods = message("PodList").FromString(run).items
        for pod in pods:
            yield _record(pod)
    except DecodeError as error:
        raise BrokenListError(f"these are no pods: {error}") from None


def _record(pod: Any) -> PodRecord:
    meta, spec, status = pod.metadata, pod.spec, pod.status
    namespace = meta.namespace
    owner_kind = owner_group = owner_name = owner_uid = ""
    references = meta.ownerReferences
    for reference in references:
        if reference.controller:
            owner_kind, owner_name, owner_uid = reference.kind, reference.name, reference.uid
            owner_group = reference.apiVersion.rpartition("/")[0]
    ready, ready_since = False, 0.0
    for condition in status.conditions:
        if condition.type == "Ready":
            ready = condition.status == "True"
            ready_since = float(condition.lastTransitionTime.seconds)
            break
    if owner_kind == "DaemonSet":
        forget_pinned_node(spec)
    node = spec.nodeName
    key, volumes = spec_key(spec)
    labels = tuple([entry for entry in meta.labels if not entry.startswith(_PLACEMENT)])
    return PodRecord(
        namespace,
        meta.name,
        meta.uid,
        node,
        float(meta.creationTimestamp.seconds),
        ready_since,
        meta.HasField("deletionTimestamp"),
        status.phase,
        ready,
        owner_kind,
        owner_group,
        owner_name,
        owner_uid,
        len(references) > 0,
        _annotations(meta.annotations),
        (namespace, owner_uid, b"".join(labels), key),
        lambda: (strings(labels), scheduling_spec(spec, volumes)),
    )


def _annotations(entries: Any) -> PodAnnotations:
    """Return the annotations that matter; the names of the others are only looked at.

    An entry is the tag of the key, its length, the key ...; a name of 128 bytes or more has a longer
    length, but none that matters is so long.
    """
    found: dict[str, str] = {}
    for entry in entries:
        field = _FIELD_OF.get(entry[2 : 2 + entry[1]]) if len(entry) > 1 else None
        if field is not None:
            found[field] = message("StringEntry").FromString(entry).value
    return PodAnnotations(**found) if found else NO_ANNOTATIONS
