"""Which pods another goes first for: only those that break a rule, once each, one chain for a rule at a time."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from rebalancer.cost.guards import guard_term
from rebalancer.planner.candidates import CandidateRows
from rebalancer.planner.chains import Chains, ChainWaves
from rebalancer.planner.commit import Commit, FirstMove, Wave
from rebalancer.planner.effort import Effort
from rebalancer.planner.examination import Examination
from rebalancer.planner.judge import Judge
from rebalancer.planner.reasons import RefusedMove
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.settings import Settings
from rebalancer.planner.verdict import Verdict
from rebalancer.policy.model import Budgets
from rebalancer.policy.values import Limit
from rebalancer.scheduler.prediction import Prediction
from rebalancer.testing.snapshots import node, workload
from tests.unit.planner.conftest import draft_of

N0, N1, N2 = range(3)
OBJECTS = [
    *(node(f"n{i}") for i in range(3)),
    *workload("web", ["n0", "n0"]),
    *workload("api", ["n0", "n0"]),
    *workload("fill", ["n1", "n2"]),
]
LANDS = Verdict(Prediction(np.array([N2], np.int32), np.ones(1)), (0.0,) * 3, (0.0,) * 3, {}, None)


@dataclass
class Scripted(Chains):
    """Chains that answer what the test says; notes for which pods they were asked."""

    steps: dict[int, FirstMove]
    exhausted: bool = False
    asked: list[int] = field(default_factory=list)

    def first(self, pod, node, may_go):
        self.asked.append(pod)
        return self.steps.get(pod)


class Scene:
    """Both pods of web and api crowd n0; refusals and chains are the test's."""

    def __init__(self, *, per_run="100%"):
        settings = Settings(budgets=Budgets(per_run=Limit.parse(per_run)))
        self.draft = draft = draft_of(OBJECTS, strategies=["duplicates"], settings=settings)
        effort = Effort()
        judge = Judge(draft.view, draft.terms, guard_term(draft.view), settings.threshold)
        self.candidates = CandidateRows(draft, draft.terms, judge.effects, effort)
        self.freed = []
        self.examination = Examination(draft, draft.terms, judge, self.candidates, effort)
        commit = Commit(draft, draft.terms, False, None)
        self.chains = Scripted({})
        self.waves = ChainWaves(draft, self.chains, self.candidates, self.examination, commit)

    def row(self, name):
        return list(self.draft.snapshot.pods.name).index(name)

    def pair(self, name):
        pods, row = self.draft.snapshot.pods, self.row(name)
        return int(pods.cls[row]), int(pods.node[row])

    def refuse(self, name, why=Why.NOTHING_BETTER):
        row = self.candidates.row_of(self.pair(name))
        self.examination.search.looks[row] = RefusedMove("duplicates", Refusal.of(why))

    def helps(self, name, first):
        """Let ``first`` go first for ``name``."""
        cls, node = self.pair(first)
        self.chains.steps[self.row(name)] = FirstMove(self.row(first), cls, node, LANDS)

    def moved(self, wave=1):
        moves, self.freed = self.waves.wave(Wave(wave))
        names = self.draft.snapshot.pods.name
        return [(names[chosen.pod], chosen.makes_way_for, chosen.wave) for chosen in moves]


def test_a_pod_goes_first_for_one_that_gains_nothing_alone():
    scene = Scene()
    scene.refuse("web-0")
    scene.helps("web-0", "fill-0")
    assert scene.moved(4) == [("fill-0", scene.row("web-0"), 4)]
    assert scene.draft.state.node_of[scene.row("fill-0")] == N2
    assert scene.freed == [scene.pair("web-0")]


@pytest.mark.parametrize(
    ("why", "asked"),
    [
        (Why.NOTHING_BETTER, True),
        (Why.COMES_BACK, True),
        (Why.RARELY_BETTER, True),
        (Why.LOW_GAIN, True),
        (Why.NO_NODE, False),
        (Why.BUDGET, False),
        (Why.QUOTA, False),
    ],
)
def test_only_refusals_that_another_pod_can_change_are_looked_at(why, asked):
    scene = Scene()
    scene.refuse("web-0", why)
    scene.helps("web-0", "fill-0")
    assert (len(scene.moved()), len(scene.chains.asked)) == (asked, asked)


def test_a_pair_that_no_rule_names_is_not_looked_at():
    scene = Scene()
    scene.refuse("fill-0")
    assert (scene.moved(), scene.chains.asked) == ([], [])


def test_no_pod_is_helped_twice():
    scene = Scene()
    scene.refuse("web-0")
    scene.helps("web-0", "fill-0")
    assert len(scene.moved(1)) == 1
    scene.helps("web-0", "fill-1")
    assert scene.moved(2) == []
    assert scene.chains.asked == [scene.row("web-0")]


@pytest.mark.parametrize(("per_run", "moves"), [(1, 0), (2, 1), (3, 1), (4, 2)])
def test_a_chain_needs_the_budget_of_two_moves_beside_what_the_wave_has(per_run, moves):
    scene = Scene(per_run=per_run)
    for name, first in (("web-0", "fill-0"), ("api-0", "fill-1")):
        scene.refuse(name)
        scene.helps(name, first)
    assert len(scene.moved()) == moves


def test_what_was_looked_for_in_vain_is_left_alone_in_the_wave():
    scene = Scene()
    scene.refuse("web-0")
    assert scene.moved() == []
    assert scene.chains.asked == [scene.row("web-0")]
    scene.helps("web-0", "fill-0")
    assert len(scene.moved(2)) == 1, "another wave may try again"


def test_with_the_work_of_a_plan_used_up_nothing_is_asked():
    scene = Scene()
    scene.refuse("web-0")
    scene.helps("web-0", "fill-0")
    scene.chains.exhausted = True
    assert (scene.moved(), scene.chains.asked) == ([], [])
