"""A plan holds what one run can carry out in its time; that rests on its input, not on a clock."""

import math

import pytest

from rebalancer.plan.plan import Backlog, Code, Pace
from rebalancer.planner.allowance import RunTime
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.policy.values import Limit
from rebalancer.testing.snapshots import HOSTNAME, apart, node, workload

PACE = Pace(eviction=1.0, wave=10.0)
FREE = {name: Limit.parse("100%") for name in ("in_flight", "per_run", "per_hour")}


def crowded(workloads=6):
    """So many workloads with both replicas on one node, and as many nodes free: as many moves."""
    nodes = [node(f"n{i}") for i in range(2 * workloads)]
    rule = [apart(f"w{i}", HOSTNAME, weight=100) for i in range(workloads)]
    pods = (workload(f"w{i}", [f"n{i}"] * 2, spec=rule[i]) for i in range(workloads))
    return [*nodes, *(o for of in pods for o in of)]


@pytest.mark.parametrize(
    ("seconds", "in_flight", "moves"),
    [
        (math.inf, 2, 6),
        (100, 2, 6),
        # Waves of two: 2 s of evictions, 10 s until their replacements are ready. Lists and planning take 1 or 2 ms.
        (26.1, 2, 6),
        (26, 2, 5),
        (24.1, 2, 4),
        (13.1, 2, 3),
        (12.1, 2, 2),
        (2.1, 2, 2),
        (1, 2, 1),
        # One wave holds all, and its evictions alone take too long.
        (4.1, 6, 4),
        # The first move always fits.
        (0.1, 6, 1),
    ],
)
def test_no_more_is_planned_than_fits_into_the_time_of_the_run(plan, seconds, in_flight, moves):
    budgets = Budgets(**{**FREE, "in_flight": Limit.parse(in_flight)})
    result = plan(crowded(), settings=Settings(budgets=budgets, seconds=seconds, pace=PACE))
    assert len(result.moves) == moves
    assert (result.backlog.moves, result.backlog.more) == (6 - moves, moves < 6)
    assert result.lower_bound == 6
    over_budget = [skip for skip in result.skips if skip.code is Code.BUDGET]
    assert len({skip.pod.rpartition("-")[0] for skip in over_budget}) == 6 - moves
    assert all("what a run can carry out in its" in skip.message for skip in over_budget)


def test_the_moves_that_fit_are_the_first_of_the_whole_plan(plan):
    budgets = Budgets(**{**FREE, "in_flight": Limit.parse(2)})
    whole = plan(crowded(), settings=Settings(budgets=budgets, pace=PACE))
    part = plan(crowded(), settings=Settings(budgets=budgets, pace=PACE, seconds=24.1))
    assert part.moves == whole.moves[:4]
    assert part.backlog == Backlog(2, 1, more=True)


def test_lifted_budgets_do_not_lift_the_time(plan):
    settings = Settings(budgets=Budgets(**FREE), lifted=True, seconds=3.1, pace=PACE)
    assert len(plan(crowded(), settings=settings).moves) == 3


@pytest.mark.parametrize(
    ("evictions", "waves", "seconds", "pace"),
    [
        (0, 0, 0.0, Pace()),
        (10, 0, 5.0, Pace(eviction=0.5)),
        (10, 2, math.nan, Pace()),
        (10, 2, 21.0, Pace(wave=10.0)),
        # All the time went into evictions, each of which took longer or shorter than usual.
        (1000, 1, 10.0, Pace(eviction=0.01, wave=0.0)),
    ],
)
def test_the_pace_of_an_earlier_run_is_split_into_evictions_and_waits(
    evictions, waves, seconds, pace
):
    measured = Pace.measure(evictions, waves, seconds)
    assert (measured.eviction, measured.wave) == pytest.approx((pace.eviction, pace.wave))


def test_a_run_at_the_measured_pace_plans_as_many_waves_as_fit():
    time = RunTime(75, Pace.measure(evictions=100, waves=4, seconds=82.0))
    waves = 0
    while time.over() is None:
        for _ in range(25):
            time.evict()
        time.next_wave()
        waves += 1
    assert waves == 4


@pytest.mark.parametrize(
    ("nodes", "pods", "moves"),
    [
        (0, 0, 750),
        # 7.5 s for the lists, 5 ms to plan each move.
        (5000, 150_000, 643),
        (1000, 30_000, 728),
        # The lists alone take longer than the run has: one move is planned anyway.
        (1000, 2_000_000, 1),
    ],
)
def test_lists_and_planning_are_in_the_time_of_the_run(nodes, pods, moves):
    time, planned = RunTime(75, nodes=nodes, pods=pods), 0
    while time.over() is None:
        time.evict()
        planned += 1
    assert planned == pytest.approx(moves, abs=1)


def test_planning_that_is_stopped_keeps_the_moves_so_far(plan):
    whole = plan(crowded(), settings=Settings(budgets=Budgets(**FREE)))
    asked = []

    def stop():
        asked.append(1)
        return "time is up" if len(asked) > 3 else None

    result = plan(crowded(), settings=Settings(budgets=Budgets(**FREE)), stop=stop)
    assert 0 < len(result.moves) < 6
    assert result.moves == whole.moves[: len(result.moves)]
    assert result.stopped.startswith("Planning was ended early: time is up. ")
    assert result.backlog.moves == 6 - len(result.moves)
