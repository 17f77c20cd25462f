"""Chains: where a pod can only go once another is out of its way."""

import numpy as np
import pytest

from rebalancer.cost.guards import guard_term
from rebalancer.plan.plan import Code
from rebalancer.planner.chains import Chains
from rebalancer.planner.effort import Effort
from rebalancer.planner.judge import Judge
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.policy.values import Limit
from rebalancer.testing.snapshots import ZONE, node, spread, workload
from tests.unit.planner.conftest import draft_of, plan_of, rechecked

ONLY = {"strategies": ["duplicates"]}


def crowded(**fill):
    """Two web pods on n0; n1, the emptiest, would take any replacement, and holds one of web already.

    A pod of fill from n0 or n2 that lands on n1 makes n2 (or n0) the emptiest.
    """
    nodes = [node(f"n{i}", "a") for i in range(3)]
    # Its own constraint switches the default spreading over hosts off: only load decides.
    web = workload("web", ["n0", "n0", "n1"], cpu="500m", spec=spread("web", ZONE))
    return [*nodes, *web, *workload("fill", ["n0", "n2"], cpu="800m", **fill)]


def test_a_pod_is_moved_out_of_the_way_where_the_emptiest_node_holds_a_replica_already(plan):
    result = plan(crowded(), **ONLY)
    assert [(m.pod, m.node, m.landings[0].node) for m in result.moves] == [
        ("fill-0", "n0", "n1"),
        ("web-0", "n0", "n2"),
    ]
    first, second = result.moves
    assert first.makes_way_for == second.uid
    assert first.reason.startswith("goes first for default/web-0: ")
    assert not second.makes_way_for
    assert (first.wave, second.wave) == (1, 2)
    assert (first.gain.soft, second.gain.soft) == (0, 1)
    assert result.after["duplicates"].cost.soft == 0
    assert result.lower_bound == 1


def test_no_pod_is_moved_out_of_the_way_that_may_not_move(plan):
    result = plan(crowded(annotations={"rebalancer/evict": "false"}), **ONLY)
    assert result.moves == ()
    assert {s.code for s in result.skips} == {Code.NO_GAIN}


@pytest.mark.parametrize(("per_run", "moves"), [(1, 0), (2, 2)])
def test_no_pod_is_moved_out_of_the_way_when_the_budget_is_not_enough_for_both(
    plan, per_run, moves
):
    settings = Settings(budgets=Budgets(per_run=Limit.parse(per_run)))
    assert len(plan(crowded(), settings=settings, **ONLY).moves) == moves


def test_no_pod_is_moved_out_of_the_way_where_that_would_break_a_rule(plan):
    # A second fill on n1 would be a duplicate for one fixed: nothing gained.
    objects = [o for o in crowded() if not o["metadata"]["name"].startswith("fill")]
    result = plan([*objects, *workload("fill", ["n1", "n2"], cpu="800m")], **ONLY)
    assert all(m.makes_way_for == "" for m in result.moves)


def moves_of(objects):
    return plan_of(objects, **ONLY).moves


def test_the_pod_in_the_way_stays_when_the_other_is_gone():
    first, second = moves_of(crowded())
    now = [o for o in crowded() if o["metadata"].get("uid") != second.uid]
    assert [why for _, why in rechecked(now, [first, second], **ONLY)] == [
        "the pod that it goes first for is gone",
        "the pod is gone",
    ]


def test_the_pod_in_the_way_stays_when_the_other_is_protected_now():
    moves = moves_of(crowded())
    now = crowded()
    [other] = [o for o in now if o["metadata"].get("uid") == moves[1].uid]
    other["metadata"]["annotations"] = {"rebalancer/evict": "false"}
    assert [why for _, why in rechecked(now, moves, **ONLY)] == [
        "the pod that it goes first for is protected now: optedOut",
        "protected now: optedOut",
    ]


def test_the_pod_in_the_way_stays_when_the_other_can_go_by_itself():
    moves = moves_of(crowded())
    # Other pods filled n1 meanwhile.
    now = [*crowded(), *workload("late", ["n1", "n1"], cpu="1")]
    assert [why for _, why in rechecked(now, moves, **ONLY)] == [
        "the pod that it goes first for can go by itself",
        None,
    ]


def test_the_pod_in_the_way_stays_when_that_would_be_in_vain():
    moves = moves_of(crowded())
    # Other pods filled n2, where the other was to land, meanwhile: n1 draws it still.
    now = [*crowded(), *workload("late", ["n2"], cpu="2")]
    verdicts = rechecked(now, moves, **ONLY)
    assert verdicts[0][1] == "the pod that it goes first for could not go even then"
    assert verdicts[1][1] is not None


def test_the_other_stays_when_the_pod_in_the_way_stayed():
    _, second = moves_of(crowded())
    [(_, why)] = rechecked(crowded(), [second], **ONLY)
    assert why is not None
    assert why.startswith("NoGain")


def test_looking_for_a_chain_leaves_the_state_as_it_was():
    draft = draft_of(crowded(), **ONLY)
    view, state = draft.view, draft.state
    judge = Judge(view, draft.terms, guard_term(view), draft.settings.threshold)
    pod = view.snapshot.pods.name.index("web-0")
    arrays = ("node_of", "cls_of", "used", "scored_used", "lasting", "lasting_count", "pod_count")
    classes = np.arange(len(view.snapshot.classes), dtype=np.int32)
    before = {name: getattr(state, name).copy() for name in arrays}
    counts = [state.counts(classes, terminating=t).copy() for t in (False, True)]
    chains = Chains(view, judge, np.ones(len(view.snapshot.pods)), Effort())
    assert chains.first(pod, 0, lambda *_: True) is not None
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(state, name), value)
    for terminating, value in zip((False, True), counts, strict=True):
        np.testing.assert_array_equal(state.counts(classes, terminating=terminating), value)
    assert state.terminating_pods == []
    assert len(state.unmoved()) == len(view.snapshot.pods)
