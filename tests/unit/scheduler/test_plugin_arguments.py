"""What the arguments of plug-ins change, on clusters that a person can check."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.scheduler.profile import ScoringStrategy
from rebalancer.wire import objects as o
from tests.unit.scheduler.worlds import HOSTNAME, Json, World, node, pod

GPU = "example.com/gpu"


def asking(name: str, *, on: str = "", **spec: Any) -> Json:
    requests = spec.pop("requests")
    limits = {key: value for key, value in requests.items() if "/" in key}
    resources = {"requests": requests, "limits": limits}
    return pod(name, on=on, containers=[{"name": "c", "resources": resources}], **spec)


@pytest.mark.parametrize(
    ("ignored", "feasible"),
    [
        ((), []),
        ((GPU,), ["a", "b"]),
        (("example.com",), ["a", "b"]),
        (("example.co",), []),
        # Only extended resources can be ignored.
        (("cpu", "hugepages-2Mi"), []),
    ],
)
def test_resources_that_are_ignored_are_not_checked(ignored, feasible):
    world = World(
        [node("a"), node("b")],
        [asking("p", requests={GPU: "1"})],
        profile={"ignored_resources": frozenset(ignored)},
    )
    assert world.feasible("p") == feasible


def test_cpu_is_checked_whatever_is_ignored():
    world = World(
        [node("a", cpu="1")],
        [asking("p", requests={"cpu": "2", GPU: "1"})],
        profile={"ignored_resources": frozenset({GPU, "cpu"})},
    )
    assert world.feasible("p") == []


@pytest.mark.parametrize(
    ("balanced", "requests", "scores"),
    [
        # With 1.35: 100 less the standard deviation of the shares with the pod.
        (("cpu", "memory"), {"cpu": "5", "memory": "5Gi", GPU: "1"}, [100, 100]),
        # Shares 0.5, 0.5, 0.25 on a: mean 5/12, deviation sqrt(1/72) = 0.1178...; b has no gpu.
        (("cpu", "memory", GPU), {"cpu": "5", "memory": "5Gi", GPU: "1"}, [88, 100]),
        # Two are left where a node lacks the third: |0.5 - 0.1| / 2 on b.
        (("cpu", GPU, "memory"), {"cpu": "5", "memory": "1Gi", GPU: "1"}, [83, 80]),
        # An extended resource that the pod does not request does not count.
        (("cpu", "memory", GPU), {"cpu": "5", "memory": "1Gi"}, [80, 80]),
        (("cpu",), {"cpu": "5"}, [100, 100]),
    ],
)
def test_the_balance_of_any_resources_is_scored(balanced, requests, scores):
    world = World(
        [node("a", allocatable={GPU: "4"}), node("b")],
        [asking("p", requests=requests)],
        version=(1, 35),
        profile={"balanced": balanced, "ignored_resources": frozenset({GPU})},
    )
    assert world.plain("p", "NodeResourcesBalancedAllocation") == scores


def test_a_pod_that_requests_none_of_the_balanced_resources_is_skipped():
    world = World([node("a")], [asking("p", requests={"cpu": "1"})], profile={"balanced": (GPU,)})
    assert "NodeResourcesBalancedAllocation" not in world.evaluate("p").scores


def test_ephemeral_storage_is_scored_also_for_pods_that_request_none():
    disk = {"ephemeral-storage": "100Gi"}
    world = World(
        [node("a", allocatable=disk), node("b", allocatable=disk)],
        [asking("old", on="a", requests={"ephemeral-storage": "40Gi"}), pod("p")],
        profile={"scoring": ScoringStrategy("LeastAllocated", (("ephemeral-storage", 1),))},
    )
    assert world.plain("p", "NodeResourcesFit") == [60, 100]


def wants(key: str, *values: str) -> o.NodeSelectorTerm:
    expression = o.LabelSelectorRequirement(key=key, operator="In", values=values)
    return o.NodeSelectorTerm(match_expressions=(expression,))


def test_added_affinity_holds_beside_that_of_the_pod_and_raises_scores():
    added = o.NodeAffinity(
        required=o.NodeSelector((wants("pool", "x"),)),
        preferred=(o.PreferredSchedulingTerm(30, wants("disk", "ssd")),),
    )
    nodes = [
        node("a", labels={"pool": "x", "zone": "1"}),
        node("b", labels={"pool": "x", "zone": "1", "disk": "ssd"}),
        node("c", labels={"pool": "y", "zone": "1", "disk": "ssd"}),
        node("d", labels={"pool": "x", "zone": "2"}),
    ]
    own = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 60,
                    "preference": {
                        "matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["a"]}]
                    },
                }
            ]
        }
    }
    world = World(
        nodes,
        [pod("p", nodeSelector={"zone": "1"}), pod("q", nodeSelector={"zone": "1"}, affinity=own)],
        profile={"added_affinity": added},
    )
    assert world.feasible("p") == ["a", "b"]
    assert world.plain("p", "NodeAffinity", "ab") == [0, 100]
    assert world.plain("q", "NodeAffinity", "ab") == [100, 50]
    # To its own rules, the pod may stay on nodes that only the scheduler would not choose.
    own_rules = world.model.node_affinity_mask(world.cls("p"))
    assert own_rules.tolist() == [True, True, True, False]


@pytest.mark.parametrize(
    ("ignores", "prefers", "scored"),
    [(False, False, True), (True, False, False), (True, True, True), (False, True, True)],
)
def test_terms_of_others_may_count_only_for_pods_with_terms_of_their_own(ignores, prefers, scored):
    def liking(app: str) -> Json:
        term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}}
        preferred = [{"weight": 10, "podAffinityTerm": term}]
        required = [{"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}}]
        field = "DuringSchedulingIgnoredDuringExecution"
        return {"podAffinity": {f"preferred{field}": preferred, f"required{field}": required}}

    own = liking("nothing") if prefers else {}
    own.get("podAffinity", {}).pop("requiredDuringSchedulingIgnoredDuringExecution", None)
    world = World(
        [node("a"), node("b")],
        [
            pod("old", on="a", labels={"app": "x"}, affinity=liking("x")),
            pod("p", labels={"app": "x"}, affinity=own),
        ],
        profile={"ignores_preferred_terms": ignores},
    )
    scores = world.evaluate("p").scores
    assert ("InterPodAffinity" in scores) is scored
    if scored:
        assert world.plain("p", "InterPodAffinity") == [100, 0]


@pytest.mark.parametrize(
    ("off", "feasible"),
    [
        ((), ["d"]),
        (("NodeUnschedulable",), ["a", "d"]),
        (("TaintToleration",), ["b", "d"]),
        (("NodeAffinity",), ["c", "d"]),
        (("NodeUnschedulable", "TaintToleration", "NodeAffinity"), ["a", "b", "c", "d"]),
    ],
)
def test_a_plugin_that_does_not_run_refuses_nothing(off, feasible):
    taint = {"key": "k", "effect": "NoSchedule"}
    good = {"pool": "x"}
    world = World(
        [
            node("a", unschedulable=True, labels=good),
            node("b", taints=[taint], labels=good),
            node("c"),
            node("d", labels=good),
        ],
        [pod("p", nodeSelector=good)],
        profile={"off": frozenset(off)},
    )
    assert world.feasible("p") == feasible
    passed = [name for name, failed in world.filters("p").items() if not failed]
    assert passed == feasible
