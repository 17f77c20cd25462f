"""Pages of lists as JSON: the first byte is the kind."""

from __future__ import annotations

import msgspec

from rebalancer.wire.lists import DECODED, decode_objects, decode_raw
from rebalancer.wire.pods import decode_page
from tests.fuzz.target import Target

KINDS = ("Pod", *sorted(DECODED))


def _read(data: bytes) -> None:
    kind, body = KINDS[(data[0] if data else 0) % len(KINDS)], data[1:]
    if kind == "Pod":
        for record in decode_page(body)[0]:
            hash(record.key)
            record.spec()
    elif kind.endswith("Metrics"):
        for measured in decode_objects(kind, body)[0]:
            measured.amounts()
    else:
        decode_objects(kind, body)
        decode_raw(body)


TARGET = Target(_read, (msgspec.DecodeError,))
