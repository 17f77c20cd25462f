"""`python -m benchmarks.resident.soak --minutes 10`: `serve` under churn on an embedded cluster whose watches break off.

Pods go and come, nodes join and leave, Deployments roll out; answers break off and fail at random, and the server forgets its
history now and then. At random instants what `serve` knows must be what a fresh list gives. Its memory is that of this
process, which also holds the cluster.
"""

from __future__ import annotations

import argparse
import functools
import io
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.resident.process import megabytes
from rebalancer.base.environment import Environment, SystemClock
from rebalancer.embedded import manifests
from rebalancer.embedded.apiserver.http import Fault
from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.kube.cache import RunView
from rebalancer.kube.client import connect
from rebalancer.kube.read import read_cluster
from rebalancer.run.options import RunOptions
from rebalancer.serve.health import Health
from rebalancer.serve.loop import ServeLoop
from tests.same import contents

_say = functools.partial(print, flush=True)
_APPS, _REPLICAS, _NODES = 40, 5, 12
EVERY = 1.0
"""Seconds between two runs."""
LEASE = "default/turns"
_PATIENCE = 120.0
POLICY = "apiVersion: rebalancer/v1\nkind: Policy\nprotect: {minPodAge: 0s}\nstrategies: {duplicates: {}}\n"


class _Cluster:
    """An embedded cluster, and what befalls it."""

    def __init__(self, cluster: EmbeddedCluster, seed: int) -> None:
        self.cluster, self._random, self._joined = cluster, random.Random(seed), 0
        for number in range(_NODES):
            cluster.add_node(f"node-{number}", "abc"[number % 3])
        for app in range(_APPS):
            self._apply(app, 0)
        cluster.settle()
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        cluster.apply({**lease, "metadata": {"name": "turns"}})

    def _apply(self, app: int, release: int) -> None:
        labels = {"app": f"app-{app}", "release": str(release)}
        self.cluster.apply(manifests.deployment(f"app-{app}", _REPLICAS, labels=labels))

    def change(self, step: int) -> None:
        """Let something happen, then let it settle."""
        cluster, chance = self.cluster, self._random
        pods = cluster.objects("Pod", "default")
        for pod in chance.sample(pods, min(len(pods), 3)):
            cluster.delete("Pod", pod["metadata"]["name"])
        if step % 5 == 0:
            self._apply(chance.randrange(_APPS), step)
        if step % 7 == 0:
            cluster.add_node(f"joined-{step}", "c")
            if step > 7:
                cluster.remove_node(f"joined-{step - 7}")
        if step % 11 == 0:
            cluster.forget_history()
        cluster.faults.add(
            Fault("GET", truncate=chance.randrange(1, 4000), skip=chance.randrange(9))
        )
        cluster.faults.add(Fault("GET", drop=True, skip=chance.randrange(9)))
        if step % 3 == 0:
            cluster.faults.add(Fault(status=500, times=3))
        cluster.settle()


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak, and say at each look how long it took until both were the same, and what memory is used."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resident.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    stop, ends = threading.Event(), time.monotonic() + 60 * chosen.minutes
    with EmbeddedCluster() as embedded, tempfile.TemporaryDirectory() as folder:
        befallen = _Cluster(embedded, chosen.seed)
        loop, health = resident_on(embedded.kubeconfig, Path(folder), stop)
        thread = threading.Thread(target=loop.run)
        thread.start()
        step, differs = 0, False
        while time.monotonic() < ends and thread.is_alive() and not differs:
            step += 1
            befallen.change(step)
            if step % 10 == 0:
                embedded.faults.clear()
                took = until_same(embedded.kubeconfig, embedded.clock.now, health)
                differs = took is None
                _say(f"step {step}: {said(health, took)}")
                embedded.faults.requests.clear()
        lived = thread.is_alive()
        stop.set()
        thread.join()
    return int(differs or not lived)


def resident_on(kubeconfig: Path, folder: Path, stop: threading.Event) -> tuple[ServeLoop, Health]:
    """Return `serve` for a cluster, to be run in a thread of this process until ``stop``."""
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    namespace, _, name = LEASE.partition("/")
    options = RunOptions.of(
        policy_path=str(policy),
        kubeconfig=str(kubeconfig),
        quiet=True,
        yes=True,
        deadline=60,
        lease=(namespace, name),
    )
    environment = Environment(SystemClock(), {}, _Nowhere(), _Nowhere(), stop)
    health = Health(environment.clock, options.deadline)
    return ServeLoop(options, environment, lambda _: EVERY, health), health


class _Nowhere(io.StringIO):
    """Keeps nothing of what is written."""

    def write(self, text: str) -> int:
        return len(text)


def until_same(kubeconfig: Path, clock: Callable[[], float], health: Health) -> float | None:
    """Return the seconds until what is known is what a fresh list gives, None if that never comes.

    ``clock``: Unix seconds of the cluster.
    """
    client = connect(kubeconfig=kubeconfig, environ={})
    began = time.monotonic()
    while (took := time.monotonic() - began) < _PATIENCE:
        cache = health.cache
        if cache is not None:
            known = contents(RunView(cache, cache.first, client.monotonic()).snapshot(()))
            if known == contents(read_cluster(client, clock=clock).snapshot):
                return took
        time.sleep(0.2)
    return None


def said(health: Health, took: float | None) -> str:
    """Return a line on one look, which was the same after ``took`` seconds."""
    same = "never the same" if took is None else f"the same after {took:.1f} s"
    return f"{health.runs} runs, {same}, {megabytes():.0f} MB"


if __name__ == "__main__":
    sys.exit(main())
