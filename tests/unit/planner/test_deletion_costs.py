"""Deletion costs: however many pods a scale-in takes, and in whatever order among equals, what is left keeps its rules."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.planner.deletion_costs import assign, plan_deletion_costs
from rebalancer.planner.rules import NO_HISTORY
from rebalancer.snapshot.labels import ZONE_KEYS
from rebalancer.testing.snapshots import HOSTNAME, node, snapshot_of, spread, workload
from rebalancer.wire.pods import DELETION_COST, OUR_DELETION_COST
from tests.support.worlds import read_rules

POLICY = "strategies: {topology-spread: {}, deletion-cost: {podsPerRun: 10000}}"
SPOT = {"karpenter.sh/capacity-type": "spot"}


def nodes_of(zones="xyz", each=3, **more):
    return [node(f"{zone}{i}", zone, **more) for zone in zones for i in range(each)]


def planned(objects, policy=POLICY, **more):
    return plan_deletion_costs(read_rules(policy), snapshot_of(objects), NO_HISTORY, **more)


def written(objects, costs):
    """The objects as the API server has them once ``costs`` are written."""
    values = {change.uid: change.value for change in costs.changes}
    made = []
    for item in objects:
        uid = item["metadata"].get("uid")
        if item["kind"] == "Pod" and uid in values:
            kept = dict(item["metadata"].get("annotations") or {})
            for name in (DELETION_COST, OUR_DELETION_COST):
                kept.pop(name, None)
                if values[uid] is not None:
                    kept[name] = str(values[uid])
            made.append({**item, "metadata": {**item["metadata"], "annotations": kept}})
        else:
            made.append(item)
    return made


def pods(objects, app):
    return [
        item
        for item in objects
        if item["kind"] == "Pod" and item["metadata"]["labels"]["app"] == app
    ]


def take(objects, app, number, rng):
    """What is left after a scale-in: the lowest costs go, and among equal ones any."""
    of = pods(objects, app)
    rng.shuffle(of)
    of.sort(key=lambda pod: int(pod["metadata"]["annotations"].get(DELETION_COST, "0")))
    gone = {pod["metadata"]["uid"] for pod in of[:number]}
    return [item for item in objects if item["metadata"].get("uid") not in gone]


def skew(objects, app, zones, key=0):
    on = Counter(pod["spec"]["nodeName"][: key or None] for pod in pods(objects, app))
    counts = [on[zone] for zone in zones]
    return max(counts) - min(counts)


def even(number, zones="xyz", each=3, seed=0):
    """So many nodes by name, evenly over zones, and any node of each."""
    rng = random.Random(seed)
    return [f"{zones[i % len(zones)]}{rng.randrange(each)}" for i in range(number)]


@settings(max_examples=25)
@given(
    zones=st.sampled_from(["xy", "xyz", "wxyz"]),
    each=st.integers(1, 4),
    number=st.integers(1, 26),
    max_skew=st.integers(1, 3),
    hard=st.booleans(),
    seed=st.integers(0, 9999),
)
def test_what_is_left_keeps_its_spread(zones, each, number, max_skew, hard, seed):
    on = even(number, zones, each, seed)
    objects = nodes_of(zones, each)
    objects += workload("cart", on, spec=spread("cart", max_skew=max_skew, hard=hard))
    rng = random.Random(seed)
    costs = planned(objects)
    assert all(change.value > 0 for change in costs.changes)
    then = written(objects, costs)
    # Written once, nothing is left to write.
    assert planned(then).changes == ()
    for gone in range(number):
        assert skew(take(then, "cart", gone, rng), "cart", zones, 1) <= max_skew


@settings(max_examples=25)
@given(
    number=st.integers(4, 20),
    steps=st.lists(st.integers(1, 24), max_size=5),
    seed=st.integers(0, 99),
)
def test_in_cycles_only_new_pods_are_written(number, steps, seed):
    """Scale-outs that the scheduler spreads, and scale-ins that take the lowest costs."""
    rng = random.Random(seed)
    spec = spread("cart", hard=True)
    objects = written(
        first := nodes_of() + workload("cart", even(number), spec=spec), planned(first)
    )
    for step, to in enumerate(steps):
        of = pods(objects, "cart")
        if to <= len(of):
            objects = take(objects, "cart", len(of) - to, rng)
            assert skew(objects, "cart", "xyz", 1) <= 1
            continue
        on = Counter(pod["spec"]["nodeName"][0] for pod in of)
        names = set()
        for new in range(to - len(of)):
            zone = min("xyz", key=lambda zone: on[zone])
            on[zone] += 1
            pod = workload("cart", [f"{zone}{new % 3}"], spec=spec)[-1]
            uid = f"new-{step}-{new}"
            names.add(uid)
            objects.append({**pod, "metadata": {**pod["metadata"], "name": uid, "uid": uid}})
        costs = planned(objects)
        before = {
            pod["metadata"]["uid"] for pod in of if DELETION_COST in pod["metadata"]["annotations"]
        }
        assert not {change.uid for change in costs.changes} & before
        objects = written(objects, costs)


def first_to_go(objects, app="cart", policy=POLICY):
    """The pods by their costs, those without one first."""
    then = written(objects, planned(objects, policy))
    return [
        pod["metadata"]["name"]
        for pod in sorted(
            pods(then, app),
            key=lambda pod: int(pod["metadata"]["annotations"].get(DELETION_COST, "0")),
        )
    ]


def test_pods_on_nodes_that_are_to_be_empty_go_first():
    others = [
        node("x0", "x", unschedulable=True),
        node("x1", "x"),
        node("y0", "y"),
        node("y1", "y"),
    ]
    objects = others + workload("cart", ["y0", "x1", "x0", "y1"], spec=spread("cart"))
    assert first_to_go(objects)[0] == "cart-2"
    emptied = frozenset({"y1"})
    rules = [node(name, name[0]) for name in ("x0", "x1", "y0", "y1")]
    objects = rules + workload("cart", ["y0", "x1", "x0", "y1"], spec=spread("cart"))
    costs = planned(objects, emptied=emptied)
    assert {change.pod for change in costs.changes} == {"cart-0", "cart-1", "cart-2"}


def test_pods_on_spot_machines_go_first_where_no_rule_breaks():
    nodes = [
        node("x0", "x", labels=SPOT),
        node("x1", "x"),
        node("y0", "y"),
        node("y1", "y", labels=SPOT),
    ]
    objects = nodes + workload("cart", ["x1", "y0", "x0", "y1"], spec=spread("cart", hard=True))
    assert set(first_to_go(objects)[:2]) == {"cart-2", "cart-3"}
    # Both Spot machines in one zone: the second one would break the rule.
    nodes[3] = node("y1", "y")
    nodes[1] = node("x1", "x", labels=SPOT)
    objects = nodes + workload("cart", ["x1", "y0", "x0", "y1"], spec=spread("cart", hard=True))
    order = first_to_go(objects)
    assert order[0] in {"cart-0", "cart-2"}
    assert order[1] in {"cart-1", "cart-3"}


def test_surplus_zones_go_first_and_the_plan_counts_the_moves():
    on = ["x0", "x1", "x2", "x0", "x1", "y0", "z0"]
    objects = nodes_of() + workload("cart", on, spec=spread("cart", hard=True))
    costs = planned(objects)
    assert first_to_go(objects)[0] in {"cart-0", "cart-3", "cart-1", "cart-4"}
    (repaired,) = costs.repaired
    assert (repaired.workload, repaired.moves, repaired.pods) == ("Deployment/default/cart", 2, 3)
    assert "2 moves fewer if the next scale-in comes first" in costs.lines[1]
    waits = POLICY + "\nprotect: {afterScaling: 30m}"
    assert "comes within 30m: " in planned(objects, waits).lines[1]


@pytest.mark.parametrize(
    ("annotations", "ours"),
    [
        ({DELETION_COST: "5"}, False),
        ({DELETION_COST: "0"}, False),
        # Ours, and overwritten by somebody.
        ({DELETION_COST: "5", OUR_DELETION_COST: "1000000"}, False),
        ({DELETION_COST: "1000000", OUR_DELETION_COST: "1000000"}, True),
        # What is left of ours alone says nothing.
        ({OUR_DELETION_COST: "1000000"}, True),
    ],
)
def test_a_set_with_a_cost_of_others_is_left_alone(annotations, ours):
    objects = nodes_of() + workload("cart", even(9), spec=spread("cart", hard=True))
    pod = pods(objects, "cart")[4]
    pod["metadata"]["annotations"] = annotations
    assert bool(planned(objects).changes) is ours
    then = written(objects, planned(objects)) if ours else objects
    pods(then, "cart")[0]["metadata"]["annotations"] = {DELETION_COST: "-1"}
    changes = planned(then).changes
    # Ours are taken back once another one's is there.
    assert all(change.value is None for change in changes)
    assert bool(changes) is ours


@pytest.mark.parametrize(
    ("policy", "back", "held"),
    [
        ("strategies: {deletion-cost: {mode: 'off'}}", True, ""),
        ("strategies: {deletion-cost: {select: {labels: {app: other}}}}", False, ""),
        ("strategies: {deletion-cost: {mode: observe}}", False, "it only observes"),
    ],
)
def test_off_takes_back_what_was_written(policy, back, held):
    objects = nodes_of() + workload("cart", even(9), spec=spread("cart", hard=True))
    first = planned(objects)
    then = written(objects, first)
    costs = planned(then, policy)
    assert {change.uid for change in costs.changes} == (
        {change.uid for change in first.changes} if back else set()
    )
    assert costs.held == held
    assert planned(written(then, costs), policy).changes == ()


def test_a_policy_without_the_strategy_orders_nothing():
    objects = nodes_of() + workload("cart", even(9), spec=spread("cart", hard=True))
    assert planned(objects, "strategies: {topology-spread: {}}") is None


def test_no_more_pods_are_written_than_a_run_may_and_further_runs_end():
    objects = nodes_of() + workload("cart", even(20), spec=spread("cart", hard=True))
    whole = len(planned(objects).changes)
    policy = POLICY.replace("10000", "4")
    runs = 0
    while (costs := planned(objects, policy)).changes:
        assert len(costs.changes) <= 4
        objects, runs = written(objects, costs), runs + 1
    assert runs == -(-whole // 4)


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet", "Job"])
def test_others_than_replica_sets_are_not_ordered(kind):
    objects = nodes_of() + workload(
        "cart", even(9), kind="StatefulSet", spec=spread("cart", hard=True)
    )
    assert planned(objects).changes == ()


def test_even_pods_without_rules_and_small_sets_need_no_costs():
    objects = (
        nodes_of() + workload("cart", even(9)) + workload("two", ["x0", "y0"], spec=spread("two"))
    )
    assert planned(objects).changes == ()


def test_the_defaults_of_the_scheduler_are_kept():
    """Pods without constraints are spread by maxSkew 5 over zones, 3 over nodes."""
    assert ZONE_KEYS[0] != HOSTNAME
    objects = nodes_of() + workload("cart", even(24))
    rng = random.Random(3)
    service = {
        "kind": "Service",
        "metadata": {"name": "cart", "namespace": "default"},
        "spec": {"selector": {"app": "cart"}},
    }
    objects = [*objects, service]
    then = written(objects, planned(objects))
    for gone in range(24):
        assert skew(take(then, "cart", gone, rng), "cart", "xyz", 1) <= 5


def test_a_standing_run_and_names_do_not_matter():
    objects = nodes_of() + workload("cart", even(9), spec=spread("cart", hard=True))
    costs = planned(objects, standstill=("many nodes are NotReady",))
    assert costs.held == "standing still: many nodes are NotReady"
    assert planned(list(reversed(objects))) == planned(objects)


@given(
    values=st.lists(st.one_of(st.none(), st.integers(1, 40)), max_size=12), loose=st.integers(0, 3)
)
def test_costs_rise_and_few_are_written(values, loose):
    loose = min(loose, len(values))
    made = assign(values, loose)
    assert made[:loose] == [None] * loose
    final = [new if new is not None else old for old, new in zip(values, made, strict=True)]
    head = max((value or 0 for value in values[:loose]), default=0)
    rest = final[loose:]
    assert all(value is not None for value in rest)
    assert rest == sorted(set(rest))
    assert all(value > head for value in rest)


@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize("key", [ZONE_KEYS[0], "example.com/rack"])
def test_a_spread_over_a_key_that_no_node_has_orders_nothing(key, hard):
    racks = [node("r0"), node("r1", unschedulable=True)]
    unmet = workload("web", ["r0", "r0", "r1"], spec=spread("web", key=key, hard=hard))
    without = workload("web", ["r0", "r0", "r1"])
    costs = [planned([*racks, *pods]).changes for pods in (unmet, without)]
    of_unmet, of_without = ([(one.pod, one.value) for one in of] for of in costs)
    assert of_unmet == of_without != []
