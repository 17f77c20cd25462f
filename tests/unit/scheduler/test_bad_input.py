"""Whatever an object holds, nothing raises: what cannot be understood is named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.scheduler.worlds import HOSTNAME, Json, World, node, pod, spread


def predicted(world: World, name: str) -> tuple[dict[str, float], tuple[str, ...]]:
    world.evaluate(name)
    prediction = world.model.predict(world.state, world.cls(name))
    return world.landings(name), prediction.unmodelled


@pytest.mark.parametrize("text", ["lots", "", "1.2.3", "0x10", "1 Gi", "--1", "1e", "Gi", "²"])
def test_an_illegal_request_makes_the_pod_unpredicted(text):
    world = World([node("a")], [pod("p", requests={"cpu": text}), pod("ok", on="a")])
    landings, reasons = predicted(world, "p")
    assert landings == {"a": 1.0}
    assert len(reasons) == 1
    assert repr(text) in reasons[0]
    assert predicted(world, "ok")[1] == ()


@pytest.mark.parametrize(
    "text",
    ["1", "100m", "0.5", ".5", "5.", "+1", "1e0", "1E0", "10e-1", "500000u", "1000000n", "0.001k"],
)
def test_a_legal_request_is_understood(text):
    world = World([node("a"), node("small", cpu="0")], [pod("p", requests={"cpu": text})])
    assert predicted(world, "p") == ({"a": 1.0}, ())


@pytest.mark.parametrize("text", ["-1", "-5902958103587058", "-1e30"])
def test_a_negative_request_makes_the_pod_unpredicted(text):
    world = World([node("a", cpu="31m"), node("b")], [pod("p", requests={"cpu": text})])
    assert predicted(world, "p")[1] == ("the request for cpu is negative",)


@pytest.mark.parametrize("text", ["-1", "many", "", "1Gi1"])
def test_an_illegal_allocatable_makes_the_node_unreadable(text):
    world = World([node("a", cpu=text), node("b")], [pod("p")])
    assert world.filters("p")["a"] in ("Unreadable", "NodeResourcesFit")
    assert world.landings("p") == {"b": 1.0}
    assert not world.model.static_mask(world.cls("p"))[world.snapshot.nodes.index["a"]]


def test_each_unreadable_node_has_its_own_reason_beside_one_mask():
    nodes = [node(name, cpu=text) for name, text in (("a", "many"), ("b", "1"), ("c", "few"))]
    world = World(nodes, [pod("p")], profile={"off": frozenset({"NodeResourcesFit"})})
    evaluation = world.evaluate("p")
    whys = world.snapshot.nodes.unreadable
    assert {row: evaluation.reasons(row) for row in range(3)} == {
        row: (whys[row],) if row in whys else () for row in range(3)
    }
    unreadable = [check for check in evaluation.checks if check.filter == "Unreadable"]
    assert [check.passes.tolist() for check in unreadable] == [[False, True, False]]


def test_a_pod_on_a_lost_node_is_not_counted_and_still_predicted():
    anti = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": HOSTNAME}
            ]
        }
    }
    world = World([node("a")], [pod("p", on="gone", labels={"app": "x"}, affinity=anti)])
    assert world.landings("p") == {"a": 1.0}


def affinity(selector: Json) -> Json:
    term = {"labelSelector": selector, "topologyKey": HOSTNAME}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def preferred(expression: Json) -> Json:
    term = {"weight": 1, "preference": {"matchExpressions": [expression]}}
    return {
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    }


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (
            affinity({"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}),
            "label selector: operator 'Near' is unknown",
        ),
        (
            affinity({"matchExpressions": [{"key": "a", "operator": "In"}]}),
            "label selector: In without values",
        ),
        (
            preferred({"key": "a", "operator": "Gtt", "values": ["1"]}),
            "node affinity: operator 'Gtt' is unknown",
        ),
        (
            spread(1, HOSTNAME, "Whenever", {}),
            "topology spread: whenUnsatisfiable 'Whenever' is unknown",
        ),
    ],
)
def test_an_unknown_operator_makes_the_pod_unpredicted(spec, reason):
    assert predicted(World([node("a")], [pod("p", **spec)]), "p")[1] == (reason,)


def test_a_cluster_without_nodes_has_no_landings():
    world = World([], [pod("p")])
    assert world.landings("p") == {}
    assert world.evaluate("p").total.tolist() == []


@pytest.mark.parametrize(
    ("kind", "claims"),
    [
        ("PersistentVolumeClaim", []),
        ("PersistentVolume", [{"volumeName": "v"}]),
        ("StorageClass", [{"storageClassName": "late"}]),
    ],
)
def test_what_a_file_lacks_is_named_and_not_taken_for_absent(kind, claims):
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    objects = [{"metadata": {"name": "c", "namespace": "default"}, "spec": spec} for spec in claims]
    missing = (f"{kind}: none in the file",)
    world = World([node("a")], [pod("p", volumes=volumes)], missing=missing, claims=objects)
    landings, reasons = predicted(world, "p")
    assert landings == {"a": 1.0}
    assert reasons == (f"the snapshot holds no {kind}{'es' if kind.endswith('s') else 's'}",)


texts = st.text(max_size=8)
amounts: st.SearchStrategy[Any] = st.one_of(
    texts, st.integers(-5, 2**65), st.floats(allow_nan=False, allow_infinity=False)
)


@st.composite
def junk_pods(draw: st.DrawFn) -> Json:
    operators = st.one_of(texts, st.sampled_from(("In", "NotIn", "Exists", "Gt")))
    requirement: Any = {"key": draw(texts), "operator": draw(operators)}
    requirement["values"] = draw(st.lists(texts, max_size=2))
    selector = draw(st.sampled_from(({}, {"matchExpressions": [requirement]}, None)))
    constraint = spread(
        draw(st.integers(-2, 3)),
        draw(st.sampled_from((HOSTNAME, "", "x"))),
        draw(st.sampled_from(("DoNotSchedule", "ScheduleAnyway", ""))),
        selector,
        minDomains=draw(st.integers(-1, 3)),
    )
    return pod(
        "p",
        requests={"cpu": draw(amounts), draw(texts): draw(amounts)},
        tolerations=[{"key": draw(texts), "operator": draw(texts), "effect": draw(texts)}],
        **affinity(selector if selector is not None else {}),
        **constraint,
    )


@settings(max_examples=100, deadline=None)
@given(junk_pods(), amounts, st.dictionaries(texts, texts, max_size=2))
def test_no_object_breaks_a_prediction(wanted, cpu, labels):
    world = World([node("a", cpu=cpu, labels=labels), node("b")], [wanted, pod("old", on="b")])
    landings, _ = predicted(world, "p")
    assert sum(landings.values()) == pytest.approx(1) or not landings
