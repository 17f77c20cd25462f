"""When a run stands still, and when nothing can be judged."""

import pytest

from rebalancer.planner.safety import lost_pods, not_judged, standstill
from rebalancer.policy.cluster import Safety
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.testing.snapshots import OLD, node, snapshot_of, workload

NAMES = [f"n{i}" for i in range(5)]
NODES = [node(name) for name in NAMES]
CORDONED = [node(f"n{i}", unschedulable=True) for i in range(5)]
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "not-there"}}
GOING = [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]


def reasons(objects, skew=0.0):
    snapshot = snapshot_of(objects)
    return standstill(
        snapshot, Safety(), skew, lambda: SchedulerProfile.for_version(snapshot.version)
    )


def not_ready(count, **more):
    return [*NODES[count:], *(node(f"n{i}", ready=False, **more) for i in range(count))]


def missing(count, each=1, **spec):
    """Five nodes with pods on them, of which so many do not exist; on each of these stand some pods."""
    nodes = [f"n{i}" for i in range(5)]
    kept = workload("kept", nodes[count:])
    return [*NODES[count:], *kept, *workload("lost", nodes[:count] * each, spec=spec)]


def tenant(count, runs=0):
    """The nodes, and a workload of a namespace of its own of which some run and more wait."""
    return [*NODES, *workload("mine", ["n0"] * runs + [""] * count, namespace="tenant")]


def pending(objects):
    return [
        {**one, "status": {"phase": "Pending"}} if one["kind"] == "Pod" else one for one in objects
    ]


def of_daemon_set(name):
    (pod,) = [one for one in workload(f"agent-{name}", [name]) if one["kind"] == "Pod"]
    owner = {**pod["metadata"]["ownerReferences"][0], "kind": "DaemonSet"}
    return [{**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}}]


def terminating(item):
    if item["kind"] != "Pod":
        return item
    return {**item, "metadata": {**item["metadata"], "deletionTimestamp": OLD}}


def waiting(count, **spec):
    return [*NODES, *workload("web", [""] * count, spec=spec)]


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        (not_ready(1), None),  # 20% of five
        (not_ready(2), "2 of 5 nodes are NotReady, safety.maxNotReadyNodes allows 1"),
        # A node that is taken away is not Ready in the end.
        (not_ready(2, taints=GOING), None),
        (waiting(10), None),
        (waiting(11), "11 pods wait for a node, safety.maxPendingPods allows 10"),
        # The scheduler does not look at a gated pod: what opens the gate is not the room.
        (waiting(11, schedulingGates=[{"name": "later"}]), None),
        # One broken workload, which no room helps: it says nothing of how full the cluster is.
        (waiting(11, nodeSelector={"disk": "of-none"}), None),
        (waiting(11, volumes=[CLAIM]), None),
        ([*waiting(0), *workload("web", [""] * 11, cpu="5")], None),
        # It hides none of those that do wait for room.
        (
            [*waiting(11), *workload("off", [""] * 20, spec={"nodeSelector": {"disk": "of-none"}})],
            "11 pods wait for a node (20 more wait for something else than room), safety.maxPendingPods allows 10",
        ),
        # That all nodes are closed is no fault of the pods.
        (
            [*workload("web", [""] * 11), *CORDONED],
            "11 pods wait for a node, safety.maxPendingPods allows 10",
        ),
        # A node that is missing counts as one that is NotReady.
        (missing(1), None),
        (
            missing(2),
            "2 of 5 nodes do not exist, though pods are on them (n0, n1): safety.maxNotReadyNodes allows 1",
        ),
        (
            [*missing(1)[1:], node("n1", ready=False)],
            "1 of 5 nodes does not exist, though pods are on them (n0), 1 is NotReady: safety.maxNotReadyNodes allows 1",
        ),
        # Its pods wait for other nodes: many of them are too many, on however few nodes they were.
        (missing(1, each=10), None),
        (
            missing(1, each=11),
            "11 pods wait for a node or are on a node that does not exist, safety.maxPendingPods allows 10",
        ),
        (
            [*missing(1, each=5), *workload("new", [""] * 6)],
            "11 pods wait for a node or are on a node that does not exist, safety.maxPendingPods allows 10",
        ),
        # No node is like the one that is gone: its pods are about to wait for one all the same.
        (
            missing(1, each=11, nodeSelector={"disk": "of-none"}),
            "11 pods wait for a node or are on a node that does not exist, safety.maxPendingPods allows 10",
        ),
        # A tenant's pods that never fit hold up nobody else; those that it has lost do.
        ([*workload("big", NAMES * 2), *tenant(12)], None),
        (
            [*workload("big", NAMES * 4), *tenant(12, runs=11)],
            "11 pods wait for a node (1 more are too many of one namespace to count), safety.maxPendingPods allows 10",
        ),
        # Those of three small ones together are as many as the cluster is to hold up for.
        (
            [
                *NODES,
                *workload("big", NAMES * 4),
                *(
                    pod
                    for name in ("one", "two", "three")
                    for pod in workload(name, [""] * 12, namespace=name)
                ),
            ],
            "15 pods wait for a node (21 more are too many of one namespace to count), safety.maxPendingPods allows 10",
        ),
        # Whoever made a pod with the name of a node that never was has lost nothing.
        (
            [
                *NODES,
                *workload("big", NAMES * 2),
                *pending(workload("own", ["ghost-1", "ghost-2", "ghost-3"] * 4)),
            ],
            None,
        ),
        # A node that was drained before it went leaves these behind.
        ([*NODES[2:], *(pod for n in ("n0", "n1") for pod in of_daemon_set(n))], None),
        ([*NODES[2:], *(terminating(pod) for pod in workload("web", ["n0", "n1"]))], None),
    ],
)
def test_an_unhealthy_cluster_is_left_alone(objects, reason):
    assert reasons(objects) == ([] if reason is None else [reason])


@pytest.mark.parametrize("skew", [61.0, -61.0])
def test_clocks_that_are_apart_are_no_ground_to_judge_ages_on(skew):
    (reason,) = reasons(NODES, skew)
    assert reason == (
        "our clock and the API server's are 61 s apart, safety.maxClockSkew allows 60 s"
    )
    assert not reasons(NODES, skew / 61 * 60)


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ([], ("there is no node",)),
        (NODES, ("there is no pod",)),
        ([*NODES, *workload("web", ["n0"])], ()),
        ([*NODES, *workload("web", ["n0", "gone"])], ()),
        ([*NODES, *workload("web", ["gone"])], ("1 of 1 pod is on nodes that do not exist",)),
        (
            [*NODES, *workload("web", ["gone", "away"])],
            ("2 of 2 pods are on nodes that do not exist",),
        ),
    ],
)
def test_what_cannot_be_judged_is_said(objects, why):
    assert not_judged(snapshot_of(objects)) == why


def test_lost_pods_are_counted_among_all():
    assert lost_pods(snapshot_of([*NODES, *workload("web", ["n0", "gone"])])) == (
        "1 of 2 pods are on nodes that do not exist"
    )
    assert lost_pods(snapshot_of(NODES)) == ""


def test_a_workload_with_a_pod_on_a_missing_node_lacks_that_pod_whatever_its_status_says():
    objects = [*NODES[1:], *workload("web", ["n0", "n1", "n1"])]
    (owner,) = snapshot_of(objects).owners
    assert (owner.ready, owner.unsettled) == (2, "2 of 3 replicas ready")
    (owner,) = snapshot_of([NODES[0], *objects]).owners
    assert (owner.ready, owner.unsettled) == (3, None)
