"""A move is made where it pays in enough of its landings; else the verdict says why not."""

import numpy as np
import pytest

from rebalancer.cost.guards import guard_term
from rebalancer.plan.plan import Code
from rebalancer.planner.judge import Judge
from rebalancer.scheduler.prediction import Prediction
from rebalancer.testing.snapshots import HOSTNAME, ZONE, apart, node, spread, workload
from tests.unit.planner.conftest import draft_of, said


def judge_of():
    return judged()[1]


def judged():
    """Two pods of web on n0 that want hosts of their own, a third one on n1; n2 and n3 are free, n4 is cordoned."""
    nodes = [*(node(f"n{i}") for i in range(4)), node("n4", unschedulable=True)]
    pods = workload("web", ["n0", "n0", "n1"], spec=apart("web", HOSTNAME, weight=100))
    draft = draft_of([*nodes, *pods], strategies=["anti-affinity"])
    return draft, Judge(draft.view, draft.terms, guard_term(draft.view), draft.settings.threshold)


def landing(**shares):
    """Landings by node, ``n2=0.5``, the most probable first."""
    nodes = np.array([int(name[1:]) for name in shares], np.int32)
    return Prediction(nodes, np.array(list(shares.values())))


@pytest.mark.parametrize(
    ("shares", "cost", "refused"),
    [
        ({"n2": 1.0}, 1.0, None),
        ({"n2": 0.8, "n1": 0.2}, 1.0, None),
        ({}, 1.0, (Code.NO_ROOM, "no node takes its replacement")),
        ({"n0": 1.0}, 1.0, (Code.COMES_BACK, "the scheduler would put it back (n0 100%)")),
        ({"n1": 1.0}, 1.0, (Code.NO_GAIN, "would land on n1 100%: nothing gets better there")),
        (
            {"n1": 0.6, "n2": 0.4},
            1.0,
            (
                Code.UNSURE,
                "better in 40% of its landings, the policy asks for 60% (n1 60%, n2 40%)",
            ),
        ),
        (
            {"n2": 1.0},
            1000.0,
            (
                Code.LOW_GAIN,
                "gain 1 at cost 1e+03, the policy asks for 0.05 (would land on n2 100%)",
            ),
        ),
    ],
)
def test_a_move_is_judged_by_its_landings(shares, cost, refused):
    draft, judge = judged()
    verdict = judge.judge_landing(0, 0, cost, landing(**shares))
    assert said(verdict.refused, draft.snapshot) == refused


def between_zones():
    """Pods of web want hosts of their own and even zones: two in a, two in b, one in c, where n3 is free."""
    zones = {"n0": "a", "n1": "b", "n2": "c", "n3": "c"}
    wish = apart("web", HOSTNAME, weight=100) | spread("web", ZONE)
    objects = [node(name, zone) for name, zone in zones.items()]
    objects += workload("web", ["n0", "n0", "n1", "n1", "n2"], spec=wish)
    draft = draft_of(objects, strategies=["anti-affinity", "topology-spread"])
    return Judge(draft.view, draft.terms, guard_term(draft.view), draft.settings.threshold)


@pytest.mark.parametrize(
    ("judge", "shares", "refused"),
    [
        (judge_of, {"n2": 0.6, "n1": 0.4}, None),
        (between_zones, {"n3": 0.74, "n1": 0.26}, "better in 74% of its landings, the policy asks for 75%"),
        (between_zones, {"n3": 0.8, "n1": 0.2}, "worse in 20% of its landings, the policy allows 10%"),
    ],
)  # fmt: skip
def test_a_landing_that_does_harm_asks_for_more_that_do_not(judge, shares, refused):
    verdict = judge().judge_landing(0, 0, 1.0, landing(**shares))
    code, text = said(verdict.refused, judged()[0].snapshot) or (None, "")
    assert code == (None if refused is None else Code.UNSURE)
    assert text.startswith(refused or "")


def test_a_refusal_names_the_nodes_that_the_scheduler_may_pick_in_vain():
    judge = judge_of()
    assert judge.judge_landing(0, 0, 1.0, landing(n1=0.6, n2=0.4)).vain == (1,)
    assert judge.judge_landing(0, 0, 1.0, landing(n2=1.0)).vain == ()


def test_what_no_rule_of_the_model_covers_is_not_judged():
    draft = draft_of(
        [node("n0"), node("n1"), *workload("web", ["n0"], spec={"schedulerName": "own"})]
    )
    judge = Judge(draft.view, draft.terms, guard_term(draft.view), draft.settings.threshold)
    verdict = judge.judge(0, 0, 1.0)
    assert said(verdict.refused, draft.snapshot) == (
        Code.UNPREDICTED,
        "not predictable: scheduled by own",
    )


def test_a_pod_may_go_for_another_where_no_rule_gets_worse():
    """web-0 stands apart from web-1 and would do so on n2; n0 takes no pod."""
    pods = workload("web", ["n0", "n1"], spec=apart("web", HOSTNAME))
    nodes = [node("n0", unschedulable=True), *(node(f"n{i}") for i in (1, 2))]
    draft = draft_of([*nodes, *pods])
    judge = Judge(draft.view, draft.terms, guard_term(draft.view), draft.settings.threshold)
    assert judge.harmless(0, 0).refused is None


def test_a_move_for_another_pod_need_not_gain_but_must_not_come_back():
    nodes = [node("n0"), node("n1", cpu="50m")]
    draft = draft_of([*nodes, *workload("web", ["n0"])])
    judge = Judge(draft.view, draft.terms, guard_term(draft.view), draft.settings.threshold)
    refused = Code.COMES_BACK, "the scheduler might put it back (n0 100%)"
    assert said(judge.harmless(0, 0).refused, draft.snapshot) == refused
