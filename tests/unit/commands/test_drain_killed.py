"""Drains that are killed after any write, and two at once, in an embedded cluster."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from rebalancer.testing.objects import deployment, job, pdb
from tests.support.clocks import Once
from tests.support.killing import Killed, Killing
from tests.support.worlds import FAST, embedded_nodes
from tests.unit.commands.draining import drained, is_cordoned, pods_on

OLD = ("n1", "n2")
# The threads of a process that was killed end, too.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


def annotation(cluster, node):
    return (cluster.get("Node", node)["metadata"].get("annotations") or {}).get("rebalancer/drain")


def crowded(cluster):
    cluster.apply(deployment("web", 6), pdb("web", {"app": "web"}, min_available=5))
    cluster.settle()


def test_a_drain_that_is_killed_after_any_write_is_gone_on_with_by_the_next(monkeypatch):
    with embedded_nodes(*OLD, "n3", "n4") as cluster:
        crowded(cluster)
        kills, done = 0, None
        killing = Killing(monkeypatch)
        while done is None:
            # Each one gets a little further than the one before it: it does what is left, and one write more.
            killing.begin(1 + kills)
            try:
                done = drained(cluster, *OLD, timeout=600.0)
            except Killed:
                kills += 1
                assert is_cordoned(cluster, "n1")
            assert kills < 40
        assert done.code == 0, done.err
        # One for each node that is cordoned, at least one for a pod, one for each annotation that goes.
        assert kills >= 3
        cluster.settle()
        assert [pods_on(cluster, node) for node in OLD] == [[], []]
        assert all(is_cordoned(cluster, node) and annotation(cluster, node) is None for node in OLD)
        assert cluster.get("Deployment", "web")["status"]["readyReplicas"] == 6


def test_it_stays_known_after_a_kill_who_cordoned_the_node(monkeypatch):
    with embedded_nodes(*OLD, timings=replace(FAST, job=600.0)) as cluster:
        cluster.cordon(["n2"])
        cluster.apply(job("sums"))
        cluster.settle()
        with monkeypatch.context() as patch:
            killing = Killing(patch)
            killing.begin(2)
            with pytest.raises(Killed):
                drained(cluster, *OLD, timeout=600.0)
        assert [json.loads(annotation(cluster, node)).get("cordoned", False) for node in OLD] == [
            True,
            False,
        ]
        # The next one gives up, and gives back what a drain cordoned, and no more.
        assert drained(cluster, *OLD, timeout=1.0, uncordon_on_failure=True).code == 4
        assert [is_cordoned(cluster, node) for node in OLD] == [False, True]


@pytest.mark.parametrize("cordoned", [True, False])
def test_a_drain_goes_on_with_a_killed_one_only_while_the_node_is_cordoned(cordoned):
    """Else people have taken the node back since, and batch work is waited for anew."""
    with embedded_nodes("n1", timings=replace(FAST, job=600.0)) as cluster:
        cluster.apply(job("sums"))
        cluster.settle()
        left = {"by": "killed", "why": "", "at": "2026-01-01T00:00:00Z", "cordoned": True}
        metadata = {"name": "n1", "annotations": {"rebalancer/drain": json.dumps(left)}}
        cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        cluster.cordon(["n1"], on=cordoned)
        taken_over = Once(lambda: json.loads(annotation(cluster, "n1"))["by"] != "killed")
        assert drained(cluster, "n1", stop=taken_over).code == 4
        order = json.loads(annotation(cluster, "n1"))
        assert (order["at"] == left["at"], order["cordoned"]) == (cordoned, True)


def test_a_drain_that_ends_after_its_node_was_uncordoned_leaves_nothing_on_it():
    with embedded_nodes("n1", timings=replace(FAST, job=600.0)) as cluster:
        cluster.apply(job("sums"))
        cluster.settle()

        def uncordoned():
            if annotation(cluster, "n1") is not None:
                cluster.cordon(["n1"], on=False)
            return not is_cordoned(cluster, "n1") and annotation(cluster, "n1") is not None

        assert drained(cluster, "n1", stop=Once(uncordoned)).code == 4
        assert not is_cordoned(cluster, "n1")
        assert annotation(cluster, "n1") is None


def test_two_drains_at_once_empty_the_nodes_and_evict_nothing_else():
    with embedded_nodes(*OLD, "n3", "n4") as cluster:
        crowded(cluster)
        there = {name for node in OLD for name in pods_on(cluster, node)}
        with ThreadPoolExecutor(2) as pool:
            both = list(
                pool.map(
                    lambda name: drained(cluster, *OLD, timeout=600.0, environ={"POD_NAME": name}),
                    ("one", "other"),
                )
            )
        cluster.settle()
        assert [done.code for done in both] == [0, 0], [done.err for done in both]
        evicted = [
            one["pod"]
            for done in both
            for one in done.report["outcomes"]
            if one["outcome"] == "evicted"
        ]
        # Of a pod that both ask for in the same moment the server says yes to both; nothing else goes.
        assert {name.rpartition("/")[2] for name in evicted} == there
        assert [pods_on(cluster, node) for node in OLD] == [[], []]
        assert all(is_cordoned(cluster, node) and annotation(cluster, node) is None for node in OLD)
        assert cluster.get("Deployment", "web")["status"]["readyReplicas"] == 6
