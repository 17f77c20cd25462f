"""Consolidation by money on random mixed groups, in the simulation: what is saved, beside an integer programme.

python -m benchmarks.consolidation.money --clusters 100

Of the random clusters of ``clusters.py`` each node is on demand or Spot, so that its price for an hour is that of its
processors, or a third of it, give or take a tenth.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from benchmarks.consolidation.__main__ import pods_on, simulate
from benchmarks.consolidation.clusters import Cluster, cluster
from benchmarks.consolidation.optimum import most_saved
from rebalancer.testing.snapshots import Manifest, snapshot_of

_LABEL = "hourly"
_POLICY = """
apiVersion: rebalancer/v1
kind: Policy
steer: marks
eagerness: {eagerness}
{prices}
strategies: {{consolidation: {{}}}}
"""
_EACH = 0.05
"""Of a processor on demand, for an hour."""


def draw_priced(seed: int) -> tuple[Cluster, NDArray[np.float64]]:
    """Return the cluster of a seed, and the price of each of its nodes (N,), which is in a label, too."""
    of = cluster(seed)
    random = np.random.default_rng([seed, 1])
    objects: list[Manifest] = []
    for one in of.objects:
        labels: dict[str, str] = {}
        if one["kind"] == "Node":
            cores = int(one["status"]["allocatable"]["cpu"])
            factor = random.choice([1.0, 1 / 3]) * random.uniform(0.9, 1.1)
            labels[_LABEL] = f"{_EACH * cores * factor:.4f}"
        metadata = one["metadata"]
        every = {**metadata.get("labels", {}), **labels}
        objects.append({**one, "metadata": {**metadata, "labels": every}})
    snapshot = snapshot_of(objects)
    nodes = range(len(snapshot.nodes))
    hourly = np.array([float(snapshot.nodes.labels.of(node)[_LABEL]) for node in nodes])
    return replace(of, objects=objects, snapshot=snapshot), hourly


def main() -> None:
    """Print a row per cluster, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--eagerness", default="careful")
    parser.add_argument("--blind", action="store_true", help="do not tell the policy the prices")
    options = parser.parse_args()
    prices = "" if options.blind else f"prices: {{label: {_LABEL}}}"
    policy = _POLICY.format(eagerness=options.eagerness, prices=prices).encode()
    _write("| seed | nodes | saved | possible | share | evictions | fewest moves |")
    _write("|---" * 7 + "|")
    shares: list[float] = []
    moves: list[float] = []
    for seed in range(options.first, options.first + options.clusters):
        of, hourly = draw_priced(seed)
        world, course = simulate(of, policy, set())
        saved = float(hourly[pods_on(of, world.node) == 0].sum())
        evictions = sum(cycle.evictions for cycle in course.cycles)
        possible, at_most, fewest = most_saved(of, hourly)
        shares.append(saved / possible if possible else 1.0)
        moves.append(evictions / max(1, fewest))
        proven = "" if at_most - possible < 1e-4 else f" (at most {at_most:.4f})"
        _write(
            f"| {seed} | {len(hourly)} | {saved:.4f} | {possible:.4f}{proven} | {shares[-1]:.3f} | {evictions} | {fewest} |"
        )
    _write(
        f"\n{len(shares)} clusters: {median(shares):.3f} of the possible savings on the median, {min(shares):.3f} at worst,"
        f" {np.mean(shares):.3f} on average, with {median(moves):.2f} times the moves of the optimum on the median"
    )


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
