"""The label that takes a node out of load balancers, as a drain sets it, takes it back, and hands it over."""

from typing import Any

import msgspec
import pytest

from rebalancer.kube.client import connect
from rebalancer.kube.nodes import NodeChange, change_node
from rebalancer.machines.capacity.writing import change_state
from rebalancer.machines.drain.cordon import cordon, enter, finish, give_up, let_go, open_node
from rebalancer.node_record.protocol import EXCLUDE
from rebalancer.node_record.records import Order, ReplacePhase, Stage, take_back_label
from rebalancer.snapshot.leaving import DRAIN, LEAVE
from rebalancer.testing.objects import EmbeddedCluster
from rebalancer.wire.marks import Phase, ScaleInRecord


class Scene:
    """A node of an embedded cluster."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.client = connect(kubeconfig=cluster.kubeconfig, environ={})

    def drain(self, by: str = "a", *, excludes: bool = True) -> None:
        uid = self.cluster.get("Node", "n")["metadata"]["uid"]
        cordon(self.client, "n", Order(by, "disk", "t", uid, excludes=excludes))

    def finish(self, by: str = "a", *, uncordon: bool = False) -> None:
        assert (let_go if uncordon else finish)(self.client, "n", by)

    def people(self, **change: Any) -> None:
        change_node(self.client, "n", lambda _: NodeChange(**change))

    def take_back(self) -> None:
        take_back_label(self.client, "n")

    @property
    def state(self) -> tuple[bool, bool, bool]:
        """Whether the node is cordoned, labelled, and has a record of a drain."""
        node = self.cluster.get("Node", "n")
        meta = node["metadata"]
        return (
            bool(node["spec"].get("unschedulable")),
            EXCLUDE in meta["labels"],
            DRAIN in meta.get("annotations", {}),
        )


@pytest.fixture
def scene():
    with EmbeddedCluster() as cluster:
        cluster.add_node("n", "zone-a")
        cluster.settle()
        yield Scene(cluster)


OPEN = (False, False, False)


def test_it_comes_and_goes_with_the_cordon(scene):
    scene.drain()
    assert scene.state == (True, True, True)
    scene.finish(uncordon=True)
    assert scene.state == OPEN


def test_it_is_not_set_unless_asked(scene):
    scene.drain(excludes=False)
    assert scene.state == (True, False, True)
    scene.finish()
    assert scene.state == (True, False, False)


@pytest.mark.parametrize("uncordon", [True, False])
def test_that_of_people_stays(scene, uncordon):
    scene.people(labels={EXCLUDE: ""})
    scene.drain()
    scene.finish(uncordon=uncordon)
    assert scene.state == (not uncordon, True, False)
    scene.take_back()
    assert scene.state == (not uncordon, True, False)


def test_that_of_people_on_a_node_that_they_had_cordoned_stays_and_ours_goes(scene):
    scene.people(unschedulable=True)
    scene.drain()
    scene.finish(uncordon=True)
    assert scene.state == (True, False, False)


def test_it_stays_on_an_empty_node_until_people_open_that(scene):
    scene.drain()
    scene.finish()
    scene.take_back()
    assert scene.state == (True, True, True)
    scene.people(unschedulable=False)
    scene.take_back()
    assert scene.state == OPEN


def test_a_drain_that_gives_up_leaves_it_with_the_cordon(scene):
    scene.drain()
    give_up(scene.client, "n", "a")
    assert scene.state == (True, True, True)
    scene.people(unschedulable=False)
    scene.take_back()
    assert scene.state == OPEN


def test_a_drain_that_gives_up_after_people_have_opened_the_node_takes_it_back(scene):
    scene.drain()
    scene.people(unschedulable=False)
    give_up(scene.client, "n", "a")
    assert scene.state == OPEN


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("opened", [True, False])
def test_a_later_drain_takes_over_whose_it_is(scene, again, opened):
    scene.drain()
    scene.finish()
    if opened:
        scene.people(unschedulable=False)
    scene.drain("b", excludes=again)
    assert scene.state == (True, True, True)
    scene.finish("b", uncordon=True)
    assert scene.state == OPEN


def test_it_is_handed_over_between_a_drain_and_scale_in(scene):
    change_state(scene.client, "n", ScaleInRecord(Phase.LEAVING, "", ""), None)
    scene.drain()
    assert scene.state == (True, True, True)
    change_state(scene.client, "n", None, Phase.LEAVING)
    assert scene.state == (True, True, True)
    scene.finish(uncordon=True)
    assert scene.state == OPEN


def test_scale_in_takes_back_its_own_beside_a_drain_that_does_not_want_it(scene):
    change_state(scene.client, "n", ScaleInRecord(Phase.LEAVING, "", ""), None)
    scene.drain(excludes=False)
    change_state(scene.client, "n", None, Phase.LEAVING)
    assert scene.state == (True, False, True)


@pytest.mark.parametrize("by_people", [True, False])
def test_to_open_a_node_takes_back_what_drains_have_left(scene, by_people):
    scene.drain()
    scene.finish()
    if by_people:
        scene.people(unschedulable=False)
    assert open_node(scene.client, "n") is None
    assert scene.state == OPEN


def test_a_node_without_anything_of_ours_is_opened_as_by_kubectl(scene):
    scene.people(unschedulable=True, labels={EXCLUDE: ""})
    assert open_node(scene.client, "n") is None
    assert scene.state == (False, True, False)
    assert open_node(scene.client, "nobody") == "there is no such node"


def test_a_node_that_something_else_wants_closed_is_not_opened(scene):
    scene.drain()
    scene.people(annotations={LEAVE: "now"})
    assert open_node(scene.client, "n") == "something else on it wants it closed"
    assert scene.state == (True, True, True)
    scene.people(annotations={LEAVE: None})
    assert open_node(scene.client, "n") is None
    assert scene.state == OPEN
    change_state(scene.client, "n", ScaleInRecord(Phase.LEAVING, "", ""), None)
    assert open_node(scene.client, "n") == "something else on it wants it closed"
    assert scene.state == (True, True, False)


def test_a_node_whose_machine_may_be_ending_is_not_opened(scene):
    scene.drain()
    uid = scene.cluster.get("Node", "n")["metadata"]["uid"]
    removing = Stage(ReplacePhase.REMOVING, "r", 1.0, uid)
    assert enter(scene.client, "n", removing, may=lambda *_: True)
    assert open_node(scene.client, "n") == "r is ending its machine"
    assert scene.state == (True, True, True)


@pytest.mark.parametrize("drained", [True, False])
def test_a_stage_that_the_version_before_wrote_apart_is_read_and_taken_away(scene, drained):
    uid = scene.cluster.get("Node", "n")["metadata"]["uid"]
    stage = Stage(ReplacePhase.REMOVING, "r", 1.0, uid)
    if drained:
        scene.drain()
    scene.people(annotations={"rebalancer/replace": msgspec.json.encode(stage).decode()})
    assert open_node(scene.client, "n") == "r is ending its machine"
    done = msgspec.structs.replace(stage, phase=ReplacePhase.DONE)
    assert not enter(scene.client, "n", done, may=lambda _, before: before is None)
    assert enter(scene.client, "n", done, may=lambda _, before: before == stage)
    annotations = scene.cluster.get("Node", "n")["metadata"]["annotations"]
    assert "rebalancer/replace" not in annotations
    assert open_node(scene.client, "n") is None
    assert scene.state == OPEN
