"""The agent of a node on an embedded cluster, beside an instance metadata service of the tests."""

import io
import json
import threading
from contextlib import contextmanager

import pytest

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import ClusterReadError
from rebalancer.base.stop import Stop
from rebalancer.commands.node_agent import watch_machine
from rebalancer.embedded.apiserver.http import Fault
from rebalancer.kube.client import connect
from rebalancer.machines.aws.agent import (
    LIFECYCLE,
    REBALANCE,
    SPOT,
    Agent,
    Imds,
    ImdsError,
    write_notice,
)
from rebalancer.run.options import ClusterFlags
from rebalancer.signals.notice import NOTICE, NodeNotice
from rebalancer.testing.objects import EmbeddedCluster, node
from tests.aws.imds import INSTANCE, metadata_service
from tests.unit.commands.called import called
from tests.unit.commands.serving import soon

SPOT_NOTICE = '{"action": "terminate", "time": "2026-11-20T10:00:00Z"}'
SPOT_SAID = {
    "id": f"imds/{INSTANCE}/spot/2026-11-20T10:00:00Z",
    "kind": "spot",
    "deadline": "2026-11-20T10:00:00Z",
    "reason": "terminate",
}
NODES = "/api/v1/nodes/"


@pytest.fixture(scope="module")
def ground():
    with EmbeddedCluster() as made:
        yield made


@pytest.fixture
def cluster(ground):
    ground.faults.clear()
    for name in ("mine", "other"):
        ground.apply(node(name))
    # The nodes' status is written by then: a test compares them with what they were.
    ground.settle()
    yield ground
    for name in ("mine", "other"):
        ground.delete("Node", name)


@pytest.fixture
def metadata():
    with metadata_service(SystemClock().now) as service:
        yield service


@pytest.fixture
def client(cluster):
    return connect(kubeconfig=cluster.kubeconfig, environ={})


@pytest.fixture
def said():
    return []


@pytest.fixture
def agent(client, metadata, said):
    stop = Stop(SystemClock())
    return Agent("mine", Imds(metadata.url, stop), client, stop, said.append)


def standing(cluster, name="mine"):
    text = (cluster.get("Node", name)["metadata"].get("annotations") or {}).get(NOTICE)
    return None if text is None else json.loads(text)


def test_a_notice_is_written_once_and_taken_away_when_it_is_withdrawn(
    agent, cluster, metadata, said
):
    agent.look()
    assert standing(cluster) is None
    metadata.say(SPOT, SPOT_NOTICE)
    agent.look()
    assert standing(cluster) == SPOT_SAID
    asked = len(cluster.faults.requests)
    agent.look()
    agent.look()
    assert len(cluster.faults.requests) == asked
    metadata.say(SPOT, None)
    agent.look()
    assert standing(cluster) is None
    assert said == [
        "node mine: spot (terminate) at 2026-11-20T10:00:00Z",
        "node mine: nothing calls for its end any more",
    ]


def test_it_changes_its_own_annotation_of_its_own_node_and_nothing_else(agent, cluster, metadata):
    before = {name: cluster.get("Node", name) for name in ("mine", "other")}
    metadata.say(LIFECYCLE, "Terminated")
    agent.look()
    assert standing(cluster)["id"] == f"imds/{INSTANCE}/terminated"
    after = {name: cluster.get("Node", name) for name in ("mine", "other")}
    assert after["other"] == before["other"]
    assert after["mine"]["metadata"].pop("annotations") == {
        **before["mine"]["metadata"].get("annotations", {}),
        NOTICE: json.dumps(standing(cluster), separators=(",", ":")),
    }
    before["mine"]["metadata"].pop("annotations", None)
    for manifest in (before["mine"], after["mine"]):
        manifest["metadata"].pop("resourceVersion")
    assert after["mine"] == before["mine"]


def test_the_most_urgent_notice_stands(agent, cluster, metadata):
    metadata.say(REBALANCE, '{"noticeTime": "2026-11-20T09:00:00Z"}')
    agent.look()
    assert standing(cluster)["kind"] == "rebalance"
    metadata.say(SPOT, SPOT_NOTICE)
    agent.look()
    assert standing(cluster) == SPOT_SAID
    metadata.say(SPOT, None)
    agent.look()
    assert standing(cluster)["kind"] == "rebalance"


def test_an_agent_that_starts_again_takes_away_what_was_withdrawn_meanwhile(agent, client, cluster):
    write_notice(client, "mine", NodeNotice("imds/i-of-before/spot/x", "spot"))
    agent.look()
    assert standing(cluster) is None


def test_what_others_have_written_stays(agent, client, cluster):
    write_notice(client, "mine", NodeNotice("theirs", "maintenance"))
    agent.look()
    assert standing(cluster)["id"] == "theirs"


def test_metadata_that_cannot_be_read_withdraws_nothing(agent, cluster, metadata):
    metadata.say(SPOT, SPOT_NOTICE)
    agent.look()
    metadata.say(SPOT, None)
    metadata.broken[SPOT] = 500
    with pytest.raises(ImdsError, match="answered 500"):
        agent.look()
    assert standing(cluster) == SPOT_SAID


def test_one_path_that_is_broken_hides_no_notice_of_another_and_withdraws_none(
    agent, client, cluster, metadata
):
    write_notice(client, "mine", NodeNotice("imds/i-1/rebalance/x", "rebalance"))
    metadata.broken[REBALANCE] = 500
    with pytest.raises(ImdsError, match="answered 500"):
        agent.look()
    assert standing(cluster)["kind"] == "rebalance"
    metadata.say(SPOT, SPOT_NOTICE)
    with pytest.raises(ImdsError, match="answered 500"):
        agent.look()
    assert standing(cluster) == SPOT_SAID


def test_an_annotation_that_was_removed_is_written_again(client, cluster, metadata):
    class Clock(SystemClock):
        ahead = 0.0

        def now(self):
            return super().now() + self.ahead

    clock = Clock()
    stop = Stop(clock)
    agent = Agent("mine", Imds(metadata.url, stop), client, stop, lambda _: None)
    metadata.say(SPOT, SPOT_NOTICE)
    agent.look()
    write_notice(client, "mine", None)
    agent.look()
    clock.ahead = 120.0
    agent.look()
    assert standing(cluster) == SPOT_SAID


def test_a_node_that_is_not_there_is_named(client, metadata):
    stop = Stop(SystemClock())
    agent = Agent("gone", Imds(metadata.url, stop), client, stop, lambda _: None)
    with pytest.raises(ClusterReadError, match="no node gone; NODE_NAME"):
        agent.look()


@contextmanager
def attending(cluster, metadata):
    """Run the command's part with a tenth of a second between two looks; yield what it says."""
    err = io.StringIO()
    environment = Environment(SystemClock(), {}, io.StringIO(), err)
    access = ClusterFlags(kubeconfig=str(cluster.kubeconfig))
    arguments = (access, "mine", metadata.url, 0.1, environment)
    thread = threading.Thread(target=watch_machine, args=arguments)
    thread.start()
    try:
        yield err
    finally:
        environment.stop.set()
        thread.join(60)
        assert not thread.is_alive()


def test_it_goes_on_after_faults_of_both_sides_and_ends_in_order(cluster, metadata):
    metadata.status = 500
    cluster.faults.add(Fault(path=NODES, status=403, reason="Forbidden", times=1))
    with attending(cluster, metadata) as err:
        soon(lambda: "answered 500" in err.getvalue())
        metadata.say(SPOT, SPOT_NOTICE)
        metadata.status = None
        soon(lambda: "may not get nodes" in err.getvalue())
        soon(lambda: standing(cluster) == SPOT_SAID)
        soon(lambda: "answer again" in err.getvalue())
    # Each trouble is said once, however often it was met.
    assert err.getvalue().count("answered 500") == 1
    # What stands stays: the node still goes.
    assert standing(cluster) == SPOT_SAID


def test_a_lost_reply_of_the_api_server_is_no_second_notice(cluster, metadata):
    cluster.faults.add(Fault("PATCH", NODES, drop=True, late=True))
    before = cluster.faults.count_seen("PATCH", NODES)
    metadata.say(SPOT, SPOT_NOTICE)
    with attending(cluster, metadata) as err:
        soon(lambda: "spot (terminate)" in err.getvalue())
    assert cluster.faults.count_seen("PATCH", NODES) == before + 1
    assert standing(cluster) == SPOT_SAID


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "--node: name the node"),
        (("--node=mine", "--imds=169.254.169.254"), "is no address"),
        (("--node=mine", "--every=10ms"), "10ms"),
        (("--node=mine", "--every=0.5s"), "shorter than 1s"),
    ],
)
def test_wrong_flags_are_refused(flags, words, monkeypatch):
    monkeypatch.delenv("NODE_NAME", raising=False)
    done = called("node-agent", *flags)
    assert done.returncode == 2
    assert words in done.stderr
