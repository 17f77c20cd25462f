"""Writes objects in protobuf as the API server does, from the fields of their JSON; for tests."""

from __future__ import annotations

from typing import Any

from rebalancer.wire.protobuf.schema import message

MAGIC = b"k8s\x00"
_TYPE_META = b"\x0a\x0b\x0a\x02v1\x12\x05Thing"


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def field(number: int, value: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def listed(
    items: list[bytes], *, version: str = "7", token: str = "", unread: bytes = b""
) -> bytes:
    """The body of an answer: a list of items, with fields in each that no reader of ours declares."""
    meta = field(2, version.encode()) + (field(3, token.encode()) if token else b"")
    raw = field(1, meta) + b"".join(field(2, item + unread) for item in items)
    return MAGIC + _TYPE_META + field(2, raw) + field(3, b"") + field(4, b"")


def entries(of: dict[str, str]) -> list[bytes]:
    """A map of strings, entry by entry."""
    return [field(1, key.encode()) + field(2, value.encode()) for key, value in of.items()]


def encoded(name: str, **fields: Any) -> bytes:
    """A message of ``objects.proto``."""
    return bytes(message(name)(**fields).SerializeToString())


def pod(
    name: str = "a", *, node: str = "n1", spec: dict[str, Any] | None = None, **meta: Any
) -> bytes:
    """A running pod; further fields of its metadata."""
    labels, annotations = (entries(meta.pop(part, {})) for part in ("labels", "annotations"))
    return encoded(
        "Pod",
        metadata={
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "labels": labels,
            "annotations": annotations,
            "creationTimestamp": {"seconds": 1_790_000_000},
            **meta,
        },
        spec={"nodeName": node, "schedulerName": "default-scheduler", **(spec or {})},
        status={
            "phase": "Running",
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "lastTransitionTime": {"seconds": 1_790_000_060},
                }
            ],
        },
    )
