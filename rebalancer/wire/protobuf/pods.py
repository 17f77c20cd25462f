"""Convert pods in protobuf to records, as from JSON, without parsing parts that equal another pod's."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

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
    count_resized,
    is_as_created,
    is_infeasible,
    says_something,
    state_of,
)
from rebalancer.wire.protobuf.schema import (
    as_broken_list,
    message,
    plain,
    plain_volume,
    share_text,
    text,
    to_struct,
)

_MEMO = 4096
"""Tolerations and requests repeat from workload to workload; affinity and spread mostly do not."""


def spec_key(spec: Any) -> tuple[Hashable, list[Any]]:
    """Return a key that is equal for pods of one controller and one class, and the volumes of the spec.

    The key is the spec serialised again without undeclared fields, volumes (most have names of their own) and node:
    a third of the time of reading each field. ``spec`` is modified accordingly.
    """
    volumes = [volume for volume in spec.volumes if _volume_key(volume) is not None]
    spec.ClearField("volumes")
    spec.ClearField("nodeName")
    spec.DiscardUnknownFields()
    own = spec.SerializePartialToString()
    return ((own, *map(_volume_key, volumes)) if volumes else own), volumes


def _volume_key(volume: Any) -> Hashable:
    """Return a key for equal volumes; None for kinds without effect (configMap, secret, projected)."""
    source = volume.volumeSource
    fields = source.ListFields()
    if not fields:
        return None
    if source.HasField("persistentVolumeClaim"):
        claim = source.persistentVolumeClaim
        return ("claim", claim.claimName, claim.readOnly)
    if source.HasField("ephemeral"):
        return ("ephemeral", volume.name)
    if source.HasField("image"):
        return ("image", source.image.reference)
    if source.HasField("emptyDir"):
        return ("emptyDir", source.emptyDir.medium, source.emptyDir.sizeLimit.string)
    (kind, _), *_ = fields
    return (
        to_struct(getattr(source, kind.name), o.DISKS[kind.name])
        if kind.name in o.DISKS
        else kind.name
    )


def forget_pinned_node(spec: Any) -> None:
    """Drop the node affinity that pins a DaemonSet pod to its node, once the pod is bound.

    With it, each such pod would be a class of its own; bound DaemonSet pods are never moved. A pending one needs it.
    """
    if not spec.nodeName:
        return
    affinity = message("Affinity").FromString(spec.affinity)
    if not (affinity.HasField("podAffinity") or affinity.HasField("podAntiAffinity")):
        spec.ClearField("affinity")


def count_resized_in(spec: Any, status: Any) -> None:
    """Replace the requests by those that count on the node of a pod that was resized in place."""
    infeasible = any(is_infeasible(each.type, each.reason) for each in status.conditions)
    sidecars = [one for one in spec.initContainers if one.restartPolicy == "Always"]
    by_name = {of.name: of for of in (*status.containerStatuses, *status.initContainerStatuses)}
    for container in (*spec.containers, *sidecars):
        if (of := by_name.get(container.name)) is not None:
            _count_resized(container, of, infeasible=infeasible)
    if spec.HasField("resources"):
        _count_resized(spec, status, infeasible=infeasible)


def _count_resized(has: Any, of: Any, *, infeasible: bool) -> None:
    """Replace the resources of a container, or of a spec, by those that count; ``of``: the status."""
    if not of.HasField("resources") or of.resources == has.resources:
        return
    counted = count_resized(
        _resources(has.resources) if has.HasField("resources") else None,
        _resources(of.resources),
        _quantities(of.allocatedResources),
        infeasible=infeasible,
    )
    if counted is not None:
        made = message("ResourceRequirements")()
        for field, amounts in ((made.requests, counted.requests), (made.limits, counted.limits)):
            for name, amount in (amounts or {}).items():
                field[name].string = str(amount)
        has.resources = made.SerializePartialToString(deterministic=True)


_EMPTY_IF_UNSET = ("priorityClassName", "schedulerName", "restartPolicy")
"""Fields that the server also sends empty, where JSON leaves them out."""


def scheduling_spec(spec: Any, volumes: Sequence[Any]) -> o.SchedulingSpec:
    """Return a PodSpec with these volumes as the same struct that JSON yields; its own are cleared.

    Raises:
        google.protobuf.message.DecodeError: a part of the spec is damaged.
    """
    ours = [plain_volume(volume) for volume in volumes if _volume_key(volume) is not None]
    spec.ClearField("volumes")
    fields = plain(spec)
    for name in _EMPTY_IF_UNSET:
        if not fields.get(name):
            fields.pop(name, None)
    return msgspec.convert({"initContainers": (), **fields, "volumes": ours}, o.SchedulingSpec)


def strings(entries: Iterable[bytes]) -> dict[str, str]:
    """Return the entries of a map of strings as a dict."""
    parse = message("StringEntry").FromString
    parsed = map(parse, entries)
    return {share_text(entry.key): share_text(entry.value) for entry in parsed}


def _quantities(entries: Iterable[bytes]) -> dict[str, str | int | float]:
    parsed = map(message("QuantityEntry").FromString, entries)
    return {text(entry.key): text(entry.value.string) for entry in parsed}


@lru_cache(_MEMO)
def _resources(item: bytes) -> o.ResourceRequirements:
    return to_struct(message("ResourceRequirements").FromString(item), o.ResourceRequirements)


# Copied from the node at binding (see ``rebalancer.wire.pods``): the beginnings of their entries.
_PLACEMENT = tuple(
    b"\n" + bytes([len(name)]) + name
    for name in (b"topology.kubernetes.io/zone", b"topology.kubernetes.io/region")
)
_FIELD_OF = {name.encode(): field for field, name in ANNOTATION_NAMES.items()}


def pod_records(run: bytes) -> Iterator[PodRecord]:
    """Yield the records of a run of pods (``rebalancer.wire.protobuf.frames``).

    Raises:
        BrokenListError: the run contains no pods.
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
    deleting = meta.HasField("deletionTimestamp")
    as_created = is_as_created(meta.generation, deleting=deleting)
    if not as_created:
        count_resized_in(spec, status)
    key, volumes = spec_key(spec)
    labels = tuple([entry for entry in meta.labels if not entry.startswith(_PLACEMENT)])
    return PodRecord(
        namespace,
        text(meta.name),
        text(meta.uid),
        node,
        float(meta.creationTimestamp.seconds),
        ready_since,
        deleting,
        text(status.phase),
        ready,
        owner_kind,
        owner_group,
        owner_name,
        owner_uid,
        len(references) > 0,
        _annotations(meta.annotations),
        (namespace, owner_uid, b"".join(labels), key, as_created),
        lambda: _spec(labels, spec, volumes),
        _state(status, float(meta.deletionTimestamp.seconds)),
        as_created,
    )


def _state(status: Any, gone_by: float) -> PodState:
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
        gone_by,
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
