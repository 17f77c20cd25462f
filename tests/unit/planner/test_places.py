"""Budgets per namespace and node, of a run, and per zone, of what is in flight."""

import math

import pytest

from rebalancer.planner.allowance import Places
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.policy.values import Limit
from rebalancer.testing.snapshots import ZONE, apart, node, workload
from tests.unit.planner.conftest import problem_of

A1, A2, B1, X1 = range(4)
NODES = [
    node("a1", "a"),
    node("a2", "a"),
    node("b1", labels={"failure-domain.beta.kubernetes.io/zone": "b"}),
    node("x1"),
]


def places(budgets):
    """The budgets' places over four pods of web and two of shop, with a class of each."""
    pods = [
        *workload("web", ["a1", "a2", "b1", "x1"]),
        *workload("shop", ["a1", "b1"], namespace="shop"),
    ]
    problem = problem_of([*NODES, *pods], strategies=[])
    names = list(problem.snapshot.pods.name)
    web, shop = (int(problem.snapshot.pods.cls[names.index(pod)]) for pod in ("web-0", "shop-0"))
    return Places(problem, Budgets.model_validate(budgets)), web, shop


@pytest.mark.parametrize(
    ("limit", "most"),
    [(2, 2), ("50%", 2), ("1%", 1)],  # of four movable pods; a share is at least 1
)
def test_a_namespace_has_a_limit_for_the_run(limit, most):
    of, web, _ = places({"perNamespace": limit})
    for left in range(most, 0, -1):
        assert (of.left(web), of.over_in("default")) == (left, None)
        of.count(web, A1)
    assert of.over_in("default") == f"perNamespace {most} in default"
    of.land()
    assert of.over_in("default") is not None, "a landing gives nothing of it back"
    assert of.over_in("shop") is None


def test_without_a_limit_any_number_goes():
    of, web, _ = places({})
    of.count(web, A1)
    assert of.left(web) == math.inf
    assert of.waits(A1) is None


@pytest.mark.parametrize(
    ("limit", "most"),
    [(2, 2), ("100%", 2), ("1%", 1), (0, 0)],  # of two pods on a1; a share is at least 1
)
def test_a_node_has_a_limit_for_the_run(limit, most):
    of, web, shop = places({"perNodeInRun": limit})
    for cls in (web, shop)[:most]:
        assert of.waits(A1) is None
        of.count(cls, A1)
        of.land()
    assert of.waits(A1) == f"perNodeInRun {most} from a1"
    assert (of.waits(A2) is None) == (most > 0), "another node"


def test_lifted_budgets_are_those_of_the_run_and_the_hour_alone(plan):
    crowd = [node(f"n{i}", f"z{i}") for i in range(6)]
    crowd += workload("web", ["n0"] * 6, spec=apart("web", weight=100))
    each: dict[str, Limit] = {"per_owner": Limit.parse("100%"), "in_flight": Limit.parse(9)}
    for budgets, moves in (({}, 5), ({"per_namespace": Limit.parse(2)}, 2)):
        held = Budgets(per_run=Limit.parse(1), per_hour=Limit.parse(1), **each, **budgets)
        settings = Settings(budgets=held, lifted=True)
        assert len(plan(crowd, strategies=["anti-affinity"], settings=settings).moves) == moves


def test_a_zone_has_a_limit_for_what_is_in_flight():
    of, *_ = places({"perZone": 1})
    of.leave(A1)
    assert of.waits(A2) == "perZone 1 from a"
    assert of.waits(B1) is None, "another zone, by the older label"
    assert of.waits(X1) is None, "in no zone"
    of.leave(X1)
    of.land()
    assert of.waits(A2) is None


def test_a_share_is_of_the_pods_of_the_zone():
    of, *_ = places({"perZone": "67%"})  # of the three in a: two
    of.leave(A1)
    assert of.waits(A1) is None
    of.leave(A1)
    assert of.waits(A1) == "perZone 2 from a"
    assert ZONE in NODES[0]["metadata"]["labels"]
