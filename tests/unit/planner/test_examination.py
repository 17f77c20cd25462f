"""What budgets keep from a plan is reported: how many moves, how many runs."""

import random

import pytest

from rebalancer.plan.plan import Backlog
from rebalancer.planner.effort import Effort
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.policy.values import Limit
from rebalancer.testing.snapshots import HOSTNAME, apart, node, workload


def crowded():
    """Six workloads with both replicas on one node, and as many nodes free: six moves."""
    nodes = [node(f"n{i}") for i in range(12)]
    rule = [apart(f"w{i}", HOSTNAME, weight=100) for i in range(6)]
    return [*nodes, *(o for i in range(6) for o in workload(f"w{i}", [f"n{i}"] * 2, spec=rule[i]))]


def limited(**budgets):
    return Settings(budgets=Budgets(**{k: Limit.parse(v) for k, v in budgets.items()}))


@pytest.mark.parametrize(
    ("per_run", "moves", "rest"),
    [
        (6, 6, Backlog()),
        (5, 5, Backlog(1, 1, more=True)),
        (4, 4, Backlog(2, 1, more=True)),
        (2, 2, Backlog(4, 2, more=True)),
        (1, 1, Backlog(5, 5, more=True)),
    ],
)
def test_the_moves_that_wait_for_further_runs_are_counted(plan, per_run, moves, rest):
    result = plan(crowded(), settings=limited(per_run=per_run))
    assert (len(result.moves), result.backlog) == (moves, rest)
    # The bound is of the whole way, not of what one run may do of it.
    assert result.lower_bound == 6
    assert ("wait" in result.stopped) is (rest.moves > 0)


def test_an_hour_that_is_used_up_leaves_all_for_later_runs(plan):
    settings = Settings(budgets=Budgets(per_hour=Limit.parse(3)), moved_last_hour=3)
    result = plan(crowded(), settings=settings)
    assert (len(result.moves), result.backlog) == (0, Backlog(6, 1, more=True))
    assert result.stopped == (
        "This run can do no more: 12 rules are unmet. What waits takes at least 6 moves in 1 further run, if all of it can be fixed."
    )


def test_with_budgets_lifted_nothing_waits(plan):
    settings = Settings(budgets=Budgets(per_run=Limit.parse(1)), lifted=True)
    assert plan(crowded(), settings=settings).backlog == Backlog()


def overloaded(seed):
    """Three nodes just above the threshold, three empty ones: most pods are too small to be worth a move."""
    rng = random.Random(seed)
    objects = [node(f"n{i}", f"zone-{i % 3}") for i in range(6)]
    objects += workload("large", ["n0", "n1", "n2"], cpu="1900m")
    for i in range(18):
        rule = rng.choice((None, apart(f"w{i}", HOSTNAME, weight=100)))
        stand = [f"n{rng.randrange(3)}" for _ in range(2)]
        objects += workload(f"w{i}", stand, cpu=rng.choice(("5m", "20m", "60m")), spec=rule)
    return objects


@pytest.mark.parametrize("seed", [0, 1, 2, 4, 5])
def test_what_cannot_gain_enough_is_not_looked_at_and_changes_nothing(plan, monkeypatch, seed):
    plans = []
    for closely in (0, 10**6):
        effort = Effort(closely=closely)
        monkeypatch.setattr(Effort, "of", staticmethod(lambda _, effort=effort: effort))
        plans.append(plan(overloaded(seed), settings=limited(per_run=100)))
    assert (plans[0].moves, plans[0].after) == (plans[1].moves, plans[1].after)
    unseen = [sum("wherever it lands" in skip.message for skip in one.skips) for one in plans]
    assert unseen[0] > unseen[1]
