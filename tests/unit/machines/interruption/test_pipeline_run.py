"""One machine that goes: each step in its part of the time, what stands on the node, and what is undone."""

import json
import threading
import uuid
from dataclasses import replace

import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.embedded.apiserver.http import Fault
from rebalancer.kube.nodes import NodeChange, change_node
from rebalancer.machines.interruption.model import DONE, fail_step
from rebalancer.plan.machines import Result, StepStatus
from rebalancer.policy.interruption import StepParams
from rebalancer.signals.model import SignalError
from rebalancer.signals.state import STATE, PipelineState, RecordedInterruption, StepState
from rebalancer.snapshot.leaving import LEAVE
from tests.support.clocks import NOON, HandClock
from tests.unit.machines.interruption.scene import (
    BUSY,
    KEPT,
    built_in,
    leave_behind,
    node_with,
    process,
    scripted,
    soon,
    spot,
)


def state(cluster, node="n-a"):
    annotations = cluster.get("Node", node)["metadata"].get("annotations") or {}
    return json.loads(annotations.get(STATE, "{}"))


def statuses(outcome):
    return {name: step.status.value for name, step in outcome.steps.items()}


def kept_state(cluster, node="n-a"):
    """Return what is kept of a node, as it stands in the ConfigMap."""
    data = cluster.get("ConfigMap", KEPT[1]).get("data") or {}
    there = data.get(cluster.get("Node", node)["metadata"]["uid"], "{}")
    return json.loads(there).get("state", {})


class Hanging:
    """Hangs until the test ends, and says that it does."""

    def __init__(self):
        self.hangs, self.released = threading.Event(), threading.Event()

    def __call__(self, context):
        self.hangs.set()
        self.released.wait(BUSY)
        return fail_step("too late")


def in_thread(pipeline_run):
    ended = []
    thread = threading.Thread(target=lambda: ended.append(pipeline_run.run()), daemon=True)
    thread.start()

    def outcome(clock=None):
        """Wait until it has ended; ``clock``: goes on meanwhile."""
        if clock is not None:
            soon(lambda: advance(clock) and ended)
        thread.join(BUSY)
        assert ended
        return ended[0]

    return outcome


def test_each_step_runs_once_in_order_and_stands_on_the_node(cluster):
    steps = [scripted("one"), scripted("two")]
    with process(cluster, steps) as one:
        outcome = one.pipeline_run("n-a", spot()).run()
        assert outcome.result is Result.DONE
        assert statuses(outcome) == {"one": "done", "two": "done"}
        assert [step.step.acted for step in steps] == [1, 1]
    there = state(cluster)
    assert there["begun"] == there["ended"] == NOON
    assert there["causes"] == [
        {"id": "e1", "kind": "spot", "source": "test", "deadline": NOON + 120}
    ]
    assert [step["status"] for step in there["steps"].values()] == ["done", "done"]
    assert [node for node, _ in one.events] == ["n-a", "n-a"]


def test_before_a_step_runs_it_stands_on_the_node_that_it_does(cluster):
    seen = {}

    def look(context):
        seen.update(state(cluster)["steps"])
        return fail_step("no")

    with process(cluster, [scripted("one"), scripted("two", look)]) as one:
        outcome = one.pipeline_run("n-a", spot()).run()
    assert (seen["one"]["status"], seen["two"]["status"]) == ("done", "running")
    assert outcome.result is Result.INCOMPLETE
    assert state(cluster)["steps"]["two"]["why"] == "no"


def test_a_step_that_hangs_takes_its_own_time_and_no_other_steps(cluster):
    clock, hanging = HandClock(), Hanging()
    last = scripted("last")
    steps = [scripted("first"), scripted("hangs", hanging), last]
    with process(cluster, steps, clock=clock) as one:
        outcome = in_thread(one.pipeline_run("n-a", spot(seconds=120)))
        assert hanging.hangs.wait(BUSY)
        clock.seconds += 10  # its part of the time
        ended = outcome()
        hanging.released.set()
    assert statuses(ended) == {"first": "done", "hangs": "timed-out", "last": "done"}
    assert "left alone" in ended.steps["hangs"].why
    assert last.step.contexts[0].unix() == NOON + 10
    assert clock.seconds < 120


@pytest.mark.parametrize(
    ("error", "status", "why"),
    [
        (ClusterReadError("no route"), "failed", "no route"),
        (SignalError("throttled"), "failed", "throttled"),
        (KeyError("x"), "failed", "KeyError: an error of the step"),
    ],
)
def test_what_a_step_raises_is_its_outcome_and_no_other_steps(cluster, error, status, why):
    def act(_):
        raise error

    with process(cluster, [scripted("one", act), scripted("two")]) as one:
        outcome = one.pipeline_run("n-a", spot()).run()
    assert (outcome.steps["one"].status.value, outcome.steps["one"].why) == (status, why)
    assert outcome.steps["two"].status is StepStatus.DONE


@pytest.mark.parametrize("seconds", [-120.0, 0.0, None])
def test_a_deadline_that_has_passed_or_is_not_known_keeps_no_step_from_its_turn(cluster, seconds):
    steps = [scripted("one"), scripted("two")]
    with process(cluster, steps) as one:
        outcome = one.pipeline_run("n-a", spot(seconds=seconds)).run()
    assert statuses(outcome) == {"one": "done", "two": "done"}


def test_a_machine_that_is_no_node_has_the_steps_that_need_none(cluster):
    class OfTheCloud(StepParams):
        needs_node = False

    one, two = scripted("one"), scripted("two")
    two = replace(two, params=OfTheCloud())
    with process(cluster, [one, two]) as here:
        outcome = here.pipeline_run("", spot(node="", instance="i-1")).run()
    assert statuses(outcome) == {"one": "skipped", "two": "done"}
    assert two.step.contexts[0].instance == "i-1"


def test_a_node_that_goes_meanwhile_ends_nothing_but_what_needs_it(cluster):
    def gone(_):
        cluster.remove_node("n-a")
        return fail_step("the node is gone")

    with process(cluster, [scripted("one", gone), scripted("two")]) as one:
        outcome = one.pipeline_run("n-a", spot()).run()
    assert statuses(outcome) == {"one": "failed", "two": "skipped"}


def test_a_deadline_that_comes_nearer_shortens_the_step_that_runs(cluster):
    clock, hanging = HandClock(), Hanging()
    with process(cluster, [scripted("hangs", hanging, part=0.5)], clock=clock) as one:
        pipeline_run = one.pipeline_run("n-a", spot(seconds=120))
        outcome = in_thread(pipeline_run)
        assert hanging.hangs.wait(BUSY)
        clock.seconds = 25
        pipeline_run.take(spot(seconds=40))
        assert outcome().steps["hangs"].status is StepStatus.TIMED_OUT
        hanging.released.set()


def test_a_machine_that_stays_has_its_steps_undone_the_last_one_first(cluster):
    hanging = Hanging()
    steps = [scripted("one"), scripted("hangs", hanging), scripted("three")]
    with process(cluster, steps) as one:
        pipeline_run = one.pipeline_run("n-a", spot(), spot(id_="e2", seconds=600))
        outcome = in_thread(pipeline_run)
        assert hanging.hangs.wait(BUSY)
        pipeline_run.take(spot(cancelled=True))
        assert pipeline_run.urgent.id == "e2"  # the other still holds
        pipeline_run.take(spot(id_="e2", cancelled=True))
        assert outcome().result is Result.CANCELLED
        hanging.released.set()
    assert [step.step.undone for step in steps] == [1, 1, 0]
    assert not state(cluster)
    assert not kept_state(cluster)


@pytest.mark.parametrize("theirs", [None, "now"])
def test_what_people_ask_of_a_node_that_leaves_already_stays_when_its_machine_does(cluster, theirs):
    def asked():
        return cluster.get("Node", "n-a")["metadata"].get("annotations", {}).get(LEAVE)

    with process(cluster, [built_in("cordon"), built_in("leave")]) as one:
        one.pipeline_run("n-a", spot()).run()
        assert asked() == "now (interruption)"
        if theirs is not None:
            change_node(one.client, "n-a", lambda _: NodeChange(annotations={LEAVE: theirs}))
        one.pipeline_run("n-a", spot(cancelled=True)).run()
    assert asked() == theirs
    closed = cluster.get("Node", "n-a")["spec"].get("unschedulable", False)
    assert closed is (theirs is not None)


def test_what_could_not_be_undone_is_tried_until_it_could(cluster):
    clock = HandClock()
    one = scripted("one")
    undos = []

    def undo(context, params):
        undos.append(context.left)
        if len(undos) < 3:
            raise SignalError("not now")

    one.step.undo = undo
    leave_behind(
        cluster, PipelineState((), NOON, {"one": StepState(StepStatus.DONE, left="was: a")})
    )
    with process(cluster, [one], clock=clock) as here:
        pipeline_run = here.pipeline_run("n-a")
        ended = in_thread(pipeline_run)
        soon(lambda: len(undos) >= 3 or (len(here.lines) >= len(undos) > 0 and not advance(clock)))
        assert ended().result is Result.CANCELLED
    assert set(undos) == {"was: a"}


def advance(clock):
    clock.seconds += 1
    return True


def test_what_has_ended_is_not_done_again_unless_there_is_something_new(cluster):
    cause = RecordedInterruption("e1", "spot", "test")
    done = {"one": StepState(StepStatus.FAILED, NOON, "no", "kept")}
    leave_behind(cluster, PipelineState((cause,), NOON, done, NOON))
    one = scripted("one")
    with process(cluster, [one]) as here:
        outcome = here.pipeline_run("n-a", spot()).run()
        assert outcome.result is Result.INCOMPLETE
        assert one.step.acted == 0
        assert here.pipeline_run("n-a", spot(), spot(id_="e2")).run().result is Result.DONE
    assert one.step.contexts[0].left == "kept"


def keys(cluster, *interruptions, seconds=0.0):
    """Run two steps, of which the first is cut off by a kill once, by two processes; return the keys that each was given."""
    clock, given = HandClock(), []
    clock.seconds = seconds

    def acts(context):
        given.append(context.idempotency_key)
        if len(given) == 1:
            here.kill()
        return fail_step("no")

    for _ in range(2):
        with process(cluster, [scripted("one", acts), scripted("two", acts)], clock=clock) as here:
            here.pipeline_run("n-a", *interruptions).run()
        clock.seconds += 5.0
    return given


def test_a_step_has_one_key_in_a_pipeline_run_whichever_process_runs_it(cluster):
    first, again, second = keys(cluster, spot())
    assert first == again
    assert second != first
    assert uuid.UUID(first).version == 5
    # The same announcement once more, after it was withdrawn: its receivers are to act again.
    with process(cluster, [scripted("one"), scripted("two")]) as here:
        assert here.pipeline_run("n-a").run().result is Result.CANCELLED
    later = keys(cluster, spot(), seconds=60.0)
    assert not {first, second} & {*later}


def test_the_api_server_may_be_down_for_all_of_it(cluster):
    clock = HandClock()

    def passes(context):
        return fail_step("unreachable")

    with process(cluster, [scripted("one", passes), scripted("two")], clock=clock) as one:
        cluster.faults.add(Fault(path="/api/v1/nodes/n-a", status=503, times=10**6))
        outcome = in_thread(one.pipeline_run("n-a", spot()))(clock)
        cluster.faults.clear()
    assert statuses(outcome) == {"one": "failed", "two": "done"}
    assert any("could not be written" in line for line in one.lines)


def cut_off(cluster, step):
    """Have a process run ``step`` and a second one, and be killed in the second; return the keys that these were given."""
    given = []

    def acts(context):
        given.append(context.idempotency_key)
        here.kill()
        return fail_step("no")

    with process(cluster, [step, scripted("two", acts)]) as here:
        assert here.pipeline_run("n-a", spot()).run() is None
    return given


NODE_PATH = "/api/v1/nodes/n-a"
KEPT_PATH = f"/api/v1/namespaces/{KEPT[0]}/configmaps/{KEPT[1]}"


def resumed(cluster, steps, clock, path, faulty):
    """Have a process go on while ``faulty`` requests of a path fail; return what came of the steps."""
    with process(cluster, steps, clock=clock) as here:
        here.pipeline_runs.resume(here._every())
        cluster.faults.add(Fault(path=path, status=503, times=faulty))
        here.pipeline_runs.start()
        soon(lambda: advance(clock) and here.pipeline_runs.results.total())
        cluster.faults.clear()
        (machine,) = here.pipeline_runs.report()
    return machine


@pytest.mark.parametrize("path", [NODE_PATH, KEPT_PATH])
@pytest.mark.parametrize("faulty", [10**6, 20])
def test_what_was_kept_counts_after_a_restart_though_it_cannot_be_read_again(cluster, path, faulty):
    """No step is run again that has ended, and one that had not has the key that it had."""
    one, again = scripted("one"), scripted("two")
    keys_before = cut_off(cluster, one)
    clock = HandClock()
    clock.seconds = 30.0
    machine = resumed(cluster, [one, again], clock, path, faulty)
    assert (machine.result, one.step.acted, again.step.acted) == ("done", 1, 1)
    assert [context.idempotency_key for context in again.step.contexts] == keys_before


def test_what_is_read_late_is_of_this_run_or_of_one_that_has_ended(cluster):
    """What was kept can be read only once the first step is to run."""
    clock = HandClock()
    ended = {"one": StepState(StepStatus.DONE, NOON, left="kept")}
    before, same = (
        RecordedInterruption("e0", "spot", "test"),
        RecordedInterruption("e1", "spot", "test"),
    )
    for there, acted in (
        (PipelineState((same,), NOON - 5, ended), 0),
        (PipelineState((before,), NOON - 5, ended, NOON), 1),
    ):
        leave_behind(cluster, there)
        one, two = scripted("one"), scripted("two")
        with process(cluster, [one, two], clock=clock) as here:
            said: list[str] = []

            def say(line, said=said):
                # In the thread of the run: what it does next is answered, however slow this test is.
                cluster.faults.clear()
                said.append(line)

            here.pipeline = replace(here.pipeline, say=say)
            cluster.faults.add(Fault("GET", KEPT_PATH, status=503, times=10**6))
            outcome = in_thread(here.pipeline_run("n-a", spot(seconds=10**6)))
            soon(lambda said=said: said or not advance(clock))
            assert statuses(outcome()) == {"one": "done", "two": "done"}
        assert (one.step.acted, two.step.acted) == (acted, 1)
        assert state(cluster)["steps"]["one"]["left"] == "kept"


POINTS = range(20)
"""More than the writes that there are."""


@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_is_killed_at_any_write_is_followed_by_one_that_goes_on(cluster, point):
    """The process dies just before the write number ``point``, of what it keeps or of the node."""
    acted = []

    def step(name):
        def act(context):
            if not context.left:
                context.keep(f"kept by {name}")
            acted.append(name)
            return fail_step("no") if name == "two" else scripted("").step.act(context, None)

        return scripted(name, act)

    writes = 0

    steps = [step(name) for name in ("one", "two", "three")]
    with process(cluster, steps) as first:
        original = first.pipeline.client.beside

        def beside(stop):
            client = original(stop)

            def counted(write):
                def counting(*args, **more):
                    nonlocal writes
                    if first.killed.is_set() or writes == point:
                        first.kill()
                        raise ClusterReadError("killed")
                    writes += 1
                    return write(*args, **more)

                return counting

            client.patch, client.put = counted(client.patch), counted(client.put)
            return client

        first.client.beside = beside
        assert first.pipeline_run("n-a", spot()).run() is None or writes <= point
    between = kept_state(cluster)
    before = list(acted)
    with process(cluster, steps) as second:
        outcome = second.pipeline_run("n-a", spot()).run()
    assert statuses(outcome) == {"one": "done", "two": "failed", "three": "done"}
    if between:
        assert state(cluster)["begun"] == between["begun"]
    again = acted[len(before) :]
    finished = [n for n, s in between.get("steps", {}).items() if s["status"] != "running"]
    assert not set(again) & set(finished)
    assert all(acted.count(name) <= 2 for name in acted)
    kept = {name: step["left"] for name, step in state(cluster)["steps"].items()}
    assert kept == {name: f"kept by {name}" for name in ("one", "two", "three")}


def test_what_stands_on_the_node_stays_small(cluster):
    steps = [
        scripted("fails", lambda _: fail_step("x" * 10**6)),
        scripted("keeps", lambda context: context.keep("y" * 10**5)),
    ]
    with process(cluster, steps) as here:
        outcome = here.pipeline_run("n-a", spot(reason="z" * 10**6)).run()
    assert len(cluster.get("Node", "n-a")["metadata"]["annotations"][STATE]) < 2000
    assert "8192 characters" in outcome.steps["keeps"].why


def test_a_state_that_is_longer_than_ours_is_replaced(cluster):
    huge = PipelineState(
        (), NOON, {str(i): StepState(StepStatus.DONE, why="w" * 200) for i in range(500)}
    )
    cluster.apply(node_with(cluster, huge))
    with process(cluster, [scripted("one")]) as here:
        assert here.pipeline_run("n-a", spot()).run().result is Result.DONE
    assert list(state(cluster)["steps"]) == ["one"]


def said(cluster):
    """Return type -> reason, of the conditions that ours set on the node."""
    every = cluster.get("Node", "n-a")["status"]["conditions"]
    ours = [one for one in every if str(one.get("reason")).startswith("Rebalancer")]
    return {one["type"]: one["reason"] for one in ours if one["status"] == "True"}


def test_the_node_says_how_far_its_steps_are_and_nothing_once_the_machine_stays(cluster):
    seen = []

    def look(_):
        seen.append(said(cluster))
        return DONE

    steps = [scripted("before", look), built_in("cordon"), scripted("leave", look)]
    reason = "RebalancerInterruption"
    with process(cluster, steps, conditions=True) as here:
        assert here.pipeline_run("n-a", spot()).run().result is Result.DONE
        assert seen == [
            {"MaintenancePlanned": reason},
            {"MaintenancePlanned": reason, "DrainInProgress": reason},
        ]
        assert said(cluster) == {"MaintenancePlanned": reason, "Drained": reason}
        here.clock.seconds += 121
        assert here.pipeline_run("n-a", spot()).run().result is Result.DONE
        assert said(cluster) == {"MaintenanceInProgress": reason, "Drained": reason}
        assert here.pipeline_run("n-a", spot(cancelled=True)).run().result is Result.CANCELLED
        assert said(cluster) == {}
        assert here.lines[-1].endswith("The machine stays: what was done was undone")


def test_without_being_asked_it_says_nothing(cluster):
    with process(cluster, [built_in("cordon")]) as here:
        assert here.pipeline_run("n-a", spot()).run().result is Result.DONE
    assert said(cluster) == {}
