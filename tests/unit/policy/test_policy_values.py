from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.policy.model import Budgets, StrategyBudgets
from rebalancer.policy.values import Limit, format_percent, parse_percent


@pytest.mark.parametrize(
    ("text", "total", "floor", "wanted"),
    [
        (5, 1000, 1, 5),
        (5, 2, 1, 5),  # a count means what it says
        (0, 1000, 5, 0),
        ("0%", 1000, 5, 0),
        ("2%", 1000, 5, 20),
        ("2%", 100, 5, 5),  # at least the floor
        ("2%", 10, 1, 1),  # 0.2 is not never
        ("2%", 10, 0, 1),
        ("10%", 19, 1, 1),  # rounded down
        ("10%", 20, 1, 2),
        ("0.5%", 1000, 1, 5),
        ("100%", 7, 1, 7),
        ("29%", 100, 1, 29),  # 0.29 * 100 is 28.999... in floats
    ],
)
def test_a_limit_in_numbers(text, total, floor, wanted):
    assert Limit.parse(text).of(total, floor) == wanted


@pytest.mark.parametrize(
    "text", [-1, 1.5, "101%", "-1%", "5", "", "%", True, None, [], "1e2%", 10**9]
)
def test_what_is_no_limit_is_refused(text):
    with pytest.raises(ValueError, match="is no limit; write"):
        Limit.parse(text)


@given(st.integers(1, 100), st.integers(0, 10**6), st.integers(0, 30))
def test_a_share_is_never_rounded_down_to_never_and_never_up(percent, total, floor):
    value = Limit.parse(f"{percent}%").of(total, floor)
    assert value >= max(1, floor)
    assert value <= max(1, floor, Fraction(percent, 100) * total)


@given(st.one_of(st.integers(0, 10**6), st.integers(0, 100).map(lambda p: f"{p}%")))
def test_a_limit_is_printed_as_it_is_read(text):
    limit = Limit.parse(text)
    assert str(limit) == str(text)


@given(st.integers(0, 10_000))
def test_percentages_survive_printing_and_reading(hundredths):
    fraction = hundredths / 10_000
    assert parse_percent(format_percent(fraction)) == pytest.approx(fraction)


@pytest.mark.parametrize("text", ["120%", "20", 20, "x", "-1%", None])
def test_what_is_no_percentage_is_refused(text):
    with pytest.raises(ValueError, match="is no percentage from 0% to 100%"):
        parse_percent(text)


def test_the_default_budgets_on_a_small_and_a_large_cluster():
    budgets = Budgets()
    small = (
        budgets.in_flight_of(30),
        budgets.per_owner_of(3),
        budgets.per_run_of(30),
        budgets.per_hour_of(30),
        budgets.per_node_of(10),
    )
    large = (
        budgets.in_flight_of(1000),
        budgets.per_owner_of(50),
        budgets.per_run_of(1000),
        budgets.per_hour_of(1000),
        budgets.per_node_of(110),
    )
    assert small == (5, 1, 10, 20, 5)
    assert large == (20, 5, 100, 300, 5)


def test_a_strategys_budgets_replace_only_what_they_name():
    own = StrategyBudgets(per_run=Limit.parse(2))
    assert own.within(Budgets()) == Budgets(per_run=Limit.parse(2))
