"""Consolidation on machines and pods of a recorded cluster: Karpenter itself, ours, and the descheduler, from the same state.

python -m benchmarks.consolidation.openb --traces FOLDER --seeds 0,1

FOLDER holds `openb/openb_node_list_all_node.csv` and `openb/openb_pod_list_default.csv` of Alibaba's GPU cluster of 2023. Karpenter's KWOK
provider gets the sizes of its machines up to 32 processors as instance types, and orders machines for pods drawn from the trace; pods of
one size are one Deployment. Then those leave that were not running at the end of the trace. GPUs are left out, and sizes of which
fewer than two pods stay.

From that state Karpenter consolidates (WhenEmptyOrUnderutilized, its default budget), or it is taken away, its labels, too, and ours or the
descheduler's HighNodeUtilization runs. Counted are machines with pods, their price, and evictions. Karpenter may also replace a machine
by a cheaper one. *Possible* is the least price of machines with pods that a proven optimum reaches without new machines.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.consolidation.clusters import Cluster, Workload
from benchmarks.consolidation.live import high_node_utilization, play, read
from benchmarks.consolidation.optimum import most_saved
from benchmarks.decisions.checkpoint import Checkpoint
from benchmarks.decisions.contenders import Contender, Ours, Peer
from benchmarks.decisions.convergence import settle
from benchmarks.decisions.watcher import Watcher
from tests.controlplane import ApiError, ControlPlane, objects, operations, wait_until
from tests.karpenter import manager

_NODES = Path("openb/openb_node_list_all_node.csv")
_PODS = Path("openb/openb_pod_list_default.csv")
_CORES, _CORES_A_POD, _DRAWN = 32, 16, 70
_PRICE = "eks-node-viewer/instance-price"
_CORE, _GIB = 0.025, 0.001
"""For an hour, as the provider's own instance types."""
_QUIET, _LONGEST = 60.0, 600.0
"""Seconds without a change after which Karpenter counts as silent, and for which it is waited."""
_POLICY = """
apiVersion: rebalancer/v1
kind: Policy
steer: marks
prices: {label: eks-node-viewer/instance-price}
protect: {minPodAge: 0s}
strategies: {consolidation: {minNodeAge: 0s}}
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """What a contender made of one cluster."""

    seed: int
    contender: str
    nodes: int
    """Machines with pods at first."""
    freed: int
    price: float
    """Of the machines with pods at first, for an hour."""
    saved: float
    possible: float
    evictions: int
    twice: int
    silent: bool


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def instance_types(folder: Path) -> list[dict[str, Any]]:
    """Return the sizes of machines as the provider reads instance types."""
    sizes = {(int(r["cpu_milli"]) // 1000, int(r["memory_mib"])) for r in _rows(folder / _NODES)}
    return [
        {
            "name": f"m-{cores}x{mib // 1024}",
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": {"cpu": str(cores), "memory": f"{mib}Mi"},
            "offerings": [
                {"Price": price, "Available": True, "Requirements": _require(zone)}
                for price in [_CORE * cores + _GIB * mib / 1024]
                for zone in manager.ZONES
            ],
        }
        for cores, mib in sorted(sizes)
        if cores <= _CORES
    ]


def _require(zone: str) -> list[dict[str, Any]]:
    of = {"karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": zone}
    return [{"key": key, "operator": "In", "values": [value]} for key, value in of.items()]


def workloads(folder: Path, seed: int) -> list[Workload]:
    """Return pods drawn from the trace, those of one size as one workload."""
    able = [r for r in _rows(folder / _PODS) if int(r["cpu_milli"]) <= _CORES_A_POD * 1000]
    drawn = random.Random(seed).sample(able, _DRAWN)
    size = [(int(r["cpu_milli"]), int(r["memory_mib"])) for r in drawn]
    stay = Counter(of for of, r in zip(size, drawn, strict=True) if r["pod_phase"] == "Running")
    return [
        Workload(f"w{n}", f"{cpu}m", f"{mib}Mi", {}, full, stay[cpu, mib], "")
        for n, ((cpu, mib), full) in enumerate(sorted(Counter(size).items()))
        if stay[cpu, mib] > 1
    ]


class _Machines:
    """A control plane whose machines Karpenter has ordered, at the moment before anybody consolidates."""

    def __init__(self, plane: ControlPlane, folder: Path, traces: Path, seed: int) -> None:
        self.plane, self._folder, self.seed = plane, folder, seed
        self._workloads = workloads(traces, seed)
        self._types = folder / "types.json"
        self._types.write_text(json.dumps(instance_types(traces)))
        self.pods = sum(one.left for one in self._workloads)
        plane.reset()
        with manager.running(plane, folder / "build", self._types):
            plane.apply([manager.node_class(), self._pool("Never")])
            plane.apply(self._deployments(lambda one: one.full))
            operations.wait_pods_ready(plane.api, sum(w.full for w in self._workloads), 240)
            plane.apply(self._deployments(lambda one: one.left))
            operations.wait_pods_ready(plane.api, self.pods, 240)
        self._state = Checkpoint(plane, folder / f"etcd-{seed}")
        self._state.save()
        settle(plane, self.pods)
        self.nodes, self.price = self.with_pods()

    def _deployments(self, replicas: Any) -> list[dict[str, Any]]:
        return [
            objects.deployment(w.name, replicas(w), cpu=w.cpu, memory=w.memory)
            for w in self._workloads
        ]

    def _pool(self, after: str) -> dict[str, Any]:
        names = [one["name"] for one in json.loads(self._types.read_text())]
        return manager.node_pool(types=names, after=after, budgets=({"nodes": "10%"},))

    def restore(self) -> None:
        """Begin again."""
        self._state.restore()
        settle(self.plane, self.pods)

    def with_pods(self) -> tuple[int, float]:
        """Return how many machines have pods, and their price for an hour."""
        used = {pod["spec"].get("nodeName") for pod in operations.pods(self.plane.api)}
        nodes = [
            one
            for one in self.plane.api.list_all("/api/v1/nodes")
            if one["metadata"]["name"] in used
        ]
        return len(nodes), sum(float(one["metadata"]["labels"][_PRICE]) for one in nodes)

    def release(self) -> None:
        """Make the machines nodes that Karpenter knows nothing of."""
        api = self.plane.api
        for node in api.list_all("/api/v1/nodes"):
            metadata = node["metadata"]
            labels = {key: None for key in metadata["labels"] if "karpenter" in key}
            free = {"finalizers": None, "ownerReferences": None, "labels": labels}
            api.patch(f"/api/v1/nodes/{metadata['name']}", {"metadata": free})
        for claim in api.list_all(_CLAIMS):
            path = f"{_CLAIMS}/{claim['metadata']['name']}"
            api.patch(path, {"metadata": {"finalizers": None}})
            with suppress(ApiError):
                api.delete(path)
        wait_until(lambda: not api.list_all(_CLAIMS), 30, "no NodeClaim")

    def possible(self) -> float:
        """Return the largest price that can be saved, by the integer programme."""
        snapshot = read(self.plane, self._folder)
        of = Cluster((), snapshot, self._workloads)
        labels = [snapshot.nodes.labels.of(n) for n in range(len(snapshot.nodes))]
        hourly = np.array([float(one[_PRICE]) for one in labels])
        used = np.isin(np.arange(len(hourly)), snapshot.pods.node)
        # Machines that have no pod at first are nobody's saving.
        return most_saved(of, hourly)[0] - float(hourly[~used].sum())

    def consolidated(self) -> tuple[int, int, bool]:
        """Let Karpenter consolidate; return evictions, those of pods that had come for others, and whether it came to an end."""
        with (
            Watcher(self.plane) as watcher,
            manager.running(self.plane, self._folder / "play", self._types),
        ):
            self.plane.apply([self._pool("5s")])
            until, quiet, before = time.monotonic() + _LONGEST, time.monotonic(), None
            while time.monotonic() < min(until, quiet + _QUIET):
                nodes = self.plane.api.list_all("/api/v1/nodes")
                now = sorted(one["metadata"]["uid"] for one in nodes), len(watcher.seen.evicted)
                if now != before:
                    before, quiet = now, time.monotonic()
                time.sleep(1)
            settle(self.plane, self.pods)
        seen = watcher.seen
        return len(seen.evicted), seen.twice, time.monotonic() < until


_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"


def _play(of: _Machines, contender: Contender | None, possible: float) -> Ended:
    if contender is None:
        name, (evictions, twice, silent) = "Karpenter", of.consolidated()
    else:
        of.release()
        settle(of.plane, of.pods)
        done = play(of.plane, contender, of.pods, to_the_end=isinstance(contender, Peer))
        name, evictions, twice = contender.name, sum(done.evictions), done.twice
        silent = done.silent is not None and not done.later
    nodes, price = of.with_pods()
    saved = round(of.price - price, 4)
    first = round(of.price, 4)
    freed = of.nodes - nodes
    best = round(possible, 4)
    return Ended(of.seed, name, of.nodes, freed, first, saved, best, evictions, twice, silent)


def _contenders(folder: Path) -> Mapping[str, Contender | None]:
    peers = [Peer(folder, high_node_utilization(t), name=f"peer, {t} %") for t in (20, 50)]
    return {"ours": Ours(folder, policy=_POLICY), "karpenter": None, "20": peers[0], "50": peers[1]}


def main(argv: Sequence[str] | None = None) -> None:
    """Print what each contender made of each cluster, a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--seeds", default="0", help="by commas")
    options = parser.parse_args(argv)
    with ControlPlane() as plane, tempfile.TemporaryDirectory(prefix="openb-") as scratch:
        folder = Path(scratch)
        seeds = map(int, options.seeds.split(","))
        made: _Machines | None = None
        for seed, contender in product(seeds, _contenders(folder).values()):
            if made is None or made.seed != seed:
                made = _Machines(plane, folder, options.traces, seed)
                possible = made.possible()
            else:
                made.restore()
            ended = _play(made, contender, possible)
            sys.stdout.write(json.dumps(asdict(ended)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
