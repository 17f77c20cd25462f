"""What-if plays the executor of real runs: its waits, its verdicts and its checks between waves."""

import pytest

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.plan.plan import Status
from rebalancer.planner.planning import make_plan
from rebalancer.planner.rules import RunRules
from rebalancer.planner.scheduler_profile import scheduler_profile
from rebalancer.policy.load import load_policy
from rebalancer.run.execution.executor import WavePace
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import disruption_budget, node, snapshot_of, spread, workload
from rebalancer.whatif.cycles import carry_out
from rebalancer.whatif.world import SimulatedCluster, Span
from tests.unit.whatif.play import REGISTRY, evictions, play


@pytest.fixture
def skewed():
    """A world with ten pods in one of two zones, and the plan for it, in several waves."""
    objects = [node("n-a", "a"), node("n-b", "b")]
    objects += workload("web", ["n-a"] * 10, spec=spread("web", hard=True))
    loaded = load_policy(None, REGISTRY)
    world = SimulatedCluster(
        snapshot_of(objects), lambda of: scheduler_profile(loaded.policy, of), None
    )
    rules = RunRules(loaded, REGISTRY, Scope(), lifted=True)
    plan = make_plan(rules, world.snapshot, Timings(SystemClock())).plan
    assert [move.wave for move in plan.moves] == [1, 2, 3, 4, 5]
    return world, plan.moves


def keep(left):
    return [(move, None) for move in left]


def test_waves_wait_for_each_other_and_land_as_predicted(skewed):
    world, moves = skewed
    began = world.now
    done, waves = carry_out(world, moves, keep, ready_after=Span(20, 20))
    assert [outcome.status for outcome in done.outcomes] == [Status.EVICTED] * 5
    assert {outcome.landed for outcome in done.outcomes} == {"n-b"}
    assert (waves, done.failed, done.stopped) == (5, False, None)
    assert world.now - began == pytest.approx(100, abs=2)


@pytest.mark.parametrize(("ready", "evicted"), [(30.0, 1), (60.0, 5)])
def test_replacements_that_take_longer_than_the_policy_allows_hold_the_rest_back(
    skewed, ready, evicted
):
    world, moves = skewed
    done, _ = carry_out(world, moves, keep, pace=WavePace(ready=ready), ready_after=Span(40, 40))
    statuses = [outcome.status for outcome in done.outcomes]
    assert statuses == [Status.EVICTED] * evicted + [Status.NOT_ATTEMPTED] * (5 - evicted)
    assert not done.failed


@pytest.mark.parametrize(("is_ready", "more"), [(False, 1), (True, 0)], ids=["stuck", "ready"])
def test_a_pod_that_was_not_ready_adds_to_the_ready_ones_once_it_is_replaced(is_ready, more):
    pods = workload("web", ["n-a", "n-b", "n-a"])
    pod = pods[-1]
    pod["status"]["conditions"][0]["status"] = str(is_ready)
    budget = disruption_budget("web", "web", allowed=1, healthy=2 + is_ready)
    loaded = load_policy(None, REGISTRY)
    snapshot = snapshot_of([node("n-a"), node("n-b"), *pods, budget])
    world = SimulatedCluster(snapshot, lambda of: scheduler_profile(loaded.policy, of), None)

    def counted():
        (owner,), (of_pods,) = world.snapshot.owners, world.snapshot.budgets
        return owner.ready, of_pods.healthy, of_pods.allowed

    assert counted() == (2 + is_ready, 2 + is_ready, 1)
    assert world.evict(pod["metadata"]["uid"]).node
    world.wait(60.0)
    assert counted() == (3, 3, 1 + more)


def test_a_replacement_without_a_node_ends_the_run(skewed, monkeypatch):
    world, moves = skewed
    monkeypatch.setattr(world, "_draw", lambda prediction: -1)
    done, waves = carry_out(world, moves, keep)
    assert (waves, done.failed) == (1, True)
    assert "1 replacement still without a node after 30 s" in str(done.stopped)
    assert world.pending == 1


def test_what_is_left_is_checked_on_the_world_as_it_is_then(skewed):
    world, moves = skewed
    seen = []

    def recheck(left):
        nodes = world.snapshot.pods.node
        seen.append((len(left), int((nodes == 1).sum())))
        return [(move, "enough" if len(left) == 2 else None) for move in left]

    done, _ = carry_out(world, moves, recheck)
    assert seen == [(4, 1), (3, 2), (2, 3)]
    assert [outcome.status for outcome in done.outcomes[3:]] == [Status.DROPPED] * 2


def test_a_slow_cluster_takes_more_runs_than_a_fast_one(tmp_path):
    """The policy gives replacements a minute; slower ones end each run after its first wave."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "apiVersion: rebalancer/v1\nkind: Policy\nsafety: {maxReadyTime: 1m}\n"
        "strategies: {topology-spread: {}}\n"
    )
    objects = [node("n-a", "a"), node("n-b", "b")]
    objects += workload("web", ["n-a"] * 6, spec=spread("web", hard=True))
    fast, slow = (
        play(objects, path=policy, waves=WavePace(ready=60.0), ready_after=Span(s, s))[1]
        for s in (10, 90)
    )
    assert evictions(fast) == [3, 0]
    assert evictions(slow) == [1, 1, 1, 0]
