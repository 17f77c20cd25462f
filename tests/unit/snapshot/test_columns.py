"""Columns, and sets of rows."""

import numpy as np
import pytest

from rebalancer.snapshot.columns import unite


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ([], []),
        ([[]], []),
        ([[2, 5]], [2, 5]),
        ([[], [2, 5], []], [2, 5]),
        ([[2, 5], [2, 5]], [2, 5]),
        ([[5], [2, 5], [1]], [1, 2, 5]),
    ],
)
def test_sets_are_united_ascending_and_once_each(sets, expected):
    result = unite([np.array(one, np.int32) for one in sets])
    assert result.tolist() == expected
    assert result.dtype == np.int32


def test_one_set_that_several_rules_share_is_returned_as_it_is():
    shared = np.array([2, 5], np.int32)
    assert unite([shared, np.zeros(0, np.int32), shared]) is shared
