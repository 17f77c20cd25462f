"""Pods that pin nodes, and on how few of these they fit; beside an integer programme that shares no code."""

import random
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.planner.draft import Draft
from rebalancer.planner.pins import find_pins
from rebalancer.planner.planning import make_plan
from rebalancer.planner.rules import NO_HISTORY
from rebalancer.snapshot.prices import node_prices
from rebalancer.testing.snapshots import (
    HOSTNAME,
    apart,
    disruption_budget,
    node,
    snapshot_of,
    workload,
)
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
