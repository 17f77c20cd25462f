"""Snapshot files: any bytes; or, where the first byte is 0, lists that are put into an archive of ours first.

A checksum is hard to meet by chance, so that mutated archives would hardly ever be read beyond it.
"""

from __future__ import annotations

import zipfile
from io import BytesIO

from rebalancer.base.errors import PolicyError
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.store import MANIFEST
from rebalancer.whatif.edits import read_objects
from tests.fuzz.target import Target, split


def _read(data: bytes) -> None:
    whole = _archive(data[1:]) if data[:1] == b"\x00" else data
    load_snapshot("-", stdin=BytesIO(whole))
    if whole.startswith(b"PK"):
        read_objects(whole).snapshot()


def _archive(data: bytes) -> bytes:
    nodes, pods, others, manifest = (*split(data), b"", b"", b"", b"")[:4]
    stream = BytesIO()
    sizes = (str(len(part)).encode() for part in (nodes, pods, others))
    for mark, size in zip((b"$n", b"$p", b"$o"), sizes, strict=True):
        manifest = manifest.replace(mark, size)
    with zipfile.ZipFile(stream, "w") as file:
        for name, text in (
            ("NodeList.json", nodes),
            ("PodList.pb", pods),
            ("others.json", others),
            (MANIFEST, manifest),
        ):
            with file.open(name, "w") as member:
                member.write(text)
    return stream.getvalue()


TARGET = Target(_read, (PolicyError,))
