"""What is said of a landing where earlier replacements of the plan may take its node."""

import random

import numpy as np
import pytest

from rebalancer.plan.plan import IN_ORDER
from rebalancer.planner.draft import make_move
from rebalancer.planner.effort import Effort
from rebalancer.planner.recheck import recheck
from rebalancer.planner.scenarios import PredictedMove, expect
from rebalancer.planner.settings import Settings
from rebalancer.snapshot.state import ClusterState
from rebalancer.testing.snapshots import node, snapshot_of, workload
from tests.unit.planner.conftest import draft_of, plan_of, problem_of

EMPTY = [node("n0"), node("n1"), node("n2")]
"""All pods are on n0; n1 and n2 are equal, and empty."""


def steps_of(draft, pods):
    """The moves of some pods in one wave, each on its most probable node, as a search makes them."""
    steps = []
    for pod in pods:
        prediction = draft.scheduler.pending.foresee(draft.state, pod)
        cls = int(draft.snapshot.pods.cls[pod])
        draft.move(pod, cls, prediction)
        steps.append(PredictedMove(pod, cls, 1, prediction))
    return steps


def shown(draft, predictions):
    names = draft.snapshot.nodes.names
    return [
        {
            names[n]: round(float(p), 3)
            for n, p in zip(of.nodes.tolist(), of.probability.tolist(), strict=True)
        }
        for of in predictions
    ]


def moved_off(objects, pods):
    """(what the plan predicted, what is to be expected) of moves of ``pods`` (names), in this order."""
    draft = draft_of(objects)
    steps = steps_of(draft, [draft.snapshot.pods.name.index(name) for name in pods])
    before = shown(draft, [step.prediction for step in steps])
    return before, shown(draft, expect(draft, steps, Effort()))


def pods_on_n0(*, cpu="1", **more):
    return [
        *workload("a", ["n0"], cpu=cpu, memory="1Gi"),
        *workload("b", ["n0"], cpu=cpu, memory="1Gi", **more),
    ]


EVEN = {"n1": 0.5, "n2": 0.5}
ONLY_N1 = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
TABLE = [
    # b goes where a does not, and a is on either: so is b.
    (EMPTY, pods_on_n0(), [EVEN, {"n2": 1.0}], [EVEN, EVEN]),
    # b has one node wherever a is.
    (EMPTY, pods_on_n0(spec=ONLY_N1), [EVEN, {"n1": 1.0}], [EVEN, {"n1": 1.0}]),
    # a has one node, so b has the other.
    (
        [node("n0"), node("n1", cpu="8", memory="32Gi"), node("n2")],
        pods_on_n0(cpu="2"),
        [{"n1": 1.0}, {"n1": 1.0}],
        [{"n1": 1.0}, {"n1": 1.0}],
    ),
]


@pytest.mark.parametrize(("nodes", "pods", "planned", "expected"), TABLE)
def test_a_landing_is_as_sure_as_those_before_it_leave_it(nodes, pods, planned, expected):
    assert moved_off([*nodes, *pods], ["a-0", "b-0"]) == (planned, expected)


def test_of_three_equal_nodes_no_landing_is_sure():
    nodes = [*EMPTY, node("n3")]
    pods = [o for name in "abc" for o in workload(name, ["n0"], cpu="1", memory="1Gi")]
    planned, expected = moved_off([*nodes, *pods], ["a-0", "b-0", "c-0"])
    assert planned[2] == {"n3": 1.0}
    assert expected[0] == planned[0]
    assert all(max(one.values()) <= 0.5 for one in expected)


def test_of_equally_probable_nodes_the_one_on_which_the_plan_goes_on_is_first():
    draft = draft_of([*EMPTY, *pods_on_n0()])
    names = draft.snapshot.nodes.names
    expected = expect(draft, steps_of(draft, [0, 1]), Effort())
    assert [names[one.nodes[0]] for one in expected] == ["n1", "n2"]


def test_what_no_earlier_move_can_change_is_the_same_prediction():
    draft = draft_of([*EMPTY, *pods_on_n0()])
    steps = steps_of(draft, [0, 1])
    assert expect(draft, steps[1:], Effort())[0] is steps[1].prediction
    assert expect(draft, steps, Effort())[0] is steps[0].prediction


def test_a_move_that_has_no_place_in_a_scenario_keeps_the_landings_of_the_others():
    # Of n1 and n2 only n1 may take b, and not beside a.
    nodes = [node("n0"), node("n1", cpu="1500m"), node("n2", cpu="1500m")]
    pods = [
        *workload("a", ["n0"], cpu="1"),
        *workload("b", ["n0"], cpu="1", spec={"nodeSelector": {"kubernetes.io/hostname": "n2"}}),
    ]
    planned, expected = moved_off([*nodes, *pods], ["a-0", "b-0"])
    assert (planned[1], expected[1]) == ({"n2": 1.0}, {"n2": 1.0})


ZONE_SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"spread": "yes"}},
        }
    ]
}


def zone_back(rng):
    """A cluster of three zones, one of which has come back with empty nodes."""
    names = [f"n{i}" for i in range(rng.choice((3, 5, 9)))]
    full = [name for i, name in enumerate(names) if i % 3]
    objects = [node(name, f"zone-{i % 3}") for i, name in enumerate(names)]
    for app in "abcdef":
        rule = dict(ZONE_SPREAD["topologySpreadConstraints"][0])
        rule["labelSelector"] = {"matchLabels": {"app": app}}
        objects += workload(
            app,
            [rng.choice(full) for _ in range(rng.randint(2, 5))],
            cpu=rng.choice(["100m", "300m", "700m"]),
            spec={"topologySpreadConstraints": [rule]},
        )
    return objects


def play(problem, moves, rng):
    """Where each move's replacement lands in one course of events, by uid."""
    state, landed = ClusterState(problem.snapshot), {}
    rows = problem.rows_by_uid([move.uid for move in moves])
    for move in moves:
        pod = rows[move.uid]
        prediction = problem.scheduler.pending.foresee(state, pod)
        lands = rng.choices(range(len(prediction.nodes)), prediction.probability)[0]
        make_move(state, pod, int(problem.snapshot.pods.cls[pod]), prediction, lands)
        landed[move.uid] = problem.snapshot.nodes.names[int(prediction.nodes[lands])]
    return landed


@pytest.mark.parametrize("again", [False, True])
def test_of_the_landings_that_are_shown_at_a_share_that_share_lands_there(again):
    """Over drawn clusters and courses of events; ``again``: as the moves are judged between waves."""
    given: list[float] = []
    became: list[float] = []
    for seed in range(20):
        rng = random.Random(seed)
        objects = zone_back(rng)
        problem, moves = problem_of(objects), plan_of(objects).moves
        moves = [move for move in moves if move.wave == 1]
        if again:
            moves = [move for move, why in recheck(problem, Settings(), moves) if why is None]
        courses = [play(problem, moves, rng) for _ in range(10)]
        for move in moves:
            for one in move.landings:
                given.append(one.probability)
                became.append(np.mean([of[move.uid] == one.node for of in courses]))
    shares, hits = np.array(given), np.array(became)
    sure = shares > 0.99
    assert sure.sum() >= 5
    assert hits[sure].mean() == 1.0
    for low, high in ((0.0, 0.3), (0.3, 0.45), (0.45, 0.7)):
        inside = (shares > low) & (shares <= high)
        assert abs(shares[inside].mean() - hits[inside].mean()) < 0.1


def test_the_same_cluster_has_the_same_landings_each_time():
    objects = zone_back(random.Random(3))
    assert plan_of(objects).moves == plan_of(snapshot_of(objects)).moves


@pytest.mark.parametrize(("moves", "sure"), [(IN_ORDER, True), (IN_ORDER + 1, False)])
def test_of_a_wave_that_is_not_made_in_order_another_order_is_played(moves, sure):
    # n1 has room for one pod, and is preferred: the first gets it, the others go to n2.
    prefers = {
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "preference": {
                            "matchExpressions": [
                                {
                                    "key": "kubernetes.io/hostname",
                                    "operator": "In",
                                    "values": ["n1"],
                                }
                            ]
                        },
                    }
                ]
            }
        }
    }
    nodes = [node("n0", cpu="64"), node("n1", cpu="1"), node("n2", cpu="64")]
    pods = [
        o
        for n in range(moves)
        for o in workload(f"w{n:02}", ["n0"], cpu="600m", memory="0", spec=prefers)
    ]
    cordoned = [node("n0", cpu="64", unschedulable=True), *nodes[1:]]
    draft = draft_of([*cordoned, *pods])
    expected = shown(draft, expect(draft, steps_of(draft, range(moves)), Effort()))
    assert (expected[0] == {"n1": 1.0}) is sure
    assert (expected[-1] == {"n2": 1.0}) is sure
