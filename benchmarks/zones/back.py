"""A zone is lost, comes back, and another one closes meanwhile, on a real control plane: ours beside the descheduler.

python -m benchmarks.zones.back --seeds 0,1

Nine nodes in three zones; workloads must stand evenly over the zones, each with a Service and a PodDisruptionBudget that lets one pod
be away. Two episodes for each seed. *Back*: the nodes of a zone are deleted with their pods, and come back when all pods are Ready
elsewhere; a contender runs, as a CronJob would, until a run evicts nothing, at most ten times. *Closed*: the same, but at the moment when the zone
is back another one is closed (its nodes are cordoned), as for a zonal shift; a contender runs three times, then the zone is
opened, and it goes on as before.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.decisions.contenders import Contender, Ours, Peer
from benchmarks.decisions.convergence import settle
from benchmarks.decisions.watcher import Watcher
from benchmarks.zones.witness import Witness
from tests.controlplane import ControlPlane, objects, operations

_ZONES, _NODES = "xyz", 3
_MOST_RUNS, _CLOSED_RUNS = 10, 3


@dataclass(frozen=True, slots=True)
class Episode:
    """What a contender did in one."""

    seed: int
    contender: str
    episode: str
    pods: int
    even_after: int | None
    """So many runs after the zone is back and open all is even; None: not within ten."""
    seconds: float | None
    """The same time with the waiting for pods, but not for the next run."""
    evictions: int
    while_closed: int
    """Of these, while a zone was closed."""
    silent: bool
    """Whether one of ten runs evicts nothing."""
    twice: int
    """Evictions of pods that had come for an evicted one."""
    breaches: Sequence[str]


def _workloads(seed: int) -> Mapping[str, int]:
    draw = random.Random(seed)
    return {name: draw.choice((3, 3, 6, 9)) for name in ("blue", "green", "red", "white")}


def _objects(name: str, replicas: int) -> list[dict[str, Any]]:
    labels = {"app": name}
    spread = [objects.spread(labels, objects.ZONE)]
    return [
        objects.deployment(name, replicas, labels=labels, topologySpreadConstraints=spread),
        objects.service(name, labels),
        objects.pdb(name, labels, minAvailable=replicas - 1),
    ]


def _add(plane: ControlPlane, zones: str, there: int) -> None:
    plane.apply(objects.node(f"{z}{n}", zone=z) for z in zones for n in range(_NODES))
    operations.wait_nodes_ready(plane.api, there + len(zones) * _NODES, 60)


class _Day:
    """One cluster, and one contender on it."""

    def __init__(self, plane: ControlPlane, seed: int, contender: Contender) -> None:
        self._plane, self._seed, self._contender = plane, seed, contender
        self._sizes = _workloads(seed)
        self._pods = sum(self._sizes.values())
        plane.reset()
        _add(plane, _ZONES, 0)
        plane.apply(one for name, n in self._sizes.items() for one in _objects(name, n))
        operations.wait_pods_ready(plane.api, self._pods, 120)

    def play(self, lost: str, closed: str) -> Episode:
        """Lose a zone, and let it come back; ``closed``: the zone that closes at that moment, or none."""
        plane, rest = self._plane, len(_ZONES) - 1
        for n in range(_NODES):
            operations.remove_node(plane.api, f"{lost}{n}")
        operations.wait_pods_ready(plane.api, self._pods, 120)
        _add(plane, lost, rest * _NODES)
        named = [f"{closed}{n}" for n in range(_NODES)] if closed else []
        operations.cordon(plane.api, named)
        least = {name: replicas - 1 for name, replicas in self._sizes.items()}
        with Watcher(plane) as watcher, Witness(plane, least, closed) as witness:
            for _ in range(_CLOSED_RUNS if closed else 0):
                self._run(watcher)
            while_closed = len(watcher.seen.evicted)
            operations.cordon(plane.api, named, on=False)
            witness.closed = ""
            began, seconds, even_after, last = time.monotonic(), None, None, -1
            for run in range(_MOST_RUNS + 1):
                if even_after is None and self._is_even():
                    even_after, seconds = run, round(time.monotonic() - began, 1)
                if last == 0 or run == _MOST_RUNS:
                    break
                last = self._run(watcher)
        return Episode(
            self._seed,
            self._contender.name,
            "closed" if closed else "back",
            self._pods,
            even_after,
            seconds,
            len(watcher.seen.evicted),
            while_closed,
            last == 0,
            watcher.seen.twice,
            witness.breaches,
        )

    def _run(self, watcher: Watcher) -> int:
        """Run once, and return the evictions."""
        before = len(watcher.seen.evicted)
        self._contender.run(Path(self._plane.kubeconfig))
        settle(self._plane, self._pods)
        watcher.catch_up()
        return len(watcher.seen.evicted) - before

    def _is_even(self) -> bool:
        pods = operations.pods(self._plane.api)
        if not all("nodeName" in pod["spec"] for pod in pods):
            return False
        on = Counter((p["metadata"]["labels"]["app"], p["spec"]["nodeName"][0]) for p in pods)
        counts = [[on[name, zone] for zone in _ZONES] for name in self._sizes]
        return all(max(of) - min(of) <= 1 for of in counts)


def main() -> None:
    """Print an episode a line, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0", help="by commas")
    options = parser.parse_args()
    with ControlPlane() as plane, tempfile.TemporaryDirectory(prefix="zones-") as scratch:
        folder = Path(scratch)
        for seed in map(int, options.seeds.split(",")):
            for contender in (Ours(folder), Peer(folder)):
                day, chosen = _Day(plane, seed, contender), random.Random(seed)
                for closes in (False, True):
                    lost, closed = chosen.sample(_ZONES, 2)
                    episode = day.play(lost, closed if closes else "")
                    sys.stdout.write(json.dumps(asdict(episode)) + "\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
