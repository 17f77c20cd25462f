"""Whether a tuned policy beats the default one on snapshots that the search has not seen, for three kinds of drift.

- ``skew``: workloads that stand in all zones but one (``benchmarks.fleet.planted``);
- ``family``: clusters of random shape (``benchmarks.phases.families``);
- ``foreign``: a generator that this project did not make, ``--foreign FILE``: a program that prints objects as JSON lines for NODES
  PODS SEED.

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
from pathlib import Path

from benchmarks.fleet.planted import clusters
from benchmarks.phases.families import cluster_of

VARY = (
    "eagerness=timid,careful,steady,eager,relentless",
    "budgets.perRun=3%..30%",
    "strategies.low-utilisation.mode=observe,enforce",
    "strategies.duplicates.weight=0.2..2",
)


def snapshots(kind: str, number: int, seed: int, foreign: str | None) -> Iterator[str]:
    """Yield snapshot files."""
    draw = random.Random(f"{kind} {seed}")
    if kind == "skew":
        yield from clusters(draw, number)
        return
    for index in range(number):
        nodes = draw.randint(8, 20)
        if kind == "family":
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--foreign", metavar="FILE")
    parser.add_argument("--seen", type=int, default=8)
    parser.add_argument("--unseen", type=int, default=10)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", default="1")
    parser.add_argument("--only", choices=("skew", "family", "foreign"))
    options = parser.parse_args()
    kinds = ["skew", "family", *(["foreign"] if options.foreign else [])]
    kinds = [kind for kind in kinds if options.only in (None, kind)]
    for kind in kinds:
        with tempfile.TemporaryDirectory() as name:
            files = []
            number = options.seen + options.unseen
            for index, text in enumerate(snapshots(kind, number, options.seed, options.foreign)):
                file = Path(name, f"{index:02d}.json")
                file.write_text(text)
                files.append(str(file))
            args = [word for vary in VARY for word in ("--vary", vary)]
            args += ["--snapshots", *files[: options.seen], "--unseen", *files[options.seen :]]
            args += ["--trials", str(options.trials), "--draws", "1", "--cycles", "10"]
            print(f"## {kind}\n", flush=True)
            subprocess.run(
                [sys.executable, "-m", "rebalancer", "tune", *args, "--jobs", options.jobs],
                check=True,
            )


if __name__ == "__main__":
    main()
