"""Convert pods in protobuf to records, as from JSON, without parsing parts that equal another pod's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rebalancer.wire import objects as o
from rebalancer.wire.pods import (
    ANNOTATION_NAMES,
    NO_ANNOTATIONS,
    ContainerKind,
    ContainerState,
    PodAnnotations,
    PodCondition,
    PodRecord,
    PodState,
    says_something,
    state_of,
)
from rebalancer.wire.protobuf.podspec import (
    forget_pinned_node,
    scheduling_spec,
    spec_key,
    strings,
)
from rebalancer.wire.protobuf.schema import as_broken_list, message, share_text, text

# Copied from the node at binding (see ``rebalancer.wire.pods``): the beginnings of their entries.
_PLACEMENT = tuple(
    b"\n" + bytes([len(name)]) + name
    for name in (b"topology.kubernetes.io/zone", b"topology.kubernetes.io/region")
)
_FIELD_OF = {name.encode(): field for field, name in ANNOTATION_NAMES.items()}


def pod_records(run: bytes) -> Iterator[PodRecord]:
    """Yield the records of a run of pods (``rebalancer.wire.protobuf.frames``).

    Raises:
        BrokenListError: the run holds no pods.
    """
    with as_broken_list("these are no pods"):
        for pod in message("PodList").FromString(run).items:
            yield _record(pod)


def _record(pod: Any) -> PodRecord:
    meta, spec, status = pod.metadata, pod.spec, pod.status
    namespace = text(meta.namespace)
    owner_kind = owner_group = owner_name = owner_uid = ""
    references = meta.ownerReferences
    for reference in references:
        if reference.controller:
            owner_kind, owner_name = text(reference.kind), text(reference.name)
            owner_uid = text(reference.uid)
            owner_group = text(reference.apiVersion).rpartition("/")[0]
    ready, ready_since = False, 0.0
    for condition in status.conditions:
        if condition.type == "Ready":
            ready = condition.status == "True"
            ready_since = float(condition.lastTransitionTime.seconds)
    if owner_kind == "DaemonSet":
        forget_pinned_node(spec)
    node = text(spec.nodeName)
    key, volumes = spec_key(spec)
    labels = tuple([entry for entry in meta.labels if not entry.startswith(_PLACEMENT)])
    return PodRecord(
        namespace,
        text(meta.name),
        text(meta.uid),
        node,
        float(meta.creationTimestamp.seconds),
        ready_since,
        meta.HasField("deletionTimestamp"),
        text(status.phase),
        ready,
        owner_kind,
        owner_group,
        owner_name,
        owner_uid,
        len(references) > 0,
        _annotations(meta.annotations),
        (namespace, owner_uid, b"".join(labels), key),
        lambda: _spec(labels, spec, volumes),
        _state(status),
    )


def _state(status: Any) -> PodState:
    by_kind = (
        (ContainerKind.REGULAR, status.containerStatuses),
        (ContainerKind.INIT, status.initContainerStatuses),
        (ContainerKind.EPHEMERAL, status.ephemeralContainerStatuses),
    )
    containers = [
        _container(kind, each)
        for kind, statuses in by_kind
        for each in statuses
        if each.restartCount or not each.ready
    ]
    conditions = [
        PodCondition(
            share_text(each.type),
            share_text(each.status),
            share_text(each.reason),
            float(each.lastTransitionTime.seconds),
        )
        for each in status.conditions
        if says_something(each.type, each.status, each.reason)
    ]
    return state_of(
        share_text(status.phase),
        text(status.reason),
        tuple(containers),
        tuple(conditions),
        share_text(status.nominatedNodeName),
    )


def _container(kind: ContainerKind, status: Any) -> ContainerState:
    state = status.state
    ended = state.terminated
    return ContainerState(
        kind,
        status.restartCount,
        share_text(state.waiting.reason),
        share_text(ended.reason),
        ended.exitCode if state.HasField("terminated") else None,
    )


def _spec(
    labels: Sequence[bytes], spec: Any, volumes: Sequence[Any]
) -> tuple[o.Labels, o.SchedulingSpec]:
    with as_broken_list("this is no pod"):
        return strings(labels), scheduling_spec(spec, volumes)


def _annotations(entries: Any) -> PodAnnotations:
    """Return the annotations in use; of others only the names are read.

    Each entry starts with a tag and the length of its key. The length has one byte for a key of up to 127 bytes, and
    every annotation in use has such a key.
    """
    annotations: dict[str, str] = {}
    for entry in entries:
        field = _FIELD_OF.get(entry[2 : 2 + entry[1]]) if len(entry) > 1 else None
        if field is not None:
            annotations[field] = text(message("StringEntry").FromString(entry).value)
    return PodAnnotations(**annotations) if annotations else NO_ANNOTATIONS
