"""The lists of a snapshot file of ours, from their pieces to objects, as a run reads those of the cluster."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from rebalancer.snapshot.archive import SnapshotArchive
from rebalancer.snapshot.collected import AFTER_PODS, Collected
from rebalancer.snapshot.file_format import API_VERSIONS, StoredList
from rebalancer.snapshot.items import ItemScanner

_ORDER = ("Pod", *(kind for kind in API_VERSIONS if kind not in ("Pod", *AFTER_PODS)), *AFTER_PODS)


def read_archive(archive: SnapshotArchive, objects: Collected) -> None:
    """Add all lists of a file to ``objects``, pods first.

    Raises:
        ValueError: one is damaged or cut off, is not what the manifest says, or holds something else; says which.
    """
    for stored in sorted(archive.manifest.lists, key=lambda one: _ORDER.index(one.kind)):
        before = objects.seen[stored.kind]
        read = _read_protobuf if stored.in_protobuf else _read_json
        try:
            read(stored, archive.pieces(stored), objects)
        except (ValueError, msgspec.DecodeError) as error:
            number = objects.seen[stored.kind] - before
            where = f"after object {number}: " if number else ""
            # What is wrong with the file itself names it already.
            what = str(error).removeprefix(f"{stored.file}: ")
            raise ValueError(f"{stored.file}: {where}{what}") from None
        count = objects.seen[stored.kind] - before
        if count != stored.objects:
            raise ValueError(
                f"{stored.file}: it has {count} objects, not the {stored.objects} of the manifest"
            )


def _read_protobuf(stored: StoredList, pieces: Iterator[bytes], objects: Collected) -> None:
    # Imported where they are used: most files are read without protobuf.
    from rebalancer.wire.protobuf.frames import ListFrames  # noqa: PLC0415
    from rebalancer.wire.protobuf.lists import KINDS, decode_run  # noqa: PLC0415
    from rebalancer.wire.protobuf.pods import pod_records  # noqa: PLC0415

    kind = stored.kind
    if kind != "Pod" and kind not in KINDS:
        raise ValueError("lists of this kind are not kept in protobuf")
    wanted = objects.controllers if kind in AFTER_PODS else None
    frames = ListFrames(length=stored.bytes)
    before = objects.seen[kind]
    for piece in pieces:
        for run in frames.feed(piece):
            if kind == "Pod":
                objects.add_pods(pod_records(run))
            else:
                objects.add_objects(kind, decode_run(kind, run, wanted))
            objects.seen[kind] = before + frames.items
    frames.close()


def _read_json(stored: StoredList, pieces: Iterator[bytes], objects: Collected) -> None:
    scanner = ItemScanner()
    for piece in pieces:
        for item in scanner.feed(piece):
            objects.add_json(stored.kind, item.text)
    if not scanner.complete or scanner.kind != f"{stored.kind}List":
        raise ValueError(f"it is no list of {stored.kind}, or cut off")
