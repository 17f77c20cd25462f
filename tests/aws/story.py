"""Instances of moto that are nodes of an embedded cluster, what steps at AWS are about, and a monitoring system."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rebalancer.machines.aws.sqs import SqsParams, SqsSource
from rebalancer.node_record.protocol import EXCLUDE as LABEL
from rebalancer.plan.machines import PipelineOutcome
from rebalancer.serve.interruptions import Listening
from rebalancer.signals.model import FollowedNodes, Interruption, SignalError
from rebalancer.signals.state import STATE
from rebalancer.testing.objects import node
from tests.aws.cloud import REGION, Cloud
from tests.aws.test_steps import Balanced, interfaces
from tests.support.contracts import surroundings
from tests.support.serving import serving
from tests.unit.machines.interruption.scene import BUSY, Process


@dataclass
class Monitoring:
    """A monitoring system at an address, that mutes hosts."""

    url: str = ""
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Path and body of each request."""
    keys: list[tuple[str, str]] = field(default_factory=list)
    """Path and idempotency key of each."""
    after_request: Callable[[str], None] = lambda _: None
    """Called with the path of each when it was carried out; the answer waits for its end."""


@contextmanager
def monitored() -> Iterator[Monitoring]:
    made = Monitoring()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            size = int(self.headers["Content-Length"])
            made.asked.append((self.path, json.loads(self.rfile.read(size))))
            made.keys.append((self.path, self.headers["Idempotency-Key"]))
            made.after_request(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as made.url:
        yield made


class Machine:
    """An instance in two target groups, on three ports, that is a node."""

    def __init__(self, cloud: Cloud, cluster: Any, name: str):
        self.cloud, self.cluster, self.name = cloud, cluster, name
        self.balanced = Balanced(cloud)
        self.instance = self.balanced.instance
        self.groups = interfaces(cloud, self.instance)
        """Network interface -> its security groups, as they are in the beginning."""
        self.empty = cloud.client("ec2").create_security_group(
            GroupName=f"empty-{self.instance}", Description="lets nothing in"
        )["GroupId"]
        self.join(f"aws:///{REGION}a/{self.instance}")

    def join(self, provider_id: str) -> None:
        """Become a node of the cluster."""
        made = node(self.name)
        made["spec"] = {**made.get("spec", {}), "providerID": provider_id}
        self.cluster.apply(made)

    @property
    def node(self) -> dict[str, Any]:
        there: dict[str, Any] = self.cluster.get("Node", self.name)
        return there

    @property
    def state(self) -> dict[str, Any]:
        """How far the pipeline has come, as it stands on the node."""
        annotations = self.node["metadata"].get("annotations") or {}
        read: dict[str, Any] = json.loads(annotations.get(STATE, "{}"))
        return read

    @property
    def statuses(self) -> dict[str, str]:
        """Name of a step -> its status, of those that have begun."""
        return {name: step["status"] for name, step in self.state.get("steps", {}).items()}

    def targets(self) -> dict[tuple[str, int], str]:
        """Target group and port -> state."""
        return self.balanced.targets(self.instance)

    def assert_out(self):
        """Nothing reaches it any more."""
        assert self.node["spec"]["unschedulable"]
        assert LABEL in self.node["metadata"]["labels"]
        assert self.targets() == {}
        assert self.balanced.targets(self.balanced.other).keys() == self.balanced.registered
        now = interfaces(self.cloud, self.instance)
        assert now == {one: {self.empty} for one in self.groups}

    def assert_untouched(self):
        """All is as it was in the beginning."""
        assert not self.node["spec"].get("unschedulable")
        assert LABEL not in self.node["metadata"]["labels"]
        assert self.state == {}
        assert self.targets() == dict.fromkeys(self.balanced.registered, "healthy")
        assert interfaces(self.cloud, self.instance) == self.groups


def queued(cloud: Cloud, url: str) -> int:
    """How many messages are in a queue, hidden ones too."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    of = cloud.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return sum(int(of[name]) for name in names)


def put(cloud: Cloud, url: str, *bodies: dict[str, Any]) -> None:
    """Put messages into a queue."""
    for body in bodies:
        cloud.client("sqs").send_message(QueueUrl=url, MessageBody=json.dumps(body))


class Listener(Process):
    """What one process does about the messages of a queue, until it is killed."""

    def __init__(self, cloud, url, cluster, steps, **more):
        super().__init__(cluster, steps, **more)
        self.cloud, self.url = cloud, url
        around = surroundings(
            "sqs", unix=self.clock.unix, nodes=FollowedNodes(self._every), environ={}
        )
        self.queue = SqsSource().open(
            SqsParams(queue=url, region=REGION, endpoint=cloud.url), around
        )
        self.ended: list[Interruption] = []
        """Those of which the source has let go."""
        self.listening = Listening(
            "sqs", self, self.pipeline_runs, self.clock, self.stop, self.lines.append
        )
        self.receive, self.heartbeat = self.queue.receive, self.queue.heartbeat

    def done(self, interruption: Interruption, outcome: PipelineOutcome) -> None:
        """See Receiver; who was killed lets go of nothing."""
        if self.killed.is_set():
            raise SignalError("killed")
        self.queue.done(interruption, outcome)
        self.ended.append(interruption)

    def close(self) -> None:
        """See Receiver."""

    def start(self):
        self.pipeline_runs.start()
        self.pipeline_runs.resume(self._every())
        self.listening.start()

    def forget(self):
        """Let the time pass after which what was received is given to another process."""
        sqs = self.cloud.client("sqs")
        for held in [*self.queue._held.values()]:
            # A process that was killed may have deleted a message, and not yet its own entry.
            with suppress(sqs.exceptions.ReceiptHandleIsInvalid):
                sqs.change_message_visibility(
                    QueueUrl=self.url, ReceiptHandle=held.receipt, VisibilityTimeout=0
                )


@contextmanager
def listening(*given: Any, start: bool = True, **more: Any) -> Iterator[Listener]:
    made = Listener(*given, **more)
    try:
        if start:
            made.start()
        yield made
    finally:
        made.kill()
        made.listening.join(BUSY)
        made.pipeline_runs.join(BUSY)
        made.forget()
        made.client.close()
