"""`python -m benchmarks.resident.live_soak --minutes 20`: `serve` under churn on a real control plane.

5 % of the pods are replaced each minute, the API server is restarted every ten minutes, and connections are cut at random:
all pass through a link of this process. What `serve` knows must be what a fresh list gives: for that, it runs in this process,
whose memory is looked at, too. With ``--apart`` it is a process of its own, and only the memory of that is looked at.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.resident.process import megabytes, serving
from benchmarks.resident.soak import EVERY, LEASE, POLICY, resident_on, said, until_same
from rebalancer.base.errors import ClusterReadError
from rebalancer.serve.health import Health
from tests.controlplane import objects, operations
from tests.controlplane.api import ApiError
from tests.controlplane.cluster import ControlPlane

_say = functools.partial(print, flush=True)
_NODES, _APPS, _REPLICAS = 30, 60, 5
_STEP = 12.0
"""Seconds between two changes, of 1 % of the pods each."""
_RESTART = 600.0
_LOOK_EVERY = 2
_PIECE = 1 << 16
_Look = Callable[[], tuple[bool, str]]
"""Looks at `serve`: whether all is as it should be, and a text."""
_Lives = Callable[[], bool]


class _Link:
    """Passes connections on to a port, until they are cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._open: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, chance: random.Random) -> int:
        """Cut about half of the connections, in the middle of what they say; return how many."""
        mine = [pair for pair in self._open if chance.random() < 0.5]
        for pair in mine:
            self._open.remove(pair)
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        return len(mine)

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:  # it is being restarted
                client.close()
                continue
            self._open.append((client, server))
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=_pass_on, args=(source, sink), daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError), source, sink:
        while piece := source.recv(_PIECE):
            sink.sendall(piece)


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak, and say at each look how long it took until both were the same, and what memory is used."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.resident.live_soak", description=__doc__
    )
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--apart", action="store_true", help="in a process of its own")
    chosen = parser.parse_args(arguments)
    with ControlPlane() as plane, tempfile.TemporaryDirectory() as folder:
        _fill(plane)
        link = _Link(int(plane.url.rpartition(":")[2]))
        kubeconfig = Path(folder) / "kubeconfig"
        kubeconfig.write_text(
            plane.kubeconfig.read_text().replace(plane.url, f"https://127.0.0.1:{link.port}")
        )
        start = _apart if chosen.apart else _within
        with start(plane, kubeconfig, Path(folder)) as (look, lives):
            good = _soaked(plane, link, random.Random(chosen.seed), chosen.minutes, look, lives)
    return int(not good)


def _soaked(
    plane: ControlPlane,
    link: _Link,
    chance: random.Random,
    minutes: float,
    look: _Look,
    lives: _Lives,
) -> bool:
    """Let it live through so many minutes; return whether it did, and all looks were good."""
    begun = restarted = time.monotonic()
    looks = good = step = cut = 0
    while time.monotonic() < begun + 60 * minutes and lives():
        step += 1
        time.sleep(_STEP)
        if time.monotonic() > restarted + _RESTART:
            restarted = time.monotonic()
            plane.restart("kube-apiserver", kill=True)
        _change(plane, chance, step)
        cut += link.cut(chance) if step % 3 == 0 else 0
        if step % _LOOK_EVERY == 0:
            is_good, text = look()
            looks, good = looks + 1, good + is_good
            _say(f"{(time.monotonic() - begun) / 60:.1f} min, {cut} connections cut: {text}")
    lived = lives()
    _say(f"good at {good} of {looks} looks; {'lived' if lived else 'ENDED by itself'}")
    return good == looks and lived


@contextlib.contextmanager
def _within(plane: ControlPlane, kubeconfig: Path, folder: Path) -> Iterator[tuple[_Look, _Lives]]:
    """Run `serve` in a thread; yield what compares it with a fresh list, and what says whether it lives."""
    stop = threading.Event()
    loop, health = resident_on(kubeconfig, folder, stop)
    thread = threading.Thread(target=loop.run)
    thread.start()

    def look() -> tuple[bool, str]:
        took = _looked(plane, health)
        return took is not None, said(health, took)

    try:
        yield look, thread.is_alive
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def _apart(plane: ControlPlane, kubeconfig: Path, folder: Path) -> Iterator[tuple[_Look, _Lives]]:  # noqa: ARG001  # as _within
    """Run `serve` in a process; yield what looks at its memory, and what says whether it lives."""
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    options = ("--yes", f"--policy={policy}", f"--lease={LEASE}")
    with serving(kubeconfig, every=EVERY, options=options) as (process, _):
        yield (
            lambda: (True, f"{megabytes(process.pid):.0f} MB"),
            lambda: process.poll() is None,
        )


def _fill(plane: ControlPlane) -> None:
    plane.apply(objects.node(f"node-{n}", zone="abc"[n % 3]) for n in range(_NODES))
    operations.wait_nodes_ready(plane.api, _NODES, 120)
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    plane.apply([{**lease, "metadata": {"name": "turns", "namespace": "default"}}])
    plane.apply(objects.deployment(f"app-{n}", _REPLICAS) for n in range(_APPS))
    operations.wait_pods_ready(plane.api, _APPS * _REPLICAS, 300)


def _change(plane: ControlPlane, chance: random.Random, step: int) -> None:
    """Delete some pods, and change a Deployment or a node now and then."""
    with contextlib.suppress(ApiError, OSError):
        pods = operations.pods(plane.api)
        for pod in chance.sample(pods, len(pods) // 100):
            plane.api.delete(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}")
        if step % 5 == 0:
            named = f"app-{chance.randrange(_APPS)}"
            path = f"/apis/apps/v1/namespaces/default/deployments/{named}"
            template = {"metadata": {"annotations": {"release": str(step)}}}
            plane.api.patch(path, {"spec": {"template": template}})
        if step % 7 == 0:
            operations.cordon(plane.api, [f"node-{chance.randrange(_NODES)}"], on=step % 2 == 0)


def _looked(plane: ControlPlane, health: Health) -> float | None:
    while True:
        try:
            return until_same(plane.kubeconfig, time.time, health)
        except ClusterReadError:  # the API server has just been restarted
            time.sleep(1.0)


if __name__ == "__main__":
    sys.exit(main())
