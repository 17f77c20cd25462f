"""Eagerness: what a move must bring falls from step to step."""

import itertools

import pytest

from rebalancer.planner.settings import THRESHOLDS, Settings
from rebalancer.policy.model import Eagerness


def test_every_eagerness_has_a_threshold():
    assert set(THRESHOLDS) == set(Eagerness)


@pytest.mark.parametrize(
    ("one", "next_"), list(itertools.pairwise(Eagerness)), ids=lambda eagerness: eagerness.value
)
def test_a_more_eager_policy_asks_for_less(one, next_):
    timid, eager = Settings(eagerness=one).threshold, Settings(eagerness=next_).threshold
    assert eager.pods < timid.pods
    assert eager.imbalance < timid.imbalance
    assert eager.better < timid.better
    assert eager.worse > timid.worse
    assert eager.harmless < timid.harmless


@pytest.mark.parametrize("eagerness", Eagerness)
def test_what_fixes_and_what_breaks_are_shares_of_all_landings(eagerness):
    threshold = Settings(eagerness=eagerness).threshold
    assert 0 < threshold.better <= 1
    assert threshold.better + threshold.worse <= 1
    assert 0 < threshold.harmless < threshold.better
