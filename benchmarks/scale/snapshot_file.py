"""`python -m benchmarks.scale.snapshot_file --pods 450000 FILE`: a big cluster, pods first.

FILE ending in .zip becomes a snapshot of ours from the server's protobuf, any other API JSON.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.scale.fill import OPTIONS, Originals, entries
from benchmarks.scale.shape import Shape
from benchmarks.scale.varied import varied
from rebalancer.snapshot.store import Capture, SnapshotWriter
from rebalancer.wire.protobuf.frames import ProtobufChange
from rebalancer.wire.protobuf.lists import strip_run
from tests.controlplane.cluster import ControlPlane

_PODS = "/registry/pods/"


def write(target: Path, shape: Shape, *, names_vary: bool = False) -> int:
    """Write a list as ``kubectl get ... -o json`` would print it; return the number of objects."""
    with ControlPlane(OPTIONS) as plane:
        originals = Originals(plane, shape, accept="application/json")
    count = 0
    with target.open("wb") as stream:
        stream.write(
            b'{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":['
        )
        # Two passes rather than half a million objects in memory: pods first, as in our own files.
        for pods in (True, False):
            for text in _texts(shape, originals, pods=pods):
                stream.write((b",\n" if count else b"\n") + (varied(text) if names_vary else text))
                count += 1
        stream.write(b"\n]}\n")
    return count


_KIND_OF = {
    "pods": "Pod",
    "minions": "Node",
    "deployments": "Deployment",
    "replicasets": "ReplicaSet",
}
"""Part of a key in etcd -> kind; the others are left out, as they are a handful, or not kept in protobuf."""


def write_ours(target: Path, shape: Shape) -> int:
    """Write a snapshot of ours as `rebalancer snapshot` would; return the number of objects."""
    with ControlPlane(OPTIONS) as plane:
        originals = Originals(plane, shape)
    with target.open("wb") as stream, SnapshotWriter(stream) as writer:
        lists = [
            writer.write_protobuf(kind, _runs(shape, originals, part, kind))
            for part, kind in _KIND_OF.items()
        ]
        capture = Capture(time.time(), (1, 36), "1", tuple(_KIND_OF.values()), "benchmark")
        writer.close(capture, lists)
    return sum(one.objects for one in lists)


def _runs(shape: Shape, originals: Originals, part: str, kind: str) -> Iterator[tuple[bytes, int]]:
    for key, value in entries(shape, originals):
        if key.split("/")[2] == part:
            yield strip_run(kind, ProtobufChange("ADDED", value).run)


def _texts(shape: Shape, originals: Originals, *, pods: bool) -> Iterator[bytes]:
    return (
        text.rstrip() for key, text in entries(shape, originals) if key.startswith(_PODS) is pods
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.snapshot_file")
    parser.add_argument("--nodes", type=int, help="default: one for 30 pods")
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--lean", action="store_true")
    parser.add_argument("--varied", action="store_true", help="names and values of many lengths")
    parser.add_argument("target", type=Path)
    chosen = parser.parse_args(arguments)
    nodes = chosen.nodes or max(3, chosen.pods // 30)
    shape = Shape(nodes=nodes, pods=chosen.pods, lean=chosen.lean)
    if chosen.target.suffix == ".zip":
        print(write_ours(chosen.target, shape), "objects")
        return 0
    print(write(chosen.target, shape, names_vary=chosen.varied), "objects")
    return 0


if __name__ == "__main__":
    sys.exit(main())
