"""Many moves are judged as each by itself, with what is kept of predictions as with a model that keeps nothing."""

import random

import pytest

from rebalancer.planner.examination import Examination
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.policy.values import Limit
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.testing.snapshots import HOSTNAME, ZONE, apart, node, spread, workload
from tests.unit.planner.conftest import said


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
@pytest.mark.parametrize("seed", range(3))
def test_a_verdict_is_the_one_that_a_fresh_model_gives(plan, monkeypatch, seed, sampled):
    profile = (Sampling if sampled else SchedulerProfile).for_version((1, 36))
    seen: list[int] = []
    verdict_of = Examination.verdict

    def checked(self, promise):
        verdict = verdict_of(self, promise)
        for one in self._candidates.promises():
            cost = float(self._costs[one.pod])
            again(self.judge, one.pod, one.pair[1], cost)
            if one.pod == promise.pod:
                assert_same(
                    self._draft.snapshot, verdict, self.judge.judge(one.pod, one.pair[1], cost)
                )
        return verdict

    def again(judge, pod, node, cost):
        seen.append(pod)
        verdict = judge.judge(pod, node, cost)
        view = judge._view
        state, cls = view.state, int(view.state.cls_of[pod])
        assert node == state.node_of[pod]
        fresh = SchedulerModel(view.snapshot, view.scheduler.profile)
        replacement = view.snapshot.classes[cls].replacement
        with state.evicted(pod, gone=view.snapshot.waits(cls)):
            landing = fresh.predict(state, replacement)
        assert verdict.prediction.nodes.tolist() == landing.nodes.tolist()
        assert verdict.prediction.probability.tolist() == landing.probability.tolist()
        assert_same(view.snapshot, verdict, judge.judge_landing(pod, node, cost, landing))

    budgets = Budgets(in_flight=Limit.parse(3), per_run=Limit.parse("100%"))
    monkeypatch.setattr(Examination, "verdict", checked)
    assert plan(drifted(seed), settings=Settings(budgets=budgets), profile=profile).moves
    assert seen


def assert_same(snapshot, verdict, expected):
    """Both say the same, to the last bit."""
    assert said(verdict.refused, snapshot) == said(expected.refused, snapshot)
    assert verdict.vain == expected.vain
    assert (verdict.gain, verdict.best) == (expected.gain, expected.best)
    assert verdict.by_strategy == expected.by_strategy
