"""`serve` is killed by SIGKILL after each write of each step of the pipeline, and started again.

The processes are the installed command; the cluster is the real control plane, whose requests pass a proxy; the cloud is
moto with the front of tests/aws, the monitoring system its small server. These decide when a process dies: once a
write was carried out, and before its answer is given. Each write of each step is one point, and so are the messages
of the queue; announcing Events is no step. All points are in one pipeline run of one machine, each in a process that
goes on where the one before it was killed.
"""

import contextlib
import json
import math
import time
from collections import Counter

import pytest
import yaml

from rebalancer.kube.access import MARK_RULES, config_map_rules
from rebalancer.kube.client import USER_AGENT
from rebalancer.machines.interruption.steps.pods import DELETE
from rebalancer.signals.notice import NOTICE, NodeNotice, encode_notice
from rebalancer.signals.state import STATE
from rebalancer.wire.times import rfc3339
from tests.aws.cloud import CREDENTIALS, REGION, in_the_cloud
from tests.aws.messages import spot
from tests.aws.story import Machine, monitored, put, queued
from tests.aws.test_steps import function, published, topic
from tests.aws.test_steps import pytestmark as pytestmark  # noqa: PLC0414  # moto's open files
from tests.controlplane import audit, objects, operations, wait_until
from tests.e2e.killing import Killing, between
from tests.e2e.product import ACCOUNT, RUN_RULES, Product, grant
from tests.e2e.served import Server

NOTHING = "nothing to do"
POLL = 0.3
PODS = 2
USER = f"system:serviceaccount:default:{ACCOUNT}"
DELETION = ("delete", "", "pods")
WEB = {"app": "web"}
POINTS = (
    "sqs:ReceiveMessage",
    "sns begins",
    "sns:Publish",
    "sns keeps",
    "cordon begins",
    "cordon changes the node",
    "exclude begins",
    "exclude changes the node",
    "deregister begins",
    "deregister keeps",
    "elasticloadbalancing:DeregisterTargets",
    "elasticloadbalancing:DeregisterTargets 2",
    "leave begins",
    "leave changes the node",
    "eviction",
    "eviction 2",
    "quarantine begins",
    "quarantine keeps",
    "ec2:ModifyNetworkInterfaceAttribute",
    "lambda begins",
    "lambda:InvokeFunction",
    "lambda keeps",
    "mute begins",
    "POST /mute",
    "webhook begins",
    "POST /webhook",
    "sns-2 begins",
    "sns:Publish 2",
    "sns-2 keeps",
    "all is over",
    "autoscaling:CompleteLifecycleAction",
    "sqs:DeleteMessage",
)
ONCE = (
    "cordon changes the node",
    "exclude changes the node",
    "elasticloadbalancing:DeregisterTargets",
    "elasticloadbalancing:DeregisterTargets 2",
    "leave changes the node",
    "eviction",
    "eviction 2",
    "ec2:ModifyNetworkInterfaceAttribute",
    "sqs:DeleteMessage",
)
"""Writes that no process makes again: it looks first at what is so already."""
HOOK = "autoscaling:CompleteLifecycleAction"
MOST_REFUSED = 12
"""A process does not know that one before it has completed the action: what is refused may be too new, for two minutes."""
AT_LEAST_ONCE = (
    "sns:Publish",
    "sns:Publish 2",
    "lambda:InvokeFunction",
    "POST /mute",
    "POST /webhook",
    HOOK,
)
"""Those whose answer is lost with the process: they are made again, with the same key or token. All others are the record."""
STEPS = (
    "sns",
    "cordon",
    "exclude",
    "deregister",
    "leave",
    "quarantine",
    "lambda",
    "mute",
    "webhook",
    "sns-2",
)


class NodeMachine(Machine):
    """A machine that is a node of the control plane."""

    def join(self, provider_id):
        made = objects.node(self.name)
        made["spec"] = {**made.get("spec", {}), "providerID": provider_id}
        self.cluster.apply([made])

    @property
    def node(self):
        return self.cluster.api.get(f"/api/v1/nodes/{self.name}")


class Scene:
    """A machine with pods, another node for these, and what the steps of the policy are about."""

    def __init__(self, cluster, cloud, monitoring, folder):
        self.cluster, self.cloud, self.monitoring = cluster, cloud, monitoring
        self.machine, self.queue = NodeMachine(cloud, cluster, "n-a"), cloud.queue()
        self.topic, self.notices = topic(cloud, fifo=True)
        operations.wait_nodes_ready(cluster.api, 1)
        cluster.apply([objects.deployment("web", PODS, labels=WEB)])
        operations.wait_pods_ready(cluster.api, PODS)
        cluster.apply([objects.node("n-b")])
        operations.wait_nodes_ready(cluster.api, 2)
        cluster.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}}])
        self.product = Product(cluster, folder, yaml.safe_dump(self._policy()))
        self.product.kubeconfig = grant(cluster, RULES)
        cloud.longest_poll = POLL

    def _policy(self):
        of = {"endpoint": self.cloud.url}
        steps = [
            {"step": "sns", "topic": self.topic, **of},
            "cordon",
            "exclude",
            {"step": "deregister", **of},
            "leave",
            {"step": "quarantine", "securityGroups": [self.machine.empty], **of},
            {"step": "lambda", "function": function(self.cloud), **of},
            {"step": "mute", "url": f"{self.monitoring.url}/mute"},
            {"step": "webhook", "url": f"{self.monitoring.url}/webhook"},
            {"step": "sns", "topic": self.topic, **of},
        ]
        queue = {"queue": self.queue, "region": REGION, "endpoint": self.cloud.url}
        # Where all points are in one pipeline run, it lasts as long as so many processes need to begin.
        interruption = {"steps": steps, "withoutDeadline": "1h"}
        return {**POLICY, "signals": {"sqs": queue}, "interruption": interruption}

    def terminates(self):
        """Let the machine's group hold it by a lifecycle hook, and say so to the queue."""
        self.cloud.terminates(self.machine.instance, "drain", self.queue)

    @contextlib.contextmanager
    def killed_by(self, killing):
        """Have all that the product writes to pass its writes on; yield the product."""
        self.cloud.after_call = lambda call, form: noted(killing, call, form)
        self.monitoring.after_request = lambda path: killing.wrote(f"POST {path}")
        direct = self.product.kubeconfig
        with between(self.cluster, direct, killing) as self.product.kubeconfig:
            yield self.product

    def is_over(self):
        """Whether the pipeline is at its end, and nothing waits for it any more."""
        ended = not self.cloud.waiting and bool(self.machine.state.get("ended"))
        return ended and not queued(self.cloud, self.queue)

    def redeliver(self):
        """Give what a killed process has received to the next one, a minute sooner than the queue would."""
        # A poll that the dead have left behind may still take it.
        time.sleep(2 * POLL)
        self.cloud.redeliver()

    def assert_done(self, log):
        """All that the steps are for is so; what is sent twice has one key for each step, and a FIFO topic delivers it once."""
        assert self.machine.statuses == dict.fromkeys(STEPS, "done")
        self.machine.assert_out()
        assert whereabouts(self.cluster) == ["n-b"] * PODS
        evicted = [one.name for one in log.evictions(USER)]
        assert len(evicted) == len({*evicted}) == PODS
        assert self.cloud.completed == [(self.machine.instance, "CONTINUE")]
        assert queued(self.cloud, self.queue) == 0
        sent = [
            *self.monitoring.keys,
            *(("", one["idempotency-key"]) for one in self.cloud.invoked),
        ]
        assert len({key for _, key in sent}) == len({*sent}) == 3
        first, last = published(self.cloud, self.notices)
        assert "Steps:" not in first[1]
        assert "deregister  done: 3 targets drained" in last[1]


def whereabouts(cluster):
    return [pod["spec"].get("nodeName") for pod in operations.pods(cluster.api, "default")]


def without_records(points):
    return [point for point in points if not point.endswith((" begins", " is shown"))]


def noted(killing, call, form):
    """Pass a call on that changes something; heartbeats come with the time."""
    if not call.rpartition(":")[2].startswith(("Describe", "ChangeMessage", "RecordLifecycle")):
        which = form.get("TargetGroupArn", form.get("MessageDeduplicationId", ""))
        killing.wrote(call, which)


RULES = (*RUN_RULES, *MARK_RULES, *config_map_rules("default", "kept"))
POLICY = {
    "apiVersion": "rebalancer/v1",
    "kind": "Policy",
    "protect": {"minPodAge": "0s"},
    "strategies": {"leaving": {}},
    "budgets": {"perRun": 100, "perHour": 100, "perNode": 100, "inFlight": 1},
}
"""One eviction after the other: each is a point."""


@pytest.fixture
def cloud(monkeypatch):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with in_the_cloud(time.monotonic) as made:
        yield made


@pytest.fixture
def monitoring():
    with monitored() as made:
        yield made


@pytest.fixture
def serve(tmp_path):
    with contextlib.ExitStack() as at_end:

        def start(product, name):
            flags = ("--every=1h", "--output=json", "--machine-state=default/kept")
            server = Server(product, tmp_path, name, *flags)
            at_end.callback(server.end)
            return server

        yield start


@pytest.mark.long
def test_killed_after_each_write_of_each_step_all_is_done_and_what_must_be_once_is_once(
    cluster, cloud, monitoring, serve, tmp_path, record_property
):
    scene, killing = Scene(cluster, cloud, monitoring, tmp_path), Killing()
    log = audit.AuditLog(cluster.audit_log)
    cloud.drains = 1.0
    with scene.killed_by(killing) as product:
        scene.terminates()
        began = time.monotonic()
        killing.until(scene.is_over, lambda name: serve(product, name), scene.redeliver)
        record_property("seconds", time.monotonic() - began)
        record_property("processes", len(killing.points))

        # One that is not killed has nothing left to do.
        before = list(killing.writes)
        last = serve(product, "last")
        last.await_words(NOTHING)
        assert last.end() == 0
        assert killing.writes == before
    # A record that cannot be written within three seconds keeps no step from its turn: on a machine that does much else,
    # that a step begins may be written late, or not at all, and what the step does be done once more.
    shown = {f"{step} is shown" for step in (*STEPS, "end")}
    assert {*killing.points} <= {*POINTS, *shown}
    assert without_records(killing.points) == without_records(POINTS)
    made = Counter(killing.writes)
    assert {name: made[name] for name in ONCE} == dict.fromkeys(ONCE, 1)
    for name in AT_LEAST_ONCE:
        assert 2 <= made[name] <= (MOST_REFUSED if name == HOOK else 3), name
    scene.assert_done(log)


def test_a_spot_interruption_is_over_in_its_two_minutes_though_the_process_is_killed(
    cluster, cloud, monitoring, serve, tmp_path, record_property
):
    scene, killing = Scene(cluster, cloud, monitoring, tmp_path), Killing(only="deregister keeps")
    log = audit.AuditLog(cluster.audit_log)
    cloud.drains = 5.0
    with scene.killed_by(killing) as product:
        scene.terminates()
        warned = int(time.time())
        put(cloud, scene.queue, spot(scene.machine.instance, time=rfc3339(warned)))
        killing.until(scene.is_over, lambda name: serve(product, name), scene.redeliver)
    assert killing.points == ["deregister keeps"]
    scene.assert_done(log)
    took = scene.machine.state["ended"] - warned
    record_property("seconds", took)
    assert cloud.drains < took < 120


ESCALATED = (
    "cordon begins",
    "cordon changes the node",
    "leave begins",
    "leave changes the node",
    "escalate begins",
    "deletion",
    "all is over",
)


@pytest.mark.parametrize("only", ["deletion", pytest.param("", marks=pytest.mark.long)])
def test_killed_after_each_write_what_may_not_leave_is_deleted_once_and_not_too_soon(
    cluster, serve, tmp_path, only
):
    """The pod's budget allows nothing; the machine goes soon, at the same time for all processes."""
    cluster.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}}])
    cluster.apply([objects.node("n-a")])
    operations.wait_nodes_ready(cluster.api, 1)
    cluster.apply([objects.pdb("web", WEB, maxUnavailable=0)])
    cluster.apply([objects.deployment("web", 1, labels=WEB)])
    operations.wait_pods_ready(cluster.api, 1)
    cluster.apply([objects.node("n-b")])
    operations.wait_nodes_ready(cluster.api, 2)
    escalate = {"step": "escalate", "means": "delete", "grace": "1s", "margin": "1s"}
    # Not cordoned, it would take each replacement.
    steps = ["cordon", {"step": "leave", "within": "2s"}, escalate]
    policy = {**POLICY, "signals": {"kubernetes": {}}, "interruption": {"steps": steps}}
    product = Product(cluster, tmp_path, yaml.safe_dump(policy))
    deadline = math.ceil(time.time()) + 15
    log, killing = audit.AuditLog(cluster.audit_log), Killing(only=only)

    def state():
        node = cluster.api.get("/api/v1/nodes/n-a")
        return json.loads(node["metadata"]["annotations"].get(STATE, "{}"))

    with between(cluster, grant(cluster, (*RULES, DELETE)), killing) as product.kubeconfig:
        notice = encode_notice(NodeNotice("spot-1", "spot", rfc3339(deadline)))
        cluster.api.patch("/api/v1/nodes/n-a", {"metadata": {"annotations": {NOTICE: notice}}})
        killing.until(
            lambda: bool(state().get("ended")), lambda name: serve(product, name), lambda: None
        )
    assert without_records(killing.points) == ([only] if only else without_records(ESCALATED))
    statuses = {name: step["status"] for name, step in state()["steps"].items()}
    # Who deleted it died before it could say so: the next process sees that no pod is left, or that it terminates.
    assert statuses.pop("escalate") in {"skipped", "done"}
    assert statuses == {"cordon": "done", "leave": "timed-out"}
    deleted = [one for one in log.requests() if one.kind == DELETION and one.agent == USER_AGENT]
    assert [one.code for one in deleted] == [200]
    assert deleted[0].at.timestamp() >= deadline - 2
    assert not log.evictions(USER)
    wait_until(lambda: whereabouts(cluster) == ["n-b"], 30, "the pod on the other node")
