"""Several machines at once: how many, which first, and one whose course fails; and a source that does."""

import threading
import time
from dataclasses import replace

import pytest

from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Stop
from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.embedded.engine import Durations
from rebalancer.machines.interruption.model import DONE
from rebalancer.machines.interruption.pipeline_run import PipelineRun
from rebalancer.machines.interruption.pipeline_runs import PipelineRuns
from rebalancer.plan.machines import Result
from rebalancer.policy.interruption import InterruptionPolicy
from rebalancer.serve import interruptions as listening
from rebalancer.serve.interruptions import Listening
from rebalancer.signals.model import HEARTBEAT, SignalError
from rebalancer.signals.state import STATE, PipelineState, RecordedInterruption, encode_state
from tests.support.clocks import NOON, HandClock
from tests.unit.machines.interruption.scene import BUSY, built_in, process, scripted, soon, spot


@pytest.fixture
def cluster():
    with EmbeddedCluster(timings=Durations(node_start_up=0.01)) as made:
        for name in ("n-a", "n-b", "n-c"):
            made.add_node(name, "a")
        made.settle()
        yield made


def test_so_many_at_once_and_those_that_go_first_before_the_others(cluster):
    released, acted = threading.Event(), []

    def act(context):
        acted.append(context.node)
        released.wait(BUSY)
        return DONE

    policy = InterruptionPolicy(at_once=1)
    with process(cluster, [scripted("one", act)], policy=policy) as here:
        for node, seconds in (("n-a", 600), ("n-b", 60), ("n-c", 300)):
            here.pipeline_runs.take(spot(node, seconds=seconds, id_=node), None)
        here.pipeline_runs.start()
        soon(lambda: acted)
        assert here.pipeline_runs.counts() == {"waiting": 2, "under-way": 1}
        assert acted == ["n-b"]
        released.set()
        soon(
            lambda: (
                len(here.pipeline_runs.results) and sum(here.pipeline_runs.results.values()) == 3
            )
        )
    assert acted == ["n-b", "n-c", "n-a"]


def test_an_error_in_one_course_costs_no_place(cluster, monkeypatch):
    original, calls = PipelineRun.run, []

    def run(pipeline_run):
        calls.append(pipeline_run.node)
        if len(calls) == 1:
            raise RuntimeError("odd")
        return original(pipeline_run)

    monkeypatch.setattr(PipelineRun, "run", run)
    step = scripted("one")
    with process(cluster, [step], policy=InterruptionPolicy(at_once=1)) as here:
        here.pipeline_runs.take(spot(), None)
        here.pipeline_runs.start()
        soon(lambda: any("RuntimeError: odd" in line for line in here.lines))

        def ended():
            here.clock.seconds += 0.1
            return bool(here.pipeline_runs.results)

        soon(ended)
    assert step.step.acted == 1


class Waits(Stop):
    """Notes for how long it was waited, and comes after so many waits."""

    def __init__(self, times):
        super().__init__(SystemClock())
        self.seconds, self._times = [], times

    def reason(self):
        return "enough" if len(self.seconds) >= self._times else None

    def wait(self, seconds):
        self.seconds.append(seconds)
        return self.reason()


class Failing:
    """A source that fails, but for its third answer."""

    def __init__(self):
        self.asked = 0
        self.closed = threading.Event()

    def receive(self, stop):
        self.asked += 1
        if self.asked == 3:
            return []
        raise SignalError("throttled")

    def heartbeat(self, interruption):
        """Nothing waits for one."""

    def done(self, interruption, outcome):
        """Nothing holds what announced it."""

    def close(self):
        self.closed.set()


def test_a_source_that_fails_is_asked_after_pauses_that_grow(cluster):
    stop, source = Waits(10), Failing()
    lines: list[str] = []
    with process(cluster, []) as here:
        one = Listening("queue", source, here.pipeline_runs, SystemClock(), stop, lines.append)
        one.start()
        assert source.closed.wait(BUSY)
    assert stop.seconds == [1, 2, 1, 2, 4, 8, 16, 32, 60, 60]
    assert lines == ["signal source queue: throttled; it is tried again"] * 2
    assert one.failures == 10


class Deaf(Failing):
    """A source that announces three machines, and cannot send the heartbeats of the first two."""

    def __init__(self, stop, clock):
        super().__init__()
        self.heard, self._stop, self._clock = [], stop, clock

    def receive(self, stop):
        self.asked += 1
        if self.asked == 1:
            return [spot(f"n-{one}", id_=one) for one in "abc"]
        # All three are known by now: only then it is time for heartbeats.
        self._clock.seconds += HEARTBEAT
        self._stop.wait(0.01)
        return []

    def heartbeat(self, interruption):
        if interruption.id == "a":
            raise SignalError("hook a: access denied")
        if interruption.id == "b":
            raise ValueError("b")
        self.heard.append(interruption.id)
        self._stop.set()


def test_no_machine_waits_for_the_heartbeat_of_another(cluster):
    ended = threading.Event()
    lines: list[str] = []
    clock = HandClock()
    source = Deaf(ended, clock)
    stop = Stop(clock, signalled=ended)
    # Nothing begins the pipeline runs: all three wait for heartbeats.
    with process(cluster, []) as here:
        one = Listening("queue", source, here.pipeline_runs, clock, stop, lines.append)
        one.start()
        assert source.closed.wait(BUSY)
    assert source.heard == ["c"]
    assert one.failures == 1
    assert lines == ["signal source queue: hook a: access denied; ValueError: b; it is tried again"]


class Slow(Failing):
    """A source whose second answer comes once a heartbeat was heard, or takes the pause after a failure to come."""

    def __init__(self, stop, *, fails):
        super().__init__()
        self.heard, self._stop, self._fails = threading.Event(), stop, fails

    def receive(self, stop):
        self.asked += 1
        if self.asked == 1:
            return [spot()]
        if self._fails:
            raise SignalError("throttled")
        self.heard.wait(20.0)
        return []

    def heartbeat(self, interruption):
        self.heard.set()
        self._stop.set()


@pytest.mark.parametrize("fails", [False, True])
def test_a_heartbeat_waits_for_no_long_poll_and_for_no_pause(cluster, monkeypatch, fails):
    """The shortest time-out of a lifecycle hook is 30 s: a long poll takes 20, and pauses up to 60."""
    monkeypatch.setattr(listening, "HEARTBEAT", 0.1)
    monkeypatch.setattr(listening, "_FIRST_PAUSE", 20.0)
    ended = threading.Event()
    source = Slow(ended, fails=fails)
    stop = Stop(SystemClock(), signalled=ended)
    began = SystemClock().now()
    with process(cluster, []) as here:
        one = Listening("queue", source, here.pipeline_runs, SystemClock(), stop, print)
        one.start()
        assert source.closed.wait(BUSY)
    assert source.heard.is_set()
    assert SystemClock().now() - began < 20


def test_what_is_withdrawn_while_no_process_runs_is_reported_with_its_kind_and_source(cluster):
    withdrawn = spot(cancelled=True, reason="withdrawn")
    with process(cluster, [scripted("one")]) as here:
        here.pipeline_runs.take(withdrawn, None)
        (waits,) = here.pipeline_runs.report()
        here.pipeline_runs.start()
        soon(here.pipeline_runs.results.total)
        (ended,) = here.pipeline_runs.report()
    assert [(one.kind, one.source, one.result) for one in (waits, ended)] == [
        ("spot", "test", "waiting"),
        ("spot", "test", "cancelled"),
    ]


# -- which node, which machine -------------------------------------------------------------------------


def uid_of(cluster, node):
    return cluster.get("Node", node)["metadata"]["uid"]


def come_again(cluster, node, provider_id=""):
    """Let another Node come under this name."""
    cluster.remove_node(node)
    cluster.add_node(node, "a")
    cluster.apply(with_machine(node, provider_id))
    cluster.settle()


def with_machine(node, provider_id):
    spec = {"providerID": provider_id} if provider_id else {}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "spec": spec}


class Letting(Failing):
    """A source that is told the end of each interruption."""

    def __init__(self):
        super().__init__()
        self.ended = []

    def done(self, interruption, outcome):
        self.ended.append((interruption.id, interruption.node, outcome.result))


def test_what_was_announced_of_a_node_does_not_hold_for_another_one_of_its_name(cluster):
    """Maintenance in two weeks; people replace the machine the same day, and the new one has its name."""
    step, source = scripted("one"), Letting()
    with process(cluster, [step]) as here:
        here.pipeline_runs.start()
        far = spot(seconds=14 * 86400.0, uid=uid_of(cluster, "n-a"), kind="maintenance")
        here.pipeline_runs.take(far, source)
        assert here.pipeline_runs.counts() == {"waiting": 1, "under-way": 0}
        come_again(cluster, "n-a")
        soon(lambda: source.ended)
        # Delivered once more, it is not about the new one either.
        here.pipeline_runs.take(far, source)
        here.clock.seconds += 14 * 86400.0
        here.pipeline_runs.take(spot(uid=far.uid, id_="e2", seconds=15 * 86400.0), source)
        soon(lambda: len(source.ended) == 3)
        assert here.pipeline_runs.counts() == {"waiting": 0, "under-way": 0}
    assert source.ended == [(one, "n-a", Result.GONE) for one in ("e1", "e1", "e2")]
    assert step.step.acted == 0


def test_another_node_that_comes_under_the_name_during_the_steps_stays_as_it_is(cluster):
    def act(context):
        if context.node and not came:
            came.append(context.node)
            come_again(cluster, "n-a")
        return DONE

    came = list[str]()
    steps = [scripted("one", act), built_in("cordon"), built_in("exclude"), built_in("leave")]
    with process(cluster, steps) as here:
        here.pipeline_runs.start()
        here.pipeline_runs.take(spot(uid=uid_of(cluster, "n-a")), None)
        soon(here.pipeline_runs.results.total)
        (machine,) = here.pipeline_runs.report()
    assert [one.status.value for one in machine.steps.values()] == ["done"] + ["skipped"] * 3
    there = cluster.get("Node", "n-a")
    assert not there["spec"].get("unschedulable")
    assert not any(
        key.startswith("rebalancer/") for key in there["metadata"].get("annotations", {})
    )


def test_a_machine_that_joins_again_as_another_node_is_still_announced(cluster):
    step = scripted("one")
    cluster.apply(with_machine("n-a", "aws:///a/i-a"))
    with process(cluster, [step]) as here:
        here.pipeline_runs.start()
        far = spot(
            seconds=3600.0 * 9, uid=uid_of(cluster, "n-a"), instance="i-a", kind="maintenance"
        )
        here.pipeline_runs.take(far, None)
        come_again(cluster, "n-a", "aws:///a/i-a")
        soon(lambda: step.step.acted or not advance(here.clock, 600.0))
    assert step.step.contexts[0].interruption.uid == uid_of(cluster, "n-a")


def advance(clock, seconds):
    clock.seconds += seconds
    time.sleep(0.05)
    return True


@pytest.mark.parametrize(
    ("sources", "fits", "kept", "acted"),
    [("test", 1, 1, 1), ("other", 1, 1, 0), ("test", 0, 1, 0), ("test", 1, 0, 0)],
)
def test_only_a_record_of_a_source_in_force_of_this_node_and_of_our_own_is_gone_on_with(
    cluster, sources, fits, kept, acted
):
    """A node's annotations may be written by its own kubelet: what was not kept beside them is nobody's announcement."""
    cause = RecordedInterruption("e1", "spot", "test", NOON + 60)
    uid = uid_of(cluster, "n-a") if fits else "another"
    text = encode_state(PipelineState((cause,), NOON, {}, uid=uid))
    metadata = {"name": "n-a", "annotations": {STATE: text}}
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    step = scripted("one")
    with process(cluster, [step]) as here:
        if kept:
            here.pipeline.kept.keep_state(
                here.client, uid, PipelineState((cause,), NOON, {}, uid=uid)
            )
        context = replace(here.pipeline, sources=frozenset({sources}))
        runs = PipelineRuns(context, here.nodes)
        runs.resume(here._every())
        runs.start()
        assert sum(runs.counts().values()) == acted
        if acted:
            soon(runs.results.total)
        runs_said = [line for line in here.lines if "nothing is done about it" in line]
        assert len(runs_said) == (fits and not acted)
        here.kill()
        runs.join(5.0)
    assert step.step.acted == acted


def test_a_machine_that_two_nodes_name_is_not_touched_at_its_provider(cluster):
    """A kubelet that may register its node chooses the providerID: it named the machine of another one."""
    step = scripted("one")
    for node in ("n-a", "n-b"):
        cluster.apply(with_machine(node, "aws:///a/i-b"))
    with process(cluster, [step]) as here:
        here.pipeline_runs.start()
        here.pipeline_runs.take(spot(uid=uid_of(cluster, "n-a"), provider_id="aws:///a/i-b"), None)
        here.pipeline_runs.take(spot("n-c", id_="e2", uid=uid_of(cluster, "n-c")), None)
        soon(lambda: here.pipeline_runs.results.total() == 2)
        assert here.nodes.node_of("", "", "i-b") is None
        assert here.nodes.node_of("", "aws:///a/i-b", "") is None
    assert {context.instance for context in step.step.contexts} == {""}
    assert any("another node names the machine i-b, too" in line for line in here.lines)
