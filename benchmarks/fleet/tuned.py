"""Whether a tuned policy beats the default one on snapshots that the search has not seen, for several kinds of drift.

- ``skew``: workloads that stand in all zones but one (``benchmarks.fleet.planted``);
- ``family``: clusters of random shape (``benchmarks.phases.families``);
- ``foreign``: a generator that this project did not make, ``--foreign FILE``: a program that prints objects as JSON lines for NODES
  PODS SEED;
- ``window``: three of ten pods stand badly, and there are two runs to mend it (``benchmarks.phases.shapes``);
- ``room``: pods wait that no node takes (``benchmarks.room.clusters``); the given policy is the default one with make-room that observes;
- ``shrunk``: full clusters of which many replicas are gone (``benchmarks.consolidation.clusters``).

In ``window`` and ``room`` the default is bad by construction. No policy, and nothing in the search, was made on these generators.

``python -m benchmarks.fleet.tuned --foreign FILE``: the search sees the first snapshots of each kind, the check the others.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.consolidation.clusters import cluster as shrunk_cluster
from benchmarks.fleet.planted import clusters
from benchmarks.phases.families import cluster_of
from benchmarks.phases.shapes import as_json, drift
from benchmarks.room.clusters import cluster as full_cluster

VARY = (
    "eagerness=timid,careful,steady,eager,relentless",
    "budgets.perRun=3%..30%",
    "strategies.low-utilisation.mode=observe,enforce",
    "strategies.duplicates.weight=0.2..2",
)

_ROOM = (
    "strategies.make-room.mode=observe,enforce",
    "eagerness=timid,careful,steady,eager,relentless",
    "budgets.perRun=3%..30%",
)
OWN = ("skew", "family", "window", "room", "shrunk")


def snapshots(kind: str, number: int, seed: int, foreign: str | None) -> Iterator[str]:
    """Yield snapshot files."""
    draw = random.Random(f"{kind} {seed}")
    if kind == "skew":
        yield from clusters(draw, number)
        return
    for index in range(number):
        nodes = draw.randint(8, 20)
        if kind == "window":
            # Each with a share of its own, so that no value fits them all alike.
            share = draw.choice((0.2, 0.3, 0.4))
            shape = drift(share, nodes, nodes * 12, hot=False)
            yield as_json(replace(shape, seed=seed * 1000 + index, replicas=6)).decode()
        elif kind in ("room", "shrunk"):
            objects = (
                full_cluster(seed * 1000 + index).objects()
                if kind == "room"
                else shrunk_cluster(seed * 1000 + index).objects
            )
            yield json.dumps({"kind": "List", "items": list(objects)})
        elif kind == "family":
            yield cluster_of(seed * 1000 + index, nodes, nodes * 12).decode()
        elif foreign is not None:
            words = [str(nodes), str(nodes * 15), str(seed * 1000 + index)]
            done = subprocess.run(
                [sys.executable, foreign, *words], capture_output=True, text=True, check=True
            )
            items = [json.loads(line) for line in done.stdout.splitlines()]
            for place, item in enumerate(items):
                # Evictions are by uid: without one nothing is ever evicted.
                item["metadata"].setdefault("uid", f"uid-{place}")
            yield json.dumps({"kind": "List", "items": items})


def vary_of(kind: str) -> tuple[str, ...]:
    """Return the bounds of the search for a kind of drift."""
    return _ROOM if kind == "room" else VARY


def given_for_room(folder: Path) -> str:
    """Write the default policy with make-room, which only observes; return its path."""
    changes = ["--set=steer=marks", "--set=strategies.make-room.mode=observe"]
    shown = [sys.executable, "-m", "rebalancer", "policy", "show", *changes]
    done = subprocess.run(shown, capture_output=True, text=True, check=True)
    path = folder / "given.yaml"
    path.write_text(done.stdout)
    return str(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--foreign", metavar="FILE")
    parser.add_argument("--seen", type=int, default=8)
    parser.add_argument("--unseen", type=int, default=10)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", default="1")
    parser.add_argument("--only", choices=(*OWN, "foreign"))
    options = parser.parse_args()
    kinds = [*OWN, *(["foreign"] if options.foreign else [])]
    kinds = [kind for kind in kinds if options.only in (None, kind)]
    for kind in kinds:
        with tempfile.TemporaryDirectory() as name:
            files = []
            number = options.seen + options.unseen
            for index, text in enumerate(snapshots(kind, number, options.seed, options.foreign)):
                file = Path(name, f"{index:02d}.json")
                file.write_text(text)
                files.append(str(file))
            args = [word for vary in vary_of(kind) for word in ("--vary", vary)]
            if kind == "room":
                # Not counted by default: one that gets in is worth four evictions.
                args += ["--policy", given_for_room(Path(name)), "--weigh", "waiting=2"]
            args += ["--snapshots", *files[: options.seen], "--unseen", *files[options.seen :]]
            args += ["--trials", str(options.trials), "--draws", "1"]
            args += ["--cycles", {"window": "2", "room": "3"}.get(kind, "10")]
            print(f"## {kind}\n", flush=True)
            subprocess.run(
                [sys.executable, "-m", "rebalancer", "tune", *args, "--jobs", options.jobs],
                check=True,
            )


if __name__ == "__main__":
    main()
