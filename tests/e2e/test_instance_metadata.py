"""The node agent beside amazon-ec2-metadata-mock: each announcement as AWS's own program has it, on an embedded cluster."""

import json
import threading

import pytest

from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Stop
from rebalancer.kube.client import connect
from rebalancer.machines.aws.agent import Agent, Imds
from rebalancer.signals.notice import NOTICE
from rebalancer.testing.objects import EmbeddedCluster, node
from tests.controlplane import wait_until
from tests.e2e.instance_metadata import INSTANCE, NOTHING, instance_metadata
from tests.e2e.product import PATIENCE

AT, UNTIL = "2026-11-20T10:00:00Z", "2026-11-20T12:00:00Z"
SPOT = ("spot", "--action=stop", f"--time={AT}")
SPOT_READ = {"id": f"imds/{INSTANCE}/spot/{AT}", "kind": "spot", "deadline": AT, "reason": "stop"}
RETIREMENT = "instance-retirement"
SAYS = [
    (SPOT, SPOT_READ),
    (
        ("events", f"--code={RETIREMENT}", f"--not-before={AT}", f"--not-after={UNTIL}"),
        {"kind": RETIREMENT, "deadline": AT, "reason": RETIREMENT, "until": UNTIL},
    ),
    (
        ("asglifecycle",),
        {"id": f"imds/{INSTANCE}/terminated", "kind": "scale-in", "reason": "terminate"},
    ),
    (("spot", "--mock-delay-sec=1000000"), {"kind": "rebalance"}),
]
"""Commands of the program -> what is then to stand on the node, at least."""
WITHDRAWN = [
    NOTHING,
    ("events", "--state=completed", f"--not-before={AT}"),
    ("events", "--state=canceled", f"--not-before={AT}"),
]


@pytest.fixture
def standing():
    """What an agent keeps on its node: its metadata, and a function that returns the notice."""
    with EmbeddedCluster() as made:
        made.apply(node("mine"))

        def notice():
            annotations = made.get("Node", "mine")["metadata"].get("annotations") or {}
            return json.loads(annotations.get(NOTICE, "{}"))

        yield made, notice


def test_what_the_metadata_announce_stands_on_the_node_until_it_is_withdrawn(standing, tmp_path):
    cluster, notice = standing
    ended = threading.Event()
    stop = Stop(SystemClock(), signalled=ended)
    with instance_metadata(tmp_path) as metadata:
        client = connect(kubeconfig=cluster.kubeconfig, environ={}, stop=stop)
        agent = Agent("mine", Imds(metadata.url, stop), client, stop, print)
        thread = threading.Thread(target=agent.live, args=(1.0,), daemon=True)
        thread.start()

        def await_notice(wanted):
            wait_until(lambda: wanted.items() <= notice().items(), PATIENCE, str(wanted))

        try:
            for command, wanted in SAYS:
                metadata.say(*command)
                await_notice(wanted)
            for command in WITHDRAWN:
                metadata.say(*SPOT)
                await_notice(SPOT_READ)
                metadata.say(*command)
                wait_until(lambda: not notice(), PATIENCE, f"the notice withdrawn by {command}")
        finally:
            ended.set()
            thread.join(60)
            client.close()
