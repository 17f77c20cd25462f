"""Every answer of the Eviction API becomes the right outcome; waves wait; nothing is added."""

from dataclasses import dataclass, replace

import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.evict import AnswerKind
from rebalancer.plan.plan import Cause, Landing, Method, Status
from rebalancer.run.execution.executor import contradicts
from tests.unit.run.execution.world import (
    RecordedProgress,
    World,
    execute,
    executor_of,
    move,
    opted_out,
    statuses,
    stop_of,
)


def test_an_eviction_lands_where_it_was_predicted():
    done = execute(World(), [move("a")])
    (outcome,) = done.outcomes
    assert (outcome.status, outcome.landed, outcome.predicted) == (Status.EVICTED, "n2", True)
    assert not done.failed
    assert done.stopped is None


@pytest.mark.parametrize(
    ("cause", "predicted"), [(Cause.PLACE, False), (Cause.AGE, True), (Cause.STATE, True)]
)
def test_a_replacement_that_stays_has_not_moved_as_predicted_however_likely_it_was(
    cause, predicted
):
    likely = tuple(Landing(name, 0.5, {}) for name in ("n1", "n2"))
    gambles = [replace(move(name), cause=cause, landings=likely) for name in "abcdef"]
    done = execute(World(lands="n1"), gambles)
    assert {(one.landed, one.predicted) for one in done.outcomes} == {("n1", predicted)}
    # It was one of the landings: the model is not contradicted.
    assert done.stopped is None


class Rollout(World):
    """Takes every replacement away again before it is ready, and puts none in its place."""

    def wait(self, seconds):
        super().wait(seconds)
        self._new.clear()


def test_a_replacement_that_a_rollout_takes_away_is_not_waited_for():
    moves = [move("a"), move("b", wave=2)]
    asked = []

    def recheck(left):
        asked.extend(left)
        return [(m, "protected now: ownerUnsettled") for m in left]

    done = execute(Rollout(ready=False), moves, recheck=recheck)
    assert statuses(done) == [Status.EVICTED, Status.DROPPED]
    assert done.outcomes[0].landed == "n2"
    assert asked == moves[1:]
    assert not done.failed


def test_a_landing_elsewhere_is_said_to_be_one():
    done = execute(World(lands="n9"), [move("a")])
    assert (done.outcomes[0].landed, done.outcomes[0].predicted) == ("n9", False)


@pytest.mark.parametrize(
    ("answers", "status", "failed"),
    [
        ([AnswerKind.GONE], Status.GONE, False),
        ([AnswerKind.MISCONFIGURED], Status.MISCONFIGURED, True),
        ([AnswerKind.FAILED], Status.FAILED, True),
        ([AnswerKind.BLOCKED] * 100, Status.BLOCKED, False),
        ([AnswerKind.LOST] * 100, Status.LOST, True),
    ],
)
def test_an_outcome_is_a_failure_or_not(answers, status, failed):
    done = execute(World(answers={"a": list(answers)}), [move("a")])
    assert statuses(done) == [status]
    assert done.failed is failed


def test_a_refusal_ends_the_run_and_is_distinguished_when_it_is_the_first():
    world = World(answers={"a": [AnswerKind.FORBIDDEN]})
    done = execute(world, [move("a"), move("b", wave=2)])
    assert statuses(done) == [Status.REFUSED, Status.NOT_ATTEMPTED]
    assert done.refused is not None
    later = World(answers={"b": [AnswerKind.FORBIDDEN]})
    done = execute(later, [move("a"), move("b", wave=2)])
    assert statuses(done) == [Status.EVICTED, Status.REFUSED]
    assert done.refused is None
    assert done.failed


@pytest.mark.parametrize("in_order", [50, 0])
def test_after_a_refusal_nothing_is_asked_for_that_would_be_refused_the_same_way(in_order):
    world = World(answers={"b": [AnswerKind.FORBIDDEN]})
    moves = [move("a", budget="x"), move("b", budget="x"), move("c", budget="x"), move("d")]
    done = execute(world, moves, in_order=in_order)
    assert world.evictions == ["a", "b"]
    assert statuses(done) == [
        Status.EVICTED,
        Status.REFUSED,
        Status.NOT_ATTEMPTED,
        Status.NOT_ATTEMPTED,
    ]
    assert {outcome.message for outcome in done.outcomes[1:]} == {"forbidden by script"}
    assert done.failed


def test_the_next_wave_waits_for_replacements_and_drops_what_no_longer_pays():
    world = World()

    def recheck(left):
        assert world.evictions == ["a"]
        return [(m, "no longer pays" if m.pod == "b" else None) for m in left]

    done = execute(world, [move("a"), move("b", wave=2), move("c", wave=2)], recheck=recheck)
    assert statuses(done) == [Status.EVICTED, Status.DROPPED, Status.EVICTED]
    assert world.evictions == ["a", "c"]


@pytest.mark.parametrize(
    ("holds", "makes_way_for", "waited"), [(12.0, "uid-b", 12), (500.0, "uid-b", 40), (12.0, "", 0)]
)
def test_a_move_waits_until_the_pod_in_its_way_is_gone(holds, makes_way_for, waited):
    world = World(holds={"uid-a": holds})
    seen = []

    def recheck(left):
        seen.append(world.clock.now())
        return [(m, None) for m in left]

    first = replace(move("a"), makes_way_for=makes_way_for)
    execute(world, [first, move("b", wave=2)], recheck=recheck)
    assert seen == [pytest.approx(waited, abs=1.0)]


def test_a_move_is_reported_with_the_landings_that_were_expected_when_it_went():
    def recheck(left):
        moved_on = Landing("n9", 1.0, {"zone": "z9"})
        return [(replace(m, landings=(moved_on,)), None) for m in left]

    done = execute(World(lands="n9"), [move("a"), move("b", wave=2)], recheck=recheck)
    assert [outcome.predicted for outcome in done.outcomes] == [False, True]


def test_landings_that_contradict_the_model_end_the_run():
    moves = [*(move(name) for name in "abc"), move("d", wave=2)]
    done = execute(World(lands="n9"), moves)
    assert statuses(done) == [Status.EVICTED] * 3 + [Status.NOT_ATTEMPTED]
    assert "3 of 3 replacements landed where none was predicted" in str(done.stopped)
    assert done.failed


@pytest.mark.parametrize(
    ("elsewhere", "landed", "too_many"),
    [(2, 2, False), (3, 3, True), (3, 9, True), (3, 10, False), (5, 20, True), (9, 100, False)],
)
def test_a_few_landings_elsewhere_are_chance(elsewhere, landed, too_many):
    assert contradicts(elsewhere, landed) is too_many


def test_a_cluster_that_cannot_be_read_between_waves_ends_the_run():
    def unreadable(left):
        raise ClusterReadError("no answer")

    world = World()
    done = execute(world, [move("a"), move("b", wave=2)], recheck=unreadable)
    assert statuses(done) == [Status.EVICTED, Status.NOT_ATTEMPTED]
    assert done.failed
    assert "no answer" in str(done.stopped)


def test_replacements_without_a_node_end_the_run_as_a_failure():
    done = execute(World(lands=""), [move("a"), move("b", wave=2)])
    assert statuses(done)[1] is Status.NOT_ATTEMPTED
    assert "without a node" in str(done.stopped)
    assert done.failed


def test_replacements_that_are_slow_to_be_ready_hold_the_rest_back_without_failure():
    done = execute(World(ready=False), [move("a"), move("b", wave=2)])
    assert statuses(done) == [Status.EVICTED, Status.NOT_ATTEMPTED]
    assert "not ready yet" in str(done.stopped)
    assert not done.failed


def test_a_deadline_that_leaves_moves_undone_is_a_failure():
    done = execute(World(ready=False), [move("a"), move("b", wave=2)], deadline=60)
    assert statuses(done) == [Status.EVICTED, Status.NOT_ATTEMPTED]
    assert done.failed
    alone = execute(World(ready=False), [move("a")], deadline=60)
    assert not alone.failed


def test_a_signal_ends_the_run_after_the_call_in_flight():
    done = execute(World(ready=False), [move("a"), move("b", wave=2)], signal_at=3.0)
    assert statuses(done) == [Status.EVICTED, Status.NOT_ATTEMPTED]
    assert (done.failed, done.stopped) == (True, "stopped by a signal")


def test_observed_moves_are_never_carried_out():
    world = World()
    done = execute(world, [move("a"), move("b", wave=2, observed=True)])
    assert statuses(done) == [Status.EVICTED, Status.OBSERVED]
    assert world.evictions == ["a"]


def test_every_eviction_is_announced():
    world = World()
    execute(world, [move("a"), move("b")])
    assert world.announced == ["a", "b"]


@pytest.mark.parametrize("in_order", [50, 0])
def test_waves_are_evicted_in_the_order_of_the_plan(in_order):
    world = World()
    done = execute(world, [move(name) for name in "cab"], in_order=in_order)
    assert world.evictions == ["c", "a", "b"]
    assert statuses(done) == [Status.EVICTED] * 3


def test_a_replacement_that_comes_late_does_not_hold_the_wave_up_for_long():
    world = World(lands="")
    execute(world, [move("a"), move("b")])
    assert world.evictions == ["a", "b"]


# -- what is cut is said to be ---------------------------------------------------------------------


@dataclass
class Slow(World):
    """Every eviction takes ten seconds."""

    def evict(self, namespace, name, uid, *, finishing=False):
        self.clock.seconds += 10.0
        return super().evict(namespace, name, uid, finishing=finishing)


@pytest.mark.parametrize("in_order", [50, 0])
@pytest.mark.parametrize(
    ("end", "why"),
    [
        ({"deadline": 15.0}, "the run's deadline has passed"),
        ({"signal_at": 15.0}, "stopped by a signal"),
    ],
)
def test_an_end_inside_a_wave_cuts_the_plan(in_order, end, why):
    world = Slow()
    done = execute(world, [move(name) for name in "abc"], in_order=in_order, **end)
    assert statuses(done) == [Status.EVICTED, Status.EVICTED, Status.NOT_ATTEMPTED]
    assert (done.failed, done.stopped) == (True, why)
    assert world.evictions == ["a", "b"]


def test_a_deadline_that_comes_with_the_last_eviction_cuts_nothing():
    done = execute(Slow(ready=False), [move("a")], deadline=5.0)
    assert statuses(done) == [Status.EVICTED]
    assert not done.failed
    assert "what is in flight counts in the next run" in str(done.stopped)


def test_a_lost_lease_ends_the_run_before_the_next_eviction():
    world = World()
    stop = stop_of(world.clock)
    stop.add(lambda: "the Lease was lost" if world.evictions else None)
    done = execute(world, [move("a"), move("b")], stop=stop)
    assert statuses(done) == [Status.EVICTED, Status.NOT_ATTEMPTED]
    assert (done.failed, done.stopped) == (True, "the Lease was lost")


def test_nothing_is_checked_again_after_the_end():
    def recheck(left):
        raise AssertionError("too late")

    world = World(holds={"uid-a": 500.0})
    first = replace(move("a"), makes_way_for="uid-b")
    done = execute(world, [first, move("b", wave=2)], recheck=recheck, signal_at=5.0)
    assert statuses(done) == [Status.EVICTED, Status.NOT_ATTEMPTED]
    assert world.clock.now() == pytest.approx(5.0, abs=0.3)


@pytest.mark.parametrize("waits_for", ["node", "readiness"])
def test_a_signal_is_heard_while_replacements_are_awaited(waits_for):
    world = World(lands="" if waits_for == "node" else "n2", ready=False)
    done = execute(world, [move("a")], signal_at=7.0)
    assert world.clock.now() == pytest.approx(7.0, abs=0.3)
    assert (done.failed, done.stopped) == (True, "stopped by a signal")


def test_a_first_refusal_after_a_lost_reply_is_no_clean_refusal():
    answers = {"a": [AnswerKind.LOST] * 99, "b": [AnswerKind.FORBIDDEN]}
    done = execute(World(answers=answers), [move("a"), move("b")])
    assert statuses(done) == [Status.LOST, Status.REFUSED]
    assert (done.refused, done.failed) == (None, True)


# -- outcomes are kept as they happen --------------------------------------------------------------


class Breaks(RecordedProgress):
    def evicted(self, planned):
        raise RuntimeError("no space left on device")


@pytest.mark.parametrize("in_order", [50, 0])
def test_what_was_done_is_kept_when_something_breaks_right_after(in_order):
    world = World()
    executor = executor_of(world, stop_of(world.clock), in_order=in_order, progress=Breaks())
    with pytest.raises(RuntimeError):
        executor.run([move("a"), move("b")], lambda left: [(m, None) for m in left])
    kept = {outcome.move.pod: outcome.status for outcome in executor.outcomes}
    assert set(world.evictions) == set(kept)
    assert set(kept.values()) == {Status.EVICTED}


def test_progress_says_what_happens_in_its_order():
    world, progress = World(answers={"b": [AnswerKind.GONE]}), RecordedProgress()
    executor = executor_of(world, stop_of(world.clock), progress=progress)
    executor.run([move("a"), move("b")], lambda left: [(m, None) for m in left])
    assert progress.lines == [
        ("wave", 1, 1, 2),
        ("evicted", "a"),
        ("gone", "b"),
        ("landed", "a", "n2"),
    ]


# -- a wave in a cluster that changes --------------------------------------------------------------


def test_an_opt_out_in_mid_wave_is_heeded():
    class OptsOut(World):
        def evict(self, namespace, name, uid, *, finishing=False):
            self.pods["b"] = opted_out("b")
            return super().evict(namespace, name, uid, finishing=finishing)

    world = OptsOut()
    done = execute(world, [move(name) for name in "abc"])
    assert statuses(done) == [Status.EVICTED, Status.DROPPED, Status.EVICTED]
    assert not done.failed
    assert world.evictions == ["a", "c"]


def test_an_owner_that_falls_ill_in_mid_wave_loses_no_more_pods():
    class FallsIll(World):
        def evict(self, namespace, name, uid, *, finishing=False):
            self.unready = "web-7"
            return super().evict(namespace, name, uid, finishing=finishing)

    world = FallsIll()
    done = execute(world, [move(name) for name in "abc"])
    assert statuses(done) == [Status.EVICTED, Status.DROPPED, Status.DROPPED]
    assert world.evictions == ["a"]


# -- a watch that went silent ----------------------------------------------------------------------


def test_a_silent_watch_gives_no_false_verdict():
    world = World(silent=True)
    done = execute(world, [move("a"), move("b", wave=2)])
    assert statuses(done) == [Status.EVICTED] * 2
    assert [outcome.landed for outcome in done.outcomes] == ["n2", "n2"]
    assert (done.failed, done.stopped) == (False, None)


@pytest.mark.parametrize(("lands", "says"), [("", "without a node"), ("n2", "not ready yet")])
def test_pods_are_listed_once_before_the_verdict(lands, says):
    world = World(lands=lands, ready=False)
    done = execute(world, [move("a"), move("b", wave=2)])
    assert says in str(done.stopped)
    assert world.lists == 1


# -- restarts --------------------------------------------------------------------------------------


def test_a_restart_is_at_its_end_once_the_old_pod_is_gone():
    world = World(holds={"uid-a": 7.0})
    done = execute(world, [move("a", method=Method.RESTART), move("b", wave=2)])
    assert statuses(done) == [Status.RESTARTED, Status.EVICTED]
    assert (world.restarts, world.evictions) == (["a"], ["b"])
    assert done.outcomes[0].landed == "n2"
    assert world.clock.now() >= 7.0


def test_a_rollout_that_does_not_end_is_said_to_be_open_and_ends_the_run_in_good_order():
    world = World(holds={"uid-a": 9e9})
    done = execute(world, [move("a", method=Method.RESTART), move("b", wave=2)])
    assert statuses(done) == [Status.RESTARTED, Status.NOT_ATTEMPTED]
    assert "the rollout is not at its end after 120 s" in done.outcomes[0].message
    assert not done.failed


@pytest.mark.parametrize("deadline", [30.0, 500.0])
def test_a_restart_whose_new_pod_never_becomes_ready_has_failed(deadline):
    world = World(ready=False, holds={"uid-a": 9e9})
    stop = stop_of(world.clock, deadline=deadline)
    done = execute(world, [move("a", method=Method.RESTART)], stop=stop)
    assert statuses(done) == [Status.RESTARTED]
    assert "the rollout is not at its end" in done.outcomes[0].message
    assert done.failed


@pytest.mark.parametrize(
    ("answers", "status", "asked"),
    [
        ([AnswerKind.RESTARTED], Status.RESTARTED, 1),
        ([AnswerKind.DROPPED], Status.DROPPED, 1),
        # Others write the Deployment: their edit stands, and nothing is tried again.
        ([AnswerKind.CHANGED], Status.CHANGED, 1),
        ([AnswerKind.FORBIDDEN], Status.REFUSED, 1),
        ([AnswerKind.THROTTLED, AnswerKind.RESTARTED], Status.RESTARTED, 2),
        ([AnswerKind.LOST, AnswerKind.RESTARTED], Status.RESTARTED, 2),
        ([AnswerKind.LOST, AnswerKind.FAILED], Status.LOST, 2),
        ([AnswerKind.LOST] * 99, Status.LOST, None),
    ],
)
def test_each_answer_to_a_restart_becomes_its_outcome(answers, status, asked):
    world = World(answers={"a": list(answers)})
    done = execute(world, [move("a", method=Method.RESTART)])
    assert statuses(done) == [status]
    assert asked in (None, len(world.restarts))
    assert world.evictions == []
