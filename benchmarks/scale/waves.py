"""`python -m benchmarks.scale.waves 1000:10000`: what a look at the cluster costs between two waves.

Each wave, another process replaces some pods, as evictions do. Then the cluster is read again, or what a
follower has heard is made into a snapshot; or there is no look, which is what has to be taken off. CPU is of the
whole process, watches included, and of the API server.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.scale.fill import OPTIONS, fill
from benchmarks.scale.measure import cpu_seconds, settle
from benchmarks.scale.shape import Shape
from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.cache import ClusterCache
from rebalancer.kube.client import connect
from rebalancer.kube.read import read_cluster
from rebalancer.kube.watch import EventType
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.pods import PodRecord
from tests.controlplane.api import ApiClient
from tests.controlplane.cluster import ControlPlane

_say = functools.partial(print, flush=True)
Look = Callable[[], Snapshot | None]


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of one wave."""

    client: float
    server: float
    waited: float
    """From the end of the acts to the snapshot."""


class _Deaf:
    def take(self, event: EventType, pod: PodRecord) -> None:
        pass

    def fail(self, error: ClusterReadError) -> None:
        raise error


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill a control plane, let waves go over it in each way, and print what a wave took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.waves", description=__doc__)
    parser.add_argument("size", nargs="?", default="1000:10000", metavar="NODES:PODS")
    parser.add_argument("--waves", type=int, default=5)
    parser.add_argument("--moves", type=int, default=50, help="pods replaced in each wave")
    chosen = parser.parse_args(arguments)
    nodes, pods = map(int, chosen.size.split(":"))
    shape = Shape(nodes=nodes, pods=pods)
    with ControlPlane(OPTIONS) as plane:
        fill(plane, shape, _say)
        hand = _Hand(plane, chosen.moves)
        spent = {
            "no look": _waves(plane, hand, chosen.waves, _no_look),
            "read again": _waves(plane, hand, chosen.waves, _reader),
            "followed": _waves(plane, hand, chosen.waves, _follower),
        }
        _say(_table(shape, spent))
    return 0


class _Hand:
    """Replaces pods in a process of its own."""

    def __init__(self, plane: ControlPlane, moves: int) -> None:
        self._arguments = (plane.url, plane.ca_file, plane.admin_token)
        self._moves, self._wave = moves, 0

    def act(self) -> None:
        """Replace the next pods, each by one on another node."""
        self._wave += 1
        arguments = (*self._arguments, self._wave, self._moves)
        process = multiprocessing.get_context("fork").Process(target=_replace, args=arguments)
        process.start()
        process.join()
        if process.exitcode:
            raise RuntimeError("pods could not be replaced")


def _replace(url: str, ca_file: Path, token: str, wave: int, moves: int) -> None:
    api = ApiClient(url, ca_file, token)
    # Others than in the waves before: those of a namespace of its own.
    spaces = [
        space["metadata"]["name"]
        for space in api.list_all("/api/v1/namespaces")
        if not space["metadata"]["name"].startswith(("kube-", "default"))
    ]
    space = f"/api/v1/namespaces/{spaces[wave % len(spaces)]}"
    if api.find(f"{space}/serviceaccounts/default") is None:
        api.post(f"{space}/serviceaccounts", {"metadata": {"name": "default"}})
    path = f"{space}/pods"
    listed = api.get(f"{path}?limit={moves + 1}")["items"]
    for old, other in zip(listed, [*listed[1:], listed[0]], strict=True):
        new = _fresh(old, f"{old['metadata']['name'][:50]}-w{wave}", other["spec"]["nodeName"])
        api.delete(f"{path}/{old['metadata']['name']}", {"gracePeriodSeconds": 0})
        api.post(path, new)
        api.put(f"{path}/{new['metadata']['name']}/status", {**new, "status": old["status"]})


def _fresh(old: dict[str, Any], name: str, node: str) -> dict[str, Any]:
    kept = ("labels", "annotations", "ownerReferences", "namespace")
    metadata = {key: old["metadata"][key] for key in kept if key in old["metadata"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "name": name},
        "spec": {**old["spec"], "nodeName": node},
    }


# -- ways to look -----------------------------------------------------------------------------------


@contextmanager
def _no_look(_: ControlPlane) -> Iterator[Look]:
    yield lambda: None


@contextmanager
def _reader(plane: ControlPlane) -> Iterator[Look]:
    client = connect(kubeconfig=plane.kubeconfig, environ={})
    yield lambda: read_cluster(client, clock=time.time).snapshot


@contextmanager
def _follower(plane: ControlPlane) -> Iterator[Look]:
    client = connect(kubeconfig=plane.kubeconfig, environ={})
    kept = read_cluster(client, clock=time.time, keep=True).kept
    if kept is None:
        raise RuntimeError("nothing was kept")
    cache = ClusterCache(client, kept, seconds=3600)
    view = cache.view_first(kept.snapshot, kept.at)
    with view.listen(_Deaf()), cache:
        view.snapshot(())
        yield lambda: view.snapshot(())
        _say("; ".join(view.notes) or "every list was read once")


def _waves(plane: ControlPlane, hand: _Hand, waves: int, way: Any) -> list[Spent]:
    server = plane.pid("kube-apiserver")
    spent = []
    with way(plane) as look:
        settle([server, plane.pid("etcd")])
        for _ in range(waves):
            client, of_server = time.process_time(), cpu_seconds(server)
            hand.act()
            acted = time.monotonic()
            look()
            waited = time.monotonic() - acted
            # The server goes on for a moment when it has answered.
            time.sleep(0.5)
            spent.append(
                Spent(time.process_time() - client, cpu_seconds(server) - of_server, waited)
            )
    return spent


def _table(shape: Shape, spent: dict[str, list[Spent]]) -> str:
    lines = [
        f"\n{shape.nodes} nodes, {shape.pods} pods (10 KB):\n",
        "| way | our CPU s | API server's CPU s | waited s |",
        "|---|---|---|---|",
    ]
    for name, of_way in spent.items():
        figures = [
            f"{median(getattr(one, field) for one in of_way):.2f}"
            for field in ("client", "server", "waited")
        ]
        lines.append(f"| {name} | {' | '.join(figures)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
