"""Moves by EvictionRequests: responders end the pods, in their own time or never."""

import math
from dataclasses import replace

import pytest

from rebalancer.kube.evict import AnswerKind
from rebalancer.plan.plan import Method, Status
from rebalancer.run.execution.landing import Replacement
from tests.unit.run.execution.world import World, execute, move, statuses

ASKED = replace(move("a"), method=Method.REQUEST)


def test_responders_are_asked_once_a_dry_run_of_the_eviction_is_let_in():
    world = World(responds_after=3.0)
    execution = execute(world, [ASKED])
    (outcome,) = execution.outcomes
    assert (outcome.status, outcome.landed, outcome.predicted) == (Status.REQUESTED, "n2", True)
    assert (execution.failed, execution.stopped) == (False, None)
    assert (world.rehearsals, world.evictions, world.announced) == (["a"], [], ["a"])
    assert world.withdrawn == []


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (AnswerKind.BLOCKED, Status.BLOCKED),
        (AnswerKind.FORBIDDEN, Status.REFUSED),
        (AnswerKind.MISCONFIGURED, Status.MISCONFIGURED),
        (AnswerKind.GONE, Status.GONE),
        # Nothing was changed: without an answer there is nothing to find out.
        (AnswerKind.LOST, Status.FAILED),
    ],
)
def test_where_an_eviction_would_be_refused_nobody_is_asked(said, status):
    world = World(rehearsed={"a": said})
    assert statuses(execute(world, [ASKED])) == [status]
    assert world.requested == {}


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        ([AnswerKind.LOST, AnswerKind.REQUESTED], Status.REQUESTED),
        ([AnswerKind.THROTTLED, AnswerKind.REQUESTED], Status.REQUESTED),
        ([AnswerKind.FORBIDDEN], Status.REFUSED),
        ([AnswerKind.FAILED], Status.FAILED),
        # It may have been made.
        ([AnswerKind.LOST] * 99, Status.LOST),
    ],
)
def test_each_answer_to_a_request_becomes_its_outcome(answers, status):
    world = World(answers={"a": answers}, responds_after=1.0)
    assert statuses(execute(world, [ASKED])) == [status]


def test_responders_that_take_longer_than_the_run_waits_are_left_to_the_next_one():
    world = World()
    second = replace(move("b", wave=2), method=Method.REQUEST)
    execution = execute(world, [ASKED, second])
    first, later = execution.outcomes
    assert (first.status, first.landed) == (Status.REQUESTED, None)
    assert first.message.startswith("its responders have not ended it yet")
    assert later.status is Status.NOT_ATTEMPTED
    assert not execution.failed
    assert list(world.requested) == ["a"]
    assert world.withdrawn == []
    # A pod that stands still is no replacement without a node: the whole time of a wave is waited.
    assert 120 <= world.clock.now() < 180


class ScaledOut(World):
    """Its controller makes a pod more at the moment when responders are asked."""

    def ask(self, planned):
        said = super().ask(planned)
        self._new.append(Replacement("more", "more", "default", "rs", "n2", True, 1.0))
        return said


@pytest.mark.parametrize(
    ("responds_after", "expected"),
    [
        (math.inf, [Status.REQUESTED, Status.NOT_ATTEMPTED]),
        (9.0, [Status.REQUESTED, Status.EVICTED]),
    ],
)
def test_a_pod_more_replaces_none_that_still_stands(responds_after, expected):
    world = ScaledOut(responds_after=responds_after)
    execution = execute(world, [ASKED, move("b", wave=2)])
    assert statuses(execution) == expected
    assert execution.outcomes[0].landed == ("n2" if expected[1] is Status.EVICTED else None)


def test_at_the_deadline_requests_go_on():
    world = World()
    execution = execute(world, [ASKED], deadline=30.0)
    assert statuses(execution) == [Status.REQUESTED]
    assert not execution.failed
    assert world.withdrawn == []


def test_a_signal_withdraws_what_is_open_and_leaves_alone_what_has_ended():
    world = World(responds_after=20.0)
    early = replace(move("b"), method=Method.REQUEST)
    world.requested["b"] = -15.0
    execution = execute(world, [early, ASKED], signal_at=8.0)
    assert statuses(execution) == [Status.REQUESTED, Status.DROPPED]
    assert execution.outcomes[1].message == "its request was withdrawn: stopped by a signal"
    assert world.withdrawn == [("a", False)]


def test_a_signal_withdraws_what_may_have_been_asked_for():
    world = World(answers={"a": [AnswerKind.LOST] * 99}, requested={"a": 0.0})
    (outcome,) = execute(world, [ASKED], signal_at=5.0).outcomes
    assert outcome.message == "its request was withdrawn: stopped by a signal"
    assert world.withdrawn == [("a", False)]


def test_a_request_that_cannot_be_withdrawn_is_said_and_makes_the_run_fail():
    world = World(stands="the server is gone")
    execution = execute(world, [ASKED], signal_at=5.0)
    (outcome,) = execution.outcomes
    assert outcome.status is Status.REQUESTED
    assert outcome.message == "its request could not be withdrawn: the server is gone"
    assert execution.failed


def test_a_request_that_comes_to_nothing_is_withdrawn_and_a_failure():
    world = World(vain="no responder is left to end the pod")
    execution = execute(world, [ASKED])
    (outcome,) = execution.outcomes
    assert outcome.status is Status.FAILED
    assert "no responder is left" in outcome.message
    assert world.withdrawn == [("a", True)]
    assert execution.failed
    assert world.clock.now() < 30


def test_what_was_said_of_a_request_before_it_was_made_again_ends_no_move():
    class Again(World):
        def find_refusal(self, planned):
            stale = self.clock.now() < self.requested[planned.pod] + 4.0
            return "no responder was left" if stale else None

    world = Again(responds_after=20.0)
    assert statuses(execute(world, [ASKED])) == [Status.REQUESTED]
    assert world.withdrawn == []


@pytest.mark.parametrize("needs", [{"marks": ("n1",)}, {"makes_way_for": "uid-z"}])
def test_who_needs_the_room_or_the_marks_at_once_does_not_wait_for_ever(needs):
    first = replace(ASKED, **needs)
    slow, quick = World(), World(responds_after=50.0)
    execution = execute(slow, [first, move("b", wave=2)])
    assert statuses(execution) == [Status.DROPPED, Status.EVICTED]
    assert slow.withdrawn == [("a", True)]
    assert statuses(execute(quick, [first, move("b", wave=2)])) == [
        Status.REQUESTED,
        Status.EVICTED,
    ]
    assert quick.clock.now() >= 50
