import pytest

from rebalancer.policy.model import Budgets, Mode, StrategyBudgets
from rebalancer.policy.values import Limit


@pytest.mark.parametrize(
    ("movable", "in_flight", "per_run", "per_hour"),
    # 2 %, 10 % and 30 % of the movable pods; at least 5, 10 and 20.
    [(0, 5, 10, 20), (30, 5, 10, 20), (1000, 20, 100, 300)],
)
def test_shares_have_floors(movable, in_flight, per_run, per_hour):
    budgets = Budgets()
    assert budgets.in_flight_of(movable) == in_flight
    assert budgets.per_run_of(movable) == per_run
    assert budgets.per_hour_of(movable) == per_hour


def test_per_node_is_a_count_and_per_owner_a_share_by_default():
    budgets = Budgets()
    assert [budgets.per_node_of(pods) for pods in (0, 1, 1000)] == [5, 5, 5]
    assert [budgets.per_owner_of(replicas) for replicas in (1, 19, 20)] == [1, 1, 2]


def test_a_strategy_has_its_own_budgets_and_the_policys_for_absent_ones():
    own = StrategyBudgets(per_run=Limit.parse(3)).within(Budgets(per_node=Limit.parse(7)))
    assert (own.per_run.count, own.per_node.count) == (3, 7)
    assert own.in_flight == Budgets().in_flight


@pytest.mark.parametrize("one", Mode)
@pytest.mark.parametrize("other", Mode)
def test_the_stricter_mode_allows_less(one, other):
    allowed = {Mode.OFF: 0, Mode.OBSERVE: 1, Mode.ENFORCE: 2}
    assert allowed[one.stricter(other)] == min(allowed[one], allowed[other])
