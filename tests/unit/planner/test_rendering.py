"""Moves in the words of the report: names, shares and domains for rows and probabilities."""

import numpy as np
import pytest

from rebalancer.plan.plan import Cost
from rebalancer.planner.rendering import SHOWN_LANDINGS, Chosen, Rendering, cost_of_entries
from rebalancer.scheduler.prediction import Prediction, Taker
from rebalancer.testing.snapshots import ZONE, disruption_budget, node, spread, workload
from tests.unit.planner.conftest import problem_of

RACK = "example.com/rack"
NODES = [node("n0", "a", labels={RACK: "r0"}), node("n1", "b", labels={RACK: "r1"}), node("n2")]


def prediction(*shares, takers=()):
    """The replacement lands on n0, n1, ... with these probabilities, most probable first."""
    order = sorted(range(len(shares)), key=lambda node: -shares[node])
    probability = np.array([shares[node] for node in order], float)
    return Prediction(np.array(order, np.int32), probability, takers=takers)


def problem(*more, spec=None):
    return problem_of([*NODES, *workload("web", ["n0", "n1"], spec=spec), *more], strategies=[])


def chosen(problem, **more):
    given = {
        "pod": 0,
        "cls": int(problem.snapshot.pods.cls[0]),
        "node": 0,
        "gain": (0.0, 1.0, 0.0),
        "landings": prediction(0, 0.75, 0.25),
        "strategy": "duplicates",
        "reason": "too many",
        "wave": 2,
        "observed": False,
    }
    return Chosen(**given | more)


@pytest.mark.parametrize(
    ("entries", "cost"),
    [
        ((0.1 + 0.2, 0, 0), Cost(0.3, 0, 0)),
        ((-0.0, 1e-12, -1e-12), Cost(0, 0, 0)),
    ],
)
def test_gains_are_rounded_alike_everywhere(entries, cost):
    assert cost_of_entries(entries) == cost
    assert "-0.0" not in str(cost_of_entries(entries))


def test_a_move_names_what_it_is_about():
    of = problem(disruption_budget("pdb", "web", allowed=1))
    move = Rendering(of).move(chosen(of, makes_way_for=1, marks=(2, 0)))
    assert (move.namespace, move.pod, move.uid) == ("default", "web-0", "default/web-0")
    assert (move.owner, move.node, move.wave) == ("Deployment/default/web", "n0", 2)
    assert (move.gain, move.cost, move.budgets) == (Cost(0, 1, 0), 1.0, ("default/pdb",))
    assert move.makes_way_for == "default/web-1"
    assert move.marks == ("n2", "n0")
    assert move.reason == "too many"


def test_landings_are_names_with_their_zone_the_most_probable_first():
    of = problem()
    landings = Rendering(of).landings(chosen(of).cls, prediction(0.25, 0.75, 0))
    assert [(one.node, one.probability, one.domains) for one in landings][:2] == [
        ("n1", 0.75, {ZONE: "b"}),
        ("n0", 0.25, {ZONE: "a"}),
    ]
    assert landings[2].domains == {}, "n2 is in no zone"


def test_the_domains_are_those_of_the_rules_of_the_pod():
    of = problem(spec=spread("web", RACK))
    (landing,) = Rendering(of).landings(chosen(of).cls, prediction(1.0))
    assert landing.domains == {ZONE: "a", RACK: "r0"}


def test_hundreds_of_places_are_cut_off():
    many = problem_of(
        [*(node(f"n{i:02}") for i in range(30)), *workload("web", ["n00"])], strategies=[]
    )
    landings = Rendering(many).landings(0, prediction(*[1 / 30] * 30))
    assert len(landings) == SHOWN_LANDINGS


def test_a_pending_pod_that_takes_the_room_is_named():
    of = problem(*workload("late", [""]))
    late = list(of.snapshot.pods.name).index("late-0")
    pod = list(of.snapshot.pods.name).index("web-0")
    move = Rendering(of).move(
        chosen(
            of,
            pod=pod,
            cls=int(of.snapshot.pods.cls[pod]),
            landings=prediction(0, 1.0, takers=(Taker(late, 0),)),
        )
    )
    assert move.reason == "too many; pending default/late-0 takes room on n0"
