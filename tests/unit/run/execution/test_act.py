"""Acting on a plan: what was done is remembered however the run ends, and each further wave is judged again."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.evict import AnswerKind
from rebalancer.plan.plan import Explanation, Later, Status
from rebalancer.run.execution.act import (
    WaveCheck,
    carry_out,
    choose_followed,
    find_leaders,
    of_next_wave,
    open_feed,
)
from rebalancer.run.execution.executor import Executor
from rebalancer.testing.snapshots import node, snapshot_of, workload
from tests.unit.commands.serving import like
from tests.unit.run.execution.world import World, executor_of, move, pod, stop_of


@dataclass
class Memory:
    """Keeps what it is given; ``broken`` is why it could not."""

    broken: str | None = None
    kept: list[tuple[list[Status], bool]] = field(default_factory=list)
    reserved: list[int] = field(default_factory=list)

    def __call__(self, outcomes: Any, *, cut: bool = False, reserved: int = 0) -> str | None:
        self.reserved.append(reserved)
        self.kept.append(([outcome.status for outcome in outcomes], cut))
        return self.broken


def acting(*names: str, answers: dict[str, list[Any]] | None = None, **stop: float) -> Executor:
    world = World(pods={name: pod(name) for name in names}, answers=answers or {})
    return executor_of(world, stop_of(world.clock, **stop))


def all_stay(moves):
    return [(one, None) for one in moves]


def no_marks():
    return False


def test_what_a_whole_run_did_is_remembered_once():
    memory = Memory()
    done = carry_out(acting("a", "b"), [move("a"), move("b")], all_stay, memory, no_marks)
    assert not done.failed
    assert memory.kept == [([Status.EVICTED, Status.EVICTED], False)]


def test_a_run_that_is_stopped_remembers_that_it_was_cut():
    memory = Memory()
    executor = acting("a", "b", signal_at=0.0)
    done = carry_out(executor, [move("a"), move("b")], all_stay, memory, no_marks)
    assert done.stopped == "stopped by a signal"
    assert memory.kept == [([Status.NOT_ATTEMPTED, Status.NOT_ATTEMPTED], True)]


def test_what_was_done_before_an_error_is_remembered_too():
    memory = Memory()

    def fail(moves):
        raise ValueError("a defect")

    moves = [move("a"), move("b", wave=2)]
    with pytest.raises(ValueError, match="a defect"):
        carry_out(acting("a", "b"), moves, fail, memory, no_marks)
    assert memory.kept == [([Status.EVICTED], True)]


@pytest.mark.parametrize(
    ("answer", "failed"), [(AnswerKind.EVICTED, True), (AnswerKind.GONE, False)]
)
def test_a_run_has_failed_if_an_eviction_is_not_remembered(answer, failed):
    executor = acting("a", answers={"a": [answer]})
    done = carry_out(executor, [move("a")], all_stay, Memory("no ConfigMap"), no_marks)
    assert done.failed is failed


def test_marks_are_cleared_first_and_those_that_are_left_make_the_run_fail():
    memory, kept_before = Memory(), []

    def some_are_left():
        kept_before.append(list(memory.kept))
        return True

    done = carry_out(acting("a"), [move("a")], all_stay, memory, some_are_left)
    assert done.failed
    assert kept_before == [[]]
    assert memory.kept == [([Status.EVICTED], False)]


# -- between waves -----------------------------------------------------------------------------------------


@dataclass
class Judging:
    """A plan and a Recount of which only the calls count."""

    rules: Any = field(default_factory=lambda: like(counts_the_hour=True))
    plan: Any = None
    calls: list[Any] = field(default_factory=list)

    def snapshot(self, moves):
        return snapshot_of([])

    def revalidate(self, snapshot, moves, clock_skew, asked):
        self.calls.append((len(snapshot.pods), clock_skew))
        return [(one, "pays no longer") for one in moves]


EXPLANATION = Explanation(
    skips=(), before={}, after={}, lower_bound=0, stopped="After these moves every rule holds."
)


def check_of(judging: Any, memory: Memory, explain: Any = lambda: EXPLANATION) -> WaveCheck:
    executor = acting("a")
    executor.run([move("a")], all_stay)
    judging.plan = like(explanation=Later(explain))
    return WaveCheck(judging, memory, executor, judging)


def test_before_a_wave_is_judged_what_was_done_is_remembered():
    judging, memory = Judging(), Memory()
    left = [move("b", wave=2)]
    assert check_of(judging, memory).recheck(left, 0.5) == [(left[0], "pays no longer")]
    assert judging.calls == [(0, 0.5)]
    assert memory.kept == [([Status.EVICTED], False)]


def test_what_the_next_wave_may_evict_is_reserved_before_it_begins():
    memory = Memory()
    left = [move("b", wave=2), move("c", wave=2), replace(move("d", wave=2), observed=True)]
    check_of(Judging(), memory).recheck([*left, move("e", wave=3)], 0.5)
    assert memory.reserved == [2]
    assert of_next_wave([]) == 0


def test_the_plan_is_explained_once_the_first_wave_is_remembered_and_before_the_next_is_judged():
    judging, memory, order = Judging(), Memory(), []

    def explain():
        order.append((len(memory.kept), len(judging.calls)))
        return EXPLANATION

    check = check_of(judging, memory, explain)
    check.recheck([move("b", wave=2)], 0.5)
    check.recheck([move("b", wave=2)], 0.5)
    assert order == [(1, 0)]


def test_waves_go_on_where_the_plan_cannot_be_explained():
    judging, left = Judging(), [move("b", wave=2)]
    check = check_of(judging, Memory(), lambda: 1 / 0)
    assert check.recheck(left, 0.5) == [(left[0], "pays no longer")]
    # Asked again, it says again why.
    with pytest.raises(ZeroDivisionError):
        judging.plan.explanation.make()


def test_where_the_hour_is_counted_nothing_more_is_done_without_a_memory():
    judging = Judging()
    with pytest.raises(ClusterReadError, match="no ConfigMap"):
        check_of(judging, Memory("no ConfigMap")).recheck([move("b", wave=2)], 0.0)
    assert judging.calls == []


def test_where_budgets_are_lifted_a_missing_memory_stops_nothing():
    judging = Judging(like(counts_the_hour=False))
    assert check_of(judging, Memory("no ConfigMap")).recheck([move("b", wave=2)], 0.0)


# -- what is followed --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        ([move("a"), move("b")], (False, "default")),
        ([move("a"), replace(move("b"), namespace="shop")], (False, "")),
        ([move("a"), move("b", wave=2)], (True, "")),
    ],
)
def test_one_wave_follows_its_own_pods_and_several_all_that_was_read(moves, expected):
    assert choose_followed(moves) == expected


@pytest.mark.parametrize(
    ("ordered", "pauses"), [(False, [20.0, 20.0, 10.0]), (True, [20.0, 20.0, 0.0])]
)
def test_what_jobs_make_again_later_is_awaited_but_for_pods_of_no_gang_that_people_order_away(
    ordered, pauses
):
    """Two pods of the Job of a gang, and one of another Job."""
    of_gang = {"app": "train", "scheduling.x-k8s.io/pod-group": "train"}
    objects = [
        node("n1"),
        *workload("train", ["n1", "n1"], kind="Job", labels=of_gang),
        *workload("sum", ["n1"], kind="Job"),
    ]
    moves = [
        replace(move(name), uid=f"default/{name}", owner=f"Job/default/{name[:-2]}", gang=gang)
        for name, gang in (("train-0", "train"), ("train-1", "train"), ("sum-0", ""))
    ]
    feed = open_feed(snapshot_of(objects), moves, ordered=ordered)
    assert [feed.pause_of(one.uid) for one in moves] == pauses


def test_only_leaders_of_what_moves_with_its_gang_are_leaders():
    key = "leaderworkerset.sigs.k8s.io"
    labels = {f"{key}/name": "serve", f"{key}/group-index": "0"}
    objects = [
        node("n1"),
        *workload("serve", ["n1"], kind="StatefulSet", labels={**labels, f"{key}/worker-index": "0"}),
        *workload("serve-0", ["n1"], kind="StatefulSet", labels={**labels, f"{key}/worker-index": "1"}),
    ]  # fmt: skip
    moves = [replace(move(name), uid=f"default/{name}") for name in ("serve-0", "serve-0-0")]
    snapshot = snapshot_of(objects)
    assert find_leaders(snapshot, moves) == {}
    together = [replace(one, gang="serve") for one in moves]
    assert find_leaders(snapshot, together) == {"default/serve-0": "serve"}
