"""The policy's scoringStrategy, in the words of kube-scheduler's configuration."""

import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.planner.scheduler_profile import scheduler_profile
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from rebalancer.scheduler.profile import ScoringStrategy
from rebalancer.testing.snapshots import node, snapshot_of

HEAD = "apiVersion: rebalancer/v1\nkind: Policy\nstrategies: {duplicates: {}}\n"


def loaded(strategy):
    text = f"{HEAD}scheduler: {{scoringStrategy: {strategy}}}\n"
    return load_text(text.encode(), "policy.yaml", Registry.installed()).policy


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [
        ("{}", ScoringStrategy()),
        ("{type: MostAllocated}", ScoringStrategy("MostAllocated")),
        (
            "{resources: [{name: memory, weight: 3}, {name: example.com/gpu}]}",
            ScoringStrategy("LeastAllocated", (("memory", 3), ("example.com/gpu", 1))),
        ),
        (
            (
                "{type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: "
                "[{utilization: 0, score: 0}, {utilization: 100, score: 10}]}}"
            ),
            ScoringStrategy("RequestedToCapacityRatio", shape=((0, 0), (100, 10))),
        ),
    ],
)
def test_the_model_scores_as_the_policy_says(strategy, wanted):
    assert scheduler_profile(loaded(strategy), snapshot_of([node("n")])).scoring == wanted


@pytest.mark.parametrize(
    ("strategy", "wrong"),
    [
        ("{type: BestFit}", "BestFit"),
        ("{resources: []}", "resources"),
        ("{resources: [{name: ephemeral-storage}]}", "is not modelled; write cpu, memory or"),
        ("{resources: [{name: cpu, weight: 0}]}", "weight"),
        ("{resources: [{name: cpu}, {name: cpu}]}", "resources names one twice"),
        ("{type: RequestedToCapacityRatio}", "go together"),
        ("{requestedToCapacityRatio: {shape: [{utilization: 0, score: 1}]}}", "go together"),
        (
            (
                "{type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: "
                "[{utilization: 50, score: 0}, {utilization: 50, score: 10}]}}"
            ),
            "utilization must rise",
        ),
        (
            (
                "{type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: "
                "[{utilization: 50, score: 11}]}}"
            ),
            "score",
        ),
    ],
)
def test_what_the_scheduler_would_refuse_or_is_not_modelled_is_named(strategy, wrong):
    with pytest.raises(PolicyError) as error:
        loaded(strategy)
    assert "policy.yaml:4: scheduler.scoringStrategy" in str(error.value)
    assert wrong in str(error.value)
