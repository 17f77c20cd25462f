"""Every answer of the Eviction API, or none, becomes what the API server's audit log says happened."""

from dataclasses import dataclass

import pytest

from rebalancer.kube.evict import AnswerKind, EvictionAnswer
from rebalancer.plan.plan import Outcome, Status
from rebalancer.run.execution.attempt import Attempt, Patience
from tests.support.clocks import HandClock
from tests.unit.run.execution.world import World, move, opted_out, pod, stop_of

K = AnswerKind


def attempt(world, **stop):
    maker = Attempt(
        world,
        stop_of(world.clock, **stop),
        unready_sibling=lambda of: world.unready_sibling(of.uid),
    )
    return maker.carry_out(move("a"))


@pytest.mark.parametrize(
    ("answers", "status", "asked"),
    [
        ([], Status.EVICTED, 1),
        ([K.GONE], Status.GONE, 1),
        ([K.MISCONFIGURED], Status.MISCONFIGURED, 1),
        ([K.FORBIDDEN], Status.REFUSED, 1),
        ([K.FAILED], Status.FAILED, 1),
        ([K.BLOCKED, K.EVICTED], Status.EVICTED, 2),
        ([K.THROTTLED, K.EVICTED], Status.EVICTED, 2),
        ([K.CHANGED, K.EVICTED], Status.EVICTED, 2),
        ([K.CHANGED] * 100, Status.FAILED, 4),
        # One second is asked for each time, within the patience of 20.
        ([K.BLOCKED] * 100, Status.BLOCKED, 21),
        ([K.THROTTLED] * 100, Status.FAILED, 21),
        ([K.LOST] * 100, Status.LOST, 21),
        ([K.LOST, K.EVICTED], Status.EVICTED, 2),
        ([K.LOST, K.FORBIDDEN], Status.REFUSED, 2),
    ],
)
def test_each_answer_becomes_its_outcome(answers, status, asked):
    world = World(answers={"a": list(answers)})
    assert attempt(world).status is status
    assert len(world.evictions) == asked


@pytest.mark.parametrize(
    ("seen", "status", "says"),
    [
        (None, Status.GONE, "gone"),
        (pod("a", uid="other"), Status.CHANGED, "another pod"),
        (pod("a", deleting=True), Status.GONE, "terminating"),
        (pod("a", node="n7"), Status.CHANGED, "on n7 now"),
        (pod("a", node=""), Status.CHANGED, "on no node now"),
        (opted_out("a"), Status.DROPPED, 'protected now: annotated rebalancer/evict: "false"'),
        (pod("a", ready=False), Status.DROPPED, "protected now: the pod is not Ready"),
    ],
)
def test_a_pod_that_is_not_as_planned_is_not_evicted(seen, status, says):
    world = World(pods={"a": seen})
    outcome = attempt(world)
    assert outcome.status is status
    assert says in outcome.message
    assert world.evictions == []


def test_a_pod_stays_while_a_sibling_is_not_ready():
    world = World(unready="web-2")
    outcome = attempt(world)
    assert outcome == Outcome(
        move("a"), Status.DROPPED, "protected now: web-2 of the same controller is not Ready"
    )
    assert world.evictions == []


@dataclass
class CommitsUnheard(World):
    """The server carries each eviction out, and its answer does not say so."""

    says: AnswerKind = K.LOST
    after: int = 1
    """The request that is carried out."""
    leaves: str = "gone"
    """What is left of the pod: ``gone``, ``deleting`` or ``another`` of its name."""

    def evict(self, namespace, name, uid, *, finishing=False):
        super().evict(namespace, name, uid, finishing=finishing)
        if len(self.evictions) == self.after:
            going = pod(name, deleting=True)
            left = {"gone": None, "deleting": going, "another": pod(name, uid="new")}
            self.pods[name] = left[self.leaves]
        return EvictionAnswer(self.says, "HTTP 503: down", 60.0)


@pytest.mark.parametrize("leaves", ["gone", "deleting", "another"])
@pytest.mark.parametrize("after", [1, 2])
def test_what_a_lost_reply_did_is_read_from_the_pod(leaves, after):
    world = CommitsUnheard(answers={"a": [K.LOST] * 9}, leaves=leaves, after=after)
    assert attempt(world).status is Status.EVICTED
    assert len(world.evictions) == after
    # The answers ask to come back after a minute.
    assert world.clock.now() <= 5 * after


@pytest.mark.parametrize(("first", "second"), [(K.LOST, K.GONE), (K.LOST, K.FAILED)])
def test_a_lost_reply_is_not_forgotten_when_a_later_one_is_final(first, second):
    """The server may carry the first request out after the pod was read again."""

    class Late(World):
        def evict(self, namespace, name, uid, *, finishing=False):
            answer = super().evict(namespace, name, uid, finishing=finishing)
            if answer.kind is second:
                self.pods[name] = None
            return answer

    world = Late(answers={"a": [first, second]})
    assert attempt(world).status is Status.EVICTED


# -- the end of the run ------------------------------------------------------------------------


def test_nothing_is_sent_once_the_run_must_end():
    world = World()
    outcome = attempt(world, signal_at=0.0)
    assert (outcome.status, outcome.message) == (Status.NOT_ATTEMPTED, "stopped by a signal")
    assert (world.evictions, world.reads) == ([], [])


@pytest.mark.parametrize("end", [{"signal_at": 5.0}, {"deadline": 5.0}])
def test_nothing_is_sent_after_a_read_in_which_the_run_had_to_end(end):
    world = World(reading_takes=10.0)
    assert attempt(world, **end).status is Status.NOT_ATTEMPTED
    assert world.evictions == []


def test_a_read_that_drips_costs_ten_seconds_and_is_a_failure_that_says_so():
    world = World(reading_takes=120.0)
    assert attempt(world) == Outcome(
        move("a"), Status.FAILED, "the pod could not be read: it answers too slowly"
    )
    assert (world.clock.now(), world.evictions) == (10.0, [])


def test_a_read_that_the_end_cut_off_is_no_failure_of_its_own():
    world = World(reading_takes=10.0, unreadable=10.0)
    assert attempt(world, signal_at=5.0).status is Status.NOT_ATTEMPTED
    assert attempt(World(unreadable=0.0)).status is Status.FAILED


@pytest.mark.parametrize(
    ("answer", "status"),
    [(K.BLOCKED, Status.BLOCKED), (K.THROTTLED, Status.FAILED), (K.CHANGED, Status.FAILED)],
)
def test_an_answer_that_the_run_ends_with_is_the_outcome(answer, status):
    world = World(answers={"a": [answer] * 9})
    assert attempt(world, signal_at=0.5).status is status
    assert world.evictions == ["a"]


@pytest.mark.parametrize(
    ("leaves", "unreadable", "status"),
    [
        ("gone", 9e9, Status.EVICTED),
        ("deleting", 9e9, Status.EVICTED),
        ("alive", 9e9, Status.LOST),
        ("gone", 0.1, Status.LOST),
    ],
)
def test_a_lost_reply_before_the_end_is_read_once_more_and_never_not_attempted(
    leaves, unreadable, status
):
    world = CommitsUnheard(
        leaves=leaves if leaves != "alive" else "gone",
        after=1 if leaves != "alive" else 0,
        pods={"a": pod("a")},
        unreadable=unreadable,
    )
    if leaves == "alive":
        world.carry_out = lambda name: None  # type: ignore[method-assign]
    outcome = attempt(world, signal_at=0.25)
    assert outcome.status is status
    assert world.evictions == ["a"]
    assert world.reads == [(Patience().read, False), (Patience().last_read, True)]


# -- waiting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [0.0, 1.0, 60.0, 550.0, 3600.0])
def test_retry_after_lasts_no_longer_than_the_patience(asked):
    world = World(answers={"a": [EvictionAnswer(K.THROTTLED, "slow down", asked)] * 9999})
    assert attempt(world, deadline=9e9).status is Status.FAILED
    assert world.clock.now() == pytest.approx(20)
    assert len(world.evictions) <= 21


@pytest.mark.parametrize("asked", [60.0, None])
def test_a_signal_ends_the_wait(asked):
    world = World(answers={"a": [EvictionAnswer(K.THROTTLED, "slow down", asked)] * 99})
    attempt(world, signal_at=3.0)
    assert world.clock.now() == pytest.approx(3.0, abs=0.3)


def test_without_a_word_of_the_server_pauses_double_up_to_five_seconds():
    times = []

    class Timed(World):
        def evict(self, namespace, name, uid, *, finishing=False):
            times.append(self.clock.now())
            return EvictionAnswer(K.BLOCKED, "none allowed")

    attempt(Timed(HandClock()))
    assert times == pytest.approx([0, 0.5, 1.5, 3.5, 7.5, 12.5, 17.5, 20])
