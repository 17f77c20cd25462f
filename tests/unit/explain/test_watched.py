"""What is recorded of a plan: the rules broken before it, and which of them are broken after it."""

import numpy as np
import pytest

from rebalancer.explain.pods import Recorder
from rebalancer.testing.snapshots import apart, node, workload

# Two pods in one zone, and a free zone: one of them moves, and then neither breaks the rule.
CLUSTER = [
    node("n-a", "a"),
    node("n-b", "b"),
    *workload("web", ["n-a", "n-a"], spec=apart("web", weight=100)),
    *workload("other", ["n-a"]),
]
POLICY = "strategies: {anti-affinity: {}}\n"


def recorded(explaining, policy, *, node=None, only=None):
    def recorder(snapshot):
        classes = [
            cls
            for cls in range(len(snapshot.classes))
            if only is None or snapshot.owner_of(cls).name == only
        ]
        return Recorder(np.array(classes, np.int32), node)

    report, explained = explaining.plan(CLUSTER, recorder, policy=policy)
    pods = report.snapshot.pods
    pairs = {(int(pods.cls[pod]), int(pods.node[pod])) for pod in range(len(pods))}
    return [breach for pair in sorted(pairs) for breach in explained.breaches(pair)]


def test_a_rule_that_the_plan_fixes_does_not_last(explaining):
    (breach,) = recorded(explaining, POLICY)
    assert (breach.strategy, breach.gain, breach.observed) == ("anti-affinity", 1.0, False)
    assert (breach.lasts, breach.waits) == (False, False)


def test_a_rule_of_which_no_move_is_allowed_lasts(explaining):
    (breach,) = recorded(explaining, POLICY + "budgets: {perRun: 0}\n")
    assert breach.lasts


def test_a_strategy_that_only_observes_is_recorded_as_such(explaining):
    (breach,) = recorded(explaining, "strategies: {anti-affinity: {mode: observe}}\n")
    assert breach.observed


@pytest.mark.parametrize(
    ("given", "number"), [({"node": 1}, 0), ({"node": 0}, 1), ({"only": "other"}, 0)]
)
def test_only_the_given_pods_are_recorded(explaining, given, number):
    assert len(recorded(explaining, POLICY, **given)) == number


def test_before_a_plan_there_is_no_draft():
    with pytest.raises(ValueError, match="nothing has been planned"):
        _ = Recorder(np.zeros(0, np.int32)).draft
