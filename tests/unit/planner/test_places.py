"""Budgets per namespace and node, of a run, and per zone, of what is in flight."""

import pytest

from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.policy.values import Limit
from rebalancer.testing.snapshots import ZONE, apart, node, workload
from tests.unit.planner.conftest import draft_of

A1, A2, B1, X1 = range(4)
NODES = [
    node("a1", "a"),
    node("a2", "a"),
    node("b1", labels={"failure-domain.beta.kubernetes.io/zone": "b"}),
    node("x1"),
]
WIDE = dict.fromkeys(("inFlight", "perNode", "perOwner", "perRun", "perHour"), 9)
RULE = "duplicates"


def places(budgets):
    """The allowance over four pods of web and two of shop, with a class of each."""
    pods = [
        *workload("web", ["a1", "a2", "b1", "x1"]),
        *workload("shop", ["a1", "b1"], namespace="shop"),
    ]
    settings = Settings(budgets=Budgets.model_validate(WIDE | budgets))
    draft = draft_of([*NODES, *pods], strategies=[], settings=settings)
    names = list(draft.snapshot.pods.name)
    web, shop = (int(draft.snapshot.pods.cls[names.index(pod)]) for pod in ("web-0", "shop-0"))
    return draft.allowance, web, shop


@pytest.mark.parametrize(
    ("limit", "most"),
    [(2, 2), ("50%", 2), ("1%", 1)],  # of four movable pods; a share is at least 1
)
def test_a_namespace_has_a_limit_for_the_run(limit, most):
    of, web, shop = places({"perNamespace": limit})
    for left in range(most, 0, -1):
        assert of.has_room_for(left, RULE, web)
        assert not of.has_room_for(left + 1, RULE, web)
        assert of.over(RULE, web) is None
        of.spend(web, A1, RULE)
    assert of.over(RULE, web) == f"perNamespace {most} in default"
    of.next_wave()
    assert of.over(RULE, web) is not None, "a landing gives nothing of it back"
    assert of.over(RULE, shop) is None


def test_without_a_limit_any_number_goes():
    of, web, _ = places({})
    for _ in range(3):
        of.spend(web, A1, RULE)
    assert of.has_room_for(6, RULE, web)
    assert of.waits(web, A1, RULE) is None


@pytest.mark.parametrize(
    ("limit", "most"),
    [(2, 2), ("100%", 2), ("1%", 1), (0, 0)],  # of two pods on a1; a share is at least 1
)
def test_a_node_has_a_limit_for_the_run(limit, most):
    of, web, shop = places({"perNodeInRun": limit})
    for cls in (web, shop)[:most]:
        assert of.waits(cls, A1, RULE) is None
        of.spend(cls, A1, RULE)
        of.next_wave()
    assert of.waits(web, A1, RULE) == f"perNodeInRun {most} from a1"
    assert (of.waits(web, A2, RULE) is None) == (most > 0), "another node"


def test_lifted_budgets_are_those_of_the_run_and_the_hour_alone(plan):
    crowd = [node(f"n{i}", f"z{i}") for i in range(6)]
    crowd += workload("web", ["n0"] * 6, spec=apart("web", weight=100))
    each: dict[str, Limit] = {"per_owner": Limit.parse("100%"), "in_flight": Limit.parse(9)}
    for budgets, moves in (({}, 5), ({"per_namespace": Limit.parse(2)}, 2)):
        held = Budgets(per_run=Limit.parse(1), per_hour=Limit.parse(1), **each, **budgets)
        settings = Settings(budgets=held, lifted=True)
        assert len(plan(crowd, strategies=["anti-affinity"], settings=settings).moves) == moves


def test_a_zone_has_a_limit_for_what_is_in_flight():
    of, web, _ = places({"perZone": 1})
    of.spend(web, A1, RULE)
    assert of.waits(web, A2, RULE) == "perZone 1 from a"
    assert of.waits(web, B1, RULE) is None, "another zone, by the older label"
    assert of.waits(web, X1, RULE) is None, "in no zone"
    of.spend(web, X1, RULE)
    of.next_wave()
    assert of.waits(web, A2, RULE) is None


def test_a_share_is_of_the_pods_of_the_zone():
    of, web, _ = places({"perZone": "67%"})  # of the three in a: two
    of.spend(web, A1, RULE)
    assert of.waits(web, A1, RULE) is None
    of.spend(web, A1, RULE)
    assert of.waits(web, A1, RULE) == "perZone 2 from a"
    assert ZONE in NODES[0]["metadata"]["labels"]


def test_the_budgets_of_a_strategy_hold_for_its_moves_alone():
    narrow = Budgets.model_validate(WIDE | {"perOwner": 1, "perRun": 2, "perNamespace": 1})
    settings = Settings(budgets=Budgets.model_validate(WIDE), of_strategy={RULE: narrow})
    pods = [*workload("web", ["a1", "a2"]), *workload("shop", ["a1"], namespace="shop")]
    draft = draft_of([*NODES, *pods], strategies=[], settings=settings)
    of, web = (
        draft.allowance,
        int(draft.snapshot.pods.cls[list(draft.snapshot.pods.name).index("web-0")]),
    )
    of.spend(web, A1, "other")
    assert (of.over(RULE, web), of.waits(web, A2, RULE)) == (None, None)
    of.spend(web, A1, RULE)
    assert of.over(RULE, web) == "perNamespace 1 in default"
    assert of.waits(web, A2, RULE) == "perOwner 1"
    assert (of.over("other", web), of.waits(web, A2, "other")) == (None, None)
    of.next_wave()
    assert of.waits(web, A2, RULE) is None
    assert (of.left(RULE), of.left("other")) == (1, 7)
