from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.scheduler.explain import explain_pod
from rebalancer.scheduler.filters import FILTERS
from tests.unit.scheduler import random_worlds
from tests.unit.scheduler.worlds import HOSTNAME, ZONE, Json, World, node, pod, spread


def explained(world: World, name: str) -> Json:
    explanation = explain_pod(world.snapshot, world.model, world.state, world.row(name)).as_json()
    decoded: Json = json.loads(json.dumps(explanation))
    return decoded


def refused(world: World, name: str) -> dict[str, tuple[str, str]]:
    return {
        one["name"]: (one["filteredBy"]["plugin"], one["filteredBy"]["message"])
        for one in explained(world, name)["nodes"]
        if one["filteredBy"]
    }


def test_the_json_has_every_node_and_every_landing():
    nodes = [
        node("a", labels={ZONE: "z1"}),
        node("b", labels={ZONE: "z2"}),
        node("c", unschedulable=True),
    ]
    world = World(nodes, [pod("p", on="a", requests={"cpu": "1"})])
    explanation = explained(world, "p")
    assert set(explanation) == {
        "pod",
        "nodes",
        "landings",
        "pending",
        "unmodelled",
        "assumptions",
        "note",
    }
    assert explanation["pod"] == "default/p"
    assert explanation["landings"] == [{"node": "b", "domains": {ZONE: "z2"}, "probability": 1.0}]
    a, b, c = explanation["nodes"]
    assert set(a) == set(c) == {"name", "feasible", "filteredBy", "scores", "total"}
    assert a["total"] == sum(a["scores"].values()) < b["total"]
    assert c == {
        "name": "c",
        "feasible": False,
        "filteredBy": {"plugin": "NodeUnschedulable", "message": "node(s) were unschedulable"},
        "scores": {},
        "total": None,
    }


def test_the_state_is_as_before():
    owner = ("StatefulSet", "s", "uid-s")
    world = World([node("a"), node("b")], [pod("p", on="a", requests={"cpu": "1"}, owner=owner)])
    before = (
        world.state.used.copy(),
        world.state.pod_count.copy(),
        list(world.state.terminating_pods),
    )
    explained(world, "p")
    assert (world.state.used == before[0]).all()
    assert (world.state.pod_count == before[1]).all()
    assert world.state.terminating_pods == before[2]


def test_an_owner_that_waits_finds_the_victims_place_free():
    wanted: Json = {"requests": {"cpu": "6"}}
    nodes = [node("a")]
    stateful = World(nodes, [pod("p", on="a", owner=("StatefulSet", "s", "u"), **wanted)])
    assert [one["node"] for one in explained(stateful, "p")["landings"]] == ["a"]
    replicated = World(nodes, [pod("p", on="a", owner=("ReplicaSet", "r", "u"), **wanted)])
    assert refused(replicated, "p") == {"a": ("NodeResourcesFit", "Insufficient cpu")}


def test_reasons_are_the_schedulers_words():
    labels = {"app": "x"}
    selector = {"matchLabels": labels}
    term = {"labelSelector": selector, "topologyKey": HOSTNAME}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    anti = {"podAntiAffinity": {required: [term]}}
    spec = spread(1, "rack", "DoNotSchedule", selector)
    world = World(
        [
            node("busy", labels={"rack": "r1"}),
            node("full", cpu="1", pods="0", labels={"rack": "r1"}),
            node("keyless"),
            node("tainted", taints=[{"key": "k", "effect": "NoExecute"}], labels={"rack": "r1"}),
            node("taken", labels={"rack": "r2"}),
        ],
        [
            pod("one", on="busy", labels={"app": "x"}),
            pod("two", on="busy", labels={"app": "x"}),
            pod("three", on="taken", labels={"app": "y"}, affinity=anti),
            pod("p", labels=labels, requests={"cpu": "2"}, **spec),
        ],
    )
    spread_reason = "node(s) didn't match pod topology spread constraints"
    assert refused(world, "p") == {
        "busy": ("PodTopologySpread", spread_reason),
        "full": ("NodeResourcesFit", "Too many pods, Insufficient cpu"),
        "keyless": ("PodTopologySpread", f"{spread_reason} (missing required label)"),
        "tainted": ("TaintToleration", "node(s) had untolerated taint(s)"),
        "taken": ("InterPodAffinity", "node(s) didn't satisfy existing pods anti-affinity rules"),
    }


def test_a_gated_pod_is_refused_everywhere_before_any_filter():
    world = World([node("a")], [pod("p", schedulingGates=[{"name": "wait"}])])
    assert refused(world, "p") == {"a": ("SchedulingGates", "waiting for scheduling gates")}


def test_an_outdated_version_and_unmodelled_parts_are_said():
    world = World([node("a")], [pod("p", on="a", schedulerName="mine")], version=(1, 20))
    explanation = explained(world, "p")
    assert explanation["unmodelled"] == ["scheduled by mine"]
    assert "1.20" in explanation["note"]


def test_nodes_that_a_pod_names_leave_the_others_unlooked_at():
    field = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    selector = {"disk": "ssd"}
    nodes = [node("a"), node("b", unschedulable=True)]
    world = World(nodes, [pod("p", affinity=affinity, nodeSelector=selector)])
    assert refused(world, "p") == {
        "a": ("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"),
        "b": ("NodeAffinity", "node(s) didn't satisfy plugin(s) [NodeAffinity]"),
    }


@pytest.mark.parametrize(("grace", "landings"), [(30, []), (0, ["a"]), (None, [])])
def test_a_pod_without_a_grace_period_is_gone_before_its_replacement_comes(grace, landings):
    owner = ("ReplicaSet", "web", "rs")
    full = pod("p", on="a", owner=owner, requests={"cpu": "6"}, terminationGracePeriodSeconds=grace)
    world = World([node("a")], [full])
    assert [one["node"] for one in explained(world, "p")["landings"]] == landings
    assert world.snapshot.waits(world.cls("p")) is (grace == 0)


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("SchedulingGates", {"schedulingGates": [{"name": "later"}]}),
        ("NodeResourcesFit", {"requests": {"cpu": "20"}}),
        ("TaintToleration", {}),
    ],
)
@pytest.mark.parametrize("off", [True, False])
def test_a_filter_that_is_off_refuses_nothing(name, spec, off):
    taint = {"key": "k", "value": "", "effect": "NoSchedule"}
    tainted = [taint] if name == "TaintToleration" else []
    profile = {"off": frozenset({name} if off else ())}
    world = World([node("a", taints=tainted)], [pod("p", **spec)], profile=profile)
    assert world.filters("p") == {"a": "" if off else name}
    assert world.feasible("p") == (["a"] if off else [])
    assert bool(world.model.rejection(world.cls("p"))) == (name == "SchedulingGates" and not off)


# -- random clusters ---------------------------------------------------------------------------------------

MODES = st.sampled_from(("ReadWriteOnce", "ReadWriteOncePod"))


@st.composite
def equipped(draw: st.DrawFn) -> World:
    """Return a cluster whose pods may also use host ports, disks, and claims, with a profile that lacks filters."""
    nodes, standing, new = draw(random_worlds.clusters(1, 5))
    for one in (*standing, new):
        used = draw(st.sets(st.sampled_from("xyz"), max_size=2))
        volumes: list[Json] = [
            {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in sorted(used)
        ]
        if draw(st.booleans()):
            volumes.append(
                {"name": "disk", "gcePersistentDisk": {"pdName": draw(st.sampled_from("de"))}}
            )
        one["spec"]["volumes"] = volumes
        if draw(st.booleans()):
            one["spec"]["containers"][0]["ports"] = [{"hostPort": draw(st.integers(80, 81))}]
    driver = {"name": "d", "allocatable": {"count": draw(st.integers(0, 2))}}
    places = [("default", name) for name in "xyz"] + [("other", name) for name in "xyz"]
    return World(
        nodes,
        [*standing, new],
        profile={"off": draw(st.frozensets(st.sampled_from(FILTERS[1:-1]), max_size=2))},
        namespaces=random_worlds.namespaces(),
        claims=[
            {
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"volumeName": f"{namespace}-{name}", "accessModes": [draw(MODES)]},
            }
            for namespace, name in places
        ],
        volumes=[
            {
                "metadata": {"name": f"{namespace}-{name}"},
                "spec": {"csi": {"driver": "d", "volumeHandle": f"{namespace}-{name}"}},
            }
            for namespace, name in places
        ],
        csi_nodes=[
            {"metadata": {"name": one["metadata"]["name"]}, "spec": {"drivers": [driver]}}
            for one in nodes[::2]
        ],
    )


@settings(max_examples=40, deadline=None)
@given(equipped(), st.integers(0, 4))
def test_a_filter_says_no_of_each_node_that_predictions_refuse_and_of_no_other(world, removed):
    model, state, count = world.model, world.state, len(world.snapshot.nodes)
    with model.removing(np.array([removed % count], np.int32)):
        for cls in range(len(world.snapshot.classes)):
            evaluation = model.evaluate(state, cls)
            assert evaluation.feasible.tolist() == model.feasible(state, cls).tolist()
            said = [bool(evaluation.reasons(row)) for row in range(count)]
            assert said == (~evaluation.feasible).tolist()
