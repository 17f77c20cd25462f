"""Numbers of kube-scheduler's own table tests (``plugins/noderesources``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rebalancer.scheduler.profile import ScoringStrategy
from tests.unit.scheduler.worlds import Json, World, node, pod

Asked = tuple[str | None, str | None]
FIT, BALANCED = "NodeResourcesFit", "NodeResourcesBalancedAllocation"


def containers(*requests: Asked) -> list[Json]:
    made: list[Json] = []
    for index, (cpu, memory) in enumerate(requests):
        amounts = {"cpu": cpu, "memory": memory}
        asked = {name: amount for name, amount in amounts.items() if amount is not None}
        made.append({"name": f"c{index}", "resources": {"requests": asked}})
    return made


def world(
    sizes: Sequence[tuple[str, str]],
    wanted: Sequence[Asked],
    standing: Sequence[tuple[int, Asked]] = (),
    **profile: Any,
) -> World:
    nodes = [node(f"node{i}", cpu=cpu, memory=memory) for i, (cpu, memory) in enumerate(sizes)]
    pods = [
        pod(f"old{i}", on=f"node{where}", containers=containers(asked))
        for i, (where, asked) in enumerate(standing)
    ]
    return World(nodes, [*pods, pod("p", containers=containers(*wanted))], **profile)


BOTH = [("1000", "2000"), ("2000", "3000")]


@pytest.mark.parametrize(
    ("sizes", "wanted", "standing", "expected"),
    [
        ([("4000", "10000"), ("4000", "10000")], [], [], [100, 100]),
        ([("4000", "10000"), ("6000", "10000")], BOTH, [], [37, 50]),
        (
            [("10000", "20000"), ("10000", "20000")],
            [],
            [(0, ("3000", "0")), (0, ("3000", "0")), (1, ("3000", "0")), (1, ("3000", "5000"))],
            [70, 57],
        ),
        (
            [("10000", "20000"), ("10000", "20000")],
            BOTH,
            [(0, ("3000", "0")), (1, ("3000", "5000"))],
            [57, 45],
        ),
        (
            [("10000", "20000"), ("10000", "50000")],
            BOTH,
            [(0, ("3000", "0")), (1, ("3000", "5000"))],
            [57, 60],
        ),
        (
            [("4000", "10000"), ("4000", "10000")],
            [("3000", "0")],
            [(0, ("3000", "0")), (1, ("3000", "5000"))],
            [50, 25],
        ),
        ([("0", "0"), ("0", "0")], [], [(0, ("3000", "0")), (1, ("3000", "5000"))], [0, 0]),
    ],
)
def test_least_allocated(sizes, wanted, standing, expected):
    model = world(sizes, wanted, standing)
    assert model.plain("p", FIT, among=["node0", "node1"]) == expected


@pytest.mark.parametrize(
    ("sizes", "wanted", "standing", "expected"),
    [
        ([("4000", "10000"), ("4000", "10000")], [], [], [0, 0]),
        ([("4000", "10000"), ("6000", "10000")], BOTH, [], [62, 50]),
        (
            [("10000", "20000"), ("10000", "20000")],
            [],
            [(0, ("3000", "0")), (0, ("3000", "0")), (1, ("3000", "0")), (1, ("3000", "5000"))],
            [30, 42],
        ),
        ([("0", "0"), ("0", "0")], [], [(0, ("3000", "0"))], [0, 0]),
    ],
)
def test_most_allocated(sizes, wanted, standing, expected):
    scoring = ScoringStrategy("MostAllocated")
    model = world(sizes, wanted, standing, profile={"scoring": scoring})
    assert model.plain("p", FIT, among=["node0", "node1"]) == expected


@pytest.mark.parametrize(
    ("kind", "weights", "expected"),
    [
        ("LeastAllocated", {"cpu": 1, "memory": 1}, (25 + 50) // 2),
        ("LeastAllocated", {"cpu": 3, "memory": 1}, (3 * 25 + 50) // 4),
        ("LeastAllocated", {"memory": 7}, 50),
        ("MostAllocated", {"cpu": 3, "memory": 1}, (3 * 75 + 50) // 4),
        ("MostAllocated", {"cpu": 1}, 75),
    ],
)
def test_resources_have_weights(kind, weights, expected):
    # The pod asks for 3 of 4 cpu, and half of the memory.
    scoring = ScoringStrategy(kind, tuple(weights.items()))
    model = world([("4000", "10000")], BOTH, profile={"scoring": scoring})
    assert model.plain("p", FIT) == [expected]


@pytest.mark.parametrize(
    ("shape", "used", "expected"),
    [
        ([(0, 10), (70, 5), (100, 0)], 0, 100),
        ([(0, 10), (70, 5), (100, 0)], 30, 79),  # 100 - 50 * 30 / 70, cut towards zero
        ([(0, 10), (70, 5), (100, 0)], 70, 50),
        ([(0, 10), (70, 5), (100, 0)], 90, 17),
        ([(20, 3), (80, 9)], 10, 30),  # before the first point
        ([(20, 3), (80, 9)], 50, 60),
        ([(20, 3), (80, 9)], 95, 90),  # after the last
        ([(50, 4)], 7, 40),
    ],
)
def test_a_shape_is_linear_between_its_points(shape, used, expected):
    scoring = ScoringStrategy("RequestedToCapacityRatio", (("cpu", 1),), tuple(shape))
    asked = [] if used == 0 else [(str(used * 100), "0")]
    # A pod that asks for nothing counts as 100 millicores: 0 % of ten million.
    size = "10000000" if used == 0 else "10000"
    model = world([(size, "20000")], asked, profile={"scoring": scoring})
    assert model.plain("p", FIT) == [expected]


def test_by_a_ratio_what_scores_nothing_does_not_count_and_halves_are_rounded_up():
    packs = ((0, 0), (100, 10))
    scoring = ScoringStrategy("RequestedToCapacityRatio", (("cpu", 1), ("memory", 1)), packs)
    # 75 % of cpu and none of memory; then 75 % and 50 %.
    model = world([("4000", "100000000000000")], [("3000", "0")], profile={"scoring": scoring})
    assert model.plain("p", FIT) == [75]
    model = world([("4000", "10000")], BOTH, profile={"scoring": scoring})
    assert model.plain("p", FIT) == [63]


@pytest.mark.parametrize(("asked", "expected"), [("2", 50), (None, 0)])
def test_an_extended_resource_counts_for_pods_that_ask_for_it(asked, expected):
    gpu = "example.com/gpu"
    scoring = ScoringStrategy("MostAllocated", ((gpu, 3),))
    requests = {} if asked is None else {gpu: asked}
    container = {"name": "c", "resources": {"requests": requests, "limits": requests}}
    other = {"name": "c", "resources": {"requests": {gpu: "1"}, "limits": {gpu: "1"}}}
    model = World(
        [node("n", allocatable={gpu: "4"}), node("far", allocatable={gpu: "8"})],
        [pod("old", on="far", containers=[other]), pod("p", containers=[container])],
        profile={"scoring": scoring},
    )
    assert model.plain("p", FIT, among=["n"]) == [expected]


CPU_OF_FIRST = [(0, ("3000m", None))]
CPU_OF_BOTH = [(0, ("3000m", None)), (1, ("3000m", "5000"))]
MILLI = [("1000m", "2000"), ("2000m", "3000")]


@pytest.mark.parametrize(
    ("sizes", "wanted", "standing", "expected"),
    [
        ([("4", "10000"), ("6", "10000")], MILLI, [], [68, 75]),
        ([("10", "20000"), ("10", "20000")], MILLI, CPU_OF_BOTH, [73, 74]),
        ([("10", "20000"), ("10", "50000")], MILLI, CPU_OF_BOTH, [73, 70]),
        ([("3", "5000"), ("3", "5000")], [(None, "2000"), (None, "3000")], CPU_OF_FIRST, [100, 50]),
        ([("6", "10000"), ("6", "10000")], [("1", None), ("2", None)], CPU_OF_BOTH, [62, 62]),
    ],
)
def test_balanced_allocation_by_improvement(sizes, wanted, standing, expected):
    model = world(sizes, wanted, standing)
    assert model.plain("p", BALANCED, among=["node0", "node1"]) == expected


@pytest.mark.parametrize("version", [(1, 34), (1, 35)])
def test_balanced_allocation_of_older_versions_looks_at_the_node_with_the_pod(version):
    # 60 % cpu beside 25 % and 50 % memory: 1 - 0.35/2 and 1 - 0.10/2.
    model = world([("10", "20000"), ("10", "20000")], MILLI, CPU_OF_BOTH, version=version)
    assert model.plain("p", BALANCED) == [82, 95]


def test_balanced_allocation_skips_a_pod_that_asks_for_nothing():
    assert BALANCED not in world([("4", "10000")], []).evaluate("p").scores


@pytest.mark.parametrize(
    ("wanted", "standing", "reason"),
    [
        (("1m", "1"), ("10m", "20"), True),
        (("1m", "1"), ("9m", "19"), False),
        (("2m", "1"), ("9m", "19"), True),
        (("1m", "2"), ("9m", "19"), True),
        ((None, None), ("10m", "20"), False),
        ((None, "1"), ("10m", "19"), False),
    ],
)
def test_a_pod_fits_if_its_real_requests_do(wanted, standing, reason):
    model = world([("10m", "20")], [wanted], [(0, standing)])
    assert model.filters("p") == {"node0": FIT if reason else ""}


def test_the_number_of_pods_counts_terminating_ones():
    nodes = [node("a", pods="1"), node("b", pods="2")]
    old = [pod("x", on="a", terminating=True), pod("y", on="b", terminating=True)]
    assert World(nodes, [*old, pod("p")]).filters("p") == {"a": FIT, "b": ""}


def test_extended_resources_need_a_node_that_has_them():
    nodes = [node("plain"), node("rich", allocatable={"example.com/gpu": "2"})]
    wanted = pod("p", requests={"example.com/gpu": "1"})
    assert World(nodes, [wanted]).feasible("p") == ["rich"]
    taken = pod("old", on="rich", requests={"example.com/gpu": "2"})
    assert World(nodes, [wanted, taken]).feasible("p") == []


def test_init_containers_count_by_their_peak_and_sidecars_on_top():
    init = {"name": "i", "resources": {"requests": {"cpu": "3"}}}
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    nodes = [node("four", cpu="4"), node("three", cpu="3500m")]
    # Init 3 beside nothing, main 1 beside sidecar 1: 3 at most. After the sidecar, init needs 3 + 1.
    first = pod("first", requests={"cpu": "1"}, initContainers=[init, sidecar])
    later = pod("later", requests={"cpu": "1"}, initContainers=[sidecar, init])
    model = World(nodes, [first, later])
    assert model.feasible("first") == ["four", "three"]
    assert model.feasible("later") == ["four"]


@pytest.mark.parametrize(
    ("version", "score"),
    [
        # LeastAllocated sees 1 of 10 cpus and 1 of 10 Gi, for the scorer knows containers only.
        ((1, 37), 90),
        ((1, 38), (40 + 90) // 2),
    ],
)
def test_pod_level_requests_decide_what_fits_and_from_1_38_on_the_score_of_a_new_pod(
    version, score
):
    wanted = pod("p", requests={"cpu": "1", "memory": "1Gi"}, resources={"requests": {"cpu": "6"}})
    nodes = [node("small", cpu="5"), node("large", cpu="10", memory="10Gi")]
    model = World(nodes, [wanted], version=version)
    assert model.feasible("p") == ["large"]
    assert model.plain("p", FIT, among=["large"]) == [score]


def test_a_standing_pod_counts_with_its_pod_level_requests():
    old = pod(
        "old", on="n", requests={"cpu": "1", "memory": "1Gi"}, resources={"requests": {"cpu": "6"}}
    )
    model = World(
        [node("n", cpu="10", memory="10Gi")],
        [old, pod("p", requests={"cpu": "1", "memory": "1Gi"})],
    )
    assert model.plain("p", FIT, among=["n"]) == [(30 + 80) // 2]


def test_overhead_hides_a_missing_memory_request_of_a_standing_pod_with_pod_level_cpu():
    # No 200 Mi stand in for the container, for the pod as a whole asks for the 1 Gi of its overhead.
    old = pod("old", on="n", overhead={"memory": "1Gi"}, resources={"requests": {"cpu": "1"}})
    model = World(
        [node("n", cpu="10", memory="10Gi")], [old, pod("p", requests={"cpu": "1", "memory": "0"})]
    )
    assert model.plain("p", FIT, among=["n"]) == [(80 + 90) // 2]
