"""A zone that loses its last node between two runs with a memory, on the embedded cluster."""

import json
from functools import partial

import pytest

from rebalancer.cli import command
from rebalancer.run.memory.document import FORGOTTEN_AFTER, NodeCountMemory
from rebalancer.run.memory.remember import with_zones
from rebalancer.testing.objects import EmbeddedCluster, deployment
from rebalancer.testing.snapshots import ZONE, node, snapshot_of
from tests.support.worlds import FAST
from tests.unit.commands.embedded import ClusterClock, Runner

POLICY = """
apiVersion: rebalancer/v1
kind: Policy
safety: {maxNotReadyNodes: 100%}
strategies: {topology-spread: {}}
"""
LABELS = {"app": "till"}
OVER_ZONES = {
    "topologyKey": ZONE,
    "maxSkew": 1,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": LABELS},
}


@pytest.fixture
def cluster():
    """Four pods that spread over the zones north and south, two nodes each, and an empty node in west."""
    with EmbeddedCluster(timings=FAST) as one:
        labels = {"app.kubernetes.io/name": "kube-rebalancer"}
        of_release = {"name": "till-memory", "labels": labels}
        one.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": of_release})
        for name, zone in (("n1", "north"), ("n2", "north"), ("s1", "south"), ("s2", "south")):
            one.add_node(name, zone)
        one.settle()
        one.apply(deployment("till", 4, labels=LABELS, topologySpreadConstraints=[OVER_ZONES]))
        one.settle()
        yield one


@pytest.fixture
def run(cluster, tmp_path):
    return Runner(cluster, tmp_path, POLICY, ClusterClock(cluster))


def advice_on_zones(cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    command(["advise", f"--kubeconfig={cluster.kubeconfig}", "--output=json"])
    (one,) = json.loads(capsys.readouterr().out)["workloads"]
    return " ".join(each["why"] for each in one["advice"] if each["topic"] == "spread")


def kept(cluster: EmbeddedCluster) -> dict[str, int]:
    document = json.loads(cluster.get("ConfigMap", "till-memory")["data"]["memory.json"])
    zones: dict[str, int] = document["nodes"]["zones"]
    return zones


def test_a_zone_that_has_lost_its_last_node_is_named_until_it_is_back_or_forgotten(
    cluster, run, capsys
):
    cluster.add_node("w1", "west")
    cluster.settle()
    remembering = partial(run, memory="default/till-memory")
    while remembering()[1]["moves"]:
        pass
    assert sorted(kept(cluster)) == ["north", "south", "west"]

    cluster.remove_node("w1")
    cluster.settle()
    _, report = remembering()
    (text,) = report["after"]["topology-spread"]["unsatisfiable"]
    assert text.endswith("west has no node")
    assert "every rule holds" not in report["stopped"]
    assert "west has none. With minDomains 3" in advice_on_zones(cluster, capsys)
    # Without the memory nothing is known of it.
    assert run()[1]["after"]["topology-spread"]["unsatisfiable"] == []

    cluster.add_node("w2", "west")
    cluster.settle()
    assert not remembering()[1]["after"]["topology-spread"]["unsatisfiable"]
    assert not advice_on_zones(cluster, capsys)

    cluster.remove_node("w2")
    cluster.settle()
    cluster.advance(FORGOTTEN_AFTER + 1)
    _, report = remembering()
    assert not report["after"]["topology-spread"]["unsatisfiable"]
    assert sorted(kept(cluster)) == ["north", "south"]


NOW = 1_900_000_000
DAY = 86_400


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ({}, {"north": NOW}),
        # What is known is not written again before a day is over.
        ({"north": NOW - DAY + 9}, {"north": NOW - DAY + 9}),
        ({"north": NOW - DAY - 9}, {"north": NOW}),
        ({"west": NOW - DAY, "north": NOW}, {"west": NOW - DAY, "north": NOW}),
        ({"west": NOW - 8 * DAY}, {"north": NOW}),
        # Written under a wrong clock.
        ({"west": NOW + DAY, "north": NOW + DAY}, {"north": NOW}),
        # The newest of too many.
        (
            {f"z{n:03}": NOW - n for n in range(1, 300)},
            {"north": NOW, **{f"z{n:03}": NOW - n for n in range(1, 100)}},
        ),
    ],
)
def test_the_zones_that_are_kept(earlier, later):
    snapshot = snapshot_of([node("n1", "north")])
    seen = with_zones(NodeCountMemory(4), NodeCountMemory(4, zones=earlier), snapshot, NOW)
    assert seen == NodeCountMemory(4, zones=later)
