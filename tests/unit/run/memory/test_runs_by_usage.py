"""Runs on the embedded cluster by measured use: what they remember of a hot node, and when they act on it."""

import io
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.cli import command
from rebalancer.commands.run import run_once
from rebalancer.kube import read
from rebalancer.kube.lists import Listing
from rebalancer.kube.metrics import MetricsList
from rebalancer.run.memory.document import Document, StreakMemory, decode
from rebalancer.snapshot.build import Fold
from rebalancer.testing.objects import EmbeddedCluster, deployment
from rebalancer.wire.metrics import NodeMetrics, PodMetrics
from rebalancer.wire.times import rfc3339
from tests.support.worlds import FAST
from tests.unit.commands.embedded import run_options

MEMORY = "default/memory"
POLICY = """
apiVersion: rebalancer/v1
kind: Policy
mode: {mode}
protect: {{minPodAge: 0s}}
budgets: {{perOwner: 100%}}
strategies: {{low-utilisation: {{signal: {signal}}}}}
"""

Run = Callable[..., dict[str, Any]]


@dataclass
class Measured:
    """A metrics-server that finds every pod of the cluster to use a fifth of a node of 4 cpu."""

    cluster: EmbeddedCluster
    at: float = field(default_factory=lambda: float(int(time.time()) + 5))
    asked: int = 0
    on: dict[str, int] | None = None
    """Node -> pods there, None: as it is."""

    def read(self, source: object, resource: Any, stop: object) -> MetricsList:
        self.asked += 1
        fold = Fold()
        fold.add(resource.kind, self._told(resource.kind))
        return MetricsList(Listing(resource), fold)

    def pods(self) -> dict[str, int]:
        """Node -> pods there now."""
        return Counter(
            pod["spec"]["nodeName"]
            for pod in self.cluster.objects("Pod", "default")
            if "deletionTimestamp" not in pod["metadata"]
        )

    def _told(self, kind: str) -> list[Any]:
        when = {"timestamp": rfc3339(self.at), "window": "15s"}
        used = {"cpu": "800m", "memory": "64Mi"}
        if kind == "NodeMetrics":
            pods = self.pods() if self.on is None else self.on
            nodes = [
                {
                    "metadata": {"name": node["metadata"]["name"]},
                    "usage": {**used, "cpu": f"{800 * pods.get(node['metadata']['name'], 0)}m"},
                }
                for node in self.cluster.objects("Node")
            ]
            return [msgspec.convert({**one, **when}, NodeMetrics) for one in nodes]
        of_pods = [
            {
                "metadata": {"name": pod["metadata"]["name"], "namespace": "default"},
                "containers": [{"usage": used}],
            }
            for pod in self.cluster.objects("Pod", "default")
        ]
        return [msgspec.convert({**one, **when}, PodMetrics) for one in of_pods]


@pytest.fixture
def hot(monkeypatch):
    """Four busy pods on one node, and another that has just joined."""
    with EmbeddedCluster(timings=FAST) as cluster:
        cluster.add_node("n-a", "a", cpu="4")
        cluster.settle()
        cluster.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "memory"}},
            deployment("web", 4, labels={"app": "web"}),
        )
        cluster.settle()
        cluster.add_node("n-b", "b", cpu="4")
        cluster.settle()
        measured = Measured(cluster)
        monkeypatch.setattr(read, "read_metrics", measured.read)
        yield measured


@pytest.fixture
def run(hot, tmp_path):
    """Run on the cluster with its memory; return the report."""

    def once(signal: str = "usage", mode: str = "enforce", **options: Any) -> dict[str, Any]:
        policy = tmp_path / "policy.yaml"
        policy.write_text(POLICY.format(signal=signal, mode=mode))
        out, err = io.StringIO(), io.StringIO()
        environment = Environment(SystemClock(), {}, out, err, threading.Event())
        chosen: dict[str, Any] = {"memory": MEMORY, "quiet": True, "output": "json", **options}
        kubeconfig = str(hot.cluster.kubeconfig)
        run_once(run_options(policy_path=str(policy), kubeconfig=kubeconfig, **chosen), environment)
        report: dict[str, Any] = json.loads(out.getvalue())
        assert report["exitCode"] == 0
        return report

    return once


def remembered(hot: Measured) -> Document:
    document, warning = decode(hot.cluster.get("ConfigMap", "memory").get("data") or {})
    assert warning is None
    return document


def evicted(report: dict[str, Any]) -> list[str]:
    return [move["landed"] for move in report["moves"] if move["outcome"] == "evicted"]


def test_the_third_run_in_a_row_acts_and_then_there_is_silence(hot, run, capsys):
    for number in (1, 2):
        report = run()
        assert report["moves"] == []
        assert {skip["code"] for skip in report["skipped"]} == {"TooFewRuns"}
        assert f"so far in {number} of 3 runs in a row" in report["skipped"][0]["message"]
        seen = {"low-utilisation": StreakMemory(hot.at, {"n-a": number})}
        assert remembered(hot).streaks == seen
        hot.at += 15
    kubeconfig = f"--kubeconfig={hot.cluster.kubeconfig}"
    assert command(["history", kubeconfig, f"--memory={MEMORY}"]) == 0
    assert "low-utilisation: nodes, and in how many runs in a row" in capsys.readouterr().out
    report = run()
    assert evicted(report) == ["n-b", "n-b"]
    assert report["moves"][0]["reason"] == "node n-a: cpu 80% used (over 50%)"
    assert hot.pods() == {"n-a": 2, "n-b": 2}
    for _ in range(3):
        hot.at += 15
        report = run()
        assert (report["moves"], report["skipped"]) == ([], [])
        assert report["stopped"] == "Nothing to do: every rule holds."


def test_what_was_measured_before_they_moved_moves_no_more_pods(hot, run):
    hot.on = {"n-a": 4}
    for _ in range(3):
        hot.at += 15
        report = run()
    assert len(evicted(report)) == 2
    report = run()
    assert report["moves"] == []
    assert any("until the next measurement" in line for line in report["warnings"])


def test_the_same_measurement_is_counted_once_and_not_written_again(hot, run):
    run()
    written = hot.cluster.get("ConfigMap", "memory")
    report = run()
    assert "so far in 1 of 3 runs" in report["skipped"][0]["message"]
    assert hot.cluster.get("ConfigMap", "memory") == written


def test_a_dry_run_reads_what_was_seen_and_writes_nothing(hot, run):
    for _ in range(2):
        run()
        hot.at += 15
    written = hot.cluster.get("ConfigMap", "memory")
    for _ in range(2):
        assert len(run(dry_run=True)["moves"]) == 2
    assert hot.cluster.get("ConfigMap", "memory") == written


def test_an_explanation_reads_what_is_used_and_says_for_how_long_a_node_waits(
    hot, run, tmp_path, capsys
):
    run()
    hot.at += 15
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.format(signal="usage", mode="enforce"))
    options = [f"--kubeconfig={hot.cluster.kubeconfig}", f"--policy={policy}", "--output=json"]
    assert command(["explain", "node", "n-a", *options, f"--memory={MEMORY}"]) == 0
    explanation = json.loads(capsys.readouterr().out)
    assert explanation["resources"][0]["used"] == 3200
    (gauge,) = explanation["utilisation"]
    assert (gauge["standing"], gauge["message"]) == (
        "over-used",
        "gives none yet: so far in 2 of 3 runs in a row",
    )
    assert {pod["plan"]["code"] for pod in explanation["pods"]} == {"TooFewRuns"}


def test_a_node_that_cools_down_starts_again(hot, run):
    for pods in ({"n-a": 4}, {"n-a": 4}, {"n-a": 1}, {"n-a": 4}, {"n-a": 4}):
        hot.on, hot.at = pods, hot.at + 15
        assert run()["moves"] == []
    assert remembered(hot).streaks["low-utilisation"].runs == {"n-a": 2}


def test_without_memory_no_run_acts_and_each_says_what_to_do(hot, run):
    for _ in range(4):
        hot.at += 15
        report = run(memory=None)
        assert report["moves"] == []
        assert any("give --memory NAMESPACE/NAME" in line for line in report["warnings"])


def test_a_run_that_only_observes_says_that_nothing_will_come_of_it(hot, run):
    report = run(mode="observe")
    assert any("to runs that enforce" in line for line in report["warnings"])
    assert hot.cluster.get("ConfigMap", "memory").get("data") is None
    for _ in range(2):
        run()
        hot.at += 15
    # What others have seen it knows.
    report = run(mode="observe")
    assert (len(report["moves"]), report["warnings"]) == (2, [])


def test_metrics_are_read_only_where_the_policy_asks_for_them(hot, run):
    run("requests")
    assert hot.asked == 0
    assert remembered(hot).streaks == {}
    run("larger", dry_run=True)
    assert hot.asked == 2


def test_a_cluster_that_serves_no_metrics_is_left_alone_and_distinguished(hot, run, monkeypatch):
    run()
    monkeypatch.undo()
    report = run()
    assert (report["moves"], report["skipped"]) == ([], [])
    assert any(line.startswith("usage is not known:") for line in report["warnings"])
    assert any("the usage of no node is known" in line for line in report["warnings"])
    # A run that saw nothing neither counts nor starts again.
    assert remembered(hot).streaks["low-utilisation"].runs == {"n-a": 1}
