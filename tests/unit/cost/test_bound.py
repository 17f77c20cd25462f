"""The lower bound: small cases that a person can check, and that it never exceeds what a plan does."""

import numpy as np
import pytest

from rebalancer.cost.bound import lower_bound
from rebalancer.cost.term import Bound, Entry

HARD, SOFT = Entry.HARD, Entry.SOFT


def bound(entry, moves, *classes, weight=1.0):
    return entry, Bound(moves, np.array(classes, np.int32), weight)


@pytest.mark.parametrize(
    ("before", "after", "moves"),
    [
        ([], [], 0),
        ([bound(SOFT, 2, 0)], [], 2),
        # Groups that share no class need different moves.
        ([bound(SOFT, 2, 0), bound(SOFT, 3, 1)], [], 5),
        # One move may fix both groups of a class: only the larger counts.
        ([bound(SOFT, 2, 0), bound(SOFT, 3, 0, 1)], [], 3),
        ([bound(HARD, 1, 0), bound(SOFT, 4, 1)], [], 5),
        # What stays unmended afterwards takes no move.
        ([bound(SOFT, 3, 0)], [bound(SOFT, 1, 0)], 2),
        # A hard rule stays broken: soft ones may be the price of fixing others.
        ([bound(HARD, 2, 0), bound(SOFT, 9, 1)], [bound(HARD, 1, 0)], 1),
        # A light group may be left for a heavy one, but not the other way round.
        ([bound(SOFT, 5, 0, weight=0.1), bound(SOFT, 2, 1)], [bound(SOFT, 5, 0, weight=0.1)], 2),
        ([bound(SOFT, 1, 0)], [bound(SOFT, 3, 1)], 0),
        # One rule over all classes beside one for each of them, in any order of the classes.
        ([bound(SOFT, 1, 0, 1, 2), bound(HARD, 1, 1), bound(SOFT, 1, 2)], [], 2),
        ([bound(SOFT, 1, 0, 1, 2), bound(HARD, 1, 0), bound(SOFT, 1, 1)], [], 2),
        # Parts of moves are moves.
        ([bound(SOFT, 1.2, 0)], [], 2),
    ],
)
def test_the_fewest_moves_from_one_state_to_another(before, after, moves):
    assert lower_bound(before, after) == moves
