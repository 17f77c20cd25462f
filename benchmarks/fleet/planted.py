"""Comparisons whose right answer is known: one policy is better by construction, or none is.

A draw is a truth (which measure, which policy), a number of snapshots and their clusters, all from one seed:

- ``repair``: workloads stand skewed over the zones; one policy spreads them, the other has nothing to do with zones.
  Planted: it leaves less for soft rules.
- ``churn``: both spread, one also replaces pods that are older than an hour. Planted: the other evicts fewer pods.
- ``pace``: both spread, one may evict one pod per run. Planted: the other needs fewer runs.
- ``none``: one policy under two names, with landings drawn anew for each. Planted: no winner in any measure.

``python -m benchmarks.fleet.planted --draws 40``: right if the planted measure names the planted policy (``none``: if
nothing is named).
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from rebalancer.fleet.comparison import Comparison, Inputs, compare_rows, list_tasks
from rebalancer.fleet.simulation import Failure, Row, Rules, Task, TaskSetting, play_all
from rebalancer.testing.snapshots import node, spread, workload

HEAD = "apiVersion: rebalancer/v1\nkind: Policy\nmode: enforce\n"
_SPREAD = HEAD + "strategies: {topology-spread: {}}\n"
_PLAIN = HEAD + "strategies: {taints: {}}\n"
_CHURN = HEAD + "strategies: {topology-spread: {}, lifetime: {maxPodLifeTime: 1h}}\n"
_SLOW = HEAD + "budgets: {perRun: 1}\nstrategies: {topology-spread: {}}\n"

TRUTHS = {
    "repair": (_SPREAD, _PLAIN, "softLeft"),
    "churn": (_SPREAD, _CHURN, "evictions"),
    "pace": (_SPREAD, _SLOW, "runs"),
    "none": (_SPREAD, _SPREAD, ""),
}
"""Name -> the better policy, the worse one, the measure."""


def clusters(draw: random.Random, number: int) -> Iterator[str]:
    """Yield snapshot files of random clusters, each with four workloads or more that are skewed."""
    for _ in range(number):
        zones = draw.choice((2, 3, 3, 4))
        names = [f"n-{index:02d}" for index in range(draw.randint(zones, 4 * zones))]
        nodes = [node(name, f"zone-{index % zones}") for index, name in enumerate(names)]
        skewed = [name for index, name in enumerate(names) if index % zones < zones - 1]
        items = list(nodes)
        for app in range(draw.randint(4, 12)):
            name = f"app-{app}"
            on = [draw.choice(skewed) for _ in range(draw.randint(3, 8))]
            items += workload(name, on, spec=spread(name), cpu=f"{draw.choice((50, 100, 200))}m")
        yield json.dumps({"kind": "List", "items": items})


def tasks_of(truth: str, seed: int, folder: Path, *, draws: int = 2) -> list[Task]:
    """Write the clusters of a draw into ``folder`` and return its tasks; the policies are ``better`` and ``worse``."""
    draw = random.Random(f"{truth} {seed}")
    better, worse, _ = TRUTHS[truth]
    files = []
    for index, text in enumerate(clusters(draw, draw.randint(12, 20))):
        file = folder / f"{index:02d}.json"
        file.write_text(text)
        files.append(str(file))
    rules = (Rules("better", better), Rules("worse", worse))
    setting = TaskSetting(Rules("judge", _SPREAD), cycles=20)
    tasks = list_tasks(Inputs(rules, tuple(files), draws, seed, setting))
    # With one seed for both, two equal policies would be equal row by row: nothing could be claimed.
    return [
        msgspec.structs.replace(task, seed=(*task.seed, int(task.policy.name == "worse")))
        for task in tasks
    ]


def judge(truth: str, comparison: Comparison) -> str:
    """Return ``right``, ``not shown``, or ``wrong``."""
    named = {of.measure.key: of.better for of in comparison.verdicts if of.better}
    planted = TRUTHS[truth][2]
    if not planted:
        return "wrong" if named else "right"
    return {"better": "right", "worse": "wrong"}.get(named.get(planted, ""), "not shown")


def play_draw(truth: str, seed: int, jobs: int) -> Comparison:
    """Play and compare one draw."""
    with tempfile.TemporaryDirectory() as folder:
        results = list(play_all(tasks_of(truth, seed, Path(folder)), jobs))
    rows = [of for of in results if isinstance(of, Row)]
    failures = [of for of in results if isinstance(of, Failure)]
    return compare_rows(["better", "worse"], rows, failures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=40, help="of each truth")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", choices=TRUTHS)
    options = parser.parse_args()
    print("| truth | draws | right | not shown | wrong |\n|---|---|---|---|---|")
    for truth in [options.only] if options.only else TRUTHS:
        came: Counter[str] = Counter()
        for seed in range(options.first, options.first + options.draws):
            verdict = judge(truth, play_draw(truth, seed, options.jobs))
            came[verdict] += 1
            if verdict != "right":
                print(f"<!-- {truth} {seed}: {verdict} -->", flush=True)
        print(
            f"| {truth} | {options.draws} | {came['right']} | {came['not shown']} | {came['wrong']} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
