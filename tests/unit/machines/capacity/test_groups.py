"""Groups bound to nodes, and what a new node of each would be."""

import pytest

from rebalancer.base.errors import ProviderError
from rebalancer.machines.capacity.groups import Groups
from rebalancer.providers.contract import NodeTemplate
from rebalancer.testing.snapshots import HOSTNAME, ZONE, node, snapshot_of, workload
from tests.unit.machines.capacity.conftest import group


def _none(_):
    return None


def _made(snapshot, of):
    made = Groups(snapshot, [of]).template_of(of, _none)
    assert made is not None
    return made


def test_a_new_node_is_like_a_live_one_but_for_its_names():
    own = {"csi.example/node": "a", "csi.example/zone": "za", "pool": "web"}
    snapshot = snapshot_of([node("a", "za", labels=own), *workload("web", ["a"])])
    made = _made(snapshot, group("pool", "a"))
    new = made.node(1, "zb")
    assert dict(new.labels) == {
        "csi.example/zone": "zb",
        "pool": "web",
        HOSTNAME: "pool/new-1",
        ZONE: "zb",
    }
    assert made.source == "a"


def test_nodes_are_known_by_their_machine_and_without_one_by_name():
    with_id = node("a")
    with_id["spec"]["providerID"] = "aws:///za/i-1"
    snapshot = snapshot_of([with_id, node("b"), node("c")])
    groups = Groups(snapshot, [of := group("pool", "aws:///za/i-1", "b", "a")])
    assert groups.nodes_of(of) == [0, 1]


def test_a_machine_that_two_nodes_name_is_no_nodes():
    """A kubelet chooses the providerID of its node: an empty node must not end the machine of another one."""
    claiming, owner = node("evil"), node("victim")
    for one in (claiming, owner):
        one["spec"]["providerID"] = "aws:///za/i-1"
    snapshot = snapshot_of([claiming, owner, node("b")])
    groups = Groups(snapshot, [of := group("pool", "aws:///za/i-1", "b")])
    assert [snapshot.nodes.names[one] for one in groups.nodes_of(of)] == ["b"]


def test_what_shows_the_state_of_a_node_is_not_of_a_new_one():
    def tainted(name, *keys):
        return node(name, taints=[{"key": key, "effect": "NoSchedule"} for key in keys])

    status = "status-taint.cluster-autoscaler.kubernetes.io/x"
    snapshot = snapshot_of([tainted("a", "agent", status, "stays"), tainted("b", "stays")])
    groups = Groups(snapshot, [of := group("pool", "a", "b")], ["agent"])
    made = groups.template_of(of, _none)
    assert made is not None
    # The first by name is one that starts.
    assert (made.source, [taint.key for taint in made.taints]) == ("b", ["stays"])
    groups = Groups(snapshot, [of := group("pool", "a")], ["agent"])
    made = groups.template_of(of, _none)
    assert made is not None
    assert [taint.key for taint in made.taints] == ["stays"]


def test_a_node_that_is_not_ready_is_no_model():
    snapshot = snapshot_of([node("a", ready=False), node("b")])
    assert _made(snapshot, group("pool", "a", "b")).source == "b"
    assert Groups(snapshot, [of := group("pool", "a")]).template_of(of, _none) is None


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ([group("x"), group("x")], "two groups are named 'x'"),
        ([group("x", "a"), group("y", "a")], "a is in the groups 'x' and 'y'"),
    ],
)
def test_answers_that_contradict_themselves_are_refused(groups, text):
    with pytest.raises(ProviderError, match=text):
        Groups(snapshot_of([node("a")]), groups)


def test_a_template_with_an_amount_that_is_none_is_refused():
    snapshot = snapshot_of([node("a"), *workload("web", ["a"])])
    broken = NodeTemplate({}, (), {"cpu": "much", "memory": "1Gi", "pods": "10"})
    with pytest.raises(ProviderError, match="the template of x: allocatable: 'much'"):
        Groups(snapshot, [of := group("x")]).template_of(of, lambda _: broken)
