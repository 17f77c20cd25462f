"""A verdict that is kept is the one that would be computed again after every move."""

import random

import numpy as np
import pytest

from rebalancer.cost.guards import guard_term
from rebalancer.planner.judge import Judge
from rebalancer.planner.settings import Settings
from rebalancer.planner.verdict import is_gamble
from rebalancer.policy.model import Budgets
from rebalancer.policy.values import Limit
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.testing.workloads import HOSTNAME, ZONE, apart, node, spread, workload
from tests.unit.planner.conftest import draft_of


class Sampling(SchedulerProfile):
    """Scores four nodes only, so that small clusters are sampled, too."""

    def nodes_to_find(self, nodes):
        return min(4, nodes)


def drifted(seed):
    """Workloads under many rules, thrown onto six nodes of three zones, two of them nearly empty."""
    rng = random.Random(seed)
    objects = [node(f"n{i}", f"zone-{i % 3}") for i in range(6)]
    for i in range(12):
        rule = rng.choice(
            (
                None,
                apart(f"w{i}", HOSTNAME, weight=100),
                apart(f"w{i}", ZONE),
                spread(f"w{i}", ZONE),
                spread(f"w{i}", HOSTNAME),
            )
        )
        stand = [f"n{rng.randrange(4)}" for _ in range(rng.choice((2, 3, 6)))]
        objects += workload(f"w{i}", stand, cpu=rng.choice(("20m", "200m", "450m")), spec=rule)
    return objects


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_kept_verdict_is_the_one_that_would_be_computed_again(plan, monkeypatch, seed, sampled):
    profile = (Sampling if sampled else SchedulerProfile).for_version((1, 36))
    seen = {"kept": 0, "made": 0}
    judge, made = Judge.judge_many, Judge.judge_landings

    def counted(self, moves):
        seen["made"] += len(moves)
        return made(self, moves)

    def checked(self, pods, costs, *, unless_gamble=False):
        verdicts = judge(self, pods, costs, unless_gamble=unless_gamble)
        for pod, cost, verdict in zip(pods.tolist(), costs.tolist(), verdicts, strict=True):
            again(self, pod, cost, verdict, unless_gamble)
        return verdicts

    def again(self, pod, cost, verdict, unless_gamble):
        seen["kept"] += 1
        state = self._view.state
        cls, node = int(state.cls_of[pod]), int(state.node_of[pod])
        view = self._view
        fresh = SchedulerModel(view.snapshot, view.scheduler.profile)
        replacement = view.snapshot.classes[cls].replacement
        with view.state.evicted(pod, gone=view.snapshot.waits(cls)):
            landing = fresh.predict(view.state, replacement)
        assert verdict.prediction.nodes.tolist() == landing.nodes.tolist()
        assert verdict.prediction.probability.tolist() == landing.probability.tolist()
        (anew,) = made(self, [(pod, node, cost, landing)])
        assert (verdict.refused, verdict.vain) == (anew.refused, anew.vain)
        assert (verdict.gain[:2], verdict.best[:2]) == (anew.gain[:2], anew.best[:2])
        if verdict.refused is None and not (unless_gamble and is_gamble(verdict)):
            assert (verdict.gain, verdict.by_strategy) == (anew.gain, anew.by_strategy)

    budgets = Budgets(in_flight=Limit.parse(3), per_run=Limit.parse("100%"))
    monkeypatch.setattr(Judge, "judge_many", checked)
    monkeypatch.setattr(Judge, "judge_landings", counted)
    assert plan(drifted(seed), settings=Settings(budgets=budgets), profile=profile).moves
    assert 0 < seen["made"] <= seen["kept"]


def test_what_a_node_holds_counts_for_balance_alone():
    """A move elsewhere changes no verdict; one from the same node does."""
    draft = draft_of(drifted(3))
    view = draft.view
    judge = Judge(view, draft.terms, guard_term(view), draft.settings.threshold)
    pod = int(view.state.unmoved()[0])
    cls, node = int(view.state.cls_of[pod]), int(view.state.node_of[pod])
    first = judge.judge(pod, cls, node, 1.0)
    assert judge.judge(pod, cls, node, 1.0) is first
    other = next(
        p for p in view.state.unmoved().tolist() if view.state.node_of[p] == node and p != pod
    )
    view.state.evict(other)
    view.state.place(other, int(view.state.cls_of[other]), (node + 1) % 6)
    again = judge.judge(pod, cls, node, 1.0)
    assert again is not first


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_many_moves_are_judged_as_each_by_itself(seed, sampled):
    """Also in states between moves, with what was judged before kept."""
    profile = (Sampling if sampled else SchedulerProfile).for_version((1, 36))
    draft, rng = draft_of(drifted(seed), profile=profile), random.Random(seed)
    view = draft.view
    threshold = draft.settings.threshold
    guard = guard_term(view)
    together = Judge(view, draft.terms, guard, threshold)
    for unless_gamble in (False, True, False):
        pods = view.state.unmoved()
        costs = np.array([rng.choice((1.0, 2.5)) for _ in pods])
        many = together.judge_many(pods, costs, unless_gamble=unless_gamble)
        alone = Judge(view, draft.terms, guard, threshold)
        for pod, cost, verdict in zip(pods.tolist(), costs.tolist(), many, strict=True):
            cls, node = int(view.state.cls_of[pod]), int(view.state.node_of[pod])
            expected = alone.judge(pod, cls, node, cost, unless_gamble=unless_gamble)
            assert verdict.prediction.nodes.tolist() == expected.prediction.nodes.tolist()
            assert (verdict.refused, verdict.vain) == (expected.refused, expected.vain)
            assert (verdict.gain[:2], verdict.best[:2]) == (expected.gain[:2], expected.best[:2])
            if verdict.refused is None and not (unless_gamble and is_gamble(verdict)):
                assert (verdict.gain, verdict.by_strategy) == (expected.gain, expected.by_strategy)
        moved = rng.choice(pods.tolist())
        view.state.evict(moved)
        view.state.place(moved, int(view.state.cls_of[moved]), rng.randrange(6))
