"""Every answer of the Eviction API becomes the right outcome; waves wait; nothing is added."""

from dataclasses import dataclass, field, replace

import pytest

from rebalancer.errors import ClusterReadError
from rebalancer.evictor.executor import Executor, Pace, contradicts
from rebalancer.evictor.landing import Replacement
from rebalancer.kube.evict import Answer, AnswerKind
from rebalancer.kube.podview import PodView
from rebalancer.plan.outcome import Status
from rebalancer.plan.plan import Cost, Landing, Move


def move(name, *, wave=1, budget=None, observed=False):
    return Move(
        namespace="default",
        pod=name,
        uid=f"uid-{name}",
        owner="Deployment/default/web",
        node="n1",
        landings=(Landing("n2", 1.0, {}),),
        strategy="duplicates",
        reason="two on one node",
        gain=Cost(soft=1.0),
        cost=1.0,
        wave=wave,
        budgets=(budget,) if budget else (),
        observed=observed,
    )


class Time:
    """A clock that sleeping moves."""

    def __init__(self):
        self.seconds = 0.0

    def now(self):
        return self.seconds

    def sleep(self, seconds):
        self.seconds += seconds


@dataclass
class World:
    """A cluster of scripted answers; an evicted pod is replaced at once, on n2 unless told otherwise."""

    clock: Time
    answers: dict[str, list[AnswerKind]] = field(default_factory=dict)
    pods: dict[str, PodView | None] = field(default_factory=dict)
    lands: str = "n2"
    ready: bool = True
    holds: dict[str, float] = field(default_factory=dict)
    evictions: list[str] = field(default_factory=list)
    announced: list[str] = field(default_factory=list)
    _new: list[Replacement] = field(default_factory=list)

    def read_pod(self, namespace, name):
        if name in self.pods:
            return self.pods[name]
        return PodView(f"uid-{name}", "n1", deleting=False)

    def evict(self, namespace, name, uid):
        self.evictions.append(name)
        script = self.answers.get(name, [])
        kind = script.pop(0) if script else AnswerKind.EVICTED
        if kind is AnswerKind.EVICTED:
            self.pods[name] = None
            self._new.append(
                Replacement(
                    f"new-{name}", f"new-{name}", namespace, "rs", self.lands, self.ready, 1.0
                )
            )
        return Answer(kind, f"{kind.value} by script", 1.0)

    def announce(self, planned):
        self.announced.append(planned.pod)

    def begin_wave(self):
        self._new.clear()

    def controller_of(self, uid):
        return "rs"

    def newcomers(self):
        return list(self._new)

    def ending(self):
        return {uid for uid, until in self.holds.items() if self.clock.now() < until}

    def wait(self, seconds):
        self.clock.sleep(seconds)


class Silent:
    def __getattr__(self, name):
        return lambda *_, **__: None


def execute(world, moves, *, recheck=None, stopped=None, deadline=600.0, in_order=50):
    executor = Executor(
        world,
        world,
        world.clock,
        Pace(deadline=deadline, parallel=1, in_order=in_order),
        Silent(),
        stopped=stopped or (lambda: None),
        domains=lambda node: {"zone": "z" + node[-1]},
    )
    return executor.run(moves, recheck or (lambda left: [(m, None) for m in left]))


def statuses(execution):
    return [outcome.status for outcome in execution.outcomes]


def test_an_eviction_lands_where_it_was_predicted():
    done = execute(World(Time()), [move("a")])
    (outcome,) = done.outcomes
    assert (outcome.status, outcome.landed, outcome.predicted) == (Status.EVICTED, "n2", True)
    assert not done.failed
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

    done = execute(Rollout(Time(), ready=False), moves, recheck=recheck)
    assert statuses(done) == [Status.EVICTED, Status.DROPPED]
    assert done.outcomes[0].landed == "n2"
    assert asked == moves[1:]
    assert not done.failed


def test_a_landing_elsewhere_is_said_to_be_one():
    done = execute(World(Time(), lands="n9"), [move("a")])
    assert (done.outcomes[0].landed, done.outcomes[0].predicted) == ("n9", False)


@pytest.mark.parametrize(
    ("answers", "status", "failed"),
    [
        ([AnswerKind.GONE], Status.GONE, False),
        ([AnswerKind.MISCONFIGURED], Status.MISCONFIGURED, True),
        ([AnswerKind.FAILED], Status.FAILED, True),
        ([AnswerKind.BLOCKED] * 100, Status.BLOCKED, False),
        ([AnswerKind.THROTTLED] * 100, Status.FAILED, True),
        ([AnswerKind.BLOCKED, AnswerKind.EVICTED], Status.EVICTED, False),
        ([AnswerKind.THROTTLED, AnswerKind.EVICTED], Status.EVICTED, False),
        ([AnswerKind.CHANGED, AnswerKind.EVICTED], Status.EVICTED, False),
        ([AnswerKind.CHANGED] * 100, Status.FAILED, True),
        ([AnswerKind.LOST, AnswerKind.EVICTED], Status.EVICTED, False),
        ([AnswerKind.LOST] * 100, Status.LOST, True),
    ],
)
def test_each_answer_becomes_its_outcome(answers, status, failed):
    done = execute(World(Time(), answers={"a": list(answers)}), [move("a")])
    assert statuses(done) == [status]
    assert done.failed is failed


class GoneAfterTheFirst(World):
    """The eviction is heard although its reply is lost."""

    def read_pod(self, namespace, name):
        return None if self.evictions else super().read_pod(namespace, name)


def test_a_lost_reply_is_read_from_the_pod():
    world = GoneAfterTheFirst(Time(), answers={"a": [AnswerKind.LOST]})
    done = execute(world, [move("a")], deadline=60)
    assert statuses(done) == [Status.EVICTED]
    assert world.evictions == ["a"]


def test_a_pod_with_another_uid_is_never_evicted():
    other = PodView("other", "n1", deleting=False)
    world = World(Time(), pods={"a": other})
    assert statuses(execute(world, [move("a")])) == [Status.CHANGED]
    assert world.evictions == []


def test_a_refusal_ends_the_run_and_is_told_apart_when_it_is_the_first():
    world = World(Time(), answers={"a": [AnswerKind.FORBIDDEN]})
    done = execute(world, [move("a"), move("b", wave=2)])
    assert statuses(done) == [Status.REFUSED, Status.NOT_ATTEMPTED]
    assert done.refused is not None
    later = World(Time(), answers={"b": [AnswerKind.FORBIDDEN]})
    done = execute(later, [move("a"), move("b", wave=2)])
    assert statuses(done) == [Status.EVICTED, Status.REFUSED]
    assert done.refused is None
    assert done.failed


def test_the_next_wave_waits_for_replacements_and_drops_what_no_longer_pays():
    world = World(Time())

    def recheck(left):
        assert world.evictions == ["a"]
        return [(m, "no longer pays" if m.pod == "b" else None) for m in left]

    done = execute(world, [move("a"), move("b", wave=2), move("c", wave=2)], recheck=recheck)
    assert statuses(done) == [Status.EVICTED, Status.DROPPED, Status.EVICTED]
    assert world.evictions == ["a", "c"]


@pytest.mark.parametrize(
    ("holds", "makes_way_for", "waited"), [(12.0, "uid-b", 12), (500.0, "uid-b", 40), (12.0, "", 0)]
)
def test_a_move_waits_until_who_made_way_for_it_is_gone(holds, makes_way_for, waited):
    world = World(Time(), holds={"uid-a": holds})
    seen = []

    def recheck(left):
        seen.append(world.clock.now())
        return [(m, None) for m in left]

    first = replace(move("a"), makes_way_for=makes_way_for)
    execute(world, [first, move("b", wave=2)], recheck=recheck)
    assert seen == [pytest.approx(waited, abs=1.0)]


def test_a_move_is_told_with_the_landings_that_were_expected_when_it_went():
    def recheck(left):
        moved_on = Landing("n9", 1.0, {"zone": "z9"})
        return [(replace(m, landings=(moved_on,)), None) for m in left]

    done = execute(World(Time(), lands="n9"), [move("a"), move("b", wave=2)], recheck=recheck)
    assert [outcome.predicted for outcome in done.outcomes] == [False, True]


def test_landings_that_contradict_the_model_end_the_run():
    moves = [*(move(name) for name in "abc"), move("d", wave=2)]
    done = execute(World(Time(), lands="n9"), moves)
    assert statuses(done) == [Status.EVICTED] * 3 + [Status.NOT_ATTEMPTED]
    assert "3 of 3 replacements landed where none was predicted" in done.stopped
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

    world = World(Time())
    done = execute(world, [move("a"), move("b", wave=2)], recheck=unreadable)
    assert statuses(done) == [Status.EVICTED, Status.NOT_ATTEMPTED]
    assert done.failed
    assert "no answer" in done.stopped


def test_replacements_without_a_node_end_the_run_as_a_failure():
    done = execute(World(Time(), lands=""), [move("a"), move("b", wave=2)])
    assert statuses(done)[1] is Status.NOT_ATTEMPTED
    assert "without a node" in done.stopped
    assert done.failed


def test_replacements_that_are_slow_to_be_ready_hold_the_rest_back_without_failure():
    done = execute(World(Time(), ready=False), [move("a"), move("b", wave=2)])
    assert statuses(done) == [Status.EVICTED, Status.NOT_ATTEMPTED]
    assert "not ready yet" in done.stopped
    assert not done.failed


def test_a_deadline_that_leaves_moves_undone_is_a_failure():
    done = execute(World(Time(), ready=False), [move("a"), move("b", wave=2)], deadline=60)
    assert statuses(done) == [Status.EVICTED, Status.NOT_ATTEMPTED]
    assert done.failed
    alone = execute(World(Time(), ready=False), [move("a")], deadline=60)
    assert not alone.failed


def test_a_signal_ends_the_run_after_the_call_in_flight():
    world = World(Time())
    done = execute(
        world,
        [move("a"), move("b", wave=2)],
        stopped=lambda: "stopped" if world.evictions else None,
    )
    assert statuses(done) == [Status.EVICTED, Status.NOT_ATTEMPTED]
    assert done.failed


def test_observed_moves_are_never_carried_out():
    world = World(Time())
    done = execute(world, [move("a"), move("b", wave=2, observed=True)])
    assert statuses(done) == [Status.EVICTED, Status.OBSERVED]
    assert world.evictions == ["a"]


def test_every_eviction_is_announced():
    world = World(Time())
    execute(world, [move("a"), move("b")])
    assert world.announced == ["a", "b"]


@pytest.mark.parametrize("in_order", [50, 0])
def test_waves_are_evicted_in_the_order_of_the_plan(in_order):
    world = World(Time())
    done = execute(world, [move(name) for name in "cab"], in_order=in_order)
    assert world.evictions == ["c", "a", "b"]
    assert statuses(done) == [Status.EVICTED] * 3


def test_a_replacement_that_comes_late_does_not_hold_the_wave_up_for_long():
    world = World(Time(), lands="")
    execute(world, [move("a"), move("b")])
    assert world.evictions == ["a", "b"]
