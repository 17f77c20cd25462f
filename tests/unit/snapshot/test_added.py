"""Nodes that are added to a snapshot."""

import numpy as np

from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.nodes import AddedNode, with_nodes
from rebalancer.snapshot.state import ClusterState
from rebalancer.testing.snapshots import HOSTNAME, ZONE, node, snapshot_of, spread, workload


def _objects(*more):
    return [node("a", "za"), node("b", "zb"), *workload("web", ["a", "b", ""], spec=_SPEC), *more]


_SPEC = spread("web", ZONE, hard=True)


def _added(snapshot, name, zone):
    row = snapshot.nodes.index["a"]
    labels = {HOSTNAME: name, ZONE: zone}
    amounts = snapshot.nodes.allocatable[:, row]
    return AddedNode(name, labels, (), amounts, int(snapshot.nodes.max_pods[row]), row)


def test_the_scheduler_judges_an_added_node_as_one_that_was_read():
    read = snapshot_of(_objects(node("c", "zc")))
    without = snapshot_of(_objects())
    added = with_nodes(without, [_added(without, "c", "zc")])
    for snapshot in (read, added):
        model = SchedulerModel(snapshot, SchedulerProfile.for_version((1, 36)))
        assert model.feasible(ClusterState(snapshot), 0).tolist() == [False, False, True]
    assert np.array_equal(added.nodes.allocatable, read.nodes.allocatable)
    assert (added.nodes.names, added.nodes.index) == (read.nodes.names, read.nodes.index)


def test_a_node_that_is_not_there_is_no_domain():
    snapshot = snapshot_of(_objects())
    added = with_nodes(snapshot, [_added(snapshot, "c", "zc")])
    model = SchedulerModel(added, SchedulerProfile.for_version((1, 36)))
    model.without(np.array([False, False, True]))
    assert model.feasible(ClusterState(added), 0)[:2].all()
