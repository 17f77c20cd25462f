"""Pods that leave at once: one judge for gangs that a rule names, gangs on nodes to be emptied, and gangs that make room."""

import numpy as np
import pytest

from rebalancer.cost.guards import guard_term
from rebalancer.planner.judge import Judge
from rebalancer.planner.refusal import Refusal
from rebalancer.planner.together import TogetherJudge, TogetherRules
from rebalancer.planner.trial import Trial
from rebalancer.testing.snapshots import HOSTNAME, apart, node, workload
from tests.unit.planner.conftest import draft_of

PENDING = {"phase": "Pending", "conditions": []}


def gang(nodes, name="train", **options):
    labels = {"app": name, "scheduling.x-k8s.io/pod-group": name}
    return workload(name, nodes, labels=labels, **{"cpu": "1", **options})


def waiting(cpu, on=None):
    """A pod that waits; it goes to the node ``on`` only."""
    spec = {"nodeSelector": {HOSTNAME: on}} if on else {}
    objects = workload("late", [""], cpu=cpu, spec=spec)
    for one in objects:
        if one["kind"] == "Pod":
            one["status"] = PENDING
    return objects


def landed(*objects, **rules):
    """The nodes on which the gang lands, or what refuses it; the state is as it was."""
    draft = draft_of(objects, strategies=["anti-affinity"])
    snapshot = draft.snapshot
    guard = guard_term(draft.view)
    judge = Judge(draft.view, draft.terms, guard, draft.settings.threshold)
    rules = {
        key: np.array([snapshot.nodes.index[name] for name in names], np.int32)
        if key in ("closed", "marks")
        else names
        for key, names in rules.items()
    }
    (pods,) = snapshot.gangs.values()
    before = draft.state.node_of.tolist(), draft.state.used.tolist()
    with Trial(draft.state) as trial:
        landing = TogetherJudge(draft, judge, draft.terms, guard).land_together(
            trial, pods.tolist(), TogetherRules(**rules)
        )
        if isinstance(landing, Refusal):
            assert (draft.state.node_of.tolist(), draft.state.used.tolist()) == before
    assert (draft.state.node_of.tolist(), draft.state.used.tolist()) == before
    if isinstance(landing, Refusal):
        return landing.text(snapshot)
    return sorted(snapshot.nodes.names[one.nodes[0]] for one in landing.predictions)


SMALL = [node("a", cpu="2"), node("b", cpu="2")]


@pytest.mark.parametrize(
    ("objects", "rules", "expected"),
    [
        ([*SMALL, *gang(["a", "a"])], {}, ["b", "b"]),
        # Two on b leave no room for others: the third takes what the gang leaves, once it is gone.
        ([*SMALL, *gang(["a", "a", "b"])], {}, ["a", "a", "b"]),
        ([*SMALL, *gang(["a", "a"])], {"closed": ["b"]}, "default/train-0: would land on b, which is to be empty, too"),
        ([node("a"), node("b", cpu="1"), *gang(["a", "a"])], {"marks": ["a"]}, "default/train-1: the scheduler might put it back"),
        ([*SMALL, *gang(["a", "a"]), *waiting("2", on="a")], {}, "pending default/late-0 would take the room that is left"),
        ([*SMALL, *gang(["a", "a"]), *waiting("2", on="a")], {"feeds": True}, ["b", "b"]),
        # It gets a node anyway: nothing is taken from it.
        ([*SMALL, node("c", cpu="8"), *gang(["a"]), *waiting("1")], {}, ["c"]),
    ],
)  # fmt: skip
def test_all_land_or_none(objects, rules, expected):
    assert landed(*objects, **rules) == expected


def test_a_rule_that_gets_worse_refuses_unless_the_gain_decides():
    """Marks send both to c, and they want hosts of their own."""
    pods = gang(["a", "b"], spec=apart("train", HOSTNAME, weight=100))
    objects = [node("a"), node("b"), node("c"), *pods]
    marks = ["a", "b"]
    assert (
        landed(*objects, marks=marks) == "a rule that holds would break where its gang would land"
    )
    assert landed(*objects, marks=marks, for_gain=True) == ["c", "c"]
