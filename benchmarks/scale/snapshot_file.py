"""`python -m benchmarks.scale.snapshot_file --pods 450000 FILE`: a big cluster as API JSON, pods first."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.scale.fill import OPTIONS, Originals, entries
from benchmarks.scale.shape import Shape
from benchmarks.scale.varied import varied
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
    print(write(chosen.target, shape, names_vary=chosen.varied), "objects")
    return 0


if __name__ == "__main__":
    sys.exit(main())
