"""The conditions of a node's lifecycle (KEP-5683) are the same on each version of Kubernetes, whether its API has names for them or not.

1.36 has none, 1.37 has; the control plane of neither reads them, or writes any.
"""

from contextlib import contextmanager

import pytest

from tests.controlplane import objects, operations
from tests.e2e.product import rebalancer
from tests.e2e.test_node_conditions import DRAINED, DRAINING, MAINTAINED, PLANNED, TYPES, true
from tests.e2e.watched import sampling

OLD = ("old-0", "old-1")
FIELDS = {"type", "status", "reason", "message", "lastHeartbeatTime", "lastTransitionTime"}
REPLACED = [
    true("RebalancerReplacement", *types)
    for types in ((), (PLANNED,), (PLANNED, DRAINING), (PLANNED, DRAINED), (DRAINED, MAINTAINED))
]
"""What a node says while it is replaced, in this order; some of it for a moment only."""
KUBELET = {"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"}


@pytest.fixture
def two_old_nodes(cluster):
    """A service on two old nodes, and a new one."""
    cluster.apply([objects.node(name, labels={"generation": "old"}) for name in OLD])
    operations.wait_nodes_ready(cluster.api, 2)
    cluster.apply([objects.deployment("web", 4, labels={"app": "web"})])
    operations.wait_pods_ready(cluster.api, 4)
    cluster.apply([objects.node("new-0")])
    operations.wait_nodes_ready(cluster.api, 3)
    return cluster


@contextmanager
def watched(plane):
    """Sample, while inside, the nodes of the cluster."""
    samples = []

    def sample(client):
        samples.append({one["metadata"]["name"]: one for one in client.list_all("/api/v1/nodes")})

    with sampling(plane, sample, pause=0.02):
        yield samples


def lifecycle(node):
    """Return type -> (status, reason), and check that the server keeps what is written and adds nothing."""
    ours = [one for one in node["status"]["conditions"] if one["type"] in TYPES]
    assert all(set(one) == FIELDS for one in ours), ours
    return {one["type"]: (one["status"], one["reason"]) for one in ours}


def test_each_version_keeps_what_a_replacement_and_a_drain_say_and_does_nothing_about_it(
    two_old_nodes,
):
    cluster = two_old_nodes
    flags = ("--node-conditions", "--timeout=300s", f"--kubeconfig={cluster.kubeconfig}")
    with watched(cluster) as samples:
        then = "--then=sh -c 'sleep 2' sh"
        done = rebalancer("replace", "--selector=generation=old", "--pause=1s", then, *flags)
    assert done.code == 0, done.err
    for name in OLD:
        said = [lifecycle(sample[name]) for sample in samples]
        states = [REPLACED.index(one) for one in said]
        assert states == sorted(states), f"{name} went back: {states}"
        # The last is what stays, and the second is said by the one that waits for its turn.
        assert REPLACED[-1] == said[-1]
        assert set(states) >= {0, 1, len(REPLACED) - 1}
        assert {
            (taint["key"], taint["effect"])
            for sample in samples
            for taint in sample[name]["spec"].get("taints", ())
        } == {("node.kubernetes.io/unschedulable", "NoSchedule")}
    for name, node in samples[-1].items():
        types = {one["type"] for one in node["status"]["conditions"]}
        assert types - TYPES <= KUBELET, name
        assert ("Ready", "True") in {(c["type"], c["status"]) for c in node["status"]["conditions"]}
    assert all(lifecycle(sample["new-0"]) == {} for sample in samples)
    cluster.apply([objects.node("new-1")])
    operations.wait_nodes_ready(cluster.api, 4)
    done = rebalancer("drain", "new-0", *flags)
    assert done.code == 0, done.err
    drained = cluster.api.get("/api/v1/nodes/new-0")
    assert lifecycle(drained) == true("RebalancerDrain", DRAINED)
    assert rebalancer("uncordon", "new-0", f"--kubeconfig={cluster.kubeconfig}").code == 0
    assert lifecycle(cluster.api.get("/api/v1/nodes/new-0")) == {}
