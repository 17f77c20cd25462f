"""Lists in protobuf that arrive in pieces: two bytes are the kind and the length of a piece."""

from __future__ import annotations

from rebalancer.wire.protobuf import BrokenListError
from rebalancer.wire.protobuf.frames import ListFrames
from rebalancer.wire.protobuf.lists import decode_run, plain_objects, strip_run
from rebalancer.wire.protobuf.pods import pod_records
from tests.fuzz.target import Target

KINDS = ("Pod", "Node", "ReplicaSet", "Deployment")


def _read(data: bytes) -> None:
    kind, size, body = KINDS[data[0] % 4 if data else 0], data[1:2], data[2:]
    piece = size[0] + 1 if size else 1
    # An envelope with the right length is hard to meet by chance: half of the inputs do without.
    frames = ListFrames(1 << 10, length=len(body) if data[:1] >= b"\x80" else None)
    for start in range(0, len(body), piece):
        for run in frames.feed(body[start : start + piece]):
            _decode(kind, run)
    frames.close()


def _decode(kind: str, run: bytes) -> None:
    if kind == "Pod":
        for record in pod_records(run):
            hash(record.key)
            record.spec()
    else:
        decode_run(kind, run)
    plain_objects(kind, run)
    strip_run(kind, run)


TARGET = Target(_read, (BrokenListError,))
