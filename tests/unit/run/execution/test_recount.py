"""Budgets that are about to be counted again are waited for; those that others use up, once."""

from dataclasses import replace

import numpy as np
import pytest

from rebalancer.run.execution.act import Recount
from rebalancer.snapshot.model import DisruptionBudget, Snapshot
from rebalancer.testing.snapshots import snapshot_of
from tests.support.clocks import HandClock
from tests.unit.run.execution.world import move, stop_of

EMPTY = snapshot_of([])


def seen(**allowed):
    """A snapshot with budgets of these names that allow so many disruptions."""
    budgets = tuple(
        DisruptionBudget("default", name, np.zeros(0, np.int32), count, 3, 2, False, 3)
        for name, count in allowed.items()
    )
    return replace(EMPTY, budgets=budgets)


def looking(*snapshots, **stop):
    """A recount that sees these in turn, the last one for ever; its clock; and what it asked the budgets of.

    A snapshot is of the same moment as the last question.
    """
    clock = HandClock()
    looks: list[Snapshot] = []

    def exhausted():
        looks.append(snapshots[min(len(looks), len(snapshots) - 1)])
        return {budget.ref for budget in looks[-1].budgets if budget.allowed <= 0}

    def look():
        return looks[-1] if looks else snapshots[0]

    return Recount(look, exhausted, stop_of(clock, **stop)), clock, looks


REST = [move("a", wave=2, budget="default/web"), move("b", wave=3, budget="default/db")]


def test_the_budget_of_the_next_wave_is_waited_for():
    late, counted = seen(web=0, db=0), seen(web=1, db=0)
    recount, clock, looks = looking(late, late, counted)
    assert recount.snapshot(REST) is counted
    assert len(looks) == 3
    assert 0 < clock.now() < 1


@pytest.mark.parametrize("moves", [REST, [move("free", wave=2)]])
def test_nothing_is_waited_for_that_allows_something_or_comes_later(moves):
    recount, clock, looks = looking(seen(web=1, db=0))
    recount.snapshot(moves)
    assert (len(looks), clock.now()) == (bool(moves[0].budgets), 0.0)


def test_a_budget_that_others_use_up_is_waited_for_once():
    recount, clock, _ = looking(seen(web=0, db=1))
    recount.snapshot(REST)
    waited = clock.now()
    assert 4 < waited <= 5
    recount.snapshot(REST)
    assert clock.now() == waited


@pytest.mark.parametrize(
    ("end", "at"), [({"deadline": 1.0}, 1.0), ({"signal_at": 1.0}, 1.0), ({"signal_at": 0.0}, 0.0)]
)
def test_the_deadline_and_a_signal_end_the_wait(end, at):
    recount, clock, _ = looking(seen(web=0), **end)
    assert recount.snapshot(REST).budgets
    assert clock.now() == pytest.approx(at, abs=0.3)
