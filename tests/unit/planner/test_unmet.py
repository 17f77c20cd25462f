"""Each rule that stays unmet has a name and a reason, and they are as many as the scores count."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.planner.settings import Settings
from rebalancer.planner.unmet import explained, scores_of, unmet_of
from rebalancer.policy.model import Budgets, Eagerness
from rebalancer.policy.protect import Protect
from rebalancer.snapshot.load import load_snapshot
from rebalancer.testing.snapshots import (
    HOSTNAME,
    ZONE,
    apart,
    disruption_budget,
    node,
    spread,
    workload,
)
from tests.unit.planner.conftest import draft_of, plan_of

NODES = [node(f"n{i}", zone) for i, zone in enumerate("aabc")]


def test_a_rule_is_named_with_the_reason_of_its_pods():
    # Of two equally empty nodes one holds a replica: half of the landings fix nothing.
    nodes = [node(f"n{i}", "a") for i in range(3)]
    pinned = {"rebalancer/evict": "false"}
    web = workload("web", ["n0", "n0", "n1"], cpu="400m", spec=spread("web", ZONE))
    side = workload("side", ["n2"], cpu="400m", annotations=pinned)
    timid = Settings(eagerness=Eagerness.TIMID)
    made = plan_of([*nodes, *web, *side], strategies=["duplicates"], settings=timid)
    (rule,) = made.unmet
    assert (rule.strategy, rule.workload) == ("duplicates", "Deployment/default/web")
    assert rule.rule.startswith("Deployment/default/web (3 pods, 3 feasible nodes)")
    assert dict(rule.codes) == {"Unsure": 2}
    assert rule.why.startswith("better in 50% of its landings, the policy asks for 75%")


def test_a_rule_of_a_node_names_the_node():
    pinned = {"rebalancer/evict": "false"}
    objects = [*NODES, *workload("big", ["n0", "n0", "n0"], cpu="3", annotations=pinned)]
    made = plan_of(objects, strategies=["low-utilisation"])
    assert [(one.rule, one.workload) for one in made.unmet] == [("node n0", "")]
    assert dict(made.unmet[0].codes) == {"Protected": 3}


@pytest.mark.parametrize("name", ["drained-return-2", "nearly-full-1"])
def test_a_rule_that_only_moved_pods_could_fix_says_so(name):
    snapshot = load_snapshot(f"benchmarks/decisions/snapshots/{name}.json.gz")
    made = plan_of(snapshot, protections=Protect.model_validate({"minPodAge": "0s"}))
    assert made.unmet
    assert {code for one in made.unmet for code in one.codes} == {"MovedNow"}
    assert made.stopped.startswith("Nothing more can be gained yet: ")
    assert "MovedNow" in made.stopped


def _spent_budget(expected: int) -> list[Any]:
    budget = disruption_budget("web", "web", allowed=0, healthy=3)
    budget["status"]["expectedPods"] = expected
    return [budget]


@pytest.mark.parametrize(
    ("annotations", "protections", "more", "waits"),
    [
        ({}, {"minPodAge": "3000d"}, [], True),
        ({"rebalancer/evict": "false until 2100-01-01"}, {}, [], True),
        ({"karpenter.sh/do-not-disrupt": "90000h"}, {}, [], True),
        ({}, {}, _spent_budget(expected=4), True),
        ({}, {}, _spent_budget(expected=3), False),
        ({"rebalancer/evict": "false"}, {}, [], False),
        ({"rebalancer/evict": "false"}, {"minPodAge": "3000d"}, [], False),
    ],
)
def test_what_ends_by_itself_is_no_reason_why_a_rule_cannot_hold(
    annotations, protections, more, waits
):
    def score(annotations, protections, more):
        web = workload("web", ["n0"] * 4, spec=spread("web", ZONE), annotations=annotations)
        protect = Protect.model_validate({"minPodAge": "0s", **protections})
        made = plan_of([*NODES, *web, *more], strategies=["topology-spread"], protections=protect)
        return made, made.before["topology-spread"]

    made, kept = score(annotations, protections, more)
    _, movable = score({}, {}, [])
    assert not made.moves
    if waits:
        assert kept == movable
        assert kept.violated == 1
        assert {code for one in made.unmet for code in one.codes} <= {
            "Protected",
            "PodDisruptionBudget",
        }
    else:
        assert (kept.violated, len(kept.unsatisfiable)) == (0, 1)


def test_a_rule_waits_for_its_young_pods_and_asks_for_moves_of_the_others():
    web = workload("web", ["n0"] * 6, spec=spread("web", ZONE, hard=True))
    for pod in [one for one in web if one["kind"] == "Pod"][:5]:
        pod["metadata"]["annotations"] = {"rebalancer/evict": "false until 2100-01-01"}
    made = plan_of([*NODES, *web], strategies=["topology-spread"])
    assert len(made.moves) == 1
    before, after = made.before["topology-spread"], made.after["topology-spread"]
    assert before.cost.hard - after.cost.hard == 1
    assert (after.violated, after.unsatisfiable) == (1, ())


RULES: tuple[Any, ...] = (
    lambda name: {},
    lambda name: apart(name, weight=100),
    lambda name: apart(name, HOSTNAME),
    lambda name: spread(name, ZONE),
    lambda name: spread(name, ZONE, hard=True, minDomains=3),
)
shapes = st.lists(
    st.tuples(
        st.integers(0, 4), st.lists(st.integers(0, 3), min_size=2, max_size=5), st.booleans()
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=20, deadline=None)
@given(shapes, st.integers(1, 4))
def test_rules_are_as_many_as_the_scores_count_each_with_a_reason(shape, per_run):
    objects = list(NODES)
    for index, (rule, places, pinned) in enumerate(shape):
        notes = {"rebalancer/evict": "false"} if pinned else {}
        spec = RULES[rule](f"w{index}")
        objects += workload(f"w{index}", [f"n{p}" for p in places], spec=spec, annotations=notes)
    made = plan_of(objects, settings=Settings(budgets=Budgets.model_validate({"perRun": per_run})))
    for strategy, score in made.after.items():
        mine = [one for one in made.unmet if one.strategy == strategy]
        assert sum(one.rules for one in mine) == score.violated
    assert all(one.codes and one.why for one in made.unmet)
    draft = draft_of(objects)
    named = [(one.strategy, one.rule) for one in unmet_of(draft)]
    assert named == [(one.strategy, one.rule) for one in explained(draft, ())]
    assert len(named) == sum(score.violated for score in scores_of(draft).values())


def test_a_node_that_moves_have_filled_too_far_is_for_the_next_run_to_look_at():
    # The hard rule takes "a" to m1, where "b" is above the threshold with it.
    nodes = [node("m0", "a", cpu="2"), node("m1", "b", cpu="2")]
    pair = workload("a", ["m0", "m0"], cpu="600m", spec=spread("a", ZONE, hard=True))
    beside = workload("b", ["m1"] * 2, cpu="400m", replicas=2)
    made = plan_of([*nodes, *pair, *beside], strategies=["topology-spread", "low-utilisation"])
    assert [move.strategy for move in made.moves] == ["topology-spread"]
    (rule,) = made.unmet
    assert (rule.rule, dict(rule.codes)) == ("node m1", {"CameUp": 0})
    assert rule.why == "it came up by the moves of this run: the next run looks at it"
    assert made.stopped.startswith("Nothing more can be gained yet: ")


def test_a_rule_that_planning_did_not_come_to_says_so():
    nodes = [node(f"n{i}") for i in range(4)]
    crowded = [each for i in range(4) for each in workload(f"web-{i}", ["n0", "n0"])]
    made = plan_of([*nodes, *crowded], strategies=["duplicates"], stop=lambda: "time is up")
    assert made.moves == ()
    assert {code for one in made.unmet for code in one.codes} <= {"Budget", "NotExamined"}
