"""The closed loop on clusters small enough to know the end."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.plan.plan import Status
from rebalancer.planner.planning import make_plan
from rebalancer.planner.rules import RunRules
from rebalancer.planner.scheduler_profile import scheduler_profile
from rebalancer.policy.load import load_policy
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.model import PodFlag
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import (
    HOSTNAME,
    ZONE,
    apart,
    disruption_budget,
    node,
    snapshot_of,
    spread,
    workload,
)
from rebalancer.whatif.cycles import total
from rebalancer.whatif.world import SimulatedCluster, Span
from tests.unit.snapshot.measurements import node_metrics, pod_metrics
from tests.unit.whatif.play import REGISTRY, evictions, play


def zones(names, **more):
    return [node(f"n-{name}", name, **more) for name in names]


def on(world, name):
    """The nodes of a workload's pods, sorted."""
    snapshot = world.snapshot
    return sorted(
        snapshot.nodes.names[snapshot.pods.node[row]]
        for row in range(len(snapshot.pods))
        if snapshot.pods.name[row].startswith(name)
    )


def test_the_story_is_one_eviction_and_then_silence_for_good():
    objects = [
        *zones("abc"),
        *workload("web", ["n-a", "n-a", "n-b"], spec=apart("web", weight=100)),
    ]
    world, course = play(objects)
    assert evictions(course) == [1, 0]
    assert on(world, "web") == ["n-a", "n-b", "n-c"]
    assert course.silent is not None
    assert course.later == 0
    assert [total(cycle.after).soft for cycle in course.cycles] == [0, 0]
    assert course.cycles[0].as_predicted == 1


def test_pods_of_a_generated_file_need_no_uid():
    objects = [
        *zones("abc"),
        *workload("web", ["n-a", "n-a", "n-b"], spec=apart("web", weight=100)),
    ]
    for each in objects:
        if each["kind"] == "Pod":
            del each["metadata"]["uid"]
    world, course = play(objects)
    assert evictions(course) == [1, 0]
    assert on(world, "web") == ["n-a", "n-b", "n-c"]


def test_an_owner_is_at_rest_once_its_waiting_pods_have_a_node():
    web = workload("web", ["", "n-a", "n-a"], kind="StatefulSet", replicas=3)
    web[1]["status"]["conditions"][0]["status"] = "False"
    world, course = play([*zones("abc"), *web])
    assert world.snapshot.owners[0].unsettled is None
    assert on(world, "web") == ["n-a", "n-b", "n-c"]
    assert sum(evictions(course)) == 1


def test_what_was_measured_goes_along_with_the_pods():
    objects = [
        *zones("abc"),
        *workload("web", ["n-a", "n-a", "n-b"], spec=apart("web", weight=100)),
        *(node_metrics(f"n-{zone}", "1") for zone in "abc"),
        *(pod_metrics(f"web-{number}", ("200m", "1Mi")) for number in range(3)),
    ]
    world, course = play(objects)
    assert evictions(course) == [1, 0]
    usage = world.snapshot.usage
    assert dict(zip(world.snapshot.nodes.names, usage.nodes[0].tolist(), strict=True)) == {
        "n-a": 800,
        "n-b": 1000,
        "n-c": 1200,
    }


def test_a_budget_per_run_spreads_the_work_over_cycles(tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "apiVersion: rebalancer/v1\nkind: Policy\nbudgets: {perRun: 2}\n"
        "strategies: {topology-spread: {}}\n"
    )
    pods = workload("web", ["n-a"] * 10, spec=spread("web", hard=True))
    world, course = play([*zones("ab"), *pods], path=policy)
    assert evictions(course) == [2, 2, 1, 0]
    assert on(world, "web") == ["n-a"] * 5 + ["n-b"] * 5
    _, lifted = play([*zones("ab"), *pods], path=policy, lifted=True)
    assert evictions(lifted) == [5, 0]


def test_the_hourly_budget_holds_through_the_memory_and_not_without(tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "apiVersion: rebalancer/v1\nkind: Policy\nbudgets: {perHour: 3}\n"
        "strategies: {topology-spread: {}}\n"
    )
    pods = workload("web", ["n-a"] * 10, spec=spread("web", hard=True))
    _, course = play([*zones("ab"), *pods], path=policy, cycles=2)
    assert evictions(course) == [3, 0]
    assert course.silent is None
    assert course.later == 2
    _, course = play([*zones("ab"), *pods], path=policy)
    assert evictions(course) == [3, 0, 2, 0]
    assert course.silent is not None
    # The third run is the first for which the evictions of the first are more than an hour ago.
    assert 3600 < course.cycles[2].at - course.cycles[0].at < 3600 + 60 + 120
    _, long = play([*zones("ab"), *pods], path=policy, cycles=3, interval=3700.0)
    assert evictions(long) == [3, 2, 0]
    _, forgetful = play([*zones("ab"), *pods], path=policy, cycles=3, memory=False)
    assert evictions(forgetful) == [3, 2, 0]


def test_a_disruption_budget_of_zero_is_silence():
    web = workload("web", ["n-a", "n-a"], spec=spread("web", hard=True))
    _, course = play([*zones("ab"), *web, disruption_budget("keep", "web", allowed=0)])
    assert evictions(course) == [0]
    assert course.silent is not None


def test_young_pods_are_waited_for_not_called_silence():
    web = workload("web", ["n-a", "n-a"], spec=spread("web", hard=True))
    for item in web:
        if item["kind"] == "Pod":
            for condition in item["status"]["conditions"]:
                condition["lastTransitionTime"] = "2027-01-15T07:58:00Z"
    _, course = play([*zones("ab"), *web])
    assert evictions(course) == [0, 1, 0]
    assert [cycle.at - course.cycles[0].at for cycle in course.cycles] == [0, 240, 360]


def test_a_pod_without_room_makes_its_owner_wait_and_is_placed_when_there_is_room():
    # The only pod of "big" waits: nothing fits until "web" has left its node.
    big = workload("big", ["", "n-c"], cpu="3")
    for item in big:
        if item["kind"] == "Pod" and not item["spec"]["nodeName"]:
            del item["spec"]["nodeName"]
            item["status"] = {"phase": "Pending"}
    web = workload("web", ["n-a", "n-a"], cpu="1500m", spec=spread("web", hard=True))
    nodes = [*zones("ab"), node("n-c", "c", taints=[{"key": "x", "effect": "NoSchedule"}])]
    world, course = play([*nodes, *web, *big])
    assert world.pending == 0
    assert course.cycles[0].evictions == 0
    assert on(world, "big") == ["n-b", "n-c"]


def test_a_pending_pod_takes_the_room_of_a_pod_whose_replacement_comes_later():
    web = workload("web", ["n-a", "n-a"], kind="StatefulSet", cpu="2", spec=spread("web"))
    [late] = [item for item in workload("late", [""], cpu="2") if item["kind"] == "Pod"]
    late["spec"]["nodeSelector"] = {ZONE: "a"}
    late["status"] = {"phase": "Pending"}
    loaded = load_policy(None, REGISTRY)
    world = SimulatedCluster(
        snapshot_of([*zones("ab"), *web, late]),
        lambda of: scheduler_profile(loaded.policy, of),
        None,
    )
    rules = RunRules(loaded, REGISTRY, Scope(), lifted=False)
    [move] = make_plan(rules, world.snapshot, Timings(SystemClock())).plan.moves
    assert move.reason.endswith("pending default/late-0 takes room on n-a")
    assert world.evict(move.uid).node == "n-b"
    assert move.landings[0].node == "n-b"
    assert on(world, "late") == ["n-a"]
    assert world.pending == 0


def test_a_victim_holds_its_place_until_it_is_gone():
    objects = [*zones("ab"), *workload("web", ["n-a", "n-a"], spec=spread("web", hard=True))]
    loaded = load_policy(None, REGISTRY)
    world = SimulatedCluster(
        snapshot_of(objects),
        lambda of: scheduler_profile(loaded.policy, of),
        None,
        gone_after=Span(15, 15),
    )
    rules = RunRules(loaded, REGISTRY, Scope(), lifted=False)
    [move] = make_plan(rules, world.snapshot, Timings(SystemClock())).plan.moves
    world.evict(move.uid)

    def going():
        pods = world.snapshot.pods
        return [
            (pods.uid[row], world.snapshot.nodes.names[pods.node[row]])
            for row in np.flatnonzero(pods.flags & PodFlag.TERMINATING).tolist()
        ]

    assert on(world, "web") == ["n-a", "n-a", "n-b"]
    assert going() == [(move.uid, "n-a")]
    world.wait(10)
    assert going() == [(move.uid, "n-a")]
    world.wait(10)
    assert going() == []
    assert on(world, "web") == ["n-a", "n-b"]


@pytest.mark.parametrize(("gone_after", "each"), [(5, [2, 0]), (30, [2, 0]), (60, [1, 1, 0])])
def test_a_move_waits_until_the_pod_in_its_way_is_gone(tmp_path, gone_after, each):
    # n1 is the emptiest and draws web, which it holds already. Once fill has moved there from n2, web goes to
    # n2, but not before fill has let go of it: a run waits 40 seconds for that.
    policy = tmp_path / "policy.yaml"
    policy.write_text("apiVersion: rebalancer/v1\nkind: Policy\nstrategies: {duplicates: {}}\n")
    closed = node("n3", "a", cpu="64", taints=[{"key": "x", "effect": "NoSchedule"}])
    web = workload("web", ["n0", "n0", "n1"], cpu="500m", spec=spread("web", ZONE))
    fill = workload("fill", ["n2", "n3"], cpu="1200m")
    nodes = [*(node(f"n{i}", "a") for i in range(3)), closed]
    _, course = play([*nodes, *web, *fill], path=policy, gone_after=Span(gone_after, gone_after))
    assert evictions(course) == each


@pytest.mark.parametrize(("span", "least", "most"), [(Span(3, 3), 6, 6), (Span(1, 5), 2, 10)])
def test_a_wave_takes_the_time_from_one_eviction_to_the_next(span, least, most):
    objects = [*zones("ab"), *workload("web", ["n-a"] * 4, spec=spread("web", hard=True))]
    loaded = load_policy(None, REGISTRY)
    world = SimulatedCluster(
        snapshot_of(objects),
        lambda of: scheduler_profile(loaded.policy, of),
        np.random.default_rng(1),
        apart=span,
    )
    rules = RunRules(loaded, REGISTRY, Scope(), lifted=True)
    plan = make_plan(rules, world.snapshot, Timings(SystemClock()))
    assert len(plan.plan.moves) == 2
    began = world.now
    for move in plan.plan.moves:
        world.evict(move.uid)
    assert least <= world.now - began <= most
    assert (world.now - began == 6) is (span.least == span.most)


def test_observing_executes_nothing(tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "apiVersion: rebalancer/v1\nkind: Policy\nmode: observe\nstrategies: {topology-spread: {}}\n"
    )
    web = workload("web", ["n-a", "n-a"], spec=spread("web", hard=True))
    _, course = play([*zones("ab"), *web], path=policy)
    assert evictions(course) == [0]


RULES = [
    lambda name: {},
    lambda name: spread(name, hard=True),
    lambda name: spread(name, HOSTNAME),
    lambda name: apart(name, HOSTNAME, weight=100),
    lambda name: apart(name, HOSTNAME),
]
shapes = st.lists(
    st.tuples(st.integers(0, 4), st.lists(st.integers(0, 3), min_size=2, max_size=5)),
    min_size=1,
    max_size=4,
)


def built(shape):
    objects = [node(f"n{i}", zone) for i, zone in enumerate("aabc")]
    for index, (rule, places) in enumerate(shape):
        name = f"w{index}"
        objects += workload(name, [f"n{p}" for p in places], spec=RULES[rule](name))
    return objects


@settings(max_examples=15, deadline=None)
@given(shapes, st.sampled_from([None, 0, 1]))
def test_every_small_cluster_comes_to_rest_and_no_cycle_makes_it_worse(shape, seed):
    random = None if seed is None else np.random.default_rng(seed)
    _, course = play(built(shape), random=random, cycles=40, lifted=True)
    assert course.silent is not None
    assert course.cycles[-1].evictions == 0
    for cycle in course.cycles:
        if cycle.as_predicted == cycle.evictions:
            assert total(cycle.after).as_tuple()[:2] <= total(cycle.before).as_tuple()[:2]


def test_the_example_of_the_docs_ends_with_every_rule_kept_wherever_ties_fall():
    snapshot = load_snapshot("docs/examples/zone-back.zip")
    for seed in range(12):
        world, course = play(snapshot, random=np.random.default_rng(seed))
        assert course.silent == "Nothing to do: every rule holds.", seed
        assert int(world.moves.max()) <= 2, seed


@settings(max_examples=5, deadline=None)
@given(shapes)
def test_the_same_seed_plays_the_same_game(shape):
    runs = [play(built(shape), random=np.random.default_rng(7), cycles=3)[1] for _ in range(2)]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("random", [None, np.random.default_rng(5)])
def test_the_books_balance(random):
    objects = built([(1, [0, 0, 0, 0]), (2, [0, 0, 1]), (4, [2, 3])])
    world, course = play(objects, random=random)
    outcomes = [outcome for cycle in course.cycles for outcome in cycle.outcomes]
    moved = [o for o in outcomes if o.status is Status.EVICTED]
    assert int(world.moves.sum()) == len(moved)
    assert len(world.snapshot.pods) == course.pods == 9
    assert int((world.snapshot.pods.node >= 0).sum()) == 9
    assert len(set(world.snapshot.pods.uid)) == 9


@pytest.mark.parametrize(("steer", "evicted", "left"), [("off", 0, 1), ("marks", 1, 0)])
def test_a_simulation_knows_marks(tmp_path, steer, evicted, left):
    # n1, the emptiest node, would take any replacement of web, and holds one of it already.
    web = workload("web", ["n0", "n0", "n1"], cpu="500m", spec=spread("web"))
    objects = [*(node(f"n{i}", "a") for i in range(3)), *web]
    objects += workload("fill", ["n2"], cpu="800m")
    policy = tmp_path / "policy.yaml"
    head = f"apiVersion: rebalancer/v1\nkind: Policy\nsteer: {steer}\n"
    policy.write_text(head + "strategies: {duplicates: {}}\n")
    _, course = play(objects, path=str(policy))
    assert evictions(course) == [evicted, *[0] * (len(course.cycles) - 1)]
    assert course.cycles[-1].after["duplicates"].cost.soft == left
    moved = course.cycles[0].outcomes
    assert [(o.landed, o.predicted) for o in moved] == [("n2", True)] * evicted
    assert course.silent is not None


@pytest.mark.parametrize(("method", "moved"), [("evict", 0), ("restart", 1)])
def test_a_simulation_restarts_single_replicas(tmp_path, method, moved):
    nodes = [node("n-a", "a"), node("n-b", "b", labels={"pool": "web"})]
    web = workload("web", ["n-a"], spec={"nodeSelector": {"pool": "web"}})
    for one in web:
        if one["kind"] == "Pod":
            one["metadata"]["labels"] = {"app": "web", "pod-template-hash": "abc"}
    policy = tmp_path / "policy.yaml"
    head = f"apiVersion: rebalancer/v1\nkind: Policy\nmethod: {{singleReplicas: {method}}}\n"
    policy.write_text(head + "strategies: {node-affinity: {}}\n")
    world, course = play([*nodes, *web], path=str(policy))
    assert evictions(course)[0] == moved
    assert sum(evictions(course)) == moved
    assert on(world, "web") == (["n-b"] if moved else ["n-a"])
    assert {o.status for o in course.cycles[0].outcomes} <= {Status.RESTARTED}
    assert course.silent is not None
