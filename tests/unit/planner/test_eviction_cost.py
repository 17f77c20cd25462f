"""What an eviction costs: 1 for an ordinary pod, more for what is dear, less for what is cheap."""

import pytest

from rebalancer.planner.eviction_cost import eviction_cost, reluctance
from rebalancer.testing.snapshots import snapshot_of
from rebalancer.testing.workloads import NOW, node, workload

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


@pytest.mark.parametrize(
    ("created", "factor"),
    [(NOW, 2.0), ("2027-01-15T07:00:00Z", 1.5), ("2027-01-15T06:00:00Z", 1.25)],
)
def test_a_young_pod_is_a_later_choice_which_halves_every_hour(created, factor):
    objects = [node("n0"), *workload("web", ["n0"])]
    objects[-1]["metadata"]["creationTimestamp"] = created
    assert reluctance(snapshot_of(objects)).tolist() == [pytest.approx(factor)]
