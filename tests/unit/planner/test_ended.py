"""Removals of pods that have ended: protections, budgets, order, and what is left of them later."""

import pytest

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.plan.plan import Code, Status
from rebalancer.planner.planning import Reviewed, make_plan
from rebalancer.planner.rules import History, RunRules
from rebalancer.policy.load import load_text
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import disruption_budget, snapshot_of, workload
from tests.strategies.failed_pods import NAME, REGISTRY, failed, nodes, plan, rules_of


@pytest.mark.parametrize(
    ("pod", "more", "protection"),
    [
        ({"annotations": {"rebalancer/evict": "false"}}, "", "optedOut"),
        ({"spec": {"volumes": [{"emptyDir": {}, "name": "v"}]}}, "", "localStorage"),
        ({"spec": {"priority": 2_000_000_000}}, "", "systemCritical"),
        ({}, "protect: {pods: [{labels: {app: web}}]}", "pods"),
        ({}, "select: {namespaces: [other]}", "notSelected"),
    ],
)
def test_protections_hold(pod, more, protection):
    objects = [*nodes(), *workload("web", ["n1", "n2"]), failed(**pod)]
    (skip,) = plan(objects, more=more).skips
    assert (skip.code, skip.message.partition(":")[0]) == (Code.PROTECTED, protection)


def test_what_is_about_running_pods_does_not():
    # One replica, not settled, and with a budget that allows nothing: the API server asks for none of an ended pod.
    web = workload("web", ["n1"], replicas=1)
    objects = [*nodes(), *web, failed(), disruption_budget("web", "web", allowed=0)]
    assert [move.pod for move in plan(objects).moves] == ["dead"]


def test_a_cool_down_is_of_moves():
    of = rules_of()
    kept = History({"Deployment/default/web": "given up", "ReplicaSet/default/web": "given up"})
    objects = [*nodes(), *workload("web", ["n1", "n2"]), failed()]
    snapshot = snapshot_of(objects, finished=of.finished)
    made = make_plan(of, snapshot, Timings(SystemClock()), history=kept)
    assert [move.owner in kept.cooling for move in made.plan.moves] == [True]


@pytest.mark.parametrize(
    ("more", "options", "code"),
    [
        ("budgets: {perRun: 1}", "{}", Code.BUDGET),
        ("budgets: {perHour: 1}", "{}", Code.BUDGET),
        ("budgets: {perNamespace: 1}", "{}", Code.BUDGET),
        ("", "{budgets: {perRun: 1}}", Code.BUDGET),
        ("", "{budgets: {perNamespace: 1}}", Code.BUDGET),
        ("budgets: {perNodeInRun: 1}", "{}", Code.BUDGET),
    ],
)
def test_budgets_of_a_run_hold_and_the_oldest_go_first(more, options, code):
    objects = [*nodes(), failed("young", hours=2), failed("old", hours=9), failed("mid", hours=5)]
    result = plan(objects, options, more)
    assert [move.pod for move in result.moves] == ["old"]
    assert [(skip.pod, skip.code) for skip in result.skips] == [("mid", code), ("young", code)]
    assert (result.backlog.moves, result.after[NAME].violated) == (2, 2)


def test_budgets_of_what_is_in_flight_do_not():
    more = "budgets: {inFlight: 0, perNode: 0, perOwner: 0}"
    assert len(plan([*nodes(), failed("a"), failed("b")], more=more).moves) == 2


def test_they_go_after_the_moves_of_other_strategies_and_only_if_these_leave_something():
    text = (
        "apiVersion: rebalancer/v1\nkind: Policy\nbudgets: {perRun: 2}\n"
        "strategies: {failed-pods: {}, duplicates: {}}\n"
    )
    of = RunRules(load_text(text.encode(), "policy", REGISTRY), REGISTRY, Scope())
    objects = [*nodes(), *workload("web", ["n1", "n1"]), failed("a", hours=3), failed("b")]
    snapshot = snapshot_of(objects, finished=of.finished)
    result = make_plan(of, snapshot, Timings(SystemClock())).plan
    assert [(move.strategy, move.wave) for move in result.moves] == [("duplicates", 1), (NAME, 2)]
    assert [(skip.pod, skip.code) for skip in result.skips] == [("b", Code.BUDGET)]


def test_what_is_only_shown_takes_no_budget_from_what_is_removed():
    text = (
        "apiVersion: rebalancer/v1\nkind: Policy\nbudgets: {perRun: 1}\n"
        "strategies: {failed-pods: {}, duplicates: {mode: observe}}\n"
    )
    of = RunRules(load_text(text.encode(), "policy", REGISTRY), REGISTRY, Scope())
    objects = [*nodes(), *workload("web", ["n1", "n1"]), failed("a")]
    snapshot = snapshot_of(objects, finished=of.finished)
    result = make_plan(of, snapshot, Timings(SystemClock())).plan
    assert [(move.pod, move.observed) for move in result.moves] == [("a", False)]


def test_what_would_only_be_shown_is_no_backlog():
    more = "mode: observe\nbudgets: {perRun: 1}"
    result = plan([*nodes(), failed("a", hours=3), failed("b")], more=more)
    assert [(move.pod, move.observed) for move in result.moves] == [("a", True)]
    assert result.backlog.moves == 0


def test_an_observing_instance_shows_what_another_does_not_remove():
    text = (
        "apiVersion: rebalancer/v1\nkind: Policy\n"
        "strategies: {failed-pods: {mode: observe}, mine: {strategy: failed-pods, reasons: [Evicted]}}\n"
    )
    of = RunRules(load_text(text.encode(), "policy", REGISTRY), REGISTRY, Scope())
    other = failed("other", status={"reason": "Shutdown"})
    snapshot = snapshot_of([*nodes(), failed("a"), other], finished=of.finished)
    moves = make_plan(of, snapshot, Timings(SystemClock())).plan.moves
    assert {(m.pod, m.strategy, m.observed) for m in moves} == {
        ("a", "mine", False),
        ("other", NAME, True),
    }


def test_between_waves_only_what_still_may_go_goes():
    objects = [*nodes(), *workload("web", ["n1", "n2"]), failed()]
    of = rules_of()
    snapshot = snapshot_of(objects, finished=of.finished)
    made = make_plan(of, snapshot, Timings(SystemClock()))
    (move,) = made.plan.moves
    assert made.revalidate(snapshot, [move]) == [(move, None)]
    kept = [*objects[:-1], failed(annotations={"rebalancer/evict": "false"})]
    later = snapshot_of(kept, finished=of.finished)
    assert made.revalidate(later, [move]) == [(move, "protected now: optedOut")]
    gone = snapshot_of(objects[:-1], finished=of.finished)
    assert made.revalidate(gone, [move]) == [(move, "no strategy removes it any more")]


def test_a_reviewed_plan_removes_what_it_names_and_nothing_else():
    objects = [*nodes(), failed("a"), failed("b"), failed("c")]
    first = rules_of()
    snapshot = snapshot_of(objects, finished=first.finished)
    moves = make_plan(first, snapshot, Timings(SystemClock())).plan.moves
    again = Reviewed([move for move in moves if move.pod != "b"])
    kept = [
        *nodes(),
        failed("a"),
        failed("b"),
        failed("c", annotations={"rebalancer/evict": "false"}),
    ]
    snapshot = snapshot_of(kept, finished=first.finished)
    made = make_plan(first, snapshot, Timings(SystemClock()), reviewed=again)
    assert [move.pod for move in made.left] == ["a"]
    assert {o.move.pod: o.message for o in made.ended.values()} == {"c": "protected now: optedOut"}
    assert made.plan.stopped == "Judged again: 1 of 2 moves of the plan could go (1 dropped)."


def test_of_a_reviewed_plan_nothing_is_left_that_would_only_be_shown():
    objects = [*nodes(), failed()]
    first = rules_of()
    snapshot = snapshot_of(objects, finished=first.finished)
    moves = make_plan(first, snapshot, Timings(SystemClock())).plan.moves
    observing = rules_of("{mode: observe}")
    made = make_plan(observing, snapshot, Timings(SystemClock()), reviewed=Reviewed(moves))
    assert [(move.pod, move.observed) for move in made.plan.moves] == [("dead", True)]
    assert made.plan.funnel["moves"] == 0
    assert made.plan.stopped == "Nothing to do: nothing is left of the plan (1 observed only)."


def test_of_a_reviewed_plan_a_pod_that_is_no_longer_to_be_removed_is_not_called_gone():
    objects = [*nodes(), failed("a"), failed("b")]
    first = rules_of()
    snapshot = snapshot_of(objects, finished=first.finished)
    moves = make_plan(first, snapshot, Timings(SystemClock())).plan.moves
    snapshot = snapshot_of([*nodes(), failed("a")], finished=first.finished)
    others = rules_of("{reasons: [Other]}")
    made = make_plan(others, snapshot, Timings(SystemClock()), reviewed=Reviewed(moves))
    assert {o.move.pod: (o.status, o.message) for o in made.ended.values()} == {
        "a": (Status.DROPPED, "it has ended, and no strategy removes it any more"),
        "b": (Status.GONE, "the pod is gone"),
    }
