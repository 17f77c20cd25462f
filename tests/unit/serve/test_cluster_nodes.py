"""The nodes that a process follows, each listener by itself."""

import pytest

from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Stop
from rebalancer.serve.interruptions import ClusterNodes
from rebalancer.wire.objects import Node, NodeSpec, ObjectMeta

STOP = Stop(SystemClock())


def node(name, provider_id=""):
    return Node(metadata=ObjectMeta(name=name), spec=NodeSpec(provider_id=provider_id))


@pytest.fixture
def nodes():
    made = ClusterNodes()
    made.read_from(lambda: [node("n-a", "aws:///a/i-1"), node("n-b")])
    return made


def test_each_listener_has_all_nodes_first_and_each_change_once(nodes):
    first, second = nodes.add_listener(), nodes.add_listener()
    assert {*first.news(STOP)} == {"n-a", "n-b"}
    nodes.note_change(node("n-b"), None)
    nodes.note_change(None, node("n-c"))
    assert first.news(STOP) == {"n-b": None, "n-c": node("n-c")}
    # What one has had, the other has still to have: all, since it has not asked before.
    assert {name for name, one in second.news(STOP).items() if one is not None} == {"n-a", "n-b"}


def test_a_listener_that_ended_is_given_no_more_changes(nodes):
    ended = nodes.add_listener()
    ended.news(STOP)
    nodes.end_following()
    nodes.note_change(None, node("n-c"))
    later = nodes.add_listener()
    later.news(STOP)
    nodes.note_change(None, node("n-d"))
    assert {*later.news(STOP)} == {"n-d"}
    over = Stop(SystemClock())
    over.add(lambda: "over")
    assert ended.news(over) == {}


def test_nodes_are_those_of_the_follower_that_was_named_last(nodes):
    assert nodes.find("n-a") == node("n-a", "aws:///a/i-1")
    assert nodes.add_listener().node_of("", "", "i-1") == node("n-a", "aws:///a/i-1")
    nodes.read_from(lambda: [node("n-c")])
    assert nodes.find("n-a") is None
    assert [*nodes()] == [node("n-c")]
