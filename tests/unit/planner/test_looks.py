"""Which candidates a wave leaves out, and what lets them in again."""

from typing import Any

import numpy as np
import pytest

from rebalancer.planner.book import Promise
from rebalancer.planner.effort import Effort
from rebalancer.planner.looks import Looks
from rebalancer.planner.verdict import Verdict
from rebalancer.scheduler.prediction import Prediction

PAIRS = [(0, node) for node in range(6)]
LIKELY, RARE = 1, 2
ZONE = np.array([0, 0, 0, 0, 1, 1, 1, 1], np.int32)
SOMEWHERE = Prediction(np.array([LIKELY, RARE], np.int32), np.array([0.9, 0.1]))
NOWHERE = Prediction(np.zeros(0, np.int32), np.zeros(0))


class Nodes:
    """Nodes that change when the test says so."""

    def __init__(self):
        self.stamps = np.zeros(8, np.int64)
        self.touched: list[int] = []
        self.with_room = np.ones(8, bool)

    @property
    def newest_node_change(self):
        return int(self.stamps.max())

    def node_stamp(self, node):
        return int(self.stamps[node])

    def changed_since(self, nodes, since):
        return self.stamps[nodes] > since

    def change(self, node):
        self.stamps[node] = self.newest_node_change + 1
        self.touched.append(node)


def begun(*, again=False, effort=None):
    nodes: Any = Nodes()
    waiting = Looks(nodes, ZONE, lambda _: nodes.with_room, effort or Effort())
    waiting.begin_rung(again=again)
    return nodes, waiting


def spared(waiting, pairs, *, only_certain=True, steered=False, promised=(0, 1, 0)):
    return [
        waiting.is_spared(pair, promise(*promised), only_certain=only_certain, steered=steered)
        for pair in pairs
    ]


def verdict(gain, best=None):
    return Verdict(SOMEWHERE, gain, best or gain, {}, None)


def promise(*gains):
    return Promise(0, 0, "a", gains, gains)


SHORT = (promise(0, 1, 0), verdict((0, 0.5, 0)))


@pytest.mark.parametrize(
    ("changes", "looked_at_again"),
    [
        ([], False),
        # The node that it stands on, or where most of its landings are.
        ([3], True),
        ([LIKELY], True),
        # Too few of its landings, and another node.
        ([RARE], False),
        ([7], False),
    ],
)
def test_what_was_refused_is_looked_at_again_if_what_it_rests_on_has_changed(
    changes, looked_at_again
):
    nodes, waiting = begun()
    waiting.refuse((0, 3), SOMEWHERE)
    for node in changes:
        nodes.change(node)
    assert spared(waiting, [(0, 3)]) == [not looked_at_again]


@pytest.mark.parametrize("prediction", [None, NOWHERE])
def test_what_had_no_landing_is_looked_at_again_after_any_change(prediction):
    nodes, waiting = begun()
    waiting.refuse((0, 3), prediction)
    assert spared(waiting, [(0, 3)]) == [True]
    nodes.change(7)
    assert spared(waiting, [(0, 3)]) == [False]


@pytest.mark.parametrize(
    ("changed", "room_on", "looked_at_again"),
    [
        # A node without room refuses it again, and so does one with room that has not changed.
        (7, [], False),
        (7, [6], False),
        (7, [7], True),
        # Its own node.
        (3, [], True),
    ],
)
def test_what_no_node_took_is_looked_at_again_where_a_changed_node_has_room(
    changed, room_on, looked_at_again
):
    nodes, waiting = begun(again=True)
    waiting.refuse((0, 3), NOWHERE)
    nodes.change(changed)
    nodes.with_room[:] = False
    nodes.with_room[room_on] = True
    assert spared(waiting, [(0, 3)]) == [not looked_at_again]


@pytest.mark.parametrize(("promised", "looked_at_again"), [((0, 1, 0), True), ((0, 0, 1), False)])
def test_what_was_refused_for_balance_waits_until_most_of_its_landings_have_changed(
    promised, looked_at_again
):
    nodes, waiting = begun()
    halves = Prediction(np.array([LIKELY, RARE], np.int32), np.array([0.5, 0.5]))
    waiting.refuse((0, 3), halves)
    nodes.change(LIKELY)
    assert spared(waiting, [(0, 3)], promised=promised) == [not looked_at_again]
    nodes.change(RARE)
    assert spared(waiting, [(0, 3)], promised=promised) == [False]


def test_what_a_move_concerns_is_looked_at_again():
    _, waiting = begun()
    pairs = [(0, 3), (1, 3)]
    for pair in pairs:
        waiting.refuse(pair, SOMEWHERE)
    waiting.retry([0])
    assert spared(waiting, pairs) == [False, True]
    assert not waiting.was_refused(pairs[0])


def test_after_some_refusals_in_a_row_the_rest_of_the_class_waits_for_a_move_or_the_next_rung():
    _, waiting = begun()
    for pair in PAIRS[: Effort().in_a_row]:
        waiting.refuse(pair, SOMEWHERE)
    assert spared(waiting, [PAIRS[5], (1, 5)]) == [True, False]
    assert [waiting.spares_class(cls) for cls in (0, 1)] == [True, False]
    assert spared(waiting, [PAIRS[5]], promised=(1, 0, 0)) == [False]
    waiting.retry([0])
    assert spared(waiting, [PAIRS[5]]) == [False]
    for pair in PAIRS[: Effort().in_a_row]:
        waiting.refuse(pair, SOMEWHERE)
    waiting.begin_rung(again=False)
    assert spared(waiting, [PAIRS[5]]) == [False]


def test_once_nothing_else_is_left_the_most_promising_are_looked_at_all_the_same():
    _, waiting = begun(effort=Effort(again=2))
    for pair in PAIRS:
        waiting.refuse(pair, SOMEWHERE)
    waiting.begin_rung(again=True)
    assert spared(waiting, PAIRS[:3]) == [False, False, True]


def test_what_marks_do_not_help_is_known_apart_from_what_is_refused_without():
    _, waiting = begun()
    waiting.refuse(PAIRS[0], SOMEWHERE)
    assert spared(waiting, PAIRS[:1], steered=True) == [False]
    waiting.refuse(PAIRS[0], SOMEWHERE, steered=True)
    assert spared(waiting, PAIRS[:1], steered=True) == [True]


@pytest.mark.parametrize(
    ("promised", "gain", "best", "waits"),
    [
        ((0, 1, 0), (0, 1, 0), (0, 1, 0), False),
        # Half of what was promised is lost to another rule.
        ((0, 1, 0), (0, 0.5, 0), (0, 0.5, 0), True),
        # One landing would be much better than the mean of them.
        ((0, 1, 0), (0, 1, 0), (0, 2, 0), True),
        # Of balance, promises are optimistic by nature.
        ((0, 0, 1), (0, 0, 0.1), (0, 0, 0.9), False),
    ],
)
def test_moves_that_may_land_badly_wait_until_gambles_may_go(promised, gain, best, waits):
    _, waiting = begun()
    assert waiting.passes_over((0, 0), promise(*promised), verdict(gain, best)) is waits
    assert spared(waiting, [(0, 0)]) == [waits]
    assert spared(waiting, [(0, 0)], only_certain=False) == [False]


def test_what_pods_went_first_for_goes_in_the_next_wave_and_is_a_gamble_again_later():
    _, waiting = begun()
    waiting.free([PAIRS[0]])
    assert [waiting.passes_over(pair, *SHORT) for pair in PAIRS[:2]] == [False, True]
    waiting.free(())
    assert waiting.passes_over(PAIRS[0], *SHORT)


@pytest.mark.parametrize(
    ("node", "promised", "changes", "waits"),
    [
        (3, (1, 0, 0), [], True),
        # Another zone, another promise, and a node on which it might land.
        (5, (1, 0, 0), [], False),
        (3, (1, 1, 0), [], False),
        (LIKELY, (1, 0, 0), [], False),
        # Where it would land now is another question.
        (3, (1, 0, 0), [LIKELY], False),
        (3, (1, 0, 0), [RARE], True),
    ],
)
def test_a_pair_waits_like_one_of_its_class_that_promises_the_same_from_the_same_zone(
    node, promised, changes, waits
):
    nodes, waiting = begun()
    assert waiting.passes_over((0, 0), promise(1, 0, 0), verdict((1, -0.6, 0)))
    for changed in changes:
        nodes.change(changed)
    assert spared(waiting, [(0, node), (1, node)], promised=promised) == [waits, False]
    assert spared(waiting, [(0, node)], promised=promised, only_certain=False) == [False]
    waiting.retry([0])
    assert spared(waiting, [(0, node)], promised=promised) == [False]
