"""Nodes that are added to a snapshot."""

import numpy as np

from rebalancer.machines.capacity.groups import Groups
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.nodes import AddedNode, with_nodes
from rebalancer.snapshot.state import ClusterState
from rebalancer.testing.snapshots import HOSTNAME, ZONE, node, snapshot_of, spread, workload
from tests.unit.machines.capacity.conftest import group


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


def _with_devices():
    """Return a cluster with a device plug-in on a, a device on b, and a claim on b that two pods share."""
    gpu = "example.com/gpu"
    plugged = node("a")
    for amounts in ("allocatable", "capacity"):
        plugged["status"].setdefault(amounts, {})[gpu] = "2"
    key = {"key": "metadata.name", "operator": "In", "values": ["b"]}
    result = {"request": "r", "driver": "d", "pool": "other", "device": "x"}
    claims = {"resourceClaims": [{"name": "x", "resourceClaimName": "shared"}]}
    container = {"name": "c", "resources": {"requests": {gpu: "1"}}}
    pods = [
        *workload("asks", [""], spec={"containers": [container]}),
        *workload("shares", ["b", "b", ""], spec=claims),
    ]
    reserved = [
        {"resource": "pods", "uid": one["metadata"]["uid"]} for one in pods if one["kind"] == "Pod"
    ]
    shared_claim = {
        "kind": "ResourceClaim",
        "metadata": {"name": "shared", "namespace": "default"},
        "status": {
            "allocation": {
                "devices": {"results": [result]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [key]}]},
            },
            "reservedFor": reserved,
        },
    }
    pool = {"name": "b", "generation": 1, "resourceSliceCount": 1}
    slices = {"driver": "d", "nodeName": "b", "pool": pool, "devices": [{"name": "x"}]}
    return snapshot_of(
        [
            *(plugged, node("b"), *pods, shared_claim),
            {"kind": "ResourceSlice", "metadata": {"name": "b"}, "spec": slices},
            {
                "kind": "DeviceClass",
                "metadata": {"name": "gpu"},
                "spec": {"extendedResourceName": gpu},
            },
            {"kind": "ResourceClaimTemplate", "metadata": {"name": "none", "namespace": "x"}},
        ]
    )


def test_a_new_node_has_no_devices_of_the_node_that_it_is_like():
    snapshot = _with_devices()
    groups = Groups(snapshot, [group("g", "a"), group("h", "b")])
    added = [
        groups.template_of_node(one, row).node(1, None) for row, one in enumerate(groups.groups)
    ]
    more = with_nodes(snapshot, added)
    model, state = SchedulerModel(more, SchedulerProfile.for_version((1, 36))), ClusterState(more)
    asks, shares = (int(more.pods.cls[more.pods.name.index(of)]) for of in ("asks-0", "shares-0"))
    assert model.find_unmodelled(asks) == model.find_unmodelled(shares) == ()
    assert model.feasible(state, asks).tolist() == [True, True, True, False]
    assert model.feasible(state, shares).tolist() == [False, True, False, False]
