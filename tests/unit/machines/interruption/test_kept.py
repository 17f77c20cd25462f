"""What steps keep where the node has no say: what stands on the node decides over nothing outside the cluster."""

import json
from dataclasses import replace
from typing import ClassVar

import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.embedded.engine import Durations
from rebalancer.machines.interruption.kept import KeptTexts
from rebalancer.machines.interruption.model import DONE
from rebalancer.policy.interruption import StepParams
from rebalancer.signals.state import STATE
from tests.unit.machines.interruption.scene import KEPT, process, scripted, soon, spot

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


def forge(cluster, text):
    """Write as the kubelet of the node may: what a step has left, in the annotation of the record."""
    metadata = cluster.get("Node", "n-a")["metadata"]
    there = json.loads(metadata["annotations"][STATE])
    there["steps"]["one"]["left"] = text
    annotations = {STATE: json.dumps(there)}
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n-a", "annotations": annotations},
        }
    )


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
    forge(cluster, forged)
    with process(cluster, [step]) as later:
        later.pipeline_runs.start()
        later.pipeline_runs.take(announced(cluster, cancelled=True), None)
        soon(later.pipeline_runs.results.total)
    assert undone == ["its own group"]
    assert not cluster.get("ConfigMap", KEPT[1]).get("data")


def test_a_forged_record_alone_gives_nothing_back(cluster):
    undone = list[str]()
    uid = cluster.get("Node", "n-a")["metadata"]["uid"]
    there = {"begun": 1.0, "uid": uid, "steps": {"one": {"status": "done", "left": "any group"}}}
    annotations = {STATE: json.dumps(there)}
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n-a", "annotations": annotations},
        }
    )
    with process(cluster, [keeping(undone)]) as here:
        here.pipeline_runs.start()
        here.pipeline_runs.take(announced(cluster, cancelled=True), None)
        soon(here.pipeline_runs.results.total)
    assert undone == [""]


def test_machines_do_not_overwrite_each_other_and_the_oldest_go_first(cluster):
    now = [0.0]
    with process(cluster, []) as here:
        texts = KeptTexts(KEPT, lambda: now[0])
        for number in range(103):
            now[0] += 1.0
            texts.keep(here.client, f"i-{number}", "one", str(number))
        texts.keep(here.client, "i-102", "two", "more")
        other = KeptTexts(KEPT, lambda: now[0])
        assert other.of(here.client, "i-102", "one") == "102"
        assert other.of(here.client, "i-102", "two") == "more"
        assert other.of(here.client, "i-2", "one") == ""
        assert other.of(here.client, "", "one") == ""
        other.keep(here.client, "odd name/of it", "one", "x")
        assert texts.of(here.client, "odd name/of it", "one") == "x"
        texts.forget(here.client, "i-102")
        assert texts.of(here.client, "i-102", "one") == ""
        with pytest.raises(ClusterReadError, match="there is no ConfigMap default/other"):
            KeptTexts(("default", "other"), lambda: 0.0).of(here.client, "i-1", "one")


def test_without_a_config_map_it_is_kept_in_the_process(cluster):
    texts = KeptTexts(None, lambda: 0.0)
    with process(cluster, []) as here:
        texts.keep(here.client, "i-1", "one", "a")
        assert texts.of(here.client, "i-1", "one") == "a"
        texts.forget(here.client, "i-1")
        assert texts.of(here.client, "i-1", "one") == ""
