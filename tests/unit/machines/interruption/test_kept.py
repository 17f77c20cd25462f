"""What steps keep where the node has no say: what stands on the node decides over nothing outside the cluster."""

import json
from dataclasses import replace
from typing import ClassVar

import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.embedded.engine import Durations
from rebalancer.kube.config_map import MAX_BYTES
from rebalancer.machines.interruption.model import DONE
from rebalancer.machines.interruption.record import KeptTexts
from rebalancer.plan.machines import StepStatus
from rebalancer.policy.interruption import StepParams
from rebalancer.signals.state import PipelineState, RecordedInterruption, StepState
from tests.support.clocks import NOON, HandClock
from tests.unit.machines.interruption.scene import KEPT, node_with, process, scripted, soon, spot

MACHINE = "i-0123456789abcdef0"


@pytest.fixture
def cluster():
    with EmbeddedCluster(timings=Durations(node_start_up=0.01)) as made:
        made.add_node("n-a", "a")
        spec = {"providerID": f"aws:///eu-west-1a/{MACHINE}"}
        made.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n-a"}, "spec": spec})
        made.settle()
        yield made


class Keeping(StepParams):
    """Options of a step that keeps something that decides over calls to a cloud."""

    keeps: ClassVar[bool] = True


def keeping(undone):
    """Return a step that keeps what it took, and notes what it gives back."""

    def act(context):
        if not context.left:
            context.keep("its own group")
        return DONE

    made = scripted("one", act)
    made.step.undo = lambda context, params: undone.append(context.left)
    return replace(made, params=Keeping())


def forge(cluster, *causes, ended=0.0, **step):
    """Write as the kubelet of the node may: a record of which nothing was kept, with what the step one came to."""
    steps = {"one": StepState(StepStatus.DONE, NOON, **step)}
    cluster.apply(node_with(cluster, PipelineState(causes, NOON, steps, ended)))


class Letting:
    """A source that notes what it lets go."""

    def __init__(self):
        self.ended = []

    def heartbeat(self, interruption):
        """Nothing waits for one."""

    def done(self, interruption, outcome):
        self.ended.append(outcome.result)


def announced(cluster, **more):
    return spot(uid=cluster.get("Node", "n-a")["metadata"]["uid"], **more)


@pytest.mark.parametrize("forged", ["", "security-group-of-the-database"])
def test_what_is_given_back_is_what_was_kept_and_not_what_the_node_says(cluster, forged):
    undone = list[str]()
    step = keeping(undone)
    with process(cluster, [step]) as here:
        here.pipeline_runs.start()
        here.pipeline_runs.take(announced(cluster), None)
        soon(here.pipeline_runs.results.total)
    kept = cluster.get("ConfigMap", KEPT[1])["data"][MACHINE]
    assert json.loads(kept)["steps"] == {"one": "its own group"}
    forge(cluster, left=forged)
    with process(cluster, [step]) as later:
        later.pipeline_runs.start()
        later.pipeline_runs.take(announced(cluster, cancelled=True), None)
        soon(later.pipeline_runs.results.total)
    assert undone == ["its own group"]
    assert not cluster.get("ConfigMap", KEPT[1]).get("data")


def test_a_forged_record_alone_gives_nothing_back(cluster):
    undone = list[str]()
    forge(cluster, left="any group")
    with process(cluster, [keeping(undone)]) as here:
        here.pipeline_runs.start()
        here.pipeline_runs.take(announced(cluster, cancelled=True), None)
        soon(here.pipeline_runs.results.total)
    assert undone == [""]


@pytest.mark.parametrize("ended", [0.0, NOON])
def test_a_record_that_says_that_all_was_done_keeps_no_step_from_its_turn(cluster, ended):
    """Believed, a lifecycle hook would be completed, and the machine ended with its pods."""
    step, source = scripted("one"), Letting()
    cause = RecordedInterruption("e1", "spot", "test", NOON + 120)
    forge(cluster, cause, ended=ended, left="the key of the call")
    with process(cluster, [step]) as here:
        here.pipeline_runs.resume(here._every())
        here.pipeline_runs.start()
        here.pipeline_runs.take(announced(cluster), source)
        soon(lambda: source.ended)
    assert [context.left for context in step.step.contexts] == [""]
    assert step.step.acted == 1


def test_a_record_that_says_that_the_machine_has_not_gone_undoes_nothing(cluster):
    """Maintenance goes on; the record says that it was a recommendation of long ago."""
    clock, step = HandClock(), scripted("one")
    with process(cluster, [step], clock=clock) as here:
        here.pipeline_runs.start()
        here.pipeline_runs.take(announced(cluster, kind="maintenance"), None)
        soon(here.pipeline_runs.results.total)
        forge(cluster, RecordedInterruption("e0", "rebalance", "test"), ended=NOON)
        clock.seconds += 3 * 3600.0
        here.pipeline_runs._withdraw_due()
        assert here.pipeline_runs.counts() == {"waiting": 0, "under-way": 0}
    assert step.step.undone == 0


def test_what_was_kept_of_a_node_goes_with_it(cluster):
    cluster.add_node("n-b", "a")
    cluster.settle()
    clock = HandClock()
    with process(cluster, [scripted("one")], clock=clock) as here:
        here.pipeline_runs.start()
        for node in ("n-a", "n-b"):
            here.pipeline_runs.take(spot(node, id_=node), None)
        soon(lambda: here.pipeline_runs.results.total() == 2)
        assert len(cluster.get("ConfigMap", KEPT[1])["data"]) == 2
        there = cluster.get("Node", "n-b")["metadata"]["uid"]
        cluster.remove_node("n-a")
        clock.seconds += 60.0
        soon(lambda: cluster.get("ConfigMap", KEPT[1])["data"].keys() == {there})


def test_what_is_kept_stays_smaller_than_the_object_may_be(cluster):
    now = [0.0]
    with process(cluster, []) as here:
        texts = KeptTexts(None, lambda: now[0])
        for number in range(200):
            now[0] += 1.0
            texts.keep(here.client, f"i-{number}", "one", "x" * 8192)
        assert sum(map(len, texts._own.values())) < MAX_BYTES
        assert texts.of(here.client, "i-199", "one")
        assert not texts.of(here.client, "i-0", "one")


def test_machines_do_not_overwrite_each_other_and_the_oldest_go_first(cluster):
    now = [0.0]
    with process(cluster, []) as here:
        texts = KeptTexts(KEPT, lambda: now[0])
        for number in range(303):
            now[0] += 1.0
            texts.keep(here.client, f"i-{number}", "one", str(number))
        texts.keep(here.client, "i-302", "two", "more")
        other = KeptTexts(KEPT, lambda: now[0])
        assert other.of(here.client, "i-302", "one") == "302"
        assert other.of(here.client, "i-302", "two") == "more"
        assert other.of(here.client, "i-2", "one") == ""
        assert other.of(here.client, "", "one") == ""
        other.keep(here.client, "odd name/of it", "one", "x")
        assert texts.of(here.client, "odd name/of it", "one") == "x"
        texts.forget(here.client, "i-302")
        assert texts.of(here.client, "i-302", "one") == ""
        with pytest.raises(ClusterReadError, match="there is no ConfigMap default/other"):
            KeptTexts(("default", "other"), lambda: 0.0).of(here.client, "i-1", "one")


def test_without_a_config_map_it_is_kept_in_the_process(cluster):
    texts = KeptTexts(None, lambda: 0.0)
    with process(cluster, []) as here:
        texts.keep(here.client, "i-1", "one", "a")
        assert texts.of(here.client, "i-1", "one") == "a"
        texts.forget(here.client, "i-1")
        assert texts.of(here.client, "i-1", "one") == ""
