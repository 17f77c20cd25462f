"""How long one class takes over all nodes, static parts being kept.

``pytest benchmarks/test_scheduler.py --benchmark-enable``: 3 ms for 5,000 nodes and 10 ms for 15,000 are
the limits, on one core. The limits are checked on the median, so that one slow round does not count.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import msgspec
import pytest

from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.state import ClusterState
from rebalancer.wire import objects as o
from rebalancer.wire.pods import decode_page

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
LIMITS = {5_000: 0.003, 15_000: 0.010}
_CLASSES = 200
_MIN_ROUNDS = 50


@lru_cache(maxsize=1)
def cluster(nodes: int) -> tuple[ClusterState, SchedulerModel]:
    """Return a cluster of three pods a node, whose classes use every plug-in that scores."""
    fold = Fold()
    items = [_pod(i, nodes) for i in range(3 * nodes)]
    records, _ = decode_page(json.dumps({"items": items}).encode())
    fold.add_pods(records)
    fold.add("Node", (msgspec.convert(_node(i), o.Node) for i in range(nodes)))
    snapshot = fold.finish(captured_at=0.0, version=(1, 36))
    model = SchedulerModel(snapshot, SchedulerProfile.for_version((1, 36)))
    return ClusterState(snapshot), model


def _node(index: int) -> dict[str, Any]:
    name = f"node-{index:05d}"
    taints = [{"key": "slow", "effect": "PreferNoSchedule"}] if index % 7 == 0 else []
    room = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: f"zone-{index % 3}"}},
        "spec": {"taints": taints},
        "status": {"allocatable": room, "images": [{"names": ["app:1"], "sizeBytes": 10**9}]},
    }


def _pod(index: int, nodes: int) -> dict[str, Any]:
    kind = index % _CLASSES
    selector = {"matchLabels": {"app": f"app-{kind}"}}
    spread = {"maxSkew": 2, "labelSelector": selector}
    hard = {**spread, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    soft = {**spread, "topologyKey": HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway"}
    term = {"labelSelector": selector, "topologyKey": ZONE}
    preference = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["zone-0"]}]}
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    affinity = {
        "podAntiAffinity": {field: [{"weight": 100, "podAffinityTerm": term}]},
        "nodeAffinity": {field: [{"weight": 10, "preference": preference}]},
    }
    requests = {"cpu": f"{100 + kind}m", "memory": "128Mi"}
    container = {"name": "main", "image": "app:1", "resources": {"requests": requests}}
    return {
        "metadata": {
            "name": f"pod-{index}",
            "namespace": "default",
            "labels": selector["matchLabels"],
        },
        "spec": {
            "nodeName": f"node-{index * 7919 % nodes:05d}",
            "containers": [container],
            "topologySpreadConstraints": [hard, soft],
            "affinity": affinity,
        },
        "status": {"phase": "Running"},
    }


@pytest.mark.parametrize("nodes", sorted(LIMITS))
def test_one_class_is_evaluated_over_all_nodes_in_time(benchmark: Any, nodes: int) -> None:
    state, model = cluster(nodes)
    evaluation = benchmark.pedantic(model.evaluate, (state, 0), rounds=_MIN_ROUNDS, warmup_rounds=3)
    assert evaluation.feasible.any()
    _within(benchmark, LIMITS[nodes])


@pytest.mark.parametrize("nodes", sorted(LIMITS))
def test_the_sampled_landing_of_one_class_is_predicted_in_time(benchmark: Any, nodes: int) -> None:
    state, model = cluster(nodes)
    prediction = benchmark.pedantic(model.predict, (state, 0), rounds=_MIN_ROUNDS, warmup_rounds=3)
    assert prediction.probability.sum() == pytest.approx(1)
    _within(benchmark, 2 * LIMITS[nodes])


def _within(benchmark: Any, seconds: float) -> None:
    if not benchmark.disabled:
        assert benchmark.stats["median"] <= seconds
