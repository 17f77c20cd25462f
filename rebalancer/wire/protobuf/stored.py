"""Runs of a list as stored in a snapshot file: the server's bytes without possible secrets."""

from __future__ import annotations

from typing import Any

from rebalancer.wire.protobuf.schema import as_broken_list, message_of_stored

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
