"""Consolidation on random clusters, in the simulation: nodes emptied, beside the bound and an integer programme.

python -m benchmarks.consolidation --clusters 40

"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import mean, median

import numpy as np

from benchmarks.consolidation.clusters import Cluster, cluster
from benchmarks.consolidation.optimum import most_emptied
from rebalancer.base.environment import SystemClock, Timings
from rebalancer.planner.rules import RunRules
from rebalancer.planner.scheduler_profile import scheduler_profile
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from rebalancer.snapshot.protect import Scope
from rebalancer.whatif.cycles import Loop, LoopPace, Simulation
from rebalancer.whatif.world import SimulatedCluster

_POLICY = b"""
apiVersion: rebalancer/v1
kind: Policy
steer: marks
eagerness: %s
strategies: {consolidation: {}}
"""
_CYCLES = 60


@dataclass(frozen=True, slots=True)
class Result:
    """What happened to one cluster."""

    seed: int
    nodes: int
    pods: int
    empty: int
    """Nodes without pods, but for DaemonSets', at first."""
    emptied: int
    """The same at the end."""
    possible: int
    proven: bool
    bound: int
    """Nodes that could be without pods by the lower bound of the report."""
    evictions: int
    twice: int
    silent: bool
    later: int
    """Moves that a run a day later would make."""
    half: int
    """Nodes with fewer pods than at first that are not empty, and were marked at some time."""


def play(of: Cluster, seed: int, eagerness: str, *, drawn: bool) -> Result:
    """Return what happened to the cluster of a seed."""
    random = np.random.default_rng(seed) if drawn else None
    marked: set[str] = set()
    world, course = simulate(of, _POLICY % eagerness.encode(), marked, random)
    before, after = pods_on(of, of.snapshot.pods.node), pods_on(of, world.node)
    half = sum(
        0 < after[n] < before[n] and name in marked
        for n, name in enumerate(of.snapshot.nodes.names)
    )
    possible, at_most = most_emptied(of)
    return Result(
        seed=seed,
        nodes=len(of.snapshot.nodes),
        pods=int(before.sum()),
        empty=int((before == 0).sum()),
        emptied=int((after == 0).sum()),
        possible=possible,
        proven=possible == at_most,
        bound=len(of.snapshot.nodes) - _needed(course),
        evictions=sum(cycle.evictions for cycle in course.cycles),
        twice=course.cycles[-1].moved_twice,
        silent=course.silent is not None,
        later=course.later,
        half=half,
    )


def simulate(
    of: Cluster, policy: bytes, marked: set[str], random: np.random.Generator | None = None
) -> tuple[SimulatedCluster, Simulation]:
    """Return the cluster at the end of the simulation, and its course; adds the names of nodes that were marked to ``marked``.

    ``random``: draws landings among equals; None: the first of them.
    """
    registry = Registry.installed()
    loaded = load_text(policy, "benchmark", registry)
    world = SimulatedCluster(of.snapshot, lambda one: scheduler_profile(loaded.policy, one), random)
    keep = world.keep_marked

    def remembered(reason: str, names: Collection[str]) -> None:
        marked.update(names)
        keep(reason, names)

    world.keep_marked = remembered  # type: ignore[method-assign]
    loop = Loop(
        world,
        RunRules(loaded, registry, Scope()),
        LoopPace(cycles=_CYCLES),
        Timings(SystemClock()),
        windows=False,
    )
    return world, loop.run()


def _needed(course: Simulation) -> int:
    count = course.cycles[0].before["consolidation"].nodes
    return count.needed if count is not None else 0


def pods_on(of: Cluster, node: np.ndarray) -> np.ndarray:
    per_node = np.array([cls.per_node for cls in of.snapshot.classes])
    mine = ~per_node[of.snapshot.pods.cls]
    return np.bincount(node[mine], minlength=len(of.snapshot.nodes))


def main() -> None:
    """Print a row per cluster, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--eagerness", default="careful")
    parser.add_argument("--drawn", action="store_true", help="Draw landings among equals.")
    options = parser.parse_args()
    results = []
    print(
        "| seed | nodes | pods | empty at first | emptied | possible | by the bound | evictions | moved twice | half emptied | silent | a day later |"
    )
    print("|---" * 12 + "|")
    for seed in range(options.first, options.first + options.clusters):
        one = play(cluster(seed), seed, options.eagerness, drawn=options.drawn)
        results.append(one)
        possible = f"{one.possible}" + ("" if one.proven else " at most")
        print(
            f"| {one.seed} | {one.nodes} | {one.pods} | {one.empty} | {one.emptied} | {possible} | {one.bound} |"
            f" {one.evictions} | {one.twice} | {one.half} | {'yes' if one.silent else 'no'} | {one.later} |",
            flush=True,
        )
    _sums(results)


def _sums(results: Sequence[Result]) -> None:
    emptied, possible = sum(one.emptied for one in results), sum(one.possible for one in results)
    new = sum(one.emptied - one.empty for one in results)
    evictions = sum(one.evictions for one in results)
    shares = [one.emptied / one.possible for one in results if one.possible]
    print(
        f"\n{len(results)} clusters: {emptied} nodes emptied of {possible} possible ({emptied / max(1, possible):.3f};"
        f" per cluster {median(shares):.3f} on the median, {min(shares):.3f} at worst, {mean(shares):.3f} on average),"
        f" {sum(one.bound for one in results)} by the bound; {evictions} evictions, {evictions / max(1, new):.1f} for each"
        f" node that had pods; {sum(one.twice for one in results)} pods moved more than once;"
        f" {sum(one.silent for one in results)} silent; {sum(one.later for one in results)} moves a day later;"
        f" {sum(one.half for one in results)} nodes half emptied"
    )


if __name__ == "__main__":
    main()
