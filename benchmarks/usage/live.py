"""The draws on a real control plane, with the descheduler beside it: python -m benchmarks.usage.live --draws 20 --seed 3000.

Both read the same metrics API, measured anew before each of their runs: a pod uses what its workload was drawn to use, wherever it is. The
descheduler's LowNodeUtilization has the same thresholds, as distances from the mean. The scheduler and the controllers are Kubernetes' own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.decisions.contenders import Contender, Ours, Peer
from benchmarks.decisions.convergence import settle
from benchmarks.decisions.watcher import Watcher
from benchmarks.usage.__main__ import CPU, Draw, draw, optimum
from tests.controlplane import ControlPlane, metrics, objects, operations

_OURS = """
apiVersion: rebalancer/v1
kind: Policy
steer: marks
budgets: {perHour: 100%}
protect: {minPodAge: 0s}
strategies: {low-utilisation: {signal: usage, runs: 1, deviation: true, under: {cpu: 0%}, over: {cpu: 10%}}}
"""
_PLUGIN = "LowNodeUtilization"
_PEER = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerPolicy",
    "metricsProviders": [{"source": "KubernetesMetrics"}],
    "profiles": [
        {
            "name": "usage",
            "pluginConfig": [
                {"name": "DefaultEvictor", "args": {"nodeFit": True}},
                {
                    "name": _PLUGIN,
                    "args": {
                        "useDeviationThresholds": True,
                        "thresholds": {"cpu": 0},
                        "targetThresholds": {"cpu": 10},
                        "metricsUtilization": {"source": "KubernetesMetrics"},
                    },
                },
            ],
            "plugins": {"balance": {"enabled": [_PLUGIN]}},
        }
    ],
}
_RUNS = 8
"""Of each contender at most; one that is silent twice has ended."""


@dataclass
class Course:
    """What a contender did on one cluster."""

    deviation: float
    """Standard deviation of use over the nodes, at the end, in millicores."""
    evictions: int
    twice: int
    """Evictions of pods that came for an evicted one."""
    hot: int
    """Nodes more than 10 % above the mean at the end."""
    silent: bool


def arrange(plane: ControlPlane, made: Draw) -> None:
    """Create the cluster of a draw; each pod is bound as the draw says, while no scheduler runs."""
    names = [f"n{n:02}" for n in range(made.nodes)]
    plane.apply(
        objects.node(name, zone=f"z{n % 3}", cpu=f"{CPU}m", memory="512Gi")
        for n, name in enumerate(names)
    )
    operations.wait_nodes_ready(plane.api, made.nodes)
    plane.stop("kube-scheduler", kill=True)
    # A rule over a label that no node has: only load decides.
    rule = objects.spread({"app": "any"}, "rack", hard=False)
    plane.apply(
        objects.deployment(
            f"w{w}",
            len(on),
            labels={"app": f"w{w}"},
            cpu=f"{asks}m",
            memory="64Mi",
            topologySpreadConstraints=[rule],
        )
        for w, (asks, on) in enumerate(zip(made.asks, made.on, strict=True))
    )
    pods = sum(map(len, made.on))
    plane.wait_until(
        lambda: len(operations.pods(plane.api, "default")) == pods, 60, "all pods created"
    )
    places = {f"w{w}": [names[n] for n in on] for w, on in enumerate(made.on)}
    for pod in operations.pods(plane.api, "default"):
        name = pod["metadata"]["name"]
        target = {"kind": "Node", "name": places[pod["metadata"]["labels"]["app"]].pop()}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        plane.api.post(f"/api/v1/namespaces/default/pods/{name}/binding", body)
    plane.start("kube-scheduler")
    operations.wait_pods_ready(plane.api, pods, 120, namespace="default")


def measure(plane: ControlPlane, made: Draw) -> list[int]:
    """Have the metrics API say what is used now; return what each node uses."""
    # A measurement is of a second; what was moved within it is not in it.
    time.sleep(1.1)
    with contextlib.suppress(Exception):
        plane.api.delete(f"{metrics.ROOT}/nodes")
        plane.api.delete(f"{metrics.ROOT}/namespaces/default/pods")
    used = [0] * made.nodes
    for pod in operations.pods(plane.api, "default"):
        if "deletionTimestamp" in pod["metadata"] or "nodeName" not in pod["spec"]:
            continue
        amount = made.uses[int(pod["metadata"]["labels"]["app"][1:])]
        used[int(pod["spec"]["nodeName"][1:])] += amount
        metrics.tell_pod(plane.api, pod, [{"cpu": f"{amount}m", "memory": "1Mi"}])
    for n, amount in enumerate(used):
        metrics.tell_node(plane.api, f"n{n:02}", {"cpu": f"{amount}m", "memory": "1Gi"})
    return used


def run(plane: ControlPlane, made: Draw, contender: Contender) -> Course:
    """Let a contender run on the cluster until it is silent twice."""
    plane.reset()
    arrange(plane, made)
    pods, silent = sum(map(len, made.on)), 0
    with metrics.served(plane.api), Watcher(plane) as watcher:
        used = measure(plane, made)
        for _ in range(_RUNS):
            before = len(watcher.seen.evicted)
            contender.run(Path(plane.kubeconfig))
            settle(plane, pods)
            watcher.catch_up()
            silent = 0 if len(watcher.seen.evicted) > before else silent + 1
            used = measure(plane, made)
            if silent == 2:
                break
        seen = watcher.seen
        return Course(
            round(statistics.pstdev(used), 1),
            len(seen.evicted),
            seen.twice,
            sum(amount > made.most + 1 for amount in used),
            silent > 0,
        )


def play(plane: ControlPlane, seed: int, folder: Path) -> dict[str, Any] | None:
    """Return the figures of a seed; None where no node is clearly hot, or the optimum is not proven."""
    made = draw(seed)
    if not made.is_clear():
        return None
    fewest, best, proven = optimum(made)
    if not proven:
        return None
    contenders = (Ours(folder, policy=_OURS), Peer(folder, _PEER))
    courses = {one.name: asdict(run(plane, made, one)) for one in contenders}
    before = round(statistics.pstdev(made.used()), 1)
    return {
        "seed": seed,
        "before": before,
        "best": round(best, 1),
        "fewest": fewest,
        "courses": courses,
    }


def main() -> int:
    """Print a line of JSON for each draw, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seed", type=int, default=3000)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with ControlPlane() as plane, tempfile.TemporaryDirectory(prefix="usage-") as scratch:
        for row in _rows(plane, options.seed, Path(scratch)):
            rows.append(row)
            print(json.dumps(row), flush=True)
            if len(rows) == options.draws:
                break
    for name in rows[0]["courses"]:
        courses = [row["courses"][name] for row in rows]
        ratios = [row["courses"][name]["deviation"] / max(row["best"], 1.0) for row in rows]
        sums = Counter[str]()
        for course in courses:
            sums.update(
                evictions=course["evictions"],
                twice=course["twice"],
                hot=course["hot"],
                silent=course["silent"],
            )
        print(
            f"{name}: deviation / best mean {statistics.mean(ratios):.2f}, median {statistics.median(ratios):.2f},"
            f" worst {max(ratios):.2f}; fewest moves {sum(row['fewest'] for row in rows)}; {dict(sums)}"
        )
    return 0


def _rows(plane: ControlPlane, seed: int, folder: Path) -> Iterator[dict[str, Any]]:
    while True:
        row = play(plane, seed, folder)
        if row is not None:
            yield row
        seed += 1


if __name__ == "__main__":
    sys.exit(main())
