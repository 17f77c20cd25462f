"""Nodes that vanish under a run on the embedded cluster: before it, among its waves, and between two runs."""

import threading
from functools import partial

import pytest

from rebalancer.cli import command
from rebalancer.embedded.apiserver import kinds
from rebalancer.run.memory.remember import SETTLES_AFTER
from rebalancer.testing.objects import EmbeddedCluster, deployment, prefer_apart, require_apart
from tests.support.worlds import FAST
from tests.unit.commands.embedded import MEMORY, ClusterClock, Runner

POLICY = """
apiVersion: rebalancer/v1
kind: Policy
protect: {minPodAge: 0s}
budgets: {inFlight: 1}
strategies: {anti-affinity: {}}
"""
VANISHED = ("p-b1", "p-b2")
MORE = (*VANISHED, "p-a2")


@pytest.fixture
def cluster():
    """Two workloads of four pods in two zones of two nodes, and a third zone that has just joined."""
    with EmbeddedCluster(timings=FAST) as one:
        one.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "memory"}})
        for name in ("p-a1", "p-a2", *VANISHED):
            one.add_node(name, name[2])
        one.settle()
        for name in ("cart", "till"):
            labels = {"app": name}
            one.apply(deployment(name, 4, labels=labels, affinity=prefer_apart(labels)))
        one.settle()
        for name in ("p-c1", "p-c2"):
            one.add_node(name, "c")
        one.settle()
        yield one


@pytest.fixture
def run(cluster, tmp_path):
    return Runner(cluster, tmp_path, POLICY, ClusterClock(cluster))


def lose(cluster: EmbeddedCluster) -> None:
    """Delete Node objects alone, as a cloud controller does that lost sight of its machines."""
    for name in VANISHED:
        cluster.store.remove(kinds.NODE, cluster.store.get(kinds.NODE, "", name))


def test_a_run_on_what_is_left_of_a_cluster_stands_still(cluster, run, capsys):
    with cluster.store.lock:
        lose(cluster)
    code, report = run()
    assert (code, [move["outcome"] for move in report["moves"]]) == (
        0,
        ["planned"] * len(report["moves"]),
    )
    (why, *_) = report["standstill"]
    assert why == (
        "2 of 6 nodes do not exist, though pods are on them (p-b1, p-b2): safety.maxNotReadyNodes allows 1"
    )
    assert "every rule holds" not in report["stopped"]
    assert not [text for text in report["warnings"] if "snapshot" in text]
    command(["doctor", f"--kubeconfig={cluster.kubeconfig}", f"--policy={run.policy}"])
    assert "2 of 6 nodes do not exist" in " ".join(capsys.readouterr().out.split())


class AfterFirst(threading.Event):
    """Never set; loses the nodes once a pod is going."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        super().__init__()
        self._cluster, self._lost = cluster, False

    def is_set(self) -> bool:
        with self._cluster.store.lock:
            pods = self._cluster.objects("Pod")
            going = any("deletionTimestamp" in pod["metadata"] for pod in pods)
            if (going or len(pods) != 8) and not self._lost:
                self._lost = True
                lose(self._cluster)
        return False


def test_nodes_that_vanish_after_a_wave_end_the_moves(cluster, run):
    _, report = run(stop=AfterFirst(cluster))
    ended = {move["wave"]: (move["outcome"], move["message"]) for move in report["moves"]}
    assert (ended[1][0], ended[2][0]) == ("evicted", "dropped")
    assert ended[2][1].startswith("standing still: 2 of 6 nodes do not exist")


def settled(cluster, run):
    """Run until nothing is moved, on a cluster with a pod on each node; return what runs once more, with its memory."""
    labels = {"app": "wide"}
    cluster.apply(deployment("wide", 6, labels=labels, affinity=require_apart(labels)))
    cluster.settle()
    remembering = partial(run, memory=MEMORY)
    while remembering()[1]["moves"]:
        pass
    return remembering


def test_after_a_sudden_fall_between_runs_the_next_ones_stand_still_for_a_while(cluster, run):
    remembering = settled(cluster, run)
    written = cluster.get("ConfigMap", "memory")
    remembering()
    assert cluster.get("ConfigMap", "memory") == written
    for name in MORE:
        cluster.remove_node(name)
    cluster.settle()
    for _ in range(2):
        _, report = remembering()
        (why,) = report["standstill"]
        assert why.startswith("3 nodes are left of 6 that had pods when a run last looked")
        assert "maxNotReadyNodes allows 1" in why
    cluster.advance(SETTLES_AFTER)
    assert remembering()[1]["standstill"] == []
    # What it is now is what the next fall is counted from.
    assert remembering()[1]["standstill"] == []


def test_nodes_that_come_back_end_that(cluster, run):
    remembering = settled(cluster, run)
    for name in MORE:
        cluster.remove_node(name)
    cluster.settle()
    assert remembering()[1]["standstill"]
    for name in VANISHED:
        cluster.add_node(name, "b")
    cluster.settle()
    assert remembering()[1]["standstill"] == []
