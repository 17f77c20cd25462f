"""Pods that pin nodes, and on how few of these they fit; beside an integer programme that shares no code."""

import random
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.planner.draft import Draft
from rebalancer.planner.pins import find_pins
from rebalancer.planner.planning import make_plan
from rebalancer.planner.rules import NO_HISTORY
from rebalancer.snapshot.marks import with_lasting_marks
from rebalancer.snapshot.prices import node_prices
from rebalancer.testing.snapshots import (
    HOSTNAME,
    apart,
    disruption_budget,
    node,
    snapshot_of,
    workload,
)
from rebalancer.wire.marks import PINS
from tests.support.worlds import read_rules

SAFE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
TYPE = "node.kubernetes.io/instance-type"


def pins_of(objects, policy=""):
    rules, snapshot = read_rules(policy), snapshot_of(objects)
    draft = Draft(rules.problem(snapshot, NO_HISTORY), rules.settings(NO_HISTORY))
    before = draft.state.node_of.tolist()
    known = node_prices(rules.policy.prices, snapshot)
    pins = find_pins(draft, range(len(snapshot.nodes)), known)
    assert draft.state.node_of.tolist() == before
    return pins


def lone(name, on, **more):
    """A pod that nothing would recreate."""
    pod = workload(name, [on], kind="ReplicaSet", **more)[-1]
    del pod["metadata"]["ownerReferences"]
    return pod


def closed_budget(app):
    """A PodDisruptionBudget that never allows an eviction."""
    budget = disruption_budget(app, app, allowed=0, healthy=2)
    budget["status"]["expectedPods"] = 2
    return budget


def six(cpu="500m", **more):
    return [node(f"n{i}", f"z{i % 3}", cpu="4", **more) for i in range(6)]


@pytest.mark.parametrize(
    ("pods", "nodes", "pinned", "together", "causes"),
    [
        ([workload("web", [f"n{i}" for i in range(6)])], 0, 0, 0, {}),
        (
            [workload("cron", [f"n{i}" for i in range(6)], annotations=SAFE, cpu="500m")],
            6,
            6,
            1,
            {"safeToEvict": 6},
        ),
        (
            [workload("cron", [f"n{i}" for i in range(6)], annotations=SAFE, cpu="1")],
            6,
            6,
            2,
            {"safeToEvict": 6},
        ),
        # What keeps apart stays apart.
        (
            [
                workload(
                    "cron",
                    [f"n{i}" for i in range(3)],
                    annotations=SAFE,
                    spec=apart("cron", HOSTNAME),
                )
            ],
            3,
            3,
            3,
            {"safeToEvict": 3},
        ),
        # The others of their nodes are taken to find room elsewhere.
        (
            [
                workload("cron", ["n0", "n1"], annotations=SAFE),
                workload("web", ["n0", "n1", "n2"], cpu="3"),
            ],
            2,
            2,
            1,
            {"safeToEvict": 2},
        ),
        (
            [
                workload("cron", ["n0", "n1"], annotations=SAFE),
                workload("one", ["n2"]),
                [lone("bare", "n3")],
                workload("two", ["n4", "n5"]),
                [closed_budget("two")],
            ],
            6,
            6,
            1,
            {"PDB": 2, "safeToEvict": 2, "noController": 1, "singleReplica": 1},
        ),
    ],
)
def test_pods_that_hold_nodes(pods, nodes, pinned, together, causes):
    pins = pins_of([*six(), *(one for of in pods for one in of)])
    if not nodes:
        assert pins is None
        return
    assert (len(pins.nodes), len(pins.pods), len(pins.together)) == (nodes, pinned, together)
    assert pins.proven
    assert {one.name: one.pods for one in pins.causes} == causes
    assert all(one.cure for one in pins.causes)


def test_money_counts_where_all_prices_are_known():
    def kind(i):
        return {TYPE: "large" if i == 0 else "small"}

    nodes = [node(f"n{i}", cpu="8" if i == 0 else "4", labels=kind(i)) for i in range(4)]
    objects = nodes + workload("cron", ["n0", "n1", "n2", "n3"], annotations=SAFE, cpu="2")
    assert len(pins_of(objects).together) == 1
    prices = "prices: {table: {large: 5, small: 1}, asOf: 2026-11-01}"
    pins = pins_of(objects, prices)
    assert (len(pins.together), pins.hourly) == (2, 6.0)
    assert "on 2, 6.00 an hour less" in pins.line
    unknown = pins_of(objects, "prices: {table: {large: 5}, asOf: 2026-11-01}")
    assert len(unknown.together) == 1


PORT = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}


@pytest.mark.parametrize(
    "standing",
    [
        workload("pair", ["n0", "n0"], spec=apart("pair", HOSTNAME)),
        workload("port", ["n0", "n0"], spec=PORT),
        workload("full", ["n0", "n0"], cpu="0", memory="10Gi"),
        workload("here", ["n0", "n0"], spec={"nodeSelector": {HOSTNAME: "gone"}}),
    ],
    ids=["anti-affinity", "host port", "memory", "node selector"],
)
@pytest.mark.parametrize("size", ["100m", "3"], ids=["beside all", "one makes way"])
def test_pods_that_stand_against_a_rule_stay_where_the_pinning_pods_stand_beside_them(
    standing, size
):
    """``way`` makes way for large pods. The others have no landing: n1 has no room for them, and n0 does not take them back."""
    cron = workload("cron", ["n0", "n1"], annotations=SAFE, cpu=size, memory="0")
    way = workload("way", ["n0", "n0"], cpu="500m", memory="0")
    large = [node("n0", cpu="6400m"), node("n1"), node("n2", cpu="1", memory="0")]
    pins = pins_of([*large, *cron, *standing, *way])
    assert ([pins.together, len(pins.nodes)], pins.proven) == ([(0,), 2], True)


def test_a_pod_does_not_stay_where_a_pinning_pod_has_no_room_beside_it():
    cron = workload("cron", ["n0", "n1"], annotations=SAFE, cpu="1", memory="0")
    full = workload("full", ["n0", "n0"], cpu="2", spec={"nodeSelector": {HOSTNAME: "n0"}})
    assert pins_of([node("n0"), node("n1"), *cron, *full]).together == (0, 1)


def test_the_line_says_how_many_by_cause():
    objects = [*six(), *workload("cron", ["n0", "n1"], annotations=SAFE), lone("bare", "n2")]
    line = "3 nodes are held by 3 pods (safe-to-evict false 2, bare 1): together they fit on 1"
    assert pins_of(objects).line == line


def test_what_ends_by_itself_pins_nothing():
    objects = [*six(), *workload("web", ["n0", "n1"])]
    budget = disruption_budget("web", "web", allowed=0, healthy=2)
    budget["status"] |= {"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 2}
    assert pins_of([*objects, budget]) is None


# -- beside an integer programme ------------------------------------------------------------------------------


def draw(seed):
    """Up to 20 nodes of few sizes, in pools, and pods that nothing may move, with what they ask."""
    rng = random.Random(seed)
    sizes = [rng.choice([(4, 8), (8, 16), (16, 32), (8, 64)]) for _ in range(3)]
    nodes = []
    for i in range(rng.randrange(2, 21)):
        cpu, memory = rng.choice(sizes[: rng.randrange(1, 4)])
        nodes.append((f"n{i:02}", cpu * 1000, memory, rng.choice("ab"), rng.choice([110, 110, 3])))
    free = {name: [cpu, memory, most] for name, cpu, memory, _, most in nodes}
    pods, apart_of = [], dict[Any, Any]()
    for number in range(rng.randrange(1, 2 + len(nodes))):
        cpu, memory = rng.randrange(1, 25) * 100, rng.randrange(1, 6)
        app = f"app-{rng.randrange(4)}" if rng.random() < 0.3 else None
        pool = rng.choice("ab") if rng.random() < 0.3 else None
        for name, _, _, of_pool, _ in rng.sample(nodes, len(nodes)):
            taken = apart_of.setdefault(app, set())
            room = free[name]
            fits = room[0] >= cpu and room[1] >= memory and room[2] >= 1
            if fits and (pool in (None, of_pool)) and not (app and name in taken):
                free[name] = [room[0] - cpu, room[1] - memory, room[2] - 1]
                taken.add(name)
                pods.append((f"p{number}", cpu, memory, app, pool, name))
                break
    return nodes, pods


def manifests(nodes, pods):
    yield from (
        node(name, cpu=f"{cpu}m", memory=f"{memory}Gi", pods=most, labels={"pool": pool})
        for name, cpu, memory, pool, most in nodes
    )
    for name, cpu, memory, app, pool, on in pods:
        spec = {
            **(apart(app, HOSTNAME) if app else {}),
            **({"nodeSelector": {"pool": pool}} if pool else {}),
        }
        yield lone(
            name, on, cpu=f"{cpu}m", memory=f"{memory}Gi", spec=spec, labels={"app": app or name}
        )


def fewest(nodes, pods):
    """The fewest nodes of those with pods that hold all pods, as an integer programme solved by HiGHS."""
    optimize = import_module("scipy.optimize")  # not for all who only collect: half a second
    used = sorted({pod[5] for pod in pods})
    known = {one[0]: one for one in nodes}
    width = len(pods) * len(used)
    rows, low, high = [], [], []

    def row(at, least, most):
        line = np.zeros(width + len(used))
        for place, value in at:
            line[place] += value
        rows.append(line)
        low.append(least)
        high.append(most)

    upper = np.ones(width + len(used))
    for p, (_, _, _, _, pool, _) in enumerate(pods):
        row([(p * len(used) + n, 1) for n in range(len(used))], 1, 1)
        for n, name in enumerate(used):
            if pool not in (None, known[name][3]):
                upper[p * len(used) + n] = 0
    for n, name in enumerate(used):
        _, cpu, memory, _, most = known[name]
        for sizes, room in (
            ([pod[1] for pod in pods], cpu),
            ([pod[2] for pod in pods], memory),
            ([1] * len(pods), most),
        ):
            at = [(p * len(used) + n, size) for p, size in enumerate(sizes)]
            row([*at, (width + n, -room)], -np.inf, 0)
        for app in {pod[3] for pod in pods} - {None}:
            row([(p * len(used) + n, 1) for p, pod in enumerate(pods) if pod[3] == app], 0, 1)
    solved = optimize.milp(
        np.concatenate([np.zeros(width), np.ones(len(used))]),
        constraints=optimize.LinearConstraint(np.array(rows), low, high),
        bounds=optimize.Bounds(0, upper),
        integrality=np.ones(width + len(used)),
    )
    assert solved.status == 0, solved.message
    return round(solved.fun)


@pytest.mark.parametrize("ten", range(4))
def test_as_few_nodes_as_an_integer_programme_says(ten):
    for seed in range(10 * ten, 10 * ten + 10):
        nodes, pods = draw(seed)
        pins = pins_of(list(manifests(nodes, pods)))
        assert pins.proven, seed
        assert len(pins.together) == fewest(nodes, pods), seed


def test_the_plan_says_it_where_nodes_would_be_emptied():
    objects = [*six(), *workload("cron", ["n0", "n1"], annotations=SAFE), *workload("web", ["n2"])]
    plans = [
        make_plan(
            read_rules(f"{steer}strategies: {{{strategy}: {{}}}}"),
            snapshot_of(objects),
            Timings(SystemClock()),
        ).plan
        for steer, strategy in (("steer: marks\n", "consolidation"), ("", "topology-spread"))
    ]
    assert plans[0].pinned.startswith(
        "3 nodes are held by 3 pods (safe-to-evict false 2, single replica 1)"
    )
    assert plans[1].pinned == ""


# -- marks, so that pods that restart by themselves stand together -----------------------------------------

EMPTIES = "steer: marks\nstrategies: {consolidation: {minNodeAge: 0s}}"


def plan_of(on, marked=(), policy=EMPTIES, **more):
    """The plan where a pod of ``cron`` holds each of these nodes, and of a busy node that stays."""
    objects = [*six(), node("busy", "z0", cpu="4"), *workload("web", ["busy"] * 7, cpu="500m")]
    objects += workload("cron", on, annotations=SAFE, cpu="200m", **more)
    snapshot = snapshot_of(objects)
    mask = np.array([name in marked for name in snapshot.nodes.names], bool)
    snapshot = with_lasting_marks(snapshot, mask, PINS)
    return make_plan(read_rules(policy), snapshot, Timings(SystemClock())).plan


@pytest.mark.parametrize(
    ("on", "marked"),
    [
        (["n0", "n1", "n2"], ("n1", "n2")),
        (["n0", "n0", "n0"], ()),
        (["n3"], ()),
        (["n2", "n4", "n4"], ("n2",)),
        # What is hardest to empty stays.
        (["n1", "busy", "n2"], ("n1", "n2")),
    ],
)
def test_the_nodes_that_pods_would_not_need_together_are_marked(on, marked):
    plan = plan_of(on)
    assert plan.pinned_nodes == marked
    assert set(marked).isdisjoint(plan.emptied)
    # With these marks nothing else is planned: they are no reason to move what stands there.
    again = plan_of(on, marked)
    assert (again.pinned_nodes, again.emptied, again.moves) == (marked, plan.emptied, ())


@pytest.mark.parametrize(
    ("others", "cpu", "eagerness", "marked"),
    [
        (0, "1", "timid", ("n1", "n2")),
        (1, "1", "careful", ("n1", "n2")),
        # No other node has room for what stands on n1; or it would disturb too much: it stays anyway.
        (1, "3", "careful", ("n2",)),
        (15, "10m", "careful", ("n1", "n2")),
        (15, "10m", "timid", ("n2",)),
    ],
)
def test_a_node_that_would_not_be_emptied_anyway_carries_no_mark(others, cpu, eagerness, marked):
    objects = [
        *(node(f"n{i}", "z0", cpu="4") for i in range(3)),
        *workload("cron", ["n0", "n1", "n2"], annotations=SAFE, cpu="200m"),
        *workload("keeps", ["n0"] * 3, annotations=SAFE, cpu="200m"),
        *workload("web", ["n0", "n1"] * others, cpu=cpu),
    ]
    rules = read_rules(f"{EMPTIES}\neagerness: {eagerness}")
    plan = make_plan(rules, snapshot_of(objects), Timings(SystemClock())).plan
    assert plan.pinned_nodes == marked


@pytest.mark.parametrize(
    ("web", "spare", "marked", "line"),
    [
        # Together on n0 or n1, they leave no room for what stands on n1, which fits nowhere else.
        ("1200m", (), (), ""),
        ("400m", (), ("n0",), "together they fit on 2"),
        # It makes way for them.
        ("1200m", ("n3",), ("n0",), "together they fit on 2"),
    ],
)
@pytest.mark.parametrize("eagerness", ["careful", "relentless"])
def test_what_has_to_make_way_for_pods_that_stand_together_needs_a_landing(
    web, spare, marked, line, eagerness
):
    objects = [
        *(node(f"n{i}", "z0", cpu="4") for i in range(3)),
        *(node(name, "z0", cpu="4") for name in spare),
        *workload("large", ["n0"], annotations=SAFE, cpu="2500m"),
        *workload("small", ["n1"], annotations=SAFE, cpu="1"),
        *workload("fill", ["n2"], annotations=SAFE, cpu="2700m"),
        *workload("web", ["n1", "n2"], cpu=web),
        *workload("busy", 3 * spare, cpu="900m"),
    ]
    rules = read_rules(f"{EMPTIES}\neagerness: {eagerness}")
    plan = make_plan(rules, snapshot_of(objects), Timings(SystemClock())).plan
    assert plan.pinned_nodes == marked
    assert line in plan.pinned
    assert bool(line) is ("together" in plan.pinned)


def test_marks_stand_from_run_to_run_where_other_pods_are_there():
    """Each of the other nodes has other pods, and one is marked as empty: with or without its mark a node is judged alike."""
    objects = [node(f"n{i}", f"z{i % 3}", cpu="4") for i in range(5)]
    objects += workload("cron", ["n0", "n1", "n2", "n3"], annotations=SAFE, cpu="200m")
    objects += workload("web", ["n0", "n0", "n1", "n1", "n2", "n3"], cpu="100m")
    snapshot = snapshot_of(objects)
    names = snapshot.nodes.names
    snapshot = with_lasting_marks(snapshot, np.array([name == "n4" for name in names]))
    rules, marked = read_rules(EMPTIES), set[str]()
    for _ in range(3):
        mask = np.array([name in marked for name in names], bool)
        of_run = with_lasting_marks(snapshot, mask, PINS)
        plan = make_plan(rules, of_run, Timings(SystemClock())).plan
        marked = set(plan.pinned_nodes or ())
        assert (marked, plan.emptied, plan.moves) == ({"n1", "n2", "n3"}, ("n4",), ())


def test_what_ends_by_itself_takes_no_mark_back():
    """A rollout of the other pods is under way: they stay for now, and the nodes are marked as before."""
    objects = [
        *(node(f"n{i}", "z0", cpu="4") for i in range(3)),
        *workload("cron", ["n0", "n1", "n2"], annotations=SAFE, cpu="200m"),
        *workload("web", ["n0", "n0", "n1"], cpu="100m", replicas=4),
    ]
    snapshot = snapshot_of(objects)
    plan = make_plan(read_rules(EMPTIES), snapshot, Timings(SystemClock())).plan
    assert plan.pinned_nodes == ("n1", "n2")


def test_a_pod_that_restarts_lands_beside_its_like_and_its_node_becomes_empty():
    on, marked = ["n0", "n1", "n2"], ("n1", "n2")
    while marked:
        snapshot = snapshot_of([*six(), *workload("cron", on, annotations=SAFE, cpu="200m")])
        # The other nodes are marked as empty.
        names = snapshot.nodes.names
        free = np.array([name not in on for name in names], bool)
        snapshot = with_lasting_marks(snapshot, free)
        mask = np.array([name in marked for name in names], bool)
        rules = read_rules(EMPTIES)
        problem = rules.problem(with_lasting_marks(snapshot, mask, PINS), NO_HISTORY)
        draft = Draft(problem, rules.settings(NO_HISTORY))
        pod = problem.snapshot.pods.name.index(f"cron-{on.index(marked[-1])}")
        (landing,) = draft.view.scheduler.pending.foresee(draft.state, pod).nodes
        assert names[landing] == "n0"
        on[on.index(marked[-1])] = "n0"
        before, plan = marked, plan_of(on, marked[:-1])
        marked = plan.pinned_nodes
        assert marked == before[:-1]
        assert before[-1] in plan.emptied


@pytest.mark.parametrize(
    "policy",
    [
        "strategies: {consolidation: {minNodeAge: 0s}}",
        "steer: marks\nstrategies: {consolidation: {minNodeAge: 0s, mode: observe}}",
        "steer: marks\nstrategies: {topology-spread: {}}",
    ],
)
def test_without_marks_of_consolidation_none_are_set_for_pins(policy):
    assert plan_of(["n0", "n1"], policy=policy).pinned_nodes is None
