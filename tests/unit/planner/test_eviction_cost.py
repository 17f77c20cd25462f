"""What an eviction costs: 1 for an ordinary pod, more for what is dear, less for what is cheap."""

import pytest

from rebalancer.planner.problem import eviction_cost, reluctance
from rebalancer.testing.snapshots import NOW, node, number_pods, snapshot_of, workload
from tests.unit.planner.conftest import draft_of

CLAIM = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def costs(**options):
    return eviction_cost(snapshot_of([node("n0"), *workload("web", ["n0"], **options)])).tolist()


@pytest.mark.parametrize(
    ("options", "cost"),
    [
        ({}, 1.0),
        ({"spec": CLAIM}, 1.5),
        ({"spec": {"terminationGracePeriodSeconds": 120}}, 1.0),
        ({"spec": {"terminationGracePeriodSeconds": 121}}, 1.25),
        ({"spec": CLAIM | {"terminationGracePeriodSeconds": 600}}, 1.75),
        # 2^27 is twice an ordinary pod; nothing is cheaper than 0.1.
        ({"annotations": {DELETION_COST: str(2**27)}}, 2.0),
        ({"annotations": {DELETION_COST: str(-(2**27))}}, 0.1),
        # 2^25 of priority counts as much; system-critical pods are at the upper end.
        ({"priority": 2**25}, 2.0),
        ({"priority": 2_000_000_000}, 10.0),
        ({"priority": 2_000_000_000, "spec": CLAIM}, 10.5),
    ],
)
def test_what_an_eviction_costs(options, cost):
    assert costs(**options) == [pytest.approx(cost)]


def test_no_pod_costs_nothing():
    assert eviction_cost(snapshot_of([node("n0")])).tolist() == []


def later_first(objects, nodes=("n0",)):
    """Names of the pods, the first choice first."""
    draft = draft_of([*map(node, nodes), *objects])
    ranks = draft.view.rank_equals().tolist()
    order = sorted(
        zip(reluctance(draft.snapshot).tolist(), ranks, draft.snapshot.pods.name, strict=True)
    )
    return [name for *_, name in order]


def test_the_highest_ordinal_of_a_statefulset_goes_first():
    objects = number_pods(workload("db", ["n0"] * 12, kind="StatefulSet"))
    assert later_first(objects) == [f"db-{ordinal}" for ordinal in reversed(range(12))]
    # The API server before 1.28 gives no index: the name has it.
    for item in objects[1:]:
        del item["metadata"]["labels"]["apps.kubernetes.io/pod-index"]
    assert later_first(objects)[0] == "db-11"


def test_no_ordinal_decides_between_pods_of_different_nodes():
    for nodes in (["n0", "n1", "n2"], ["n2", "n0", "n1"]):
        objects = number_pods(workload("db", nodes, kind="StatefulSet"))
        first = later_first(objects, ["n0", "n1", "n2"])
        assert [nodes[int(name[-1])] for name in first] == ["n0", "n1", "n2"]


def test_where_a_file_lacks_a_statefulset_s_labels_the_names_have_the_ordinals():
    objects = workload("db", ["n0"] * 12, kind="StatefulSet")
    objects[-1]["metadata"]["creationTimestamp"] = NOW
    assert later_first(objects) == [f"db-{ordinal}" for ordinal in reversed(range(12))]
    assert later_first(workload("web", ["n0"] * 3)) == ["web-0", "web-1", "web-2"]


def test_a_young_replica_of_a_statefulset_changes_no_order_in_it():
    objects = number_pods(workload("db", ["n0"] * 3, kind="StatefulSet"))
    objects[-1]["metadata"]["creationTimestamp"] = NOW
    assert later_first(objects) == ["db-2", "db-1", "db-0"]
    both = later_first([*objects, *workload("web", ["n0"])])
    assert both == ["web-0", "db-2", "db-1", "db-0"]


@pytest.mark.parametrize("labels", [{}, {"apps.kubernetes.io/pod-index": "7"}])
def test_a_label_that_looks_like_an_ordinal_is_none_outside_a_statefulset(labels):
    objects = workload("web", ["n0"], labels={"app": "web", **labels})
    assert reluctance(snapshot_of([node("n0"), *objects])).tolist() == [pytest.approx(1 + 2**-24)]


@pytest.mark.parametrize(
    ("created", "factor"),
    [(NOW, 2.0), ("2027-01-15T07:00:00Z", 1.5), ("2027-01-15T06:00:00Z", 1.25)],
)
def test_a_young_pod_is_a_later_choice_which_halves_every_hour(created, factor):
    objects = [node("n0"), *workload("web", ["n0"])]
    objects[-1]["metadata"]["creationTimestamp"] = created
    assert reluctance(snapshot_of(objects)).tolist() == [pytest.approx(factor)]
