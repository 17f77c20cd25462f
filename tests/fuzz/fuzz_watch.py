"""Watch events, as JSON lines or in protobuf: two bytes are the form and kind, and the length of a piece."""

from __future__ import annotations

import msgspec

from rebalancer.kube.client import JSON
from rebalancer.kube.watch import object_changes, pod_changes
from rebalancer.wire.lists import DECODED
from rebalancer.wire.protobuf import PROTOBUF
from tests.fuzz.target import Target

IN_PROTOBUF = ("Pod", "Node", "ReplicaSet", "Deployment")
IN_JSON = ("Pod", *(kind for kind in sorted(DECODED) if not kind.endswith("Metrics")))


def _read(data: bytes) -> None:
    first, size, body = data[0] if data else 0, data[1:2], data[2:]
    form, kinds = (PROTOBUF, IN_PROTOBUF) if first >= 0x80 else (JSON, IN_JSON)
    kind = kinds[first % len(kinds)]
    decoder = pod_changes(form) if kind == "Pod" else object_changes(kind, form)
    piece = size[0] + 1 if size else 1
    for start in range(0, len(body), piece):
        for _ in decoder.feed(body[start : start + piece]):
            pass


TARGET = Target(_read, (msgspec.DecodeError, ValueError))
