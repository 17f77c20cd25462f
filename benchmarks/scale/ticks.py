"""`python -m benchmarks.scale.ticks 1000:30000`: a CronJob's whole way out of a heavy drift, tick by tick to silence.

A tenth of the pods stands on the node of a sibling, on nodes from hot to cold. etcd, API server, controllers and
scheduler are real, KWOK plays the kubelets. Ours runs as the chart has it: its deadline, its Lease, its memory and the
default policy, but for the pods' minimum age, since all are minutes old, and for the budget per hour, since the time
between two ticks is left out: the next one begins when all pods stand Ready. The peer runs its chart's default policy.
Each begins on a fresh cluster.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import yaml

from benchmarks.decisions.contenders import PEER_POLICY, default_policy
from benchmarks.decisions.watcher import Watcher
from benchmarks.phases.shapes import as_json, drift
from benchmarks.scale.measure import Measured, cpu_seconds, run, settle
from tests.controlplane import build, operations
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.options import Options

_say = functools.partial(print, flush=True)
Manifest = dict[str, Any]
Command = Callable[[ControlPlane, Path], list[str]]

_JUDGES = ("kube-controller-manager", "kube-scheduler")
_OPTIONS = Options(pod_ready_after=2.0, pod_grace_cap=5.0)
_WRITERS = 8
_RUN_SECONDS = 75
"""What the chart gives a run."""
_SILENT_TICKS = 2
_ANY = 1_000_000
_PLURALS = {
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "Pod": "/api/v1/namespaces/{}/pods",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
}
_BUDGETS = "/apis/policy/v1/poddisruptionbudgets"


@dataclass
class Convergence:
    """What a contender took from the first tick to silence."""

    evictions: list[int] = field(default_factory=list)
    """Of each tick."""
    measured: list[Measured] = field(default_factory=list)
    server: float = 0.0
    """CPU seconds of the API server, those for controllers and kubelets included."""
    twice: int = 0
    breaches: int = 0

    @property
    def silent(self) -> bool:
        """Whether it has settled."""
        last = self.evictions[-_SILENT_TICKS:]
        return len(last) == _SILENT_TICKS and not any(last)


def main(arguments: Sequence[str] | None = None) -> int:
    """Let each contender settle on a cluster of its own, and print what that took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.ticks", description=__doc__)
    parser.add_argument("size", nargs="?", default="1000:30000", metavar="NODES:PODS")
    parser.add_argument("--wrong", type=float, default=0.1, help="share of the pods")
    parser.add_argument("--contenders", default="ours,peer")
    parser.add_argument("--ticks", type=int, default=30, help="at most; the default is an hour")
    chosen = parser.parse_args(arguments)
    nodes, pods = map(int, chosen.size.split(":"))
    objects = msgspec.json.decode(as_json(drift(chosen.wrong, nodes, pods, hot=True)))["items"]
    _say(f"{nodes} nodes, {pods} pods, {chosen.wrong:.0%} of them wrong; load {os.getloadavg()}\n")
    rows = [_row_heads()]
    for name in chosen.contenders.split(","):
        with _drifted(objects) as plane, tempfile.TemporaryDirectory() as folder:
            before = _standing(plane, Path(folder))
            done = _converged(plane, pods, _COMMANDS[name](plane, Path(folder)), chosen.ticks)
            rows.append(_row(name, done, before, _standing(plane, Path(folder))))
    _say("\n" + "\n".join(rows))
    return 0


# -- the cluster -----------------------------------------------------------------------------------


@contextmanager
def _drifted(objects: Sequence[Manifest]) -> Iterator[ControlPlane]:
    """Yield a control plane with these objects, at rest."""
    started = time.monotonic()
    with ControlPlane(_OPTIONS) as plane:
        _make_namespaces(plane, objects)
        # They would move or make pods while the drift is made.
        for name in _JUDGES:
            plane.stop(name)
        plane.apply(_fresh(one) for one in objects if one["kind"] == "Node")
        uids: dict[tuple[str, str], str] = {}
        for kind in ("PodDisruptionBudget", "Deployment", "ReplicaSet", "Pod"):
            _make(plane, [one for one in objects if one["kind"] == kind], uids)
        pods = sum(one["kind"] == "Pod" for one in objects)
        _say(f"{pods} pods made after {time.monotonic() - started:.0f} s")
        for name in _JUDGES:
            plane.start(name)
        _wait_at_rest(plane, pods)
        _say(f"all at rest after {time.monotonic() - started:.0f} s")
        yield plane


def _make_namespaces(plane: ControlPlane, objects: Sequence[Manifest]) -> None:
    names = sorted({one["metadata"].get("namespace", "default") for one in objects} - {"default"})
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in names)
    accounts = [f"/api/v1/namespaces/{name}/serviceaccounts/default" for name in names]
    plane.wait_until(
        lambda: all(plane.api.find(path) is not None for path in accounts), 120, "their accounts"
    )
    meta = {"namespace": "default", "name": "rebalancer"}
    plane.apply(
        [
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta},
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta},
        ]
    )


def _make(
    plane: ControlPlane, manifests: Sequence[Manifest], uids: dict[tuple[str, str], str]
) -> None:
    """Create objects of one kind, owned by those whose ``uids`` (kind, uid in the manifest) are known."""

    def one(manifest: Manifest) -> tuple[tuple[str, str], str]:
        meta = manifest["metadata"]
        path = _PLURALS[manifest["kind"]].format(meta["namespace"])
        made = plane.api.post(path, _fresh(manifest, uids))
        return (manifest["kind"], meta.get("uid", "")), made["metadata"]["uid"]

    with ThreadPoolExecutor(_WRITERS) as pool:
        uids.update(pool.map(one, manifests))


def _fresh(manifest: Manifest, uids: Mapping[tuple[str, str], str] | None = None) -> Manifest:
    """Return a manifest as it is given to a server: a node's status is its room, the others have none yet."""
    meta = {
        key: value
        for key, value in manifest["metadata"].items()
        if key not in ("uid", "creationTimestamp", "ownerReferences")
    }
    if owners := manifest["metadata"].get("ownerReferences"):
        known = uids or {}
        meta["ownerReferences"] = [{**o, "uid": known[o["kind"], o["uid"]]} for o in owners]
    if manifest["kind"] == "ReplicaSet":
        # Without them its Deployment would not know it for its own.
        meta["labels"] = manifest["spec"]["template"]["metadata"]["labels"]
    rest = {key: value for key, value in manifest.items() if key not in ("metadata", "status")}
    if manifest["kind"] == "Node":
        room = manifest["status"]["allocatable"]
        rest["status"] = {"allocatable": room, "capacity": room}
    return {**rest, "metadata": meta}


def _wait_at_rest(plane: ControlPlane, pods: int, seconds: float = 900.0) -> None:
    """Wait until all nodes and pods are Ready, no pod ends, and the controllers have counted them for all budgets.

    A machine that is busy lets KWOK renew the nodes' Leases too late now and then, and the controllers taint them.
    """

    def at_rest() -> bool:
        if any(node["spec"].get("taints") for node in plane.api.list_all("/api/v1/nodes")):
            return False
        listed = operations.pods(plane.api)
        ready = sum(
            "deletionTimestamp" not in p["metadata"] for p in listed if operations.is_ready(p)
        )
        if not len(listed) == ready == pods:
            return False
        return all(
            budget["status"].get("observedGeneration") and budget["status"]["disruptionsAllowed"]
            for budget in plane.api.list_all(_BUDGETS)
        )

    plane.wait_until(at_rest, seconds, f"{pods} pods Ready, and every budget whole")


# -- the contenders --------------------------------------------------------------------------------


def _ours(plane: ControlPlane, folder: Path) -> list[str]:
    policy = folder / "rebalancer.yaml"
    values = yaml.safe_load(default_policy())
    values["budgets"]["perHour"] = _ANY
    policy.write_text(yaml.safe_dump(values))
    return [
        *(sys.executable, "-m", "rebalancer", "run", "--yes", "--output=json", "--quiet"),
        *(f"--policy={policy}", f"--kubeconfig={plane.kubeconfig}"),
        *("--lease=default/rebalancer", "--memory=default/rebalancer"),
        f"--deadline={_RUN_SECONDS}",
    ]


def _peer(plane: ControlPlane, folder: Path) -> list[str]:
    policy = folder / "descheduler.yaml"
    policy.write_text(yaml.safe_dump(PEER_POLICY))
    return [
        *(str(build.binary("descheduler")), f"--policy-config-file={policy}"),
        *(f"--kubeconfig={plane.kubeconfig}", "--descheduling-interval=0", "--secure-port=0"),
    ]


_COMMANDS: Mapping[str, Command] = {"ours": _ours, "peer": _peer}


def _converged(plane: ControlPlane, pods: int, command: list[str], most: int) -> Convergence:
    """Run a command again and again until it evicts nothing any more, ``most`` times at most."""
    done = Convergence()
    server = plane.pid("kube-apiserver")
    settle([server])
    began = cpu_seconds(server)
    with Watcher(plane) as watcher:
        while not done.silent and len(done.evictions) < most:
            before = len(watcher.seen.evicted)
            measured = run(command, server=server)
            if measured.status not in (0, 4):
                raise RuntimeError(f"exit code {measured.status}: {measured.err[-2000:]}")
            _wait_at_rest(plane, pods)
            watcher.catch_up()
            done.measured.append(measured)
            done.evictions.append(len(watcher.seen.evicted) - before)
            _say(_tick(len(done.evictions), done.evictions[-1], measured))
        done.server = cpu_seconds(server) - began
        done.twice, done.breaches = watcher.seen.twice, len(watcher.seen.breaches)
    return done


def _tick(number: int, evicted: int, measured: Measured) -> str:
    figures = f"{measured.seconds:.1f} s, {measured.cpu:.1f} CPU s, {measured.peak_mb:.0f} MB"
    return f"tick {number}: {evicted} evicted, exit {measured.status}, {figures}"


def _standing(plane: ControlPlane, folder: Path) -> tuple[float, float]:
    """Return how many pods still have to move for hard and soft rules, as a dry run of ours counts them."""
    command = [*_ours(plane, folder), "--dry-run"]
    report = json.loads(run(command).out)
    left = report["before"].values()
    return sum(one["hard"] for one in left), sum(one["soft"] for one in left)


def _row_heads() -> str:
    heads = [
        *(
            "",
            "evictions",
            "of them twice",
            "ticks that evict",
            "silent",
            "CPU s",
            "longest s",
            "peak MB",
        ),
        *("API server CPU s", "PDBs breached", "hard, soft before", "after"),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads)))


def _row(
    name: str, done: Convergence, before: tuple[float, float], after: tuple[float, float]
) -> str:
    cells: chain[object] = chain(
        [name, sum(done.evictions), done.twice, sum(map(bool, done.evictions))],
        ["yes" if done.silent else "no"],
        [f"{sum(one.cpu for one in done.measured):.1f}"],
        [f"{max(one.seconds for one in done.measured):.1f}"],
        [f"{max(one.peak_mb for one in done.measured):.0f}", f"{done.server:.1f}", done.breaches],
        (f"{hard:g}, {soft:g}" for hard, soft in (before, after)),
    )
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    sys.exit(main())
