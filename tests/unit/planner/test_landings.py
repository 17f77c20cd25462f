"""Nodes on which the policy wants no replacement: what would land there is not moved, and says so."""

import pytest

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.base.errors import PolicyError
from rebalancer.plan.plan import Code
from rebalancer.planner.planning import make_plan
from rebalancer.testing.snapshots import node, snapshot_of, workload
from tests.unit.planner.test_planning import rules_of

STRATEGY = "strategies: {duplicates: {}}"


def plan(landings, *nodes):
    of = rules_of(f"landings: {landings}\n{STRATEGY}")
    snapshot = snapshot_of([node("n0"), *nodes, *workload("web", ["n0", "n0"])])
    return make_plan(of, snapshot, Timings(SystemClock())).plan


def made(name, created=None, ready=None, **more):
    """A node that was made, and became Ready, at these times of 2027-01-15; snapshots are of 08:00."""
    of = node(name, **more)
    if created is not None:
        of["metadata"]["creationTimestamp"] = f"2027-01-15T{created}:00Z"
    if ready is not None:
        of["status"]["conditions"][0]["lastTransitionTime"] = f"2027-01-15T{ready}:00Z"
    return of


@pytest.mark.parametrize(
    ("landings", "target", "goes"),
    [
        ("{}", made("n1", "07:59"), True),
        ("{minNodeAge: 10m}", made("n1"), True),
        ("{minNodeAge: 10m}", made("n1", "07:50"), True),
        ("{minNodeAge: 10m}", made("n1", "07:51"), False),
        ("{minNodeAge: 10m}", made("n1", "06:00", ready="07:55"), False),
        ("{minNodeAge: 10m}", made("n1", "06:00", ready="07:45"), True),
        ("{exclude: {pool: spot}}", made("n1", labels={"pool": "spot"}), False),
        ("{exclude: {pool: spot}}", made("n1", labels={"pool": "web"}), True),
        (
            "{exclude: {matchExpressions: [{key: pool, operator: Exists}]}}",
            made("n1", labels={"pool": "web"}),
            False,
        ),
        ("{minNodeAge: 10m, exclude: {pool: spot}}", made("n1", "07:59"), False),
    ],
)
def test_where_a_replacement_may_land(landings, target, goes):
    made_plan = plan(landings, target)
    assert bool(made_plan.moves) is goes
    assert {skip.code for skip in made_plan.skips} == (set() if goes else {Code.AVOIDED_NODE})


ARCH = "kubernetes.io/arch"
ARM, AMD = {ARCH: "arm64"}, {ARCH: "amd64"}
BOTH = [{"key": ARCH, "operator": "In", "values": ["amd64", "arm64"]}]
FOR_BOTH = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": BOTH}]
            }
        }
    }
}


def plan_on(target, spec, landings, strategy, *more):
    rules = rules_of(f"landings: {landings}\nstrategies: {{{strategy}: {{}}}}")
    objects = [node("n1", labels=target), *workload("web", ["n0", "n0"], spec=spec), *more]
    return make_plan(rules, snapshot_of(objects), Timings(SystemClock())).plan


@pytest.mark.parametrize(
    ("landings", "target", "spec", "goes"),
    [
        ("{}", ARM, {}, True),
        ("{sameArchitecture: true}", ARM, {}, False),
        ("{sameArchitecture: true}", AMD, {}, True),
        ("{sameArchitecture: true}", {}, {}, True),
        # What its template asks for by itself, it runs on.
        ("{sameArchitecture: true}", ARM, FOR_BOTH, True),
    ],
)
def test_pods_keep_to_the_architecture_of_their_ready_ones(landings, target, spec, goes):
    moves = plan_on(target, spec, landings, "duplicates", node("n0", labels=AMD)).moves
    assert [[landing.node for landing in move.landings] for move in moves] == [["n1"]] * goes


def test_who_has_to_go_and_might_land_on_another_architecture_says_so():
    # n0 must be left, and n2 is fuller than n1.
    going = [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]
    more = [node("n0", labels=AMD, taints=going), node("n2", labels=AMD)]
    more += workload("full", ["n2"] * 2, cpu="1")
    made_plan = plan_on(ARM, {}, "{sameArchitecture: true}", "leaving", *more)
    assert not made_plan.moves
    assert {skip.code for skip in made_plan.skips} == {Code.AVOIDED_NODE}
    assert "of another architecture than its Ready pods" in made_plan.skips[0].message


def test_another_node_that_the_scheduler_prefers_may_take_it():
    # n1 is new and nearly full: no landing is predicted there.
    full = [made("n1", "07:59", cpu="1"), *workload("fill", ["n1"], cpu="900m", memory="14Gi")]
    objects = [node("n0"), *full, node("n2"), *workload("web", ["n0", "n0"], cpu="500m")]
    of = rules_of(f"landings: {{minNodeAge: 10m}}\n{STRATEGY}")
    (move,) = make_plan(of, snapshot_of(objects), Timings(SystemClock())).plan.moves
    assert [landing.node for landing in move.landings] == ["n2"]


def test_the_reason_names_the_share_and_the_node():
    skips = plan("{minNodeAge: 10m}", made("n1", "07:59")).skips
    text = "100% of its landings are on nodes that landings leaves out (n1 100%)"
    assert {skip.message for skip in skips} == {text}


@pytest.mark.parametrize(
    ("landings", "problem"),
    [
        ("{exclude: {}}", "exclude names no labels"),
        ("{minNodeAge: 0s}", "more than 0s"),
        ("{minAge: 5m}", "minAge"),
    ],
)
def test_what_is_no_rule_is_an_error(landings, problem):
    with pytest.raises(PolicyError, match=problem):
        rules_of(f"landings: {landings}\n{STRATEGY}")
