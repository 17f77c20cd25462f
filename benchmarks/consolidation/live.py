"""Consolidation on a real control plane, beside the peer's HighNodeUtilization on the same clusters.

python -m benchmarks.consolidation.live --seeds 11,23,27,30,35,38

The clusters of `clusters.py` are played with real controllers: all workloads are scheduled in full, then scaled down. Each
contender meets the same state of etcd. Ours runs until a run evicts nothing, and three times more; the peer ten times.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.consolidation.clusters import Cluster, Workload, cluster
from benchmarks.consolidation.optimum import most_emptied
from benchmarks.decisions.checkpoint import Checkpoint
from benchmarks.decisions.contenders import Contender, Ours, Peer, process
from benchmarks.decisions.convergence import settle
from benchmarks.decisions.watcher import Watcher
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.model import Snapshot
from tests.controlplane import ControlPlane, objects, operations

_POLICY = """
apiVersion: rebalancer/v1
kind: Policy
steer: marks
protect: {minPodAge: 0s}
strategies: {consolidation: {minNodeAge: 0s}}
"""
_THRESHOLDS = (20, 50)
"""Per cent: what the descheduler's documentation begins with, and what Cluster Autoscaler calls unneeded."""
_RUNS, _AFTER, _MOST = 10, 3, 25


@dataclass(frozen=True, slots=True)
class Played:
    """A contender on one cluster."""

    name: str
    evictions: Sequence[int]
    """Of each run."""
    emptied: Sequence[int]
    """Nodes without pods after each run."""
    twice: int
    breaches: int

    @property
    def silent(self) -> int | None:
        """The number of the first run that evicts nothing, from 1."""
        return next((i for i, count in enumerate(self.evictions, 1) if not count), None)

    @property
    def later(self) -> int | None:
        """Evictions after the first silent run; None where there is none."""
        return None if self.silent is None else sum(self.evictions[self.silent :])


def high_node_utilization(per_cent: int) -> dict[str, object]:
    """Return the peer's policy: nodes below so many per cent of everything are emptied, nodeFit on."""
    thresholds = dict.fromkeys(("cpu", "memory", "pods"), per_cent)
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerPolicy",
        "profiles": [
            {
                "name": "default",
                "pluginConfig": [
                    {"name": "DefaultEvictor", "args": {"nodeFit": True}},
                    {"name": "HighNodeUtilization", "args": {"thresholds": thresholds}},
                ],
                "plugins": {"balance": {"enabled": ["HighNodeUtilization"]}},
            }
        ],
    }


def play(plane: ControlPlane, contender: Contender, pods: int, *, to_the_end: bool) -> Played:
    """Run a contender on the cluster as it is."""
    evictions: list[int] = []
    emptied: list[int] = []
    with Watcher(plane) as watcher:
        left = _RUNS if to_the_end else _MOST
        while left:
            before = len(watcher.seen.evicted)
            contender.run(Path(plane.kubeconfig))
            settle(plane, pods)
            watcher.catch_up()
            evictions.append(len(watcher.seen.evicted) - before)
            emptied.append(_empty(plane))
            left -= 1
            if not to_the_end and not evictions[-1]:
                left = min(left, _AFTER - _silent_runs(evictions) + 1)
    seen = watcher.seen
    return Played(contender.name, evictions, emptied, seen.twice, len(seen.breaches))


def _silent_runs(evictions: Sequence[int]) -> int:
    first = evictions.index(0)
    return len(evictions) - first


def _empty(plane: ControlPlane) -> int:
    nodes = plane.api.list_all("/api/v1/nodes")
    return len(nodes) - len({pod["spec"].get("nodeName") for pod in operations.pods(plane.api)})


def build(plane: ControlPlane, of: Cluster) -> int:
    """Make the cluster with real controllers: in full, then scaled down; return its number of pods."""
    plane.reset()
    nodes = [one for one in of.objects if one["kind"] == "Node"]
    plane.apply(_node(one) for one in nodes)
    operations.wait_nodes_ready(plane.api, len(nodes))
    plane.apply(_deployment(one, one.full) for one in of.workloads)
    settle(plane, sum(one.full for one in of.workloads))
    plane.apply(_deployment(one, one.left) for one in of.workloads)
    pods = sum(one.left for one in of.workloads)
    settle(plane, pods)
    return pods


def _node(one: dict[str, object]) -> dict[str, object]:
    metadata, status = one["metadata"], one["status"]
    assert isinstance(metadata, dict)
    assert isinstance(status, dict)
    room = status["allocatable"]
    zone = metadata["labels"]["topology.kubernetes.io/zone"]
    return objects.node(metadata["name"], zone=zone, cpu=room["cpu"], memory=room["memory"])


def _deployment(one: Workload, replicas: int) -> dict[str, object]:
    return objects.deployment(one.name, replicas, cpu=one.cpu, memory=one.memory, **one.spec)


def read(plane: ControlPlane, folder: Path) -> Snapshot:
    """Return the cluster as a snapshot of a day later: its pods are minutes old, which no contender asks about."""
    path = folder / "start.zip"
    command = [sys.executable, "-m", "rebalancer", "snapshot", f"--kubeconfig={plane.kubeconfig}"]
    path.unlink(missing_ok=True)
    done = process([*command, "-o", str(path)])
    if done.code:
        raise RuntimeError(done.err)
    snapshot = load_snapshot(path)
    return replace(snapshot, captured_at=snapshot.captured_at + 86_400.0)


def _possible(plane: ControlPlane, of: Cluster, folder: Path) -> str:
    """Return how many nodes can be without pods, by the integer programme."""
    possible, at_most = most_emptied(replace(of, snapshot=read(plane, folder)))
    return f"{possible}" if possible == at_most else f"{possible} to {at_most}"


def contenders(folder: Path) -> Sequence[Contender]:
    """Return ours, and the peer with each of its thresholds."""
    peers = [Peer(folder, high_node_utilization(t), name=f"peer, {t} %") for t in _THRESHOLDS]
    return [Ours(folder, policy=_POLICY), *peers]


def main() -> None:
    """Print a row per cluster and contender."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="11,23,27,30,35,38", help="of clusters, by commas")
    options = parser.parse_args()
    _row(
        *("seed", "nodes", "pods", "possible", "contender", "nodes without pods", "evictions"),
        *("run by run", "after silence", "moved twice", "PDBs breached"),
    )
    _row(*["---"] * 11)
    with ControlPlane() as plane, tempfile.TemporaryDirectory(prefix="consolidation-") as scratch:
        folder = Path(scratch)
        for seed in map(int, options.seeds.split(",")):
            of = cluster(seed)
            pods = build(plane, of)
            checkpoint = Checkpoint(plane, folder / f"etcd-{seed}")
            checkpoint.save()
            settle(plane, pods)
            first, possible = _empty(plane), _possible(plane, of, folder)
            nodes = len(plane.api.list_all("/api/v1/nodes"))
            for number, contender in enumerate(contenders(folder)):
                if number:
                    checkpoint.restore()
                    settle(plane, pods)
                done = play(plane, contender, pods, to_the_end=number > 0)
                _row(seed, nodes, pods, possible, *_figures(done, first))


def _figures(done: Played, first: int) -> Sequence[object]:
    runs = " ".join(map(str, done.evictions))
    later = "never silent" if done.later is None else done.later
    emptied = f"{first} -> {done.emptied[-1]} (at most {max(done.emptied)})"
    return done.name, emptied, sum(done.evictions), runs, later, done.twice, done.breaches


def _row(*cells: object) -> None:
    sys.stdout.write("| " + " | ".join(map(str, cells)) + " |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
