"""How well comparisons use two processes, and what one cluster costs, from which follows what many cost.

``python -m benchmarks.fleet.efficiency``: 200 snapshots of 12 to 300 nodes by 4 policies by 5 draws, once in this process and once in two
processes of it (``--ray``: two workers of a local Ray, which needs the extra ``ray``), in turns by snapshots; efficiency is the time of one,
divided by twice the time of two. It takes a quiet machine with two cores, and hours: ``--snapshots 16 --draws 1`` is a sample. At the end of each round one of the processes has nothing left, which the
whole has once only; and the CPU seconds, which other work on the machine hardly changes, say what two processes cost more than one.
``--one 500`` plays one cluster of 500 nodes instead and prints its CPU seconds.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.phases.families import cluster_of
from rebalancer.fleet.compare import Inputs, list_tasks
from rebalancer.fleet.engines import LOCAL, InProcess, Processes, RayTasks, TaskEngine
from rebalancer.fleet.task import Failure, Row, Rules, Task, TaskSetting
from rebalancer.snapshot.columns import Floats

_HEAD = "apiVersion: rebalancer/v1\nkind: Policy\nmode: enforce\n"
_POLICIES = {
    "spread": "strategies: {topology-spread: {}}\n",
    "timid": "eagerness: timid\nstrategies: {topology-spread: {}, duplicates: {}}\n",
    "eager": "eagerness: eager\nstrategies: {topology-spread: {}, duplicates: {}}\n",
    "all": "strategies: {topology-spread: {}, duplicates: {}, anti-affinity: {}}\n",
}
_PODS_OF_A_NODE = 10
_ROUND = 16
"""Snapshots that both engines play before the next ones: what else the machine does is the same for both."""


def main() -> None:
    """Print a line for each round, and the efficiency over all of them."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fleet.efficiency", description=__doc__
    )
    parser.add_argument("--snapshots", type=int, default=200)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--cycles", type=int, default=10, help="runs of a simulation at most")
    parser.add_argument("--ray", action="store_true", help="two workers of a local Ray")
    parser.add_argument("--one", type=int, metavar="NODES", help="play one cluster of that size")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if chosen.one is not None:
            _one(Path(folder), chosen.one, chosen.seed, chosen.cycles)
            return
        _rounds(Path(folder), chosen)


def _rounds(folder: Path, chosen: argparse.Namespace) -> None:
    draw = random.Random(chosen.seed)
    sizes = [draw.randint(12, 300) for _ in range(chosen.snapshots)]
    alone, both = np.zeros(2), np.zeros(2)
    for start in range(0, len(sizes), _ROUND):
        files = [
            _write(folder, number, sizes[number], chosen.seed)
            for number in range(start, min(start + _ROUND, len(sizes)))
        ]
        tasks = _tasks(files, _POLICIES, chosen.draws, chosen.seed, chosen.cycles)
        first, results = _play(InProcess(), tasks)
        second, again = _play(RayTasks(LOCAL, 2) if chosen.ray else Processes(2), tasks)
        if results != again:
            sys.exit("two workers have other results than one")
        alone, both = alone + first, both + second
        sys.stdout.write(
            f"{start + len(files)} snapshots: {len(tasks)} simulations, {first[0]:.1f} s in one process, {second[0]:.1f} s in two workers\n"
        )
        sys.stdout.flush()
    by_time, by_cpu = alone / (np.array([2, 1]) * both)
    # Ray's workers are no children of this process.
    of_cpu = "" if chosen.ray else f", {by_cpu:.3f} by CPU seconds"
    sys.stdout.write(f"efficiency {by_time:.3f} by time{of_cpu}\n")


def _one(folder: Path, nodes: int, seed: int, cycles: int) -> None:
    file = _write(folder, 0, nodes, seed)
    tasks = _tasks([file], {"all": _POLICIES["all"]}, 1, seed, cycles)
    before = time.process_time()
    _play(InProcess(), tasks)
    sys.stdout.write(
        f"{nodes} nodes, {nodes * _PODS_OF_A_NODE} pods, {cycles} runs at most: {time.process_time() - before:.1f} s of CPU\n"
    )


def _write(folder: Path, number: int, nodes: int, seed: int) -> str:
    file = folder / f"{number:03d}.json"
    file.write_bytes(cluster_of(seed + number, nodes, nodes * _PODS_OF_A_NODE))
    return str(file)


def _tasks(
    files: list[str], policies: dict[str, str], draws: int, seed: int, cycles: int
) -> list[Task]:
    rules = tuple(Rules(name, _HEAD + text) for name, text in policies.items())
    setting = TaskSetting(Rules("judge", _HEAD + _POLICIES["all"]), cycles=cycles)
    return list_tasks(Inputs(rules, tuple(files), draws, seed, setting))


def _play(engine: TaskEngine, tasks: list[Task]) -> tuple[Floats, dict[int, Row]]:
    """Return the seconds (2,) of time and of CPU that all tasks took, and the results by the numbers of the tasks."""
    before = _seconds()
    results: dict[int, Row] = {}
    for result in engine.run(iter(tasks)):
        if isinstance(result, Failure):
            sys.exit(f"a task failed: {result}")
        results[result.number] = result
    return _seconds() - before, results


def _seconds() -> Floats:
    """Return the time, and the CPU seconds of this process and of its children that have ended (2,)."""
    used = os.times()
    return np.array(
        [time.monotonic(), used.user + used.system + used.children_user + used.children_system]
    )


if __name__ == "__main__":
    main()
