"""Numbers of kube-scheduler's own table tests (``plugins/interpodaffinity``)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.scheduler.worlds import HOSTNAME, Json, World, node, pod

PLUGIN = "InterPodAffinity"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
CHINA, INDIA = {"region": "China"}, {"region": "India"}
AZ1, AZ2 = {"az": "az1"}, {"az": "az2"}
S1, S2 = {"security": "S1"}, {"security": "S2"}


def term(key: str, *values: str, **more: Any) -> Json:
    expression = {"key": "security", "operator": "In", "values": list(values)}
    return {"labelSelector": {"matchExpressions": [expression]}, "topologyKey": key, **more}


def soft(weight: int, one: Json) -> Json:
    return {PREFERRED: [{"weight": weight, "podAffinityTerm": one}]}


def hard(*terms: Json) -> Json:
    return {REQUIRED: list(terms)}


NEAR_S1 = {"podAffinity": soft(5, term("region", "S1"))}
NEAR_S2 = {"podAffinity": soft(6, term("region", "S2"))}
OFF_S1 = {"podAntiAffinity": soft(5, term("az", "S1"))}
OFF_S2 = {"podAntiAffinity": soft(5, term("az", "S2"))}
NEAR_S1_OFF_S2 = {
    "podAffinity": soft(8, term("region", "S1")),
    "podAntiAffinity": soft(5, term("az", "S2")),
}
HARD_S1 = {"podAffinity": hard(term("region", "S1", "value2"), term("region", "S1", "S2"))}
TEAM1 = {"matchLabels": {"team": "team1"}}
TEAMS = {"namespaces": ["subteam2.team2"], "namespaceSelector": TEAM1}
NAMESPACES = [
    {"metadata": {"name": "subteam1.team1", "labels": {"team": "team1"}}},
    {"metadata": {"name": "subteam2.team2", "labels": {"team": "team2"}}},
]
Standing = tuple[int, dict[str, str], Json]


def world(
    labels: list[dict[str, str]], wanted: Json, standing: list[Standing], **profile: Any
) -> World:
    nodes = [node(f"node{i}", labels=of_node, hostname=False) for i, of_node in enumerate(labels)]
    pods = [
        pod(f"old{i}", on=f"node{where}", labels=of_pod, affinity=affinity)
        for i, (where, of_pod, affinity) in enumerate(standing)
    ]
    return World(nodes, [*pods, wanted], namespaces=NAMESPACES, **profile)


@pytest.mark.parametrize(
    ("own", "affinity", "nodes", "standing", "expected"),
    [
        (S1, NEAR_S1, [CHINA, INDIA, AZ1], [(0, S1, {}), (1, S2, {}), (2, S1, {})], [100, 0, 0]),
        ({}, NEAR_S1, [CHINA, CHINA | AZ1, INDIA], [(0, S1, {})], [100, 100, 0]),
        (
            S1,
            NEAR_S2,
            [CHINA, INDIA, CHINA, CHINA, INDIA],
            [(w, S2, {}) for w in (0, 0, 1, 2, 3, 4)],
            [100, 0, 100, 100, 0],
        ),
        (S2, {}, [CHINA, INDIA, AZ1], [(0, S1, NEAR_S1), (1, S2, NEAR_S2)], [0, 100, 0]),
        (S1, {}, [CHINA, INDIA, AZ1], [(0, S1, HARD_S1), (1, S2, HARD_S1)], [100, 100, 0]),
        (S1, OFF_S1, [AZ1, CHINA], [(0, S1, {}), (1, S2, {})], [0, 100]),
        (S1, OFF_S1, [AZ1, CHINA], [(0, S1, {}), (1, S1, {})], [0, 100]),
        (S1, OFF_S1, [AZ1, INDIA], [(0, S1, {}), (0, S1, {}), (1, S2, {})], [0, 100]),
        (S2, {}, [AZ1, AZ2], [(0, S1, OFF_S2), (1, S2, OFF_S1)], [0, 100]),
        (S1, NEAR_S1_OFF_S2, [CHINA, AZ1], [(0, S1, {}), (1, S1, {})], [100, 0]),
        (
            S1,
            NEAR_S1_OFF_S2,
            [CHINA | AZ1, INDIA, CHINA, CHINA, INDIA],
            [(w, S1, {}) for w in (0, 0, 1, 2, 2, 3, 4)],
            [100, 0, 100, 100, 0],
        ),
        (
            S1,
            NEAR_S1_OFF_S2,
            [CHINA, AZ1, INDIA, AZ2],
            [(0, S1, {}), (1, S2, {}), (2, {}, NEAR_S1_OFF_S2), (3, {}, OFF_S1)],
            [100, 0, 100, 0],
        ),
        (S1, {}, [CHINA, CHINA], [(0, S1, {}), (1, {}, NEAR_S1_OFF_S2)], [0, 0]),
    ],
)
def test_preferences_of_both_directions(own, affinity, nodes, standing, expected):
    cluster = world(nodes, pod("p", labels=own, affinity=affinity), standing)
    assert cluster.plain("p", PLUGIN) == expected


def test_it_skips_where_no_term_concerns_anybody():
    cluster = world([CHINA, INDIA], pod("p", labels=S1), [(0, S1, {})])
    assert PLUGIN not in cluster.evaluate("p").scores


@pytest.mark.parametrize(
    ("kind", "expected"), [("podAffinity", [100, 0, 0]), ("podAntiAffinity", [0, 100, 100])]
)
def test_namespaces_and_namespace_selectors_are_a_union(kind, expected):
    affinity = {kind: soft(5, term("region", "S1", **TEAMS))}
    near = {"podAffinity": soft(6, term("region", "S2"))}
    wanted = pod("p", namespace="subteam1.team1", labels=S1)
    cluster = world([CHINA, INDIA, AZ1], wanted, [(0, S1, affinity), (1, S2, near)])
    assert cluster.plain("p", PLUGIN) == expected


@pytest.mark.parametrize(("weight", "scores"), [(1, True), (0, False)])
def test_required_affinity_of_others_counts_with_its_weight(weight, scores):
    cluster = world(
        [CHINA, INDIA],
        pod("p", labels=S1),
        [(0, S1, HARD_S1)],
        profile={"hard_pod_affinity_weight": weight},
    )
    assert (PLUGIN in cluster.evaluate("p").scores) is scores


@pytest.mark.parametrize(
    ("own", "affinity", "nodes", "standing", "fits"),
    [
        # Its own affinity: a match in the domain, or the first of its kind.
        (S2, {"podAffinity": hard(term("region", "S1"))}, [CHINA, INDIA], [(0, S1, {})], [0]),
        (S2, {"podAffinity": hard(term("region", "S1"))}, [CHINA, INDIA], [], []),
        (S1, {"podAffinity": hard(term("region", "S1"))}, [CHINA, AZ1], [], [0]),
        (S1, {"podAffinity": hard(term("region", "S1"))}, [CHINA, INDIA], [(1, S1, {})], [1]),
        (
            S1,
            {"podAffinity": hard(term("region", "S1"), term("az", "S1"))},
            [CHINA | AZ1, CHINA, INDIA | AZ2],
            [(0, S1, {})],
            [0],
        ),
        # Terms are matched together: a pod that matches only one of them counts for none.
        (
            {"security": "S1"},
            {"podAffinity": hard(term("region", "S1"), term("region", "S2"))},
            [CHINA],
            [(0, S1, {}), (0, S2, {})],
            [],
        ),
        # A match on a node that lacks the key does not count, so the pod may be the first.
        (S1, {"podAffinity": hard(term("region", "S1"))}, [CHINA, AZ1], [(1, S1, {})], [0]),
        # Its own anti-affinity.
        (
            S2,
            {"podAntiAffinity": hard(term("region", "S1"))},
            [CHINA, CHINA, INDIA],
            [(0, S1, {})],
            [2],
        ),
        (S2, {"podAntiAffinity": hard(term("region", "S1"))}, [CHINA, AZ1], [(0, S1, {})], [1]),
        # Anti-affinity of others.
        (
            S1,
            {},
            [CHINA, CHINA, INDIA],
            [(0, S2, {"podAntiAffinity": hard(term("region", "S1"))})],
            [2],
        ),
        (
            S2,
            {},
            [CHINA, INDIA],
            [(0, S2, {"podAntiAffinity": hard(term("region", "S1"))})],
            [0, 1],
        ),
    ],
)
def test_required_terms(own, affinity, nodes, standing, fits):
    cluster = world(nodes, pod("p", labels=own, affinity=affinity), standing)
    assert cluster.feasible("p") == [f"node{i}" for i in fits]
    assert set(cluster.filters("p").values()) <= {"", PLUGIN}


def test_terminating_pods_still_repel():
    affinity = {"podAntiAffinity": hard(term(HOSTNAME, "S1"))}
    old = pod("old", on="a", labels=S1, affinity=affinity, terminating=True)
    assert World([node("a"), node("b")], [old, pod("p", labels=S1)]).feasible("p") == ["b"]


def test_mismatch_label_keys_keep_away_from_other_versions_only():
    def versioned(version: str) -> dict[str, str]:
        return {**S1, "v": version}

    affinity = {"podAntiAffinity": hard(term(HOSTNAME, "S1", mismatchLabelKeys=["v"]))}
    nodes = [node("a"), node("b")]
    olds = [pod("one", on="a", labels=versioned("1")), pod("two", on="b", labels=versioned("2"))]
    cluster = World(nodes, [*olds, pod("p", labels=versioned("2"), affinity=affinity)])
    assert cluster.feasible("p") == ["b"]
