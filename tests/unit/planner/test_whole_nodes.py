"""The order in which nodes are emptied: what was begun first, then rules, and more only when nothing else is to do."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np

from rebalancer.cost.strategy import Emptiable
from rebalancer.plan.plan import Cause, Code, Cost, Explanation, Later, Move, NodeCode, Plan, Skip
from rebalancer.planner.plan import Decision, plan
from rebalancer.planner.settings import Settings
from rebalancer.planner.whole_nodes import with_empty_nodes, with_reviewed_nodes
from rebalancer.policy.model import Eagerness
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.snapshot.marks import to_be_empty, with_lasting_marks
from rebalancer.testing.snapshots import node, snapshot_of, workload
from tests.unit.planner.conftest import problem_of

NAMES = ("n0", "n1", "n2")
SETTINGS = Settings(eagerness=Eagerness.RELENTLESS)
# n0 is full of web, n1 has two small pods, n2 none.
OBJECTS = [
    *(node(name) for name in NAMES),
    *workload("web", ["n0"] * 3, cpu="1"),
    *workload("few", ["n1", "n1"], cpu="500m"),
]
NOTHING = Explanation((), {}, {}, 0, "Nothing to do: every rule holds.")


class Scene:
    """A problem under a strategy that empties nodes; notes with which marks decisions were asked for."""

    def __init__(self, *, marked=(), observed=False, stays=()):
        self._base = problem_of(snapshot_of(OBJECTS), strategies=["duplicates"])
        self._marked, self._observed = self.mask(marked), observed
        self._stays = set(stays)
        self.decided = []

    @staticmethod
    def mask(names):
        return np.array([name in names for name in NAMES], bool)

    def make(self, marked):
        snapshot = with_lasting_marks(
            self._base.snapshot, self._marked if marked is None else marked
        )
        every = np.ones(len(NAMES), bool)
        of = replace(
            self._base.contributions[0],
            strategy="empty",
            terms=lambda _: (),
            observed=self._observed,
            emptiable=lambda _: Emptiable(every, {}, every, 1),
        )
        model = SchedulerModel(snapshot, self._base.scheduler.profile)
        return replace(self._base, snapshot=snapshot, scheduler=model, contributions=[of])

    def decide(self, problem):
        """A quiet decision, in which a pod stays on those of the nodes that are to be left half empty."""
        marked = to_be_empty(problem.snapshot)
        here = tuple(name for name, one in zip(NAMES, marked, strict=True) if one)
        self.decided.append(here)
        skips = tuple(
            Skip("default", "few-0", name, "empty", Code.NO_ROOM, "")
            for name in here
            if name in self._stays
        )
        return Decision(Plan((), Later(lambda: replace(NOTHING, skips=skips))))

    def with_empty(self, decide=None):
        return with_empty_nodes(
            "empty", self.make, decide or self.decide, SETTINGS, lambda _: nullcontext()
        )[1].plan


def codes(plan):
    return {name: verdict.code for name, verdict in plan.nodes.items()}


def test_a_run_with_nothing_else_to_do_chooses_nodes_and_decides_again_with_their_marks():
    scene = Scene()
    made = scene.with_empty()
    assert made.emptied == ("n1", "n2")
    assert codes(made) == {"n0": NodeCode.NO_PLACE, "n1": NodeCode.EMPTIED, "n2": NodeCode.EMPTY}
    assert scene.decided == [(), ("n1", "n2")]


def test_a_run_that_moves_pods_for_rules_begins_no_node():
    scene = Scene()

    def decide(problem):
        # Two duplicates on n1, and free nodes beside it.
        scene.decided.append(tuple(np.flatnonzero(to_be_empty(problem.snapshot)).tolist()))
        return plan(problem_of(problem.snapshot, strategies=["duplicates"]), SETTINGS)

    made = scene.with_empty(decide)
    assert made.moves
    assert made.emptied == ()
    assert set(codes(made).values()) == {NodeCode.WAITS}
    (note,) = (line for line in made.warnings if "can be emptied" in line)
    assert note.endswith("is judged once no other move is left")
    assert scene.decided == [()]


def test_the_removal_of_what_has_ended_keeps_no_node_from_being_emptied():
    scene = Scene()
    removal = Move(
        "default", "dead", "u", "", "n0", (), "gone", "", Cost(), 0.0, 1, cause=Cause.ENDED
    )

    def decide(problem):
        made = scene.decide(problem)
        return replace(made, plan=replace(made.plan, moves=(removal,)))

    made = scene.with_empty(decide)
    assert (made.emptied, made.moves) == (("n1", "n2"), (removal,))


def test_nodes_that_were_begun_are_decided_on_first():
    scene = Scene(marked=["n1"])
    made = scene.with_empty()
    assert scene.decided[0] == ("n1",)
    assert "n1" in made.emptied


def test_a_node_that_the_plan_itself_would_empty_by_half_is_left_out():
    scene = Scene(stays=["n1"])
    made = scene.with_empty()
    assert made.emptied == ("n2",)
    assert made.nodes["n1"].code is NodeCode.NO_PLACE
    assert made.nodes["n1"].message == "by the plan itself a pod would stay on it"
    assert scene.decided == [(), ("n1", "n2"), ("n2",)]


def test_a_strategy_that_only_observes_marks_nothing():
    made = Scene(observed=True).with_empty()
    assert made.emptied is None
    assert codes(made)["n1"] is NodeCode.EMPTIED


def reviewed(scene, moves, empty=()):
    return with_reviewed_nodes(
        "empty", scene.make, scene.decide, SETTINGS, lambda _: nullcontext(), moves, empty
    )[1].plan


def test_of_a_reviewed_plan_the_nodes_that_its_moves_leave_are_emptied():
    (first, *_) = plan(problem_of(OBJECTS, strategies=["duplicates"]), SETTINGS).plan.moves
    scene = Scene()
    made = reviewed(scene, [replace(first, strategy="empty", node="n1")])
    assert made.emptied == ("n1",)
    assert scene.decided == [("n1",)]
    scene = Scene()
    made = reviewed(scene, [replace(first, strategy="duplicates", node="n1")])
    assert made.emptied == ()
    assert scene.decided == [()]


def test_of_a_reviewed_plan_a_strategy_that_observes_empties_nothing():
    made = reviewed(Scene(observed=True), [])
    assert (made.emptied, dict(made.nodes)) == (None, {})
