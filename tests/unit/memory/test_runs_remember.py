"""Runs on the embedded cluster that remember: what the next plan makes of it, and what a signal leaves."""

import io
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rebalancer.app import RunOptions, run_once
from rebalancer.cli import command
from rebalancer.environment import Environment, SystemClock
from rebalancer.errors import ExitCode
from rebalancer.evictor.outcomes import Outcome, Status
from rebalancer.memory.document import KEY, Document, decode, encode
from rebalancer.memory.remember import remember
from rebalancer.planner.plan import Cost, Landing, Move
from rebalancer.simulator.engine import Timings
from rebalancer.testing.cluster import EmbeddedCluster, deployment, prefer_apart

MEMORY = "default/memory"
WEB = "Deployment/default/web"
NOW_POLICY = """
apiVersion: rebalancer/v1
kind: Policy
protect: {minPodAge: 0s}
strategies: {anti-affinity: {}}
"""

Run = Callable[..., tuple[int, dict]]


@pytest.fixture
def drifted() -> Iterator[EmbeddedCluster]:
    """Three replicas that want a zone each, two zones, and a third that has just joined."""
    with EmbeddedCluster(timings=Timings(startup=0.05)) as cluster:
        for zone in "ab":
            cluster.add_node(f"n-{zone}", zone)
        labels = {"app": "web"}
        cluster.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "memory"}},
            deployment("web", 3, labels=labels, **prefer_apart(labels)),
        )
        cluster.settle()
        cluster.add_node("n-c", "c")
        cluster.settle()
        yield cluster


@pytest.fixture
def run(drifted: EmbeddedCluster, tmp_path: Path) -> Run:
    """Run on the cluster with its memory; return the exit code and the report."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(NOW_POLICY)

    def once(stop: threading.Event | None = None, **options: object) -> tuple[int, dict]:
        out, err = io.StringIO(), io.StringIO()
        environment = Environment(
            SystemClock(), {}, out, err, stop if stop is not None else threading.Event()
        )
        chosen = {"memory": MEMORY, "quiet": True, "output": "json", **options}
        code = run_once(
            RunOptions(
                policy_path=str(policy), kubeconfig=str(drifted.kubeconfig), **chosen
            ),
            environment,
        )
        return int(code), json.loads(out.getvalue())

    return once


def remembered(cluster: EmbeddedCluster) -> Document:
    document, warning = decode(cluster.get("ConfigMap", "memory").get("data") or {})
    assert warning is None
    return document


def rewrite(cluster: EmbeddedCluster, document: Document) -> None:
    found = cluster.get("ConfigMap", "memory")
    cluster.apply({**found, "apiVersion": "v1", "kind": "ConfigMap", "data": encode(document)})
