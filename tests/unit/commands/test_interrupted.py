"""serve on a cluster whose nodes say that they will go: cordoned, emptied by the planner, and given back if they stay."""

import json
import re

import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.node_record.protocol import EXCLUDE as LABEL
from rebalancer.signals import kubernetes, model
from rebalancer.signals.notice import NOTICE, NodeNotice, encode_notice
from rebalancer.signals.state import STATE
from rebalancer.snapshot.leaving import LEAVE
from rebalancer.wire.times import rfc3339
from tests.unit.commands.embedded import third_zone_joined
from tests.unit.commands.serving import serving, soon

POLICY = """
apiVersion: rebalancer/v1
kind: Policy
protect: {minPodAge: 0s}
budgets: {perNode: 10, perOwner: 50%, inFlight: 50%, perRun: 100%, perHour: 100%}
strategies: {leaving: {}}
signals: {kubernetes: {}}
"""


@pytest.fixture
def cluster():
    with third_zone_joined("web", "api") as made:
        yield made


def change(cluster, node, changes):
    """Merge changes into a node."""
    metadata = {"name": node, **changes.pop("metadata", {})}
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata, **changes})


def say(cluster, node, seconds=3600.0, **changes):
    """Let a node say that it will go."""
    notice = {"id": "e1", "kind": "spot", "deadline": rfc3339(cluster.clock.now() + seconds)}
    value = encode_notice(NodeNotice(**{**notice, **changes}))
    change(cluster, node, {"metadata": {"annotations": {NOTICE: value}}})


def state(cluster, node):
    annotations = cluster.get("Node", node)["metadata"].get("annotations", {})
    return json.loads(annotations.get(STATE, "{}"))


def test_a_node_that_says_it_will_go_is_cordoned_emptied_and_reported(cluster, tmp_path):
    with serving(cluster, tmp_path, policy=POLICY) as served:
        served.await_runs(1)
        say(cluster, "n-a")
        soon(lambda: state(cluster, "n-a").get("ended"), served.err.getvalue)
        node = cluster.get("Node", "n-a")
        assert node["spec"]["unschedulable"]
        assert LABEL in node["metadata"]["labels"]
        steps = {name: step["status"] for name, step in state(cluster, "n-a")["steps"].items()}
        assert steps == {"cordon": "done", "exclude": "done", "leave": "done"}
        assert not [
            pod for pod in cluster.objects("Pod", "default") if pod["spec"].get("nodeName") == "n-a"
        ]
        metrics = ""

        def counted():
            nonlocal metrics
            metrics = served.health.paths()["/metrics"]().body.decode()
            return "rebalancer_interruptions_ended{" in metrics

        soon(counted, served.err.getvalue)
        assert 'rebalancer_interruptions_ended{result="done",source="kubernetes"} 1.0' in metrics
        assert 'rebalancer_interruption_steps{status="done",step="leave"} 1.0' in metrics
        assert 'rebalancer_signal_source_failing{source="kubernetes"} 0.0' in metrics
        notes = [event["note"] for event in cluster.objects("Event", "default")]
        assert any(re.match("The machine goes at .* .spot, by kubernetes", n) for n in notes)
        soon(lambda: '"result": "done"' in served.out.getvalue() or nudge(cluster))
    assert "n-a: cordon done; exclude done; leave done" in served.err.getvalue()


def nudge(cluster):
    """Give the process a reason to plan, and report, once more."""
    change(cluster, "n-b", {"metadata": {"labels": {"nudged": str(cluster.clock.now())}}})
    return False


def test_a_node_that_stays_gets_back_what_was_taken_and_nothing_else(cluster, tmp_path):
    change(cluster, "n-b", {"spec": {"unschedulable": True}})
    with serving(cluster, tmp_path, policy=POLICY) as served:
        served.await_runs(1)
        for name in ("n-a", "n-b"):
            say(cluster, name)
        soon(
            lambda: all(
                LEAVE in cluster.get("Node", n)["metadata"]["annotations"] for n in ("n-a", "n-b")
            ),
            served.err.getvalue,
        )
        for name in ("n-a", "n-b"):
            change(cluster, name, {"metadata": {"annotations": {NOTICE: None}}})
        soon(lambda: not (state(cluster, "n-a") or state(cluster, "n-b")), served.err.getvalue)
        for name, cordoned in (("n-a", False), ("n-b", True)):
            node = cluster.get("Node", name)
            assert bool(node["spec"].get("unschedulable")) is cordoned
            assert LABEL not in node["metadata"]["labels"]
            assert LEAVE not in node["metadata"]["annotations"]


def test_another_process_goes_on_where_one_was_ended(cluster, tmp_path):
    blocked = POLICY.replace("{leaving: {}}", "{leaving: {select: {namespaces: [none]}}}")
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}})
    kept = ("default", "kept")
    with serving(cluster, tmp_path, policy=blocked, machine_state=kept) as served:
        served.await_runs(1)
        say(cluster, "n-a")
        soon(lambda: "leave" in state(cluster, "n-a").get("steps", {}), served.err.getvalue)
    before = state(cluster, "n-a")
    assert before["steps"]["leave"]["status"] == "running"
    change(cluster, "n-a", {"metadata": {"labels": {LABEL: None}}})
    with serving(cluster, tmp_path, policy=POLICY, machine_state=kept) as served:
        soon(lambda: state(cluster, "n-a").get("ended"), served.err.getvalue)
    after = state(cluster, "n-a")
    assert after["begun"] == before["begun"]
    assert after["steps"]["exclude"] == before["steps"]["exclude"]
    assert after["steps"]["leave"]["status"] == "done"
    # What was done is not done again: another client has removed the label, and had its reasons.
    assert LABEL not in cluster.get("Node", "n-a")["metadata"]["labels"]


def test_a_run_that_only_observes_does_not_listen(cluster, tmp_path):
    with serving(cluster, tmp_path, policy=POLICY + "mode: observe\n", every=0.1) as served:
        say(cluster, "n-a")
        served.await_runs(3)
        assert "signals are not listened to" in served.err.getvalue()
        assert not state(cluster, "n-a")


def test_a_source_that_cannot_be_opened_ends_the_process(cluster, tmp_path, monkeypatch):
    def refuse(*_):
        raise model.SignalError("no such queue: check queueUrl")

    monkeypatch.setattr(kubernetes.KubernetesSource, "open", refuse)
    with serving(cluster, tmp_path, policy=POLICY) as served:
        soon(lambda: served.error is not None)
    assert isinstance(served.error, PolicyError)
    assert "no such queue: check queueUrl" in str(served.error)
