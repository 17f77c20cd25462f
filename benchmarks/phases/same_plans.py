"""`python -m benchmarks.phases.same_plans`: a line per generated cluster with a digest of its plan.

Run it in two versions of the tree and compare the lines: equal ones are the same bytes; for the others the
figures say which plan evicts less and leaves less.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.phases.drift import planned
from benchmarks.phases.shapes import Shape, as_json, drift
from rebalancer.snapshot.load import load_snapshot

CLUSTERS = 200


def shapes(count: int, seed: int) -> Iterator[tuple[Shape, bool]]:
    """Yield shapes of 12 to 120 nodes, from nearly settled to a third wrong, and whether budgets are lifted."""
    draw = random.Random(seed)  # clusters, not secrets
    for number in range(count):
        nodes = draw.choice((12, 24, 40, 120)) if number % 10 == 0 else draw.choice((12, 24, 40))
        share = draw.choice((0.01, 0.05, 0.1, 0.3))
        shape = drift(share, nodes, nodes * draw.choice((6, 10)), hot=draw.random() < 0.5)
        # Every tenth cluster is one large owner's.
        replicas = 0 if number % 10 == 5 else draw.choice((3, 5, 10, 25))
        yield replace(shape, seed=number, replicas=replicas), draw.random() < 0.7


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the lines."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.phases.same_plans")
    parser.add_argument("--clusters", type=int, default=CLUSTERS)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    for number, (shape, lifted) in enumerate(shapes(chosen.clusters, chosen.seed)):
        snapshot = load_snapshot("-", stdin=io.BytesIO(as_json(shape)))
        plan = planned(snapshot, lifted=lifted)[0]
        left = [sum(s.cost.as_tuple()[entry] for s in plan.after.values()) for entry in range(3)]
        whole = repr((plan.moves, plan.skips, plan.after, plan.lower_bound, plan.warnings))
        line = {
            "cluster": number,
            "moves": len(plan.moves),
            "left": [round(value, 6) for value in left],
            "digest": hashlib.sha256(whole.encode()).hexdigest()[:12],
        }
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
