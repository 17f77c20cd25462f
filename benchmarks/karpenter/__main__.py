"""A day of load on Karpenter's own nodes: Karpenter alone, beside the descheduler, beside ours.

python -m benchmarks.karpenter --seeds 0,1 --hour 12

Each seed is a day: each hour takes `--hour` seconds, and Karpenter's consolidateAfter is an hour. A contender runs each hour,
as a CronJob would. After the day the load stays as it is, and what is still evicted after six more hours is counted as not silent.
A row per day and contender goes to `--out` as a line of JSON, and is not played again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.decisions.contenders import Contender, Ours, Peer, default_policy
from benchmarks.karpenter.day import HOURS, Workload, workloads
from benchmarks.karpenter.witness import Counts, Witness
from tests.controlplane import ControlPlane, Options, audit
from tests.e2e.product import grant
from tests.karpenter import manager

_QUIET_AFTER, _QUIET_FOR = 6, 4
"""Hours after the day until it is to be silent, and for which that is looked at."""
_SOON = 4
"""Hours within which Karpenter undoes an eviction."""
_TYPES = tuple(f"s-{size}x-amd64-linux" for size in (2, 4, 8))
_SPREADS = ("low-utilisation",)


def _unaware(plane: ControlPlane, _: Path) -> Path:
    """Return a kubeconfig of an account that may not read NodeClaims."""
    return grant(plane)


def _admin(plane: ControlPlane, _: Path) -> Path:
    return Path(plane.kubeconfig)


Access = Callable[[ControlPlane, Path], Path]
_CONTENDERS: Mapping[str, tuple[Callable[[Path], Contender | None], Access]] = {
    "Karpenter alone": (lambda _: None, _admin),
    "with the descheduler": (Peer, _admin),
    "with ours": (lambda folder: Ours(folder, policy=default_policy()), _admin),
    "with ours (values-karpenter.yaml)": (
        lambda folder: Ours(folder, policy=default_policy(without=_SPREADS)),
        _admin,
    ),
    "with ours (NodeClaims not read)": (
        lambda folder: Ours(folder, policy=default_policy()),
        _unaware,
    ),
}


def play(name: str, day: Sequence[Workload], hour: float) -> Counts:
    """Play a day with one contender on a new control plane."""
    made, access = _CONTENDERS[name]
    logged = audit.policy({"verbs": ["create"], "resources": [_EVICTIONS]})
    options = Options(audit_policy=logged, pod_grace_cap=min(2.0, hour / 6))
    with tempfile.TemporaryDirectory(prefix="karpenter-") as scratch:
        folder = Path(scratch)
        contender = made(folder)
        with ControlPlane(options) as plane, manager.running(plane, folder):
            kubeconfig = access(plane, folder)
            pool = manager.node_pool(types=_TYPES, after=f"{round(hour)}s")
            plane.apply([manager.node_class(delay=f"{max(1, round(hour / 12))}s"), pool])
            plane.apply(one for workload in day for one in workload.objects)
            with Witness(plane, [one.name for one in day if one.spreads]) as witness:
                ends = _play_hours(plane, day, contender, kubeconfig, hour)
                quiet_from = ends + _QUIET_AFTER * hour
            return witness.count(hour, ends, _SOON * hour, quiet_from)


_EVICTIONS = {"group": "", "resources": ["pods/eviction"]}


def _play_hours(
    plane: ControlPlane,
    day: Sequence[Workload],
    contender: Contender | None,
    kubeconfig: Path,
    hour: float,
) -> float:
    """Change the load hour by hour, with a run of the contender in each; return when the load has stopped to change.

    As with a CronJob, a run that takes longer than an hour lets the next one fall out.
    """
    began, running = time.time(), None
    with ThreadPoolExecutor(1) as pool:
        for number in range(HOURS + _QUIET_AFTER + _QUIET_FOR):
            if number < HOURS:
                for one in day:
                    path = f"/apis/apps/v1/namespaces/default/deployments/{one.name}"
                    plane.api.patch(path, {"spec": {"replicas": one.replicas[number]}})
            # In the middle of the hour, when what the load has changed has happened.
            _sleep_until(began + (number + 0.5) * hour)
            if contender is not None and (running is None or running.done()):
                _ = running and running.result()
                running = pool.submit(contender.run, kubeconfig)
            _sleep_until(began + (number + 1) * hour)
        _ = running and running.result()
    return began + HOURS * hour


def _sleep_until(at: float) -> None:
    time.sleep(max(0.0, at - time.time()))


_COLUMNS: Mapping[str, str] = {
    "by_others": "evictions by it",
    "by_karpenter": "by Karpenter",
    "undone": "undone by Karpenter",
    "kept": "landings on empty nodes",
    "held": "nodes held by its landings alone later",
    "node_hours": "node hours",
    "price": "price of the day",
    "pending_hours": "pod hours pending",
    "skew": "mean skew of zones",
    "late_by_others": "late evictions by it",
    "late_by_karpenter": "late by Karpenter",
}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the means over the days, a row per contender."""
    lines = [f"| | days | {' | '.join(_COLUMNS.values())} |", "|---" * (len(_COLUMNS) + 2) + "|"]
    for name in _CONTENDERS:
        mine = [row for row in rows if row["contender"] == name]
        if mine:
            cells = [f"{mean(row[key] for row in mine):.3g}" for key in _COLUMNS]
            lines.append(f"| {name} | {len(mine)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> None:
    """Play the days that were not played yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0", help="by commas")
    parser.add_argument("--hour", type=float, default=150.0, help="seconds; a day of an hour: 150")
    parser.add_argument("--only", help="contenders, by commas", default=",".join(_CONTENDERS))
    parser.add_argument("--out", type=Path, default=Path(".cache/karpenter.jsonl"))
    given = parser.parse_args(argv)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.touch()
    rows = [json.loads(line) for line in given.out.read_text().splitlines()]
    played = {(row["seed"], row["hour"], row["contender"]) for row in rows}
    for seed in map(int, given.seeds.split(",")):
        for name in given.only.split(","):
            if (seed, given.hour, name) in played:
                continue
            counts = play(name, workloads(seed), given.hour)
            row = {"seed": seed, "hour": given.hour, "contender": name, **asdict(counts)}
            with given.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            rows.append(row)
            sys.stderr.write(f"{row}\n")
    print(table([row for row in rows if row["hour"] == given.hour]))


if __name__ == "__main__":
    main(sys.argv[1:])
