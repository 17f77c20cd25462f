"""Numbers of kube-scheduler's own table tests (``plugins/podtopologyspread``)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.scheduler.worlds import HOSTNAME, ZONE, Json, World, node, pod, spread

SOFT, HARD = "ScheduleAnyway", "DoNotSchedule"
FOO: Json = {"matchExpressions": [{"key": "foo", "operator": "Exists"}]}
BAR: Json = {"matchExpressions": [{"key": "bar", "operator": "Exists"}]}
PLUGIN = "PodTopologySpread"
FOUR = [
    node("node-a", labels={"zone": "zone1", "node": "node-a"}),
    node("node-b", labels={"zone": "zone1", "node": "node-b"}),
    node("node-x", labels={"zone": "zone2", "node": "node-x"}),
    node("node-y", labels={"zone": "zone2", "node": "node-y"}),
]


def standing(*counts: int, names: str = "abxy", labels: str = "foo") -> list[Json]:
    """Return so many pods on node-a, node-b, node-x, node-y."""
    return [
        pod(f"{labels}-{name}{i}", on=f"node-{name}", labels=dict.fromkeys(labels.split("+"), ""))
        for name, count in zip(names, counts, strict=False)
        for i in range(count)
    ]


def wanted(labels: str = "foo", **spec: Any) -> Json:
    return pod("p", labels=dict.fromkeys(labels.split("+"), ""), **spec)


@pytest.mark.parametrize(
    ("counts", "skew", "candidates", "expected"),
    [
        ((0, 0), 1, "ab", [100, 100]),
        ((2, 1), 1, "a", [100]),
        ((1, 1), 1, "ab", [100, 100]),
        ((2, 1, 0, 3), 1, "abxy", [20, 60, 100, 0]),
        ((2, 1, 0, 3), 2, "abxy", [33, 66, 100, 16]),
        ((4, 3, 2, 1), 3, "abxy", [44, 66, 77, 100]),
        ((4, 2, 1, 3), 1, "abx", [33, 83, 100]),
    ],
)
def test_spread_over_nodes(counts, skew, candidates, expected):
    world = World(FOUR, [*standing(*counts), wanted(**spread(skew, HOSTNAME, SOFT, FOO))])
    assert world.plain("p", PLUGIN, among=[f"node-{c}" for c in candidates]) == expected


def test_an_absent_selector_counts_no_pod():
    world = World(FOUR, [*standing(2, 1, 0, 3), wanted(**spread(1, HOSTNAME, SOFT, None))])
    assert world.plain("p", PLUGIN) == [100] * 4


def test_a_node_without_the_key_scores_nothing_and_its_pods_do_not_count():
    nodes = [FOUR[0], node("node-b", hostname=False, labels={"n": "node-b"}), FOUR[2], FOUR[3]]
    world = World(nodes, [*standing(4, 2, 1, 3), wanted(**spread(1, HOSTNAME, SOFT, FOO))])
    assert world.plain("p", PLUGIN, among=["node-a", "node-b", "node-x"]) == [16, 0, 100]


def test_a_zone_counts_nodes_that_are_no_candidates():
    world = World(FOUR, [*standing(4, 2, 1, 3), wanted(**spread(1, "zone", SOFT, FOO))])
    assert world.plain("p", PLUGIN, among=["node-a", "node-b", "node-x"]) == [75, 75, 100]


def two(first: Json, second: Json, second_key: str = HOSTNAME) -> Json:
    one = spread(1, "zone", SOFT, first)["topologySpreadConstraints"]
    other = spread(1, second_key, SOFT, second)["topologySpreadConstraints"]
    return {"topologySpreadConstraints": one + other}


def test_zone_and_node_together():
    world = World(FOUR, [*standing(2, 1, 2, 4), wanted(**two(FOO, FOO))])
    assert world.plain("p", PLUGIN, among=["node-a", "node-x"]) == [100, 63]


def test_two_constraints_on_one_key_with_different_selectors():
    pods = [
        *standing(1, labels="foo"),
        *standing(1, 1, 0, 1, labels="foo+bar"),
        *standing(0, 0, 0, 2),
    ]
    world = World(FOUR, [*pods, wanted("foo+bar", **two(FOO, BAR, "zone"))])
    assert world.plain("p", PLUGIN, among=["node-a", "node-x"]) == [85, 100]


@pytest.mark.parametrize(
    ("pods", "candidates", "expected"),
    [
        (
            standing(1, 0, 0, 1)
            + standing(0, 1, labels="foo+bar")
            + standing(0, 0, 0, 1, labels="bar"),
            "abxy",
            [60, 20, 100, 60],
        ),
        (
            standing(0, 1, labels="bar")
            + standing(0, 0, 1)
            + standing(0, 0, 0, 1, labels="foo+bar"),
            "abxy",
            [100, 60, 40, 0],
        ),
        (
            standing(1, 0, 0, 1)
            + standing(0, 1, labels="foo+bar")
            + standing(0, 0, 0, 1, labels="bar"),
            "abx",
            [50, 25, 100],
        ),
    ],
)
def test_zone_and_node_with_different_selectors(pods, candidates, expected):
    world = World(FOUR, [*pods, wanted("foo+bar", **two(FOO, BAR))])
    assert world.plain("p", PLUGIN, among=[f"node-{c}" for c in candidates]) == expected


def test_other_namespaces_and_terminating_pods_do_not_count():
    elsewhere = pod("e", on="node-a", labels={"foo": ""}, namespace="ns1")
    leaving = pod("t", on="node-a", labels={"foo": ""}, terminating=True)
    pods = [elsewhere, leaving, *standing(1, 2), wanted(**spread(1, HOSTNAME, SOFT, FOO))]
    assert World(FOUR[:2], pods).plain("p", PLUGIN) == [100, 33]


def test_the_node_affinity_policy_decides_whose_pods_count():
    labels = [{"node": "node-a", "foo": ""}, {"node": "node-b", "foo": ""}, {"node": "node-c"}]
    nodes = [node(of["node"], labels=of) for of in labels]
    pods = standing(2, 1, 1, names="abc")
    honoured = wanted(nodeSelector={"foo": ""}, **spread(1, "node", SOFT, FOO))
    names = ["node-a", "node-b", "node-c"]
    assert World(nodes, [*pods, honoured]).plain("p", PLUGIN, among=names) == [0, 33, 100]
    constraint = spread(1, "node", SOFT, FOO, nodeAffinityPolicy="Ignore")
    ignored = wanted(nodeSelector={"foo": ""}, **constraint)
    assert World(nodes, [*pods, ignored]).plain("p", PLUGIN, among=names) == [66, 100, 100]


def test_system_defaults_use_the_services_that_select_the_pod():
    service = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"foo": ""}}}
    bare = [node(f"node-{name}") for name in "abxy"]
    pods = [*standing(4, 3, 2, 1), wanted()]
    assert World(bare, pods, services=[service]).plain("p", PLUGIN) == [44, 66, 77, 100]
    assert PLUGIN not in World(bare, pods).evaluate("p").scores


def test_system_defaults_use_the_selector_of_the_replica_set():
    owner = ("ReplicaSet", "rs", "uid-rs")
    selector = {"matchLabels": {"foo": ""}}
    replica_set = {
        "metadata": {"name": "rs", "namespace": "default", "uid": "uid-rs"},
        "spec": {"selector": selector},
    }
    bare = [node(f"node-{name}") for name in "abxy"]
    pods = [*standing(4, 3, 2, 1), pod("p", labels={"foo": ""}, owner=owner)]
    world = World(bare, pods, replica_sets=[replica_set])
    assert world.plain("p", PLUGIN) == [44, 66, 77, 100]


def test_the_pods_of_a_replica_set_that_was_not_read_stand_in_for_its_selector():
    owner = ("ReplicaSet", "rs", "uid-rs")
    bare = [node(f"node-{name}") for name in "abxy"]
    others = standing(
        9
    )  # without an owner: they carry the label, too, but are not of this ReplicaSet
    own = [
        pod(f"own-{name}{i}", on=f"node-{name}", labels={"foo": ""}, owner=owner)
        for name, count in zip("abxy", (4, 3, 2, 1), strict=True)
        for i in range(count)
    ]
    pods = [*others, *own, pod("p", labels={"foo": ""}, owner=owner)]
    assert World(bare, pods).plain("p", PLUGIN) == [44, 66, 77, 100]


def test_a_nameless_zone_is_one_more_domain_of_the_system_defaults():
    service = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"foo": ""}}}
    nodes = [node("node-a", labels={ZONE: "z"}), node("node-b")]
    world = World(nodes, [*standing(3), wanted()], services=[service])
    # Two zones and two nodes: round(3 ln 4 + 2 + 3 ln 4 + 4) = 14 and round(2) = 2.
    assert world.plain("p", PLUGIN) == [100 * 2 // 14, 100]


@pytest.mark.parametrize(
    ("skew", "key", "counts", "more", "fits"),
    [
        (1, "zone", (0, 0, 0, 0), {}, "abxy"),
        (1, "zone", (2, 1, 0, 3), {}, "abxy"),
        (1, "node", (2, 1, 0, 3), {}, "x"),
        (2, "node", (2, 1, 0, 3), {}, "bx"),
        (2, "zone", (1, 1, 0, 1), {"minDomains": 3}, "xy"),
        (2, "zone", (1, 1, 0, 1), {"minDomains": 1}, "abxy"),
    ],
)
def test_hard_constraints(skew, key, counts, more, fits):
    world = World(FOUR, [*standing(*counts), wanted(**spread(skew, key, HARD, FOO, **more))])
    assert world.feasible("p") == [f"node-{name}" for name in fits]
    assert set(world.filters("p").values()) <= {"", PLUGIN}


def test_a_pod_that_does_not_match_itself_adds_nothing_to_the_skew():
    world = World(FOUR, [*standing(2, 1, 0, 3), wanted("bar", **spread(1, "node", HARD, FOO))])
    assert world.feasible("p") == ["node-b", "node-x"]


def test_a_node_without_the_key_is_refused_and_its_pods_do_not_count():
    nodes = [FOUR[0], node("node-b", labels={"zon": "zone1"}), *FOUR[2:]]
    world = World(nodes, [*standing(1, 1, 1, 1), wanted(**spread(1, "zone", HARD, FOO))])
    assert world.feasible("p") == ["node-a"]
    rack = World(FOUR, [wanted(**spread(1, "rack", HARD, FOO))])
    assert rack.feasible("p") == []


@pytest.mark.parametrize(
    ("version", "feasible"),
    [((1, 37), ["node-a", "node-b", "node-x", "node-y"]), ((1, 38), ["node-x", "node-y"])],
)
def test_an_empty_selector_matches_the_pod_itself_and_counts_others_from_1_38_on(version, feasible):
    pods = [*standing(5, 5, 0, 0), wanted(**spread(1, "zone", HARD, {}))]
    assert World(FOUR, pods, version=version).feasible("p") == feasible


@pytest.mark.parametrize("version", [(1, 37), (1, 38)])
def test_a_missing_selector_counts_no_pod(version):
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": HARD}
    pods = [*standing(5, 5, 0, 0), wanted(topologySpreadConstraints=[constraint])]
    feasible = World(FOUR, pods, version=version).feasible("p")
    assert feasible == ["node-a", "node-b", "node-x", "node-y"]


def test_tainted_nodes_are_domains_unless_the_policy_honours_taints():
    taint = {"key": "k", "effect": "NoSchedule"}
    nodes = [node("node-a"), node("node-b", taints=[taint])]
    ignored = wanted(**spread(1, HOSTNAME, HARD, FOO))
    honoured = wanted(**spread(1, HOSTNAME, HARD, FOO, nodeTaintsPolicy="Honor"))
    assert World(nodes, [*standing(1), ignored]).feasible("p") == []
    assert World(nodes, [*standing(1), honoured]).feasible("p") == ["node-a"]


def test_match_label_keys_narrow_the_selector_to_the_pods_own_version():
    old = [pod(f"o{i}", on="node-a", labels={"foo": "", "v": "1"}) for i in range(3)]
    constraint = spread(1, HOSTNAME, HARD, FOO, matchLabelKeys=["v"])
    new = pod("p", labels={"foo": "", "v": "2"}, **constraint)
    assert World(FOUR[:2], [*old, new]).feasible("p") == ["node-a", "node-b"]
