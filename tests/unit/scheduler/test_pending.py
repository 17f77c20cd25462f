"""Pending pods and the room that an eviction frees: small clusters by hand, then random ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.prediction import Taker, takers_text
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.model import PodFlag
from rebalancer.snapshot.state import ClusterState
from tests.unit.scheduler import random_worlds
from tests.unit.scheduler.worlds import HOSTNAME, ZONE, Json, World, node, pod, spread

AT_ONCE = {"terminationGracePeriodSeconds": 0}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def waiting(name: str, cpu: str, *, priority: int = 0, minute: int = 0, **more: Any) -> Json:
    """Return a pending pod, created at a minute."""
    made = pod(name, requests={"cpu": cpu}, priority=priority, **more)
    made["metadata"]["creationTimestamp"] = f"2026-01-01T00:{minute:02}:00Z"
    return made


def standing(name: str, on: str, cpu: str, **more: Any) -> Json:
    return pod(name, on=on, requests={"cpu": cpu}, **more)


def near(kind: str, app: str, key: str = HOSTNAME) -> Json:
    """Return the spec field of one required (anti-)affinity term."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"affinity": {kind: {REQUIRED: [term]}}}


def foreseen(world: World, victim: str) -> tuple[dict[str, float], list[tuple[str, str]]]:
    """Return node -> probability of the replacement, and (pending pod, node) in order."""
    prediction = world.model.pending.foresee(world.state, world.row(victim))
    names = world.snapshot.nodes.names
    pods = world.snapshot.pods.name
    landings = {
        names[n]: p
        for n, p in zip(prediction.nodes.tolist(), prediction.probability.tolist(), strict=True)
    }
    return landings, [(pods[taker.pod], names[taker.node]) for taker in prediction.takers]


ON_A: Json = {"nodeSelector": {HOSTNAME: "a"}}


@dataclass(frozen=True)
class Case:
    """Two nodes of 10 cpu, a full one and b with 5 left; ``v`` of 5 cpu on a goes."""

    title: str
    pods: list[Json]
    landings: set[str]
    takers: list[tuple[str, str]]
    victim: Json | None = None
    b: str = "5"


CASES = [
    Case("nothing waits", [], {"b"}, []),
    Case(
        "a terminating pod's replacement lands before its room is free",
        [waiting("w", "5", **ON_A)],
        {"b"},
        [("w", "a")],
    ),
    Case(
        "the replacement of a pod that is gone at once may come back", [], {"a", "b"}, [], AT_ONCE
    ),
    Case(
        "the room of a pod that is gone at once is taken",
        [waiting("w", "5", **ON_A)],
        {"b"},
        [("w", "a")],
        AT_ONCE,
    ),
    Case("and there may be no other", [waiting("w", "5")], set(), [("w", "a")], AT_ONCE, "10"),
    Case(
        "a part of the room is enough to take it",
        [waiting("w", "1")],
        set(),
        [("w", "a")],
        AT_ONCE,
        "10",
    ),
    Case("a pod that is too large takes nothing", [waiting("w", "6")], {"b"}, []),
    Case(
        "the higher priority comes first",
        [waiting("old", "3", **ON_A), waiting("high", "3", priority=9, minute=5, **ON_A)],
        {"b"},
        [("high", "a")],
    ),
    Case(
        "at equal priority the older comes first",
        [waiting("a-young", "3", minute=5, **ON_A), waiting("z-old", "3", **ON_A)],
        {"b"},
        [("z-old", "a")],
    ),
    Case(
        "a pod that does not fit leaves the room to the next",
        [waiting("large", "6", priority=9, **ON_A), waiting("small", "2", **ON_A)],
        {"b"},
        [("small", "a")],
    ),
    Case(
        "as many as fit, class by class in order of age",
        [
            waiting("w1", "2", minute=1, **ON_A),
            waiting("x2", "1", minute=2, **ON_A),
            waiting("w3", "2", minute=3, **ON_A),
            waiting("w4", "2", minute=4, **ON_A),
        ],
        {"b"},
        [("w1", "a"), ("x2", "a"), ("w3", "a")],
    ),
    Case("a pod that fits anyway waits for nothing", [waiting("w", "1")], {"b"}, []),
    Case("gated", [waiting("w", "5", schedulingGates=[{"name": "x"}], **ON_A)], {"b"}, []),
    Case("of another scheduler", [waiting("w", "5", schedulerName="mine", **ON_A)], {"b"}, []),
    Case("terminating", [waiting("w", "5", terminating=True, **ON_A)], {"b"}, []),
    Case("kept off by its node selector", [waiting("w", "5", nodeSelector={"x": "y"})], {"b"}, []),
    Case(
        "waits for a host port",
        [
            pod(
                "w",
                containers=[{"name": "main", "ports": [{"hostPort": 80}]}],
                nodeSelector={HOSTNAME: "a"},
            )
        ],
        {"b"},
        [("w", "a")],
        {
            "containers": [
                {
                    "name": "main",
                    "ports": [{"hostPort": 80}],
                    "resources": {"requests": {"cpu": "5"}},
                }
            ]
        },
    ),
    Case(
        "waits for its rival to go",
        [waiting("w", "0", **ON_A, **near("podAntiAffinity", "v"))],
        {"b"},
        [("w", "a")],
        {"labels": {"app": "v"}},
    ),
    Case(
        "is refused by the anti-affinity of the victim",
        [waiting("w", "0", labels={"app": "w"}, **ON_A)],
        {"b"},
        [("w", "a")],
        near("podAntiAffinity", "w"),
    ),
    Case(
        "has affinity to the replacement",
        [waiting("w", "0", nodeSelector={HOSTNAME: "b"}, **near("podAffinity", "v"))],
        {"b"},
        [("w", "b")],
        {"labels": {"app": "v"}},
    ),
    Case(
        "one that lands lets another land beside it",
        [
            waiting("f", "0", **ON_A, **near("podAffinity", "w")),
            waiting("w", "5", minute=1, labels={"app": "w"}, **ON_A),
        ],
        {"b"},
        [("w", "a"), ("f", "a")],
    ),
    Case(
        "and that comes before the replacement of a pod that is gone at once",
        [
            waiting("f", "5", **ON_A, **near("podAffinity", "w")),
            waiting(
                "w", "0", minute=1, labels={"app": "w"}, **ON_A, **near("podAntiAffinity", "v")
            ),
        ],
        set(),
        [("w", "a"), ("f", "a")],
        {"labels": {"app": "v"}, **AT_ONCE},
        "10",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_pending_pods_take_what_is_freed_in_the_order_of_the_queue(case):
    victim = {"requests": {"cpu": "5"}, **(case.victim or {})}
    if "containers" in victim:
        del victim["requests"]
    world = World(
        [node("a"), node("b")],
        [
            pod("v", on="a", **victim),
            standing("x", "a", "5"),
            standing("y", "b", case.b),
            *case.pods,
        ],
    )
    landings, takers = foreseen(world, "v")
    assert set(landings) == case.landings
    assert takers == case.takers


def test_a_replacement_may_make_room_under_a_spread():
    # Zone 1 has two and zone 2 one of three with maxSkew 1; only a has room for the pending pod.
    rule = spread(1, ZONE, "DoNotSchedule", {"matchLabels": {"app": "web"}})
    web: Json = {"labels": {"app": "web"}}
    world = World(
        [
            node("a", labels={ZONE: "z1"}, cpu="4"),
            node("b", labels={ZONE: "z2"}, cpu="1"),
            node("c", labels={ZONE: "z2"}, cpu="1"),
        ],
        [
            standing("v", "a", "1", nodeSelector={ZONE: "z2"}, **web),
            standing("u", "a", "1", **web),
            standing("t", "b", "1", **web),
            waiting("w", "2", **web, **rule),
        ],
    )
    assert world.filters("w")["a"] == "PodTopologySpread"
    assert foreseen(world, "v") == ({"c": 1.0}, [("w", "a")])


@pytest.mark.parametrize("off", [frozenset(), frozenset({"NodeResourcesFit"})])
def test_without_the_filter_on_room_a_pod_waits_for_its_rival_whatever_it_requests(off):
    world = World(
        [node("a", cpu="3"), node("b")],
        [
            standing("big", "a", "2"),
            standing("rival", "a", "1", labels={"app": "r"}, **AT_ONCE),
            waiting("w", "3", **ON_A, **near("podAntiAffinity", "r")),
        ],
        profile={"off": off},
    )
    assert foreseen(world, "rival")[1] == ([("w", "a")] if off else [])


def test_victims_that_terminate_on_the_node_count_as_gone_by_then():
    world = World(
        [node("a"), node("b")],
        [
            standing("v1", "a", "2"),
            standing("v2", "a", "2"),
            standing("x", "a", "6"),
            waiting("w", "4", **ON_A),
        ],
    )
    assert foreseen(world, "v2")[1] == []
    row = world.row("v1")
    world.state.evict(row)
    world.state.place(row, world.cls("v1"), 1)
    assert foreseen(world, "v2") == ({"b": 1.0}, [("w", "a")])


def test_those_that_have_got_a_node_wait_no_longer():
    world = World(
        [node("a"), node("b", unschedulable=True)],
        [
            standing("v1", "a", "5", **AT_ONCE),
            standing("v2", "a", "5", **AT_ONCE),
            waiting("w1", "5"),
            waiting("w2", "5", minute=1),
        ],
    )
    assert foreseen(world, "v1")[1] == [("w1", "a")]
    state = world.state
    state.evict(world.row("v1"))
    state.reap()
    state.place(world.row("w1"), world.cls("w1"), 0)
    assert foreseen(world, "v2")[1] == [("w2", "a")]


def test_the_words_name_the_first_and_count_the_others():
    pods = [waiting(f"w{i}", "1", minute=i, **ON_A) for i in range(7)]
    world = World([node("a"), node("b")], [standing("v", "a", "5"), standing("x", "a", "5"), *pods])
    prediction = world.model.pending.foresee(world.state, world.row("v"))
    assert len(prediction.takers) == 5
    said = takers_text(world.snapshot, prediction)
    assert said == "pending default/w0 takes room on a and 4 more pending"


# -- random clusters ---------------------------------------------------------------------------------------


@st.composite
def crowded(draw: st.DrawFn) -> tuple[list[Json], list[Json]]:
    """Return nodes that are nearly full, and pods that stand and wait."""
    nodes, pods, _ = draw(random_worlds.clusters(2, 4))
    for one in nodes:
        name = one["metadata"]["name"]
        fill = draw(st.sampled_from(("0", "1500m", "2", "3500m", "4")))
        pods.append(standing(f"fill-{name}", name, fill))
    for index in range(draw(st.integers(1, 5))):
        made = draw(random_worlds.pods(f"wait{index}", ""))
        made["spec"]["priority"] = draw(st.integers(0, 1))
        minute = draw(st.integers(0, 3))
        made["metadata"]["creationTimestamp"] = f"2026-01-01T00:0{minute}:00Z"
        pods.append(made)
    for made in pods:
        if draw(st.booleans()):
            made["spec"]["terminationGracePeriodSeconds"] = 0
    return nodes, pods


def everything(state: ClusterState) -> list[Any]:
    """Return all that can be read of a state."""
    every = np.arange(len(state.snapshot.classes), dtype=np.int32)
    return [
        state.used.tolist(),
        state.scored_used.tolist(),
        state.lasting.tolist(),
        state.pod_count.tolist(),
        state.node_of.tolist(),
        state.cls_of.tolist(),
        list(state.terminating_pods),
        [
            state.counts(every[[cls]], terminating=terminating).tolist()
            for cls in every
            for terminating in (False, True)
        ],
    ]


def by_trying_all(world: World, pod: int) -> tuple[list[int], list[Taker]]:
    """Return landings and takers by really making the move in a state, and asking about each pending pod."""
    snapshot, state = world.snapshot, ClusterState(world.snapshot)
    model = SchedulerModel(snapshot, SchedulerProfile.for_version((1, 36)))
    pods, classes = snapshot.pods, snapshot.classes
    queue = [
        row
        for row in np.flatnonzero(pods.node < 0).tolist()
        if not pods.flags[row] & (PodFlag.TERMINATING | PodFlag.LOST_NODE)
        and not model.find_unmodelled(int(pods.cls[row]))
        and not model.feasible(state, int(pods.cls[row])).any()
    ]
    queue.sort(key=lambda row: (-classes[int(pods.cls[row])].priority, pods.created[row], row))
    takers: list[Taker] = []

    def lands(row: int) -> bool:
        cls = int(pods.cls[row])
        nodes = model.predict(state, cls).nodes
        if len(nodes):
            state.place(row, cls, int(nodes[0]))
            takers.append(Taker(row, int(nodes[0])))
        return len(nodes) > 0

    def take() -> None:
        # Each that lands may let those before it in the queue land: they are tried again.
        while any(lands(row) for row in queue if state.node_of[row] < 0):
            pass

    cls = int(pods.cls[pod])
    state.evict(pod)
    if snapshot.waits(cls):
        state.reap()
        take()
    landings = model.predict(state, classes[cls].replacement).nodes
    if len(landings):
        state.place(pod, classes[cls].replacement, int(landings[0]))
        state.reap()
        take()
    return landings.tolist(), takers


@settings(max_examples=12, deadline=None)
@given(crowded())
def test_the_shortcut_misses_no_pod_and_leaves_the_state_as_it_was(made):
    nodes, pods = made
    world = World(nodes, pods, namespaces=random_worlds.namespaces())
    flags = world.snapshot.pods.flags
    for row in np.flatnonzero(world.snapshot.pods.node >= 0).tolist():
        if flags[row] & PodFlag.TERMINATING:
            continue
        before = everything(world.state)
        prediction = world.model.pending.foresee(world.state, row)
        assert everything(world.state) == before
        landings, takers = by_trying_all(world, row)
        assert prediction.nodes.tolist() == landings
        assert list(prediction.takers) == takers
        with world.model.pending.placed(world.state, prediction.takers):
            pass
        assert everything(world.state)[:-2] == before[:-2]


@pytest.mark.parametrize("asked_before", [False, True])
@pytest.mark.parametrize("kind", ["removing", "marking"])
def test_what_is_assumed_of_nodes_decides_who_waits_whatever_was_asked_before(kind, asked_before):
    """A pod that fits on b waits for room on a while b is taken to be cordoned, and no longer."""
    made = World([node("a"), node("b")], [standing("v", "a", "9"), waiting("w", "5")])
    pending, victim = made.model.pending, made.row("v")

    def takes() -> bool:
        return bool(pending.find_concerned(made.state, victim))

    if asked_before:
        assert not takes()
    with getattr(made.model, kind)(made.rows(["b"])):
        assert takes() is (kind == "removing")
    assert not takes()


def test_an_error_while_pods_take_room_leaves_the_state_as_it_was(monkeypatch):
    world = World([node("a")], [waiting("first", "5"), waiting("then", "1", priority=-1, **ON_A)])
    lower, other = world.model.lower, world.cls("then")

    def lower_one(state: ClusterState, cls: int) -> tuple[Any, Any]:
        pod, cluster = lower(state, cls)
        return (object() if cls == other else pod), cluster

    monkeypatch.setattr(world.model, "lower", lower_one)
    before = everything(world.state)
    with pytest.raises((TypeError, AttributeError)):
        world.model.pending.takers(world.state)
    assert everything(world.state) == before


def takers_in(world: World, state: ClusterState) -> list[tuple[str, str]]:
    """Return (pending pod, node) in order, of those that get a node in a state."""
    pods, nodes = world.snapshot.pods.name, world.snapshot.nodes.names
    return [(pods[one.pod], nodes[one.node]) for one in world.model.pending.takers(state)]


def test_the_queue_of_one_state_says_nothing_of_another():
    world = World([node("a")], [standing("v", "a", "8"), waiting("w", "5")])
    other = ClusterState(world.snapshot)
    other.evict(world.row("v"))
    other.reap()
    for _ in range(2):
        assert takers_in(world, world.state) == []
        assert takers_in(world, other) == [("w", "a")]


def test_those_that_wait_follow_the_rules_without_nodes_that_are_absent():
    rule = spread(1, ZONE, "DoNotSchedule", {"matchLabels": {"app": "api"}})
    api: Json = {"labels": {"app": "api"}}
    zoned = [node("a", labels={ZONE: "east"}), node("b", labels={ZONE: "west"}, cpu="1")]
    world = World(zoned, [standing("u", "a", "2", **api), waiting("w", "2", **api, **rule)])
    assert takers_in(world, world.state) == []
    world.model.without(np.array([False, True]))
    assert takers_in(world, world.state) == [("w", "a")]


@pytest.mark.parametrize(("nodes", "taken"), [("ab", []), ("a", [("w", "a")])])
def test_a_pod_that_the_scheduler_fails_to_score_waits_wherever_there_is_a_choice(nodes, taken):
    broken = {"key": "generation", "operator": "Gt", "values": ["new"]}
    term = {"weight": 1, "preference": {"matchExpressions": [broken]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    world = World([node(name) for name in nodes], [waiting("w", "5", affinity=affinity)])
    assert takers_in(world, world.state) == taken


def test_a_pod_may_wait_for_what_only_the_replacement_has():
    """The victim is of an older template, without the label that the pending pod's affinity asks for."""
    of_set = {"app": "cache", "pod-template-hash": "2"}
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": of_set}, "spec": {"containers": [container]}}
    replica_set = {
        "kind": "ReplicaSet",
        "metadata": {"name": "cache", "namespace": "default", "uid": "cache"},
        "spec": {"replicas": 1, "template": template},
    }
    old = standing("v", "a", "1", owner=("ReplicaSet", "cache", "cache"))
    world = World(
        [node("a", unschedulable=True), node("b")],
        [old, waiting("w", "1", **near("podAffinity", "cache"))],
        replica_sets=[replica_set],
    )
    assert world.filters("w")["b"] == "InterPodAffinity"
    assert foreseen(world, "v") == ({"b": 1.0}, [("w", "b")])
