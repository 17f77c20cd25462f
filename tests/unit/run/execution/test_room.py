"""Room for pods that wait: their nodes stay marked until they are bound, and what makes it goes together."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from rebalancer.kube.evict import AnswerKind
from rebalancer.kube.watch import EventType
from rebalancer.plan.plan import Move, Status
from rebalancer.run.execution.landing import PodFeed
from tests.unit.run.execution.test_feed import record
from tests.unit.run.execution.world import World, execute, move, statuses

WAITS = "uid-big"


class RecordedMarks:
    """Marks, each with the time from which they stood."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.stood: list[tuple[float, tuple[str, ...]]] = []

    def stand_on(self, nodes: Collection[str]) -> str | None:
        now = tuple(sorted(nodes))
        if not self.stood or self.stood[-1][1] != now:
            self.stood.append((self._world.clock.now(), now))
        return None


def making(
    name: str, *, wave: int = 1, marks: tuple[str, ...] = ("n1",), room: tuple[str, ...] = ("n1",)
) -> Move:
    return replace(move(name, wave=wave), makes_way_for=WAITS, unit=WAITS, marks=marks, room=room)


def test_the_room_is_marked_until_the_pod_has_its_node():
    world = World(waiting={WAITS: ("default/big", 20.0)}, holds={"uid-a": 15.0})
    marks = RecordedMarks(world)
    done = execute(world, [making("a")], marks=marks)
    assert statuses(done) == [Status.EVICTED]
    assert (done.stopped, done.failed) == (None, False)
    (begun, room), (ended, none) = marks.stood
    assert (begun, room, none) == (0.0, ("n1",), ())
    assert 20.0 <= ended < 21.0


def test_a_pod_that_does_not_come_ends_the_run_and_the_room_is_given_up():
    world = World(waiting={WAITS: ("default/big", 1e9)}, holds={"uid-a": 15.0})
    marks = RecordedMarks(world)
    done = execute(world, [making("a"), replace(move("later"), wave=2)], marks=marks)
    assert statuses(done) == [Status.EVICTED, Status.NOT_ATTEMPTED]
    assert done.stopped == "default/big: still without a node, though room was made"
    assert done.failed
    assert marks.stood[-1][1] == ()
    assert 45.0 <= marks.stood[-1][0] < 47.0  # 30 s after the victim was gone


def test_what_is_being_made_free_stays_marked_between_waves():
    world = World(waiting={WAITS: ("default/big", 5.0)})
    marks = RecordedMarks(world)
    first = making("a", marks=("n1", "n3"), room=("n1", "n3"))
    done = execute(world, [first, making("b", wave=2)], marks=marks)
    assert statuses(done) == [Status.EVICTED] * 2
    assert [nodes for _, nodes in marks.stood] == [("n1", "n3"), ("n1",), ()]


def test_where_one_cannot_leave_those_that_are_left_stay():
    world = World(waiting={WAITS: ("default/big", 1e9)}, answers={"b": [AnswerKind.MISCONFIGURED]})
    other = replace(move("other"), marks=("n5",))
    marks = RecordedMarks(world)
    done = execute(world, [making("b"), making("c"), other], marks=marks)
    assert statuses(done) == [Status.MISCONFIGURED, Status.DROPPED, Status.EVICTED]
    assert done.outcomes[1].message == ("it would be in vain: default/b did not leave")
    assert world.evictions == ["b", "other"]
    assert [nodes for _, nodes in marks.stood] == [("n1",), ("n5",), ()]


def test_room_for_no_pod_yet_is_made_all_or_none_and_waited_for_by_none():
    world = World(answers={"b": [AnswerKind.MISCONFIGURED]})
    marks = RecordedMarks(world)

    def slot(name: str, number: int, wave: int = 1) -> Move:
        return replace(making(name, wave=wave), makes_way_for="", unit=f"slot {number}")

    moves = [slot("a", 1), slot("b", 2), slot("c", 2), slot("d", 1, wave=2), slot("e", 2, wave=2)]
    done = execute(world, moves, marks=marks)
    assert (done.stopped, world.evictions) == (None, ["a", "b", "d"])
    assert [status for status in statuses(done) if status is Status.DROPPED] == [Status.DROPPED] * 2
    assert marks.stood[-1][1] == ()


def of_gang(name: str, **more: Any) -> Move:
    return replace(making(name, **more), gang="default: PodGroup train")


def test_a_gang_leaves_at_once_while_the_room_is_marked_until_the_pod_has_its_node():
    world = World(waiting={WAITS: ("default/big", 20.0)}, holds={"uid-b": 15.0})
    marks = RecordedMarks(world)
    done = execute(world, [of_gang("a"), of_gang("b")], marks=marks)
    assert statuses(done) == [Status.EVICTED] * 2
    assert (world.rehearsals, world.evictions) == (["a", "b"], ["a", "b"])
    (begun, room), (ended, none) = marks.stood
    assert (begun, room, none) == (0.0, ("n1",), ())
    assert 20.0 <= ended < 21.0


def test_no_pod_of_a_gang_leaves_for_what_another_move_does_not_make_room_for():
    world = World(waiting={WAITS: ("default/big", 1e9)}, answers={"b": [AnswerKind.MISCONFIGURED]})
    moves = [making("b"), of_gang("c", wave=2), of_gang("d", wave=2)]
    done = execute(world, moves, marks=RecordedMarks(world))
    assert statuses(done) == [Status.MISCONFIGURED, Status.DROPPED, Status.DROPPED]
    assert world.evictions == ["b"]
    assert world.rehearsals == []


def test_a_gang_of_which_one_pod_stays_ends_the_run_and_the_room_is_given_up():
    world = World(
        waiting={WAITS: ("default/big", 1e9)}, answers={"b": [AnswerKind.BLOCKED] * 10_000}
    )
    marks = RecordedMarks(world)
    done = execute(world, [of_gang("a"), of_gang("b")], marks=marks)
    assert statuses(done) == [Status.EVICTED, Status.BLOCKED]
    assert done.stopped is not None
    assert done.stopped.startswith("default: PodGroup train: 1 of its 2 pods have left")
    assert marks.stood[-1][1] == ()


def test_one_that_is_gone_already_leaves_its_room():
    world = World(waiting={WAITS: ("default/big", 5.0)}, answers={"b": [AnswerKind.GONE]})
    done = execute(world, [making("b"), making("c")], marks=RecordedMarks(world))
    assert statuses(done) == [Status.GONE, Status.EVICTED]


def test_a_feed_knows_whether_a_pod_waits_still():
    feed = PodFeed(
        controllers={}, known=frozenset(), waiting={"uid-big": "default/big", "uid-x": "default/x"}
    )
    feed.take(EventType.MODIFIED, record("big", node="", ready=False))
    assert feed.still_waits("uid-big") == "default/big"
    feed.take(EventType.MODIFIED, record("big"))
    assert feed.still_waits("uid-big") is None
    feed.take(EventType.DELETED, record("x", node=""))
    assert feed.still_waits("uid-x") is None
    assert feed.still_waits("uid-other") is None


def test_a_list_that_lacks_the_pod_says_that_it_is_gone():
    feed = PodFeed(controllers={}, known=frozenset(), waiting={"uid-big": "default/big"})
    feed.read_all = lambda: True
    feed.list_again()
    assert feed.still_waits("uid-big") is None
