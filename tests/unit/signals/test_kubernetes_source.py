"""What nodes announce themselves, and when it is taken back."""

import json
import threading

import pytest
from msgspec.structs import replace

from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Stop
from rebalancer.registry import SIGNALS
from rebalancer.signals import model, state
from rebalancer.signals.kubernetes import KubernetesParams, KubernetesReceiver
from rebalancer.signals.model import FollowedNodes
from rebalancer.signals.notice import NOTICE, NodeNotice, encode_notice, read
from rebalancer.signals.state import STATE
from rebalancer.wire import objects as o
from tests.support.contracts import check_source, surroundings


def node(name="n1", *, taints=(), conditions=(), annotations=None):
    return o.Node(
        metadata=o.ObjectMeta(name=name, uid=f"uid-{name}", annotations=annotations),
        spec=o.NodeSpec(
            provider_id=f"aws:///eu-west-1a/i-{name}",
            taints=tuple(o.Taint(key=key, value=value) for key, value in taints),
        ),
        status=o.NodeStatus(
            conditions=tuple(
                o.Condition(type=type_, status=is_, reason="".join(reason))
                for type_, is_, *reason in conditions
            )
        ),
    )


class Cluster:
    """Nodes that change, and the receiver that hears of it."""

    def __init__(self, *nodes, **params):
        self.nodes = {one.metadata.name: one for one in nodes}
        self.followed = FollowedNodes(lambda: list(self.nodes.values()))
        around = surroundings("kubernetes", nodes=self.followed)
        self.receiver = KubernetesReceiver(KubernetesParams(**params), around)

    def change(self, after):
        before = self.nodes.get(after.metadata.name)
        self.nodes[after.metadata.name] = after
        self.followed.note_change(before, after)

    def remove(self, name):
        self.followed.note_change(self.nodes.pop(name), None)

    def said(self):
        at_once = threading.Event()
        at_once.set()
        stop = Stop(SystemClock(), signalled=at_once)
        return [
            (one.node, one.kind, one.deadline, one.cancelled) for one in self.receiver.receive(stop)
        ]


SPOT = "aws-node-termination-handler/spot-itn"
REBALANCE = "aws-node-termination-handler/rebalance-recommendation"


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        ({}, []),
        ({"taints": [("dedicated", "db")]}, []),
        ({"taints": [(SPOT, "event-7")]}, ["spot"]),
        ({"taints": [("ToBeDeletedByClusterAutoscaler", "1")]}, ["scale-in"]),
        ({"taints": [("DeletionCandidateOfClusterAutoscaler", "1")]}, []),
        ({"conditions": [("Ready", "True"), ("MaintenancePlanned", "True")]}, ["maintenance"]),
        ({"conditions": [("MaintenancePlanned", "False")]}, []),
        ({"conditions": [("MaintenancePlanned", "True", "MaintenanceWindow")]}, ["maintenance"]),
        # What ours show of what they do: the pipeline would announce its own machine, and never let it go.
        ({"conditions": [("MaintenancePlanned", "True", "RebalancerInterruption")]}, []),
        ({"conditions": [("DrainInProgress", "True", "RebalancerDrain")]}, []),
        (
            {"taints": [(SPOT, "7")], "conditions": [("DrainInProgress", "True")]},
            ["spot", "announced"],
        ),
        ({"annotations": {NOTICE: encode_notice(NodeNotice("e1", "shutdown"))}}, ["shutdown"]),
        # A recommendation is none of the announcements that are attended to by default.
        ({"annotations": {NOTICE: encode_notice(NodeNotice("e1", "rebalance"))}}, []),
        ({"taints": [(REBALANCE, "1")]}, []),
        ({"annotations": {NOTICE: "no JSON"}}, []),
        ({"annotations": {"rebalancer/leave": "now"}}, []),
    ],
)
def test_a_node_is_said_to_go_by_what_it_announces(given, kinds):
    assert [kind for _, kind, _, _ in Cluster(node(**given)).said()] == kinds


def test_it_is_said_once_and_again_with_another_deadline():
    notice = {"id": "e1", "kind": "spot"}

    def at(deadline):
        value = json.dumps({**notice, "deadline": deadline})
        return node(annotations={NOTICE: value})

    cluster = Cluster(at("2026-11-20T10:02:00Z"))
    assert cluster.said() == [("n1", "spot", 1795168920.0, False)]
    cluster.change(at("2026-11-20T10:02:00Z"))
    assert cluster.said() == []
    cluster.change(at("2026-11-20T10:01:00Z"))
    assert cluster.said() == [("n1", "spot", 1795168860.0, False)]


def test_what_is_taken_back_is_cancelled_and_what_is_gone_is_not():
    cluster = Cluster(node(taints=[(SPOT, "7")]), node("n2", taints=[(SPOT, "8")]))
    assert len(cluster.said()) == 2
    cluster.change(node())
    cluster.remove("n2")
    assert cluster.said() == [("n1", "spot", None, True)]


def test_what_was_taken_back_while_no_process_was_there_is_cancelled():
    causes = [
        {"id": "uid-n1/e1", "kind": "spot", "source": "kubernetes"},
        {"id": "m-1", "kind": "spot", "source": "sqs"},
    ]
    before = json.dumps({"causes": causes, "begun": 1.0, "uid": "uid-n1"})
    cluster = Cluster(node(annotations={STATE: before}))
    assert cluster.said() == [("n1", "spot", None, True)]
    still = node("n2", annotations={STATE: before.replace("n1", "n2")}, taints=[("x", "")])
    cluster.change(still)
    assert cluster.said() == [("n2", "spot", None, True)]


def test_nodes_that_were_listed_again_are_compared_as_a_whole():
    cluster = Cluster(node(), node("n2", taints=[(SPOT, "8")]))
    assert len(cluster.said()) == 1
    cluster.nodes["n1"] = node(taints=[(SPOT, "9")])
    cluster.followed.note_change(None, None)
    assert cluster.said() == [("n1", "spot", None, False)]


def test_a_heartbeat_of_a_node_wakes_nobody():
    cluster = Cluster(node())
    cluster.said()
    cluster.change(node(conditions=[("Ready", "True")]))
    assert cluster.followed._came.is_set()
    cluster.said()
    cluster.change(node(conditions=[("Ready", "True")]))
    assert not cluster.followed._came.is_set()


def test_what_ours_show_wakes_nobody_until_somebody_else_says_it():
    cluster = Cluster(node())
    cluster.said()
    cluster.change(node(conditions=[("DrainInProgress", "True", "RebalancerDrain")]))
    assert not cluster.followed._came.is_set()
    cluster.change(node(conditions=[("DrainInProgress", "True", "KubectlDrainStarted")]))
    assert cluster.followed._came.is_set()


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        (("n2", "", ""), "n2"),
        (("", "aws:///eu-west-1a/i-n1", ""), "n1"),
        (("", "", "i-n2"), "n2"),
        (("", "", "n2"), None),
        (("", "", ""), None),
        (("n3", "", "i-n1"), None),
    ],
)
def test_a_machine_is_known_by_name_provider_id_or_instance(asked, name):
    nodes = Cluster(node(), node("n2")).followed
    there = nodes.node_of(*asked)
    assert (None if there is None else there.metadata.name) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"id": "", "kind": "spot"}',
        '{"id": "e", "kind": "spot", "deadline": "soon"}',
    ],
)
def test_a_notice_that_cannot_be_read_is_none(text):
    assert read(text) is None


def test_it_keeps_the_contract(monkeypatch):
    # It waits for what is done already, which is not said again.
    monkeypatch.setattr(model, "_MAX_WAIT", 0.5)
    cluster = Cluster(node(), node("n2"))

    def announce():
        for name in cluster.nodes:
            cluster.change(node(name, taints=[(SPOT, "7")]))

    said = check_source(
        SIGNALS.installed().load("kubernetes"),
        KubernetesParams(),
        announce,
        ["n1", "n2"],
        surroundings("kubernetes", nodes=cluster.followed),
    )
    assert {one.node for one in said} == {"n1", "n2"}


@pytest.mark.parametrize(
    "text",
    [
        '{"id": "", "kind": "spot"}',
        '{"id": "%s", "kind": "spot"}' % ("e" * 201),
        '{"id": "e 1", "kind": "spot"}',
        '{"id": "e1", "kind": "Spot\\u001b[2J"}',
        '{"id": "e1", "kind": "spot", "deadline": "soon"}',
        '{"id": "e1", "kind": "spot", "reason": "%s"}' % ("r" * 2000),
    ],
)
def test_what_no_agent_would_write_is_no_notice(text):
    assert read(text) is None


def test_a_notice_speaks_of_its_own_node_and_no_other():
    text = '{"id": "uid-n2/e1", "kind": "spot", "node": "n2", "provider_id": "i-n2", "instance": "i-n2"}'
    cluster = Cluster(node("n1", annotations={NOTICE: text}), node("n2"))
    assert cluster.said() == [("n1", "spot", None, False)]


def test_nodes_that_went_unheard_are_forgotten():
    cluster = Cluster(node("n1", taints=[(SPOT, "7")]), node("n2"))
    cluster.said()
    del cluster.nodes["n1"]
    cluster.followed.note_change(None, None)
    assert cluster.said() == []
    assert set(cluster.receiver._said) == {"n2"}


def test_kinds_are_attended_to_as_the_policy_says():
    tainted = node(taints=[(SPOT, "1"), (REBALANCE, "1")])
    said = Cluster(tainted, ignore_kinds=("spot",)).said()
    assert [kind for _, kind, _, _ in said] == ["rebalance"]


def test_a_recommendation_that_was_attended_to_before_is_withdrawn_once_it_is_ignored():
    cause = state.RecordedInterruption("uid/e1", "rebalance", "kubernetes")
    standing = {NOTICE: encode_notice(NodeNotice("e1", "rebalance"))}
    there = node(
        annotations={
            **standing,
            STATE: state.encode_state(state.PipelineState((cause,), 1.0, uid="uid-n1")),
        }
    )
    said = Cluster(there).said()
    assert [(kind, cancelled) for _, kind, _, cancelled in said] == [("rebalance", True)]


def test_a_notice_may_have_a_window():
    window = NodeNotice("e1", "system-reboot", "2026-11-20T10:00:00Z", until="2026-11-20T12:00:00Z")
    cluster = Cluster(node(annotations={NOTICE: encode_notice(window)}))
    (one,) = cluster.receiver.receive(Stop(SystemClock()))
    assert (one.deadline, one.until) == (1795168800.0, 1795176000.0)
    assert read(encode_notice(replace(window, until="soon"))) is None
