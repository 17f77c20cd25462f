"""The pods of a gang: all evictions are rehearsed before one is sent, and what is begun is finished."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from rebalancer.kube.evict import AnswerKind, EvictionAnswer
from rebalancer.plan.plan import Method, Move, Status
from tests.unit.run.execution.world import World, execute, move, opted_out, pod, statuses, stop_of

BLOCKED, EVICTED, DROPPED = Status.BLOCKED, Status.EVICTED, Status.DROPPED
ABC = ["a", "b", "c"]


def member(name: str, **more: object) -> Move:
    unit = "default: PodGroup train"
    return replace(move(name, **more), unit=unit, gang=unit)  # type: ignore[arg-type]


def gang(**more: object) -> list[Move]:
    return [member(name, **more) for name in ABC]


def test_all_are_rehearsed_before_the_first_is_evicted_and_none_waits_for_a_replacement():
    world = World(ready=False)
    done = execute(world, gang(), deadline=1.0)
    assert (world.rehearsals, world.evictions) == (ABC, ABC)
    assert statuses(done) == [EVICTED] * 3


@pytest.mark.parametrize(
    ("answer", "status", "failed"),
    [
        (AnswerKind.BLOCKED, Status.BLOCKED, False),
        (AnswerKind.GONE, Status.GONE, False),
        (AnswerKind.MISCONFIGURED, Status.MISCONFIGURED, True),
        (AnswerKind.FORBIDDEN, Status.REFUSED, True),
        (AnswerKind.FAILED, Status.FAILED, True),
    ],
)
def test_none_is_evicted_if_one_would_be_refused(answer, status, failed):
    world = World(rehearsed={"b": answer})
    done = execute(world, gang())
    assert world.evictions == []
    assert statuses(done) == [DROPPED, status, DROPPED]
    assert done.outcomes[0].message.startswith("its gang stays as a whole, since default/b stays: ")
    assert done.failed is failed


@pytest.mark.parametrize(
    "changed", [None, pod("b", node="n9"), opted_out("b"), pod("b", ready=False)]
)
def test_none_is_evicted_if_one_is_not_as_planned(changed):
    world = World(pods={"b": changed})
    assert EVICTED not in statuses(execute(world, gang()))
    assert world.evictions == []


def test_a_budget_is_asked_for_all_of_them_together():
    """Each alone would be let go: a dry run spends nothing."""
    world = World(allowed={"default/train": 2})
    done = execute(world, gang(budget="default/train"))
    assert world.evictions == []
    assert statuses(done) == [BLOCKED, DROPPED, DROPPED]
    assert (
        done.outcomes[0].message
        == "default/train allows 2 disruptions now; 3 pods would go at once"
    )
    assert not done.failed


def test_the_first_that_is_refused_after_all_keeps_the_others():
    world = World(answers={"a": [AnswerKind.BLOCKED]})
    assert statuses(execute(world, gang())) == [BLOCKED, DROPPED, DROPPED]
    assert world.evictions == ["a"]


def test_what_is_begun_is_finished_once_a_budget_allows_it():
    world = World(answers={"b": [AnswerKind.BLOCKED] * 9})
    done = execute(world, gang())
    assert statuses(done) == [EVICTED] * 3
    assert world.evictions[:4] == ["a", "b", "c", "b"]
    assert (done.stopped, done.failed) == (None, False)


def test_what_cannot_be_finished_is_named_and_ends_the_run_as_a_failure():
    world = World(answers={"b": [AnswerKind.BLOCKED] * 10_000})
    done = execute(world, [*gang(), replace(move("later"), wave=2)])
    assert statuses(done) == [EVICTED, BLOCKED, EVICTED, Status.NOT_ATTEMPTED]
    assert done.stopped is not None
    assert done.stopped.startswith(
        "default: PodGroup train: 2 of its 3 pods have left, and default/b stayed: "
    )
    assert done.failed
    assert 120.0 <= world.clock.seconds < 250.0


def test_pods_that_their_controller_has_taken_away_meanwhile_have_left():
    """A LeaderWorkerSet may restart all of a group once one pod is gone."""
    world = World(answers={"b": [AnswerKind.GONE], "c": [AnswerKind.GONE]})
    done = execute(world, gang())
    assert statuses(done) == [EVICTED, Status.GONE, Status.GONE]
    assert [one.landed for one in done.outcomes] == ["n2"] * 3
    assert (done.stopped, done.failed) == (None, False)


def test_a_gang_that_does_not_come_back_whole_ends_the_run():
    """What its controller has taken away with the first pod belongs to it as much as what was evicted."""
    world = World(answers={"b": [AnswerKind.GONE]}, never=["b"])
    done = execute(world, gang())
    assert statuses(done) == [EVICTED, Status.GONE, EVICTED]
    assert (done.stopped, done.failed) == ("1 replacement still without a node after 30 s", True)


@pytest.mark.parametrize("leader", ABC)
@pytest.mark.parametrize(("name", "recreates"), [("serve", True), ("serve", None), ("", False)])
def test_a_leader_leaves_after_the_others_of_its_gang(leader, name, recreates):
    """Also where the LeaderWorkerSet cannot be read, and where there is none."""
    world = World(recreates=recreates)
    done = execute(world, gang(), leaders={f"uid-{leader}": name})
    assert world.evictions == [*(one for one in ABC if one != leader), leader]
    assert {one.move.pod for one in done.outcomes} == set(ABC)


@pytest.mark.parametrize(("follow_at", "asked"), [(20.0, ["b"]), (math.inf, ["b", "a", "c"])])
def test_where_only_its_end_starts_the_group_again_the_leader_leaves_first(follow_at, asked):
    """The others are asked to leave only if their controller has not ended them for all the time."""
    world = World(recreates=False, follow_at=follow_at)
    done = execute(world, gang(), leaders={"uid-b": "serve"})
    assert world.evictions == asked
    assert [one.landed for one in done.outcomes] == ["n2"] * 3
    assert not done.failed


@pytest.mark.parametrize(("pause", "stopped"), [(80.0, None), (0.0, True)])
def test_what_a_job_makes_again_late_is_awaited_for_as_long(pause, stopped):
    """The replacements come after 80 seconds, of which the run knows, or not."""
    pauses = {f"uid-{name}": pause for name in ABC} | {"another's": 80.0}
    world = World(pauses=pauses)
    done = execute(world, gang())
    assert (done.stopped is not None, done.failed) == (bool(stopped), bool(stopped))


def test_a_signal_before_the_first_eviction_leaves_all():
    world = World(reading_takes=1.0)
    done = execute(world, gang(), signal_at=2.5)
    assert world.evictions == []
    assert set(statuses(done)) == {Status.NOT_ATTEMPTED}


@pytest.mark.parametrize(("signal_at", "deadline"), [(4.5, 600.0), (600.0, 6.0)])
def test_a_signal_or_the_deadline_between_two_evictions_leaves_time_for_the_others(
    signal_at, deadline
):
    """Three reads for the rehearsal, and three more: the signal comes before the second eviction, the deadline before the third."""
    world = World(reading_takes=1.0)
    later = replace(move("later"), wave=2)
    done = execute(world, [*gang(), later], signal_at=signal_at, deadline=deadline)
    assert world.evictions == ABC
    assert statuses(done) == [EVICTED] * 3 + [Status.NOT_ATTEMPTED]
    assert done.stopped in {"stopped by a signal", "the run's deadline has passed"}


def test_what_is_not_finished_in_the_time_after_a_signal_is_named():
    world = World(reading_takes=2.5)
    done = execute(world, gang(), signal_at=10.5)
    assert world.evictions == ["a", "b"]
    assert statuses(done) == [EVICTED, EVICTED, Status.NOT_ATTEMPTED]
    assert done.stopped == (
        "default: PodGroup train: 2 of its 3 pods have left, and default/c stayed: stopped by a signal"
    )
    assert done.failed


def test_nothing_is_sent_for_a_gang_once_the_lease_is_lost():
    world = World(reading_takes=1.0)
    stop = stop_of(world.clock, signal_at=4.2)
    stop.add(lambda: "the Lease was lost" if world.clock.seconds >= 4.6 else None, final=True)
    done = execute(world, gang(), stop=stop)
    assert world.evictions == ["a"]
    assert statuses(done) == [EVICTED, Status.NOT_ATTEMPTED, Status.NOT_ATTEMPTED]
    assert done.stopped is not None
    assert done.stopped.endswith("and default/b stayed: the Lease was lost")


def test_a_pod_that_opts_out_while_it_is_tried_again_stays():
    class OptingOut(World):
        def evict(
            self, namespace: str, name: str, uid: str, *, finishing: bool = False
        ) -> EvictionAnswer:
            answer = super().evict(namespace, name, uid, finishing=finishing)
            if self.evictions.count("b") == 3:
                self.pods["b"] = opted_out("b")
            return answer

    world = OptingOut(answers={"b": [AnswerKind.BLOCKED] * 9})
    done = execute(world, gang())
    assert world.evictions == ["a", "b", "c", "b", "b"]
    assert statuses(done) == [EVICTED, DROPPED, EVICTED]
    assert done.failed


@pytest.mark.parametrize(("deadline", "evicted"), [(5.9, []), (6.5, ABC)])
def test_no_gang_is_begun_if_the_deadline_may_come_before_the_last_of_it(deadline, evicted):
    """Three reads of a second each before the first eviction, and three more with the evictions."""
    world = World(reading_takes=1.0)
    done = execute(world, gang(), deadline=deadline)
    assert world.evictions == evicted
    assert not done.failed
    if not evicted:
        assert set(statuses(done)) == {DROPPED}
        assert "the rehearsal took 3.0 s, and 2.9 s are left" in done.outcomes[0].message


def test_a_dry_run_without_a_reply_is_no_eviction_that_may_have_happened():
    """No budget counts it, and the run does not say that a pod has left."""
    world = World(rehearsed={"b": AnswerKind.LOST})
    done = execute(world, gang())
    assert world.evictions == []
    assert statuses(done) == [DROPPED, Status.FAILED, DROPPED]
    assert (done.stopped, done.failed) == (None, True)


def test_a_rehearsal_restarts_no_rollout():
    world = World(rehearsed={"b": AnswerKind.BLOCKED})
    execute(world, [member("a", method=Method.RESTART), member("b")])
    assert (world.restarts, world.evictions) == ([], [])


@pytest.mark.parametrize("first", ABC)
def test_an_eviction_without_a_reply_is_sent_again_if_the_pod_is_still_there(first):
    world = World(answers={first: [AnswerKind.LOST]})
    done = execute(world, gang())
    assert world.evictions == [*ABC, first]
    assert statuses(done) == [EVICTED] * 3
    assert (done.stopped, done.failed) == (None, False)


def test_an_eviction_that_never_has_a_reply_leaves_the_gang_in_doubt_and_ends_the_run():
    world = World(answers={"b": [AnswerKind.LOST] * 10_000})
    done = execute(world, gang())
    assert statuses(done) == [EVICTED, Status.LOST, EVICTED]
    assert done.stopped is not None
    assert "2 of its 3 pods have left, and default/b may have stayed: " in done.stopped


def test_a_lost_eviction_counts_although_the_run_ends_before_it_is_sent_again():
    world = World(answers={"a": [AnswerKind.LOST]}, reading_takes=1.0)
    stop = stop_of(world.clock)
    stop.add(lambda: "the Lease was lost" if world.clock.seconds >= 7.5 else None, final=True)
    done = execute(world, gang(), stop=stop)
    assert statuses(done) == [Status.LOST, EVICTED, EVICTED]
    assert done.failed


def test_a_pod_that_its_controller_has_made_anew_under_its_name_has_left():
    """The pods of a LeaderWorkerSet keep their names."""

    class Restarting(World):
        def evict(
            self, namespace: str, name: str, uid: str, *, finishing: bool = False
        ) -> EvictionAnswer:
            self.pods["b"] = pod("b", uid="new")
            return super().evict(namespace, name, uid, finishing=finishing)

    done = execute(Restarting(), gang())
    assert statuses(done) == [EVICTED, Status.CHANGED, EVICTED]
    assert (done.stopped, done.failed) == (None, False)


def test_after_a_gang_that_is_half_gone_no_other_of_its_wave_begins():
    world = World(answers={"b": [AnswerKind.BLOCKED] * 10_000})
    two = "default: PodGroup two"
    others = [replace(member(name), unit=two, gang=two) for name in "xy"]
    done = execute(world, [*gang(), *others])
    assert statuses(done)[3:] == [Status.NOT_ATTEMPTED] * 2
    assert set(world.rehearsals) == set(ABC)


def exchange(*, marks: tuple[str, ...] = ()) -> list[Move]:
    """a leaves first, then b, and each takes the place of the other."""
    unit = "exchange of default/a and default/b"
    names = ("a", "b"), ("b", "a")
    return [
        replace(move(one), unit=unit, gang=unit, makes_way_for=f"uid-{other}", marks=marks)
        for one, other in names
    ]


def test_the_second_pod_of_an_exchange_leaves_once_the_first_one_is_gone():
    world, asked_at = World(holds={"uid-a": 20.0, "uid-b": 50.0}), {}
    world_evict = world.evict

    def evict(namespace: str, name: str, uid: str, **more: bool) -> EvictionAnswer:
        asked_at[name] = world.clock.now()
        return world_evict(namespace, name, uid, **more)

    world.evict = evict  # type: ignore[method-assign]
    done = execute(world, exchange())
    assert (world.rehearsals, statuses(done)) == (["a", "b"], [EVICTED, EVICTED])
    assert asked_at["a"] < 1.0
    assert 20.0 <= asked_at["b"] < 21.0
    assert (done.stopped, done.failed) == (None, False)


def test_an_exchange_is_finished_though_the_first_pod_does_not_end_in_the_time_of_a_wave():
    world = World(holds={"uid-a": 1e6})
    execute(world, exchange())
    assert world.evictions == ["a", "b"]


def test_neither_pod_of_an_exchange_leaves_if_one_would_be_refused():
    world = World(rehearsed={"b": AnswerKind.BLOCKED})
    done = execute(world, exchange())
    assert world.evictions == []
    assert statuses(done) == [DROPPED, BLOCKED]
    assert done.outcomes[0].message.startswith("it changes no place, since default/b stays: ")


def test_the_run_ends_where_only_the_first_pod_of_an_exchange_has_left():
    refused = EvictionAnswer(AnswerKind.FAILED, "denied")
    done = execute(World(answers={"b": [refused] * 3}), exchange())
    assert statuses(done) == [EVICTED, Status.FAILED]
    assert done.failed
    assert done.stopped == (
        "exchange of default/a and default/b: 1 of its 2 pods have left, and default/b stayed: denied"
    )
