"""What terms expect of each (class, node) pair, summed up, and renewed pair by pair."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from rebalancer.cost.term import Candidates, Entry
from rebalancer.planner.problem import WeightedTerm
from rebalancer.planner.promises import Promises


@dataclass
class Asking:
    """A term that names pairs; counts how often it is asked."""

    entry: Entry
    gains: dict[tuple[int, int], float]
    asked: list[object] = field(default_factory=list)

    def candidates(self, classes=None):
        self.asked.append(None if classes is None else classes.tolist())
        rows = [
            (cls, node, gain)
            for (cls, node), gain in self.gains.items()
            if classes is None or cls in classes.tolist()
        ]
        columns = list(zip(*rows, strict=True)) or [(), (), ()]
        return Candidates(
            np.array(columns[0], int), np.array(columns[1], int), np.array(columns[2])
        )


class Pricing(Asking):
    """A term of balance that can be asked about one pair."""

    def gain_of(self, cls, node):
        return self.gains.get((cls, node), 0.0)


def promises(*terms):
    return Promises([WeightedTerm(name, term, weight) for name, weight, term in terms])


def test_gains_add_up_by_entry_and_the_earliest_entry_names_the_strategy():
    promised = promises(
        ("soft", 2.0, Asking(Entry.SOFT, {(0, 1): 0.5})),
        ("even", 1.0, Asking(Entry.IMBALANCE, {(0, 1): 7.0, (0, 2): 3.0})),
        ("hard", 1.0, Asking(Entry.HARD, {(0, 1): 1.0})),
    )
    both = promised.get((0, 1))
    assert (both.gains, both.strategy, both.entry) == ([1.0, 1.0, 7.0], "hard", 0)
    assert promised.get((0, 2)).strategy == "even"
    assert promised.get((1, 1)) is None
    assert promised.has_rules(0)
    assert set(promised.pairs()) == {(0, 1), (0, 2)}


@pytest.mark.parametrize("now", [0.0, 2.0, 9.0])
def test_a_pair_that_is_about_balance_is_renewed_alone(now):
    even = Pricing(Entry.IMBALANCE, {(0, 1): 7.0, (0, 2): 3.0})
    promised = promises(("even", 0.5, even))
    even.gains = {(0, 1): now, (0, 2): 99.0}
    promised.renew((0, 1))
    renewed = promised.get((0, 1))
    assert (renewed.gains[2] if renewed else 0.0) == now / 2
    # The other pair is asked about when it is its turn.
    assert promised.get((0, 2)).gains[2] == 1.5
    assert even.asked == [None]


def test_where_a_term_of_balance_cannot_be_asked_about_a_pair_the_class_is():
    even = Asking(Entry.IMBALANCE, {(0, 1): 7.0, (0, 2): 3.0})
    promised = promises(("even", 1.0, even), ("more", 1.0, Pricing(Entry.IMBALANCE, {(0, 1): 1.0})))
    even.gains = {(0, 2): 5.0}
    promised.renew((0, 1))
    assert promised.get((0, 1)).gains[2] == 1.0
    assert promised.get((0, 2)).gains[2] == 5.0
    assert even.asked == [None, [0]]


@pytest.mark.parametrize(("pairs", "kept"), [(30, False), (31, True)])
def test_a_closer_look_at_many_pairs_holds_until_rules_promise_something_else(pairs, kept):
    soft = Asking(Entry.SOFT, {(0, node): 1.0 for node in range(pairs + 1)})
    promised = promises(("soft", 1.0, soft))
    for node in range(pairs):
        promised.get((0, node)).gains = [0.0, 0.5, -0.1]
    soft.gains[0, 1] = 2.0
    del soft.gains[0, 2]
    promised.refresh(np.array([0], np.int32))
    seen = [0.0, 0.5, -0.1] if kept else [0.0, 1.0, 0.0]
    assert promised.get((0, 0)).gains == seen
    assert promised.get((0, 0)).promised == [0.0, 1.0, 0.0]
    assert promised.get((0, 1)).gains == [0.0, 2.0, 0.0]
    assert promised.get((0, 2)) is None
    assert promised.get((0, pairs)).gains == [0.0, 1.0, 0.0]


def test_what_balance_alone_promises_is_always_asked_again():
    even = Asking(Entry.IMBALANCE, {(0, node): 1.0 for node in range(30)})
    promised = promises(("even", 1.0, even))
    for node in range(30):
        promised.get((0, node)).gains = [0.0, 0.0, 0.5]
    promised.refresh(np.array([0], np.int32))
    assert promised.get((0, 3)).gains == [0.0, 0.0, 1.0]
