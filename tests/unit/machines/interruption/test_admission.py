"""Which machines are attended to: places, nodes that are closed without a deadline, flapping, and nodes that are given back."""

import itertools
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.embedded.engine import Durations
from rebalancer.machines.interruption.model import DONE
from rebalancer.machines.interruption.pipeline_runs import nodes_to_withdraw
from rebalancer.plan.machines import Result, StepStatus
from rebalancer.policy.interruption import InterruptionPolicy
from rebalancer.policy.values import Limit
from rebalancer.signals.model import OVER
from rebalancer.signals.state import PipelineState, RecordedInterruption, StepState, state_in
from rebalancer.wire.objects import Condition, Node, NodeStatus, ObjectMeta
from rebalancer.wire.times import rfc3339
from tests.support.clocks import NOON, HandClock
from tests.unit.machines.interruption.scene import (
    BUSY,
    built_in,
    leave_behind,
    process,
    scripted,
    soon,
)
from tests.unit.machines.interruption.scene import spot as announced

NODES = [f"n-{one:02}" for one in range(12)]
ANY = Limit.parse("100%")


@pytest.fixture
def cluster():
    with EmbeddedCluster(timings=Durations(node_start_up=0.01)) as made:
        for name in NODES:
            made.add_node(name, "a")
        made.settle()
        yield made


class Source:
    """Notes of what it is to let go."""

    def __init__(self):
        self.ended = []

    def done(self, interruption, outcome):
        self.ended.append((interruption.id, outcome.result))

    def heartbeat(self, interruption):
        """Nothing waits for one."""


def held_up():
    """Return a step that does not end before it is released, which nodes it was run for, and what releases it."""
    released, acted = threading.Event(), []

    def act(context):
        acted.append(context.node)
        released.wait(BUSY)
        return DONE

    return scripted("one", act, part=1.0), acted, released


def state(cluster, node):
    metadata = cluster.get("Node", node)["metadata"]
    return state_in(metadata.get("annotations"), metadata["uid"])


# -- age -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("age", [OVER + 1, 3600.0, 30 * 86400.0])
def test_an_announcement_whose_time_has_long_passed_begins_nothing(cluster, age):
    step, source = scripted("one"), Source()
    with process(cluster, [step]) as here:
        here.pipeline_runs.start()
        here.pipeline_runs.take(announced("n-00", seconds=-age), source)
        assert here.pipeline_runs.counts() == {"waiting": 0, "under-way": 0}
        assert source.ended == [("e1", Result.EXPIRED)]
        assert here.pipeline_runs.results == {("test", "expired"): 1}
        # Delivered once more, it is known.
        here.pipeline_runs.take(announced("n-00", seconds=-age), source)
    assert step.step.acted == 0
    assert source.ended == [("e1", Result.EXPIRED)] * 2
    assert len(here.lines) == 1
    assert state(cluster, "n-00") is None


def test_clocks_may_differ_and_a_window_lasts_to_its_end(cluster):
    step = scripted("one")
    with process(cluster, [step]) as here:
        here.pipeline_runs.start()
        here.pipeline_runs.take(announced("n-00", seconds=-OVER + 1), Source())
        window = announced("n-01", seconds=-7200.0, until=NOON + 60, kind="instance-reboot")
        here.pipeline_runs.take(window, Source())
        soon(lambda: here.pipeline_runs.results["test", "done"] == 2)
    assert step.step.acted == 2
    assert state(cluster, "n-01").causes[0].until == NOON + 60


def test_what_was_begun_long_before_the_process_is_not_gone_on_with(cluster):
    cause = RecordedInterruption("e1", "maintenance", "test", NOON - 3600)
    done = {"one": StepState(StepStatus.DONE, NOON - 4000)}
    leave_behind(cluster, PipelineState((cause,), NOON - 4000, done), "n-00")
    one, two = scripted("one"), scripted("two")
    with process(cluster, [one, two]) as here:
        here.pipeline_runs.resume(here._every())
        here.pipeline_runs.start()
        soon(here.pipeline_runs.results.total)
        (machine,) = here.pipeline_runs.report()
    assert machine.result == "incomplete"
    assert [step.status.value for step in machine.steps.values()] == ["done", "timed-out"]
    assert (one.step.acted, two.step.acted) == (0, 0)


# -- places ----------------------------------------------------------------------------------------


def test_a_machine_with_a_deadline_waits_for_no_machine_without_one(cluster):
    step, acted, released = held_up()
    policy = InterruptionPolicy(closed_without_deadline=ANY)
    with process(cluster, [step], policy=policy) as here:
        for node in NODES[:11]:
            here.pipeline_runs.take(announced(node, seconds=None, id_=node), None)
        here.pipeline_runs.start()
        soon(lambda: len(acted) == policy.at_once)
        here.pipeline_runs.take(announced("n-11", seconds=40.0), None)
        soon(lambda: "n-11" in acted)
        assert len(acted) == policy.at_once + 1
        released.set()
        soon(lambda: here.pipeline_runs.results.total() == 12)


def test_so_many_nodes_are_closed_without_a_deadline(cluster):
    step = scripted("one")
    with process(cluster, [step], policy=InterruptionPolicy()) as here:
        for node in NODES:
            here.pipeline_runs.take(announced(node, seconds=None, id_=node), None)
        here.pipeline_runs.start()
        soon(lambda: here.pipeline_runs.results.total() == 2)
        soon(lambda: len(here.lines) >= 4 + 10)
        assert here.pipeline_runs.counts() == {"waiting": 10, "under-way": 0}
        # 20 % of 12 nodes; a process that takes over counts what stands on the nodes.
        first = {name for name in NODES if state(cluster, name) is not None}
        assert len(first) == 2
    waiting = [line for line in here.lines if "closedWithoutDeadline" in line]
    assert len(waiting) == 10
    with process(cluster, [step], policy=InterruptionPolicy()) as here:
        for node in NODES:
            here.pipeline_runs.take(announced(node, seconds=None, id_=node), None)
        here.pipeline_runs.start()
        soon(lambda: here.pipeline_runs.results.total() == 2)
        # One of them stays: another one takes its turn.
        stays = min(first)
        here.pipeline_runs.take(announced(stays, seconds=None, id_=stays, cancelled=True), None)
        soon(lambda: here.pipeline_runs.results["test", "done"] == 3)
        # A deadline is not kept waiting.
        other = next(name for name in NODES if state(cluster, name) is None)
        here.pipeline_runs.take(announced(other, seconds=60.0, id_="soon"), None)
        soon(lambda: step.step.acted == 4)


# -- pace ------------------------------------------------------------------------------------------


def flap(here, clock, times, step):
    """Let an announcement come and go each second of the hand clock; it is attended to when it comes first."""
    acted = step.acted
    for number in range(times):
        there = announced("n-00", seconds=None, id_=f"e{clock.seconds}")
        here.pipeline_runs.take(there, None)
        if not number:
            soon(lambda: step.acted == acted + 1)
        clock.seconds += 0.5
        here.pipeline_runs.take(replace(there, cancelled=True), None)
        clock.seconds += 0.5
        soon(lambda: not any(here.pipeline_runs.counts().values()))


def test_an_announcement_that_flaps_has_one_pipeline_run_a_minute(cluster):
    clock, page = HandClock(), scripted("webhook")
    with process(cluster, [page, scripted("cordon")], clock=clock) as here:
        here.pipeline_runs.start()
        flap(here, clock, 30, page.step)
        assert page.step.acted == 1
        # Only what was begun is undone, and said to be.
        assert page.step.undone == 1
        assert sum("was undone" in line for line in here.lines) == 1
        clock.seconds += 60
        flap(here, clock, 20, page.step)
        assert page.step.acted == 2
        # Who announced nothing but this is attended to: with a deadline at once.
        here.pipeline_runs.take(announced("n-00", seconds=clock.seconds + 90, id_="spot"), None)
        soon(lambda: page.step.acted == 3)


def test_a_machine_that_goes_after_all_has_all_its_steps_again(cluster):
    clock = HandClock()
    undoing, undone = threading.Event(), threading.Event()
    step = scripted("one")

    def undo(context, params):
        undoing.set()
        assert undone.wait(BUSY)

    step.step.undo = undo
    with process(cluster, [step, built_in("cordon")], clock=clock) as here:
        here.pipeline_runs.start()
        here.pipeline_runs.take(announced("n-00"), None)
        soon(lambda: cluster.get("Node", "n-00")["spec"].get("unschedulable"))
        soon(lambda: here.pipeline_runs.results.total() == 1)
        here.pipeline_runs.take(announced("n-00", cancelled=True), None)
        assert undoing.wait(BUSY)
        here.pipeline_runs.take(announced("n-00"), None)
        undone.set()
        soon(lambda: not cluster.get("Node", "n-00")["spec"].get("unschedulable"))
        clock.seconds += 60
        soon(lambda: step.step.acted == 2)
        soon(lambda: cluster.get("Node", "n-00")["spec"].get("unschedulable"))


def test_what_cannot_be_undone_is_tried_less_and_less_often(cluster):
    clock, step, tried = HandClock(), scripted("one"), []

    def undo(context, params):
        tried.append(clock.seconds)
        raise ValueError("the monitoring is down")

    step.step.undo = undo
    with process(cluster, [step], clock=clock) as here:
        here.pipeline_runs.start()
        here.pipeline_runs.take(announced("n-00"), None)
        soon(lambda: here.pipeline_runs.results.total() == 1)
        here.pipeline_runs.take(announced("n-00", cancelled=True), None)
        for number in range(8):
            soon(lambda before=number: len(tried) > before or advance(clock))
    pauses = [after - before for before, after in itertools.pairwise(tried)]
    longest = [5, 10, 20, 40, 60, 60, 60]
    assert all(pause >= wanted for pause, wanted in zip(pauses, longest, strict=True)), pauses


def advance(clock):
    clock.seconds += 1
    return False


# -- withdrawn -------------------------------------------------------------------------------------


def test_a_node_whose_machine_does_not_go_is_given_back_and_what_announced_it_stays_known(cluster):
    clock = HandClock()
    step = built_in("cordon")
    rebalance = announced("n-00", seconds=None, kind="rebalance")
    with process(cluster, [step], clock=clock) as here:
        here.pipeline_runs.start()
        here.pipeline_runs.take(rebalance, None)
        soon(lambda: here.pipeline_runs.results["test", "done"] == 1)
        clock.seconds += 3590
        other = announced("n-01", id_="m1", seconds=clock.seconds, kind="maintenance")
        here.pipeline_runs.take(other, None)
        soon(lambda: here.pipeline_runs.results["test", "done"] == 2)
        assert cluster.get("Node", "n-00")["spec"]["unschedulable"]
        clock.seconds += 20
        soon(lambda: here.pipeline_runs.results["test", "withdrawn"] == 1)
        assert not cluster.get("Node", "n-00")["spec"].get("unschedulable")
    assert any(
        "has not gone in time, or is back: what was done was undone" in line for line in here.lines
    )
    there = state(cluster, "n-00")
    assert [one.id for one in there.causes] == ["e1"]
    assert there.steps == {}
    # Maintenance is cancelled by what announced it: no time withdraws it.
    clock.seconds += 86400
    with process(cluster, [step], clock=clock) as here:
        here.pipeline_runs.start()
        here.pipeline_runs.take(rebalance, None)
        soon(lambda: here.pipeline_runs.results["test", "done"] == 1)
        assert not cluster.get("Node", "n-00")["spec"].get("unschedulable")
        assert cluster.get("Node", "n-01")["spec"]["unschedulable"]
        # A Spot interruption after it is new.
        here.pipeline_runs.take(announced("n-00", seconds=clock.seconds + 120, id_="itn"), None)
        soon(lambda: cluster.get("Node", "n-00")["spec"].get("unschedulable"))


@pytest.mark.parametrize(("after", "given_back"), [("0s", False), ("10m", True)])
def test_the_policy_says_when_a_node_is_given_back(cluster, after, given_back):
    clock = HandClock()
    policy = InterruptionPolicy(withdraw_after={"spot": after})
    assert policy.withdrawn_after("rebalance") == timedelta(hours=1).total_seconds()
    with process(cluster, [built_in("cordon")], clock=clock, policy=policy) as here:
        here.pipeline_runs.start()
        here.pipeline_runs.take(announced("n-00", seconds=120), None)
        soon(lambda: here.pipeline_runs.results["test", "done"] == 1)
        clock.seconds += 120 + 660
        if given_back:
            soon(lambda: here.pipeline_runs.results["test", "withdrawn"] == 1)
        else:
            for _ in range(5):
                clock.seconds += 86400
                here.pipeline_runs._withdraw_due()
                assert here.pipeline_runs.counts() == {"waiting": 0, "under-way": 0}
        assert bool(cluster.get("Node", "n-00")["spec"].get("unschedulable")) is not given_back


# -- back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "ready", "since", "given_back"),
    [
        (("warm-pool",), "True", 900, True),
        (("shutdown",), "True", 900, True),
        (("shutdown", "warm-pool"), "True", 900, True),
        # It has been Ready all the time: it has not been turned off yet.
        (("warm-pool",), "True", -900, False),
        # It is off.
        (("warm-pool",), "False", 900, False),
        # Something else holds, which its source cancels.
        (("scale-in",), "True", 900, False),
        (("warm-pool", "maintenance"), "True", 900, False),
    ],
)
def test_a_machine_that_was_turned_off_and_runs_again_is_back(kinds, ready, since, given_back):
    ended = NOON + 3 * 3600
    causes = tuple(RecordedInterruption(kind, kind, "test", held=True) for kind in kinds)
    steps = {"cordon": StepState(StepStatus.DONE)}
    state = PipelineState(causes, NOON, steps, ended=ended, uid="u-1")
    since_ready = Condition(type="Ready", status=ready, last_transition_time=rfc3339(ended + since))
    node = Node(ObjectMeta(name="n", uid="u-1"), status=NodeStatus(conditions=(since_ready,)))
    found = nodes_to_withdraw(InterruptionPolicy(), [node], {"u-1": state}, ended + 1000)
    assert [*found] == ([(node, state)] if given_back else [])


def test_a_held_machine_is_waited_for_from_the_end_of_its_steps_on():
    """Emptying its node may have taken longer than it is waited for."""
    ended = NOON + 5 * 3600
    causes = (RecordedInterruption("t", "warm-pool", "test", held=True),)
    steps = {"cordon": StepState(StepStatus.DONE)}
    state = PipelineState(causes, NOON, steps, ended=ended, uid="u-1")
    node = Node(ObjectMeta(name="n", uid="u-1"))
    due = [
        seconds
        for seconds in (60, 3599, 3601)
        if [*nodes_to_withdraw(InterruptionPolicy(), [node], {"u-1": state}, ended + seconds)]
    ]
    assert due == [3601]


def test_what_one_source_takes_back_does_not_keep_another_ones_machine_closed(cluster):
    """Of two announcements whose steps have ended, the one that is left says whether the machine is back."""
    pool = announced("n-00", seconds=None, kind="warm-pool", id_="pool")
    other = announced("n-00", seconds=None, kind="scale-in", id_="agent")
    causes = tuple(RecordedInterruption.of(one) for one in (pool, other))
    steps = {"cordon": StepState(StepStatus.DONE)}
    leave_behind(cluster, PipelineState(causes, NOON, steps, ended=NOON + 1), "n-00")
    with process(cluster, [built_in("cordon")]) as here:
        here.pipeline_run("n-00", pool).run()
        assert [one.id for one in state(cluster, "n-00").causes] == ["pool"]
