"""What the reader of a plan must know beside its moves."""

from dataclasses import replace

import pytest

from rebalancer.planner.notices import notices
from rebalancer.testing.snapshots import disruption_budget, node, snapshot_of, workload
from tests.unit.planner.conftest import draft_of

NODES = [node("n0"), node("n1")]
WEB = workload("web", ["n0", "n1"])


def said(objects, **options):
    return notices(draft_of(objects, **{"strategies": [], **options}))


def test_nothing_is_said_of_a_cluster_that_is_understood():
    assert said([*NODES, *WEB]) == ()


def test_an_unreadable_node_has_no_room():
    (line,) = said([*NODES, *WEB, node("n2", cpu="much")])
    assert line.startswith("node n2 is unreadable (")
    assert line.endswith("): taken as without room")


def test_unreadable_pods_are_not_moved():
    (line,) = said([*NODES, *workload("web", ["n0", "n1"], cpu="much")])
    assert line.startswith("pods of Deployment/default/web are unreadable (")
    assert line.endswith("): not moved")


def test_pods_on_unknown_nodes_count_nowhere():
    assert said([*NODES, *WEB, *workload("db", ["gone"])]) == (
        "1 of 3 pods are on nodes that do not exist (they count nowhere, and stay)",
    )


@pytest.mark.parametrize(
    ("missing", "line"),
    [
        (
            ("Job: none in the file",),
            "not in the snapshot: Job (none in the file); `rebalancer snapshot` reads all kinds",
        ),
        (
            ("Job: none in the file", "Service: forbidden", "Namespace: none in the file"),
            "not in the snapshot: Job, Namespace (none in the file); Service (forbidden); `rebalancer snapshot` reads all kinds",
        ),
        (("Job",), "not in the snapshot: Job"),
    ],
)
def test_what_could_not_be_read_is_named_by_its_reason(missing, line):
    snapshot = replace(snapshot_of([*NODES, *WEB]), missing=missing)
    assert said(snapshot) == (line,)


def test_two_disruption_budgets_over_a_pod_are_a_mistake_of_the_cluster():
    both = [disruption_budget(name, "web", allowed=1) for name in ("one", "two")]
    (line,) = said([*NODES, *WEB, *both])
    assert line.startswith("misconfigured: ")
    assert line.endswith("(pods of Deployment/default/web)")
    assert not said([*NODES, *workload("web", [], replicas=0), *both]), "no pod, no harm"


def test_a_strategy_says_itself_what_keeps_it_from_its_work():
    cordon = {"metadata": {"name": "n0", "annotations": {"rebalancer/leave": "soon"}}}
    odd = NODES[0] | {"metadata": NODES[0]["metadata"] | cordon["metadata"]}
    (line,) = said([odd, NODES[1], *WEB], strategies=["leaving"])
    assert line.startswith('leaving: node n0 is annotated rebalancer/leave: "soon", which')
