"""The marks of a run: as many as an eviction needs, ours only, none afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rebalancer.base.environment import SystemClock
from rebalancer.base.errors import ClusterReadError
from rebalancer.base.stop import Stop
from rebalancer.node_record.marks import list_marks, set_mark
from rebalancer.plan.plan import Status
from rebalancer.run.execution.marks import LASTS, Marker
from rebalancer.wire import marks
from rebalancer.wire.marks import Mark
from tests.support.clocks import HandClock
from tests.unit.kube.scripted import client_of
from tests.unit.run.execution.nodes import OTHERS, Nodes, mark
from tests.unit.run.execution.world import Waiting, World, execute, executor_of, move, stop_of

NOON = 1795348800.0
OURS = "steer.20261122T120100Z.r1"
RENEWED = "steer.20261122T120130Z.r1"
LIVE, DEAD = "steer.20261122T130000Z.r2", "steer.20261122T110000Z.r2"

Make = Callable[..., tuple[Marker, Nodes]]


class Timed:
    """A marker's clock and stop: waiting moves the clock."""

    def __init__(self) -> None:
        self.time = HandClock()
        self.stop = Stop(self.time, signalled=Waiting(self.time))

    def unix(self) -> float:
        return NOON + self.time.seconds


@pytest.fixture
def timed():
    return Timed()


@pytest.fixture
def made(server, tmp_path, timed):
    def make(**taints: list[dict[str, Any]]) -> tuple[Marker, Nodes]:
        nodes = Nodes(server, **taints)
        client = client_of(server.url, tmp_path)
        return Marker(client, run="r1", clock=timed.unix, stop=timed.stop), nodes

    return make


def test_exactly_the_nodes_that_are_asked_for_are_marked(made, timed):
    marker, nodes = made(a=[], b=[OTHERS], c=[])
    assert marker.stand_on(("a", "b")) is None
    assert nodes.marks == {"a": [OURS], "b": [OURS]}
    assert timed.time.seconds == 0.25  # for the scheduler to see it
    assert marker.stand_on(("b", "c")) is None
    assert set(nodes.marks) == {"b", "c"}
    assert timed.time.seconds == 0.5
    assert marker.stand_on(()) is None
    assert nodes.marks == {}
    assert nodes.taints == {"a": [], "b": [OTHERS], "c": []}


def test_marks_that_stand_are_neither_written_nor_waited_for_again(made, timed, server):
    marker, _ = made(a=[])
    marker.stand_on(("a",))
    asked = len(server.asked)
    marker.stand_on(("a",))
    assert (len(server.asked), timed.time.seconds) == (asked, 0.25)


def test_a_mark_that_is_needed_for_longer_is_renewed(made, timed):
    marker, nodes = made(a=[])
    marker.stand_on(("a",))
    timed.time.seconds = 30.0
    marker.stand_on(("a",))
    assert nodes.marks == {"a": [RENEWED]}
    assert LASTS == 60.0


def test_a_mark_that_the_next_run_under_our_lease_has_set_stays(made):
    # We lost the Lease: it is that run's now, whose marks carry the same name and expire later.
    marker, nodes = made(a=[], b=[])
    marker.stand_on(("a", "b"))
    nodes.taints["a"] = [mark(RENEWED)]
    assert marker.clear() == []
    assert nodes.marks == {"a": [RENEWED]}


def test_a_node_that_another_run_has_marked_is_refused(made):
    marker, nodes = made(a=[mark(LIVE)], b=[])
    why = marker.stand_on(("a", "b"))
    assert why == f"node a carries the mark {LIVE} of another run"
    assert marker.clear() == []
    assert nodes.marks == {"a": [LIVE]}


def test_a_mark_of_which_it_is_not_known_whether_it_was_set_is_set_again(made):
    marker, nodes = made(a=[], b=[])
    nodes.broken.add("a")
    for _ in range(2):
        with pytest.raises(ClusterReadError, match="nodes is forbidden"):
            marker.stand_on(["a", "b"])
    nodes.broken.clear()
    assert marker.stand_on(["a", "b"]) is None
    assert nodes.marks == {"a": [OURS], "b": [OURS]}


def test_a_node_that_is_gone_is_refused(made):
    marker, _ = made(a=[])
    assert marker.stand_on(("gone",)) == "node gone is gone"


def test_what_another_client_writes_meanwhile_stays(made):
    marker, nodes = made(a=[], b=[mark(OURS)])
    nodes.changed_behind = {"a"}
    marker.stand_on(("a",))
    assert nodes.taints["a"] == [OTHERS, mark(OURS)]
    nodes.changed_behind = {"a"}
    assert marker.clear() == []
    assert nodes.taints["a"] == [OTHERS, OTHERS]


def test_a_mark_that_cannot_be_removed_is_reported(made):
    marker, nodes = made(a=[], b=[])
    marker.stand_on(("a", "b"))
    nodes.broken = {"a"}
    (left,) = marker.clear()
    assert left.startswith("the mark on node a could not be removed (")
    assert "rebalancer marks --clear" in left
    assert nodes.marks == {"a": [OURS]}


def test_marks_are_removed_after_the_run_had_to_end(server, tmp_path):
    nodes = Nodes(server, a=[])
    stop = Stop(SystemClock())
    client = client_of(server.url, tmp_path, stop)
    marker = Marker(client, run="r1", clock=lambda: NOON, stop=stop, seen=0.0)
    marker.stand_on(("a",))
    stop.add(lambda: "stopped by a signal")
    assert marker.clear() == []
    assert nodes.marks == {}


@pytest.mark.parametrize(
    ("value", "stale"),
    [
        (DEAD, True),
        (LIVE, False),
        ("steer.20261122T130000Z.r1", True),
        ("by-hand", True),
        ("", True),
    ],
)
def test_stale_is_what_has_expired_was_left_by_our_lease_or_names_no_time(made, value, stale):
    marker, nodes = made(a=[OTHERS, mark(value)])
    assert marker.clear_stale([("a", value)]) == []
    assert nodes.taints["a"] == ([OTHERS] if stale else [OTHERS, mark(value)])


def test_stale_marks_that_cannot_be_removed_are_reported_and_the_others_go(made):
    marker, nodes = made(a=[mark(DEAD)], b=[mark(DEAD)])
    nodes.broken = {"a"}
    (left,) = marker.clear_stale([("a", DEAD), ("b", DEAD)])
    assert left.startswith("the stale mark on node a could not be removed")
    assert set(nodes.marks) == {"a"}


def test_marks_are_listed_page_by_page(server, tmp_path):
    Nodes(server, a=[OTHERS], b=[mark(LIVE)], c=[mark("by-hand")])
    marks = list(list_marks(client_of(server.url, tmp_path)))
    assert [(one.node, one.mark) for one in marks] == [
        ("b", Mark("steer", NOON + 3600, "r2")),
        ("c", None),
    ]


def test_a_mark_already_there_is_not_written(server, tmp_path):
    Nodes(server, a=[mark(OURS)])
    client = client_of(server.url, tmp_path)
    assert set_mark(client, "a", Mark("steer", NOON + 60, "r1")) is None
    assert not server.to("/api/v1/nodes/a", "PATCH")


# -- in a wave -----------------------------------------------------------------------------------------


class Spied(World):
    """Notes marks and evictions in one list."""

    refuses: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.order: list[object] = []
        """Marks that were asked for, and evictions."""

    def stand_on(self, nodes: Any) -> str | None:
        self.order.append(tuple(nodes))
        return "taken" if set(nodes) & set(self.refuses) else None

    def evict(self, namespace: str, name: str, uid: str, *, finishing: bool = False) -> Any:
        self.order.append(name)
        return super().evict(namespace, name, uid, finishing=finishing)


def steered(name: str, *nodes: str, wave: int = 1) -> Any:
    return replace(move(name, wave=wave), marks=nodes)


def test_each_move_of_a_wave_has_its_marks_and_none_stays():
    world = Spied()
    moves = [steered("a", "n3", "n4"), steered("b"), steered("c", "n3", wave=2)]
    done = execute(world, moves, marks=world)
    assert [o.status for o in done.outcomes] == [Status.EVICTED] * 3
    assert world.order == [("n3", "n4"), "a", (), "b", (), ("n3",), "c", ()]


def test_a_move_whose_marks_cannot_be_set_is_dropped():
    world = Spied()
    world.refuses = ("n3",)
    done = execute(world, [steered("a", "n3"), steered("b", "n4")], marks=world)
    assert [(o.status, o.message) for o in done.outcomes] == [
        (Status.DROPPED, "taken"),
        (Status.EVICTED, "replaced by new-b"),
    ]
    assert not done.failed


def test_nothing_is_marked_once_the_run_must_end():
    world = Spied()
    executor = executor_of(world, stop_of(world.clock, signal_at=0.0), marks=world)
    done = executor.run([steered("a", "n3")], lambda left: [(m, None) for m in left])
    assert [o.status for o in done.outcomes] == [Status.NOT_ATTEMPTED]
    assert world.order == []


class Late(Spied):
    """A replacement has its node only after ten seconds."""

    def newcomers(self) -> list[Any]:
        return super().newcomers() if self.clock.seconds >= 10 else []


def test_marks_stand_until_the_replacement_is_bound():
    world = Late()
    at: list[tuple[float, int]] = []
    stand_on = world.stand_on

    def noted(nodes: Any) -> str | None:
        at.append((world.clock.seconds, len(nodes)))
        return stand_on(nodes)

    world.stand_on = noted  # type: ignore[method-assign]
    execute(world, [steered("a", "n3")], marks=world)
    assert at[0] == (0.0, 1)
    assert at[1][0] >= 10
    assert at[1][1] == 0


# -- nodes that are to stay empty ---------------------------------------------------------------------

DAY = 86400.0
EMPTY, HALF_OVER = "empty.20261123T120000Z.ours", "empty.20261122T230000Z.ours"
FRESH, ANOTHERS = "empty.20261123T110000Z.ours", "empty.20261123T110000Z.r2"
OLD = "empty.20261122T110000Z.ours"


def keep_empty(marker: Marker, nodes: Nodes, *names: str) -> None:
    standing = [(node, value) for node, values in nodes.marks.items() for value in values]
    marker.keep_marked(marks.EMPTY, names, DAY, standing, "ours")


def test_exactly_the_nodes_that_are_to_be_empty_carry_our_mark_for_it(made):
    marker, nodes = made(a=[], b=[OTHERS, mark(FRESH)], c=[])
    keep_empty(marker, nodes, "a")
    assert nodes.marks == {"a": [EMPTY]}
    assert nodes.taints["b"] == [OTHERS]
    assert nodes.taints["a"][0]["key"] == "rebalancer/empty"


@pytest.mark.parametrize(
    ("stands", "then"),
    [(HALF_OVER, EMPTY), (FRESH, FRESH), (ANOTHERS, ANOTHERS), (OLD, EMPTY), (LIVE, None)],
)
def test_a_mark_is_renewed_when_half_of_its_time_is_over(made, stands, then):
    marker, nodes = made(a=[mark(stands)])
    keep_empty(marker, nodes, "a")
    # One that steers has a key of its own, and stays beside it.
    assert nodes.marks == {"a": [then] if then else [LIVE, EMPTY]}


def test_the_mark_of_another_run_stays_where_a_node_is_not_to_be_empty(made):
    marker, nodes = made(a=[mark(ANOTHERS)], b=[mark(FRESH)])
    keep_empty(marker, nodes)
    assert nodes.marks == {"a": [ANOTHERS]}


def test_the_end_of_a_run_leaves_them_and_the_next_one_removes_those_that_have_expired(made):
    marker, nodes = made(a=[], b=[mark(OLD)])
    keep_empty(marker, nodes, "a")
    marker.stand_on(("a",))
    assert nodes.marks["a"] == [EMPTY, OURS]
    assert marker.clear() == []
    assert nodes.marks == {"a": [EMPTY], "b": [OLD]}
    assert marker.clear_stale([("a", EMPTY), ("b", OLD)]) == []
    assert nodes.marks == {"a": [EMPTY]}


@pytest.mark.parametrize(
    ("stands", "names", "then"),
    [
        ([], "a", ["pins.20261123T120000Z.ours"]),
        (["pins.20261123T110000Z.ours"], "a", ["pins.20261123T110000Z.ours"]),
        (["pins.20261123T110000Z.ours"], "", []),
        # A node that is to be emptied now has that mark only; it stays where nothing is pinned any more.
        ([FRESH], "", [FRESH]),
        ([FRESH], "a", ["pins.20261123T120000Z.ours"]),
        ([ANOTHERS], "a", [ANOTHERS]),
    ],
)
def test_the_nodes_that_pods_hold_carry_a_mark_of_their_own(made, stands, names, then):
    marker, nodes = made(a=[mark(value) for value in stands])
    standing = [("a", value) for value in stands]
    marker.keep_marked(marks.PINS, names, DAY, standing, "ours")
    assert nodes.marks.get("a", []) == then
    assert not any(marker.is_stale(value) for value in then)


@pytest.mark.parametrize(
    ("stands", "names"),
    [
        ([], "a"),
        ([HALF_OVER], "a"),
        ([FRESH], "a"),
        ([ANOTHERS], "a"),
        ([FRESH], ""),
        ([ANOTHERS], ""),
    ],
)
def test_whether_a_mark_was_changed_is_said(made, stands, names):
    marker, nodes = made(a=[mark(value) for value in stands])
    standing = [("a", value) for value in stands]
    changed = marker.keep_marked(marks.EMPTY, names, DAY, standing, "ours")
    assert changed == (nodes.marks.get("a", []) != stands)


def test_before_anything_moves_a_node_that_cannot_be_marked_ends_the_run(made):
    marker, nodes = made(a=[], b=[])
    nodes.broken = {"b"}
    with pytest.raises(ClusterReadError, match="nodes is forbidden"):
        keep_empty(marker, nodes, "a", "b")
