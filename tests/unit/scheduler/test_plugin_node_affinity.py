"""Numbers of kube-scheduler's own table tests (``plugins/nodeaffinity``)."""

from __future__ import annotations

import pytest

from tests.unit.scheduler.worlds import Json, World, node, pod

LABELS = (
    {"foo": "bar"},
    {"key": "value", "az": "az1"},
    {"foo": "bar", "key": "value", "az": "az1"},
)


def expression(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def preferred(*terms: tuple[int, Json]) -> Json:
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    weighted = [{"weight": w, "preference": {"matchExpressions": [e]}} for w, e in terms]
    return {"nodeAffinity": {field: weighted}}


def required(*terms: Json) -> Json:
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"nodeAffinity": {field: {"nodeSelectorTerms": list(terms)}}}


def test_matching_weights_are_scaled_to_the_largest():
    nodes = [node(f"node{i}", labels=labels) for i, labels in enumerate(LABELS)]
    affinity = preferred(
        (2, expression("foo", "In", "bar")),
        (4, expression("key", "In", "value")),
        (5, {**expression("az", "In", "az1")}),
    )
    world = World(nodes, [pod("p", affinity=affinity)])
    assert world.plain("p", "NodeAffinity") == [18, 81, 100]


def test_no_match_anywhere_scores_nothing():
    world = World(
        [node("node1"), node("node2")],
        [pod("p", affinity=preferred((2, expression("foo", "In", "bar"))))],
    )
    assert world.plain("p", "NodeAffinity") == [0, 0]


def test_a_pod_without_preference_is_skipped():
    world = World([node("node1")], [pod("p")])
    assert "NodeAffinity" not in world.evaluate("p").scores


@pytest.mark.parametrize(
    ("term", "labels", "fits"),
    [
        ([expression("foo", "In", "bar", "value2")], {"foo": "bar"}, True),
        ([expression("kernel-version", "Gt", "0204")], {"kernel-version": "0206"}, True),
        ([expression("kernel-version", "Gt", "0204")], {"kernel-version": "x"}, False),
        ([expression("kernel-version", "Lt", "3")], {"kernel-version": "-1"}, True),
        ([expression("kernel-version", "Gt", "3")], {"kernel-version": "1_0"}, False),
        ([expression("kernel-version", "Gt", "3")], {"kernel-version": "9" * 19}, False),
        ([expression("kernel-version", "Lt", "3")], {}, False),
        ([expression("mem-type", "NotIn", "DDR", "DDR2")], {"mem-type": "DDR3"}, True),
        ([expression("mem-type", "NotIn", "DDR")], {}, True),
        ([expression("GPU", "Exists")], {"GPU": "NVIDIA-GRID-K1"}, True),
        ([expression("foo", "In", "value1")], {"foo": "bar"}, False),
        ([], {"foo": "bar"}, False),
        ([expression("GPU", "Exists"), expression("GPU", "NotIn", "AMD")], {"GPU": "NVIDIA"}, True),
        ([expression("GPU", "Exists"), expression("GPU", "In", "AMD")], {"GPU": "NVIDIA"}, False),
        ([expression("foo", "DoesNotExist")], {"bar": "foo"}, True),
        ([expression("foo", "Near", "bar")], {"foo": "bar"}, False),
    ],
)
def test_required_expressions(term, labels, fits):
    affinity = required({"matchExpressions": term})
    world = World([node("node1", labels=labels)], [pod("p", affinity=affinity)])
    assert bool(world.model.node_affinity_mask(world.cls("p"))[0]) is fits


def test_terms_are_alternatives_and_node_selector_comes_on_top():
    terms = [{"matchExpressions": [expression("foo", "In", v)]} for v in ("bar", "baz")]
    world = World(
        [
            node("a", labels={"foo": "bar"}),
            node("b", labels={"foo": "baz", "disk": "ssd"}),
            node("c"),
        ],
        [
            pod("p", affinity=required(*terms)),
            pod("q", affinity=required(*terms), nodeSelector={"disk": "ssd"}),
        ],
    )
    assert world.feasible("p") == ["a", "b"]
    assert world.feasible("q") == ["b"]


def test_match_fields_name_a_node():
    term = {"matchFields": [expression("metadata.name", "In", "node1")]}
    world = World([node("node1"), node("node2")], [pod("p", affinity=required(term))])
    assert world.feasible("p") == ["node1"]


def test_match_fields_take_one_value_only():
    term = {"matchFields": [expression("metadata.name", "In", "node1", "node2")]}
    world = World([node("node1"), node("node2")], [pod("p", affinity=required(term))])
    assert world.feasible("p") == []


def test_a_selector_for_a_value_that_no_node_has_matches_none():
    world = World(
        [node("has-another", labels={"disk": "ssd"}), node("has-none")],
        [pod("p", nodeSelector={"disk": "hdd"}), pod("q", nodeSelector={"unheard-of": "x"})],
    )
    assert world.feasible("p") == []
    assert world.feasible("q") == []


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (expression("generation", "Gt", "four"), "Gt 'four' is not an integer"),
        (expression("generation", "Lt", ""), "Lt '' is not an integer"),
        (expression("generation", "Gt", "-5"), "'-5' is not a label value"),
        (expression("disk", "In", "ssd", "not a value"), "'not a value' is not a label value"),
        (expression("disk", "NotIn", "a" * 64), f"'{'a' * 64}' is not a label value"),
    ],
)
def test_a_preference_that_cannot_be_parsed_fails_wherever_there_is_a_choice(broken, why):
    affinity = preferred((1, expression("disk", "In", "ssd")), (1, broken))
    several = World([node("a"), node("b")], [pod("p", affinity=affinity)])
    prediction = several.model.predict(several.state, several.cls("p"))
    assert prediction.nodes.tolist() == []
    assert prediction.unmodelled == (
        f"preferred node affinity: {why}: pending for as long as two nodes are feasible",
    )
    # What alone is feasible is not scored.
    one = World([node("a"), node("b", unschedulable=True)], [pod("p", affinity=affinity)])
    assert one.landings("p") == {"a": 1.0}
    assert one.model.predict(one.state, one.cls("p")).unmodelled == ()


def test_a_preference_without_weight_is_not_parsed():
    affinity = preferred((0, expression("generation", "Gt", "four")))
    world = World([node("a"), node("b")], [pod("p", affinity=affinity)])
    assert world.landings("p") == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(
    "broken", [expression("disk", "NotIn", "not a value"), expression("n", "Lt", "x")]
)
def test_a_required_term_that_cannot_be_parsed_matches_no_node(broken):
    nodes = [node("a", labels={"disk": "ssd"}), node("b")]
    good = {"matchExpressions": [expression("disk", "Exists")]}
    bad = {"matchExpressions": [broken]}
    assert World(nodes, [pod("p", affinity=required(bad))]).feasible("p") == []
    assert World(nodes, [pod("p", affinity=required(bad, good))]).feasible("p") == ["a"]
