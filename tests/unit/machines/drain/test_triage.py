"""What happens to each pod on a node that is to be empty: kubectl's table, and what comes on top."""

import pytest

from rebalancer.machines.drain.cordon import mask_of
from rebalancer.machines.drain.triage import Fate, Orders, daemon_sets_on, triage_pods
from rebalancer.machines.reasons import FateReason
from rebalancer.testing.objects import pod
from rebalancer.testing.snapshots import node, snapshot_of

EMPTY_DIR = {"volumes": [{"name": "v", "emptyDir": {}}]}
MEMORY = {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]}
HOST_PATH = {"volumes": [{"name": "v", "hostPath": {"path": "/var"}}]}
FORCE = Orders(force=True)
LOCAL = Orders(delete_emptydir_data=True)
IGNORE = Orders(ignore_daemonsets=True)
GANG = {"scheduling.k8s.io/group-name": "pg"}
MISSING = frozenset({("default", "agent")})


def running(
    kind="", group="apps/v1", name="app", *, on="n1", deleting=False, annotations=None, **spec
):
    """A pod on a node, of a controller of this kind if one is given."""
    made = pod("p", annotations=annotations or {}, nodeName=on, **spec)
    made["metadata"]["uid"] = "u"
    made["metadata"]["creationTimestamp"] = "2027-01-15T07:00:00Z"
    made["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    if kind:
        made["metadata"]["ownerReferences"] = [
            {"apiVersion": group, "kind": kind, "name": name, "uid": "o", "controller": True}
        ]
    if deleting:
        made["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    return made


def fate(made, orders, *others):
    snapshot = snapshot_of([node("n1"), node("n2"), made, *others])
    (one,) = triage_pods(snapshot, mask_of(snapshot, ["n1"]), orders)
    return one.fate, one.why


REPLICA = running("ReplicaSet")
AGENT = running("DaemonSet", name="agent")
JOB = running("Job", "batch/v1", restartPolicy="Never")


@pytest.mark.parametrize(
    ("made", "orders", "expected"),
    [
        # kubectl's filters: DaemonSets, mirror pods, emptyDir, pods without a controller.
        (REPLICA, Orders(), (Fate.EVICT, FateReason.ORDERED)),
        (running("StatefulSet"), Orders(), (Fate.EVICT, FateReason.ORDERED)),
        (
            running("CloneSet", "apps.kruise.io/v1alpha1"),
            Orders(),
            (Fate.EVICT, FateReason.ORDERED),
        ),
        (AGENT, Orders(), (Fate.REFUSE, FateReason.DAEMON_SET)),
        (AGENT, FORCE, (Fate.REFUSE, FateReason.DAEMON_SET)),
        (AGENT, IGNORE, (Fate.STAY, FateReason.DAEMON_SET)),
        (AGENT, Orders(missing=MISSING), (Fate.REFUSE, FateReason.DAEMON_SET_MISSING)),
        (
            AGENT,
            Orders(missing=MISSING, ignore_daemonsets=True),
            (Fate.REFUSE, FateReason.DAEMON_SET_MISSING),
        ),
        (AGENT, Orders(missing=MISSING, force=True), (Fate.EVICT, FateReason.ORDERED)),
        (
            running("DaemonSet", name="agent", **EMPTY_DIR),
            Orders(missing=MISSING, force=True),
            (Fate.REFUSE, FateReason.LOCAL_DATA),
        ),
        (
            running("Node", "v1", annotations={"kubernetes.io/config.mirror": "x"}),
            Orders(),
            (Fate.STAY, FateReason.MIRROR),
        ),
        (running("ReplicaSet", **EMPTY_DIR), Orders(), (Fate.REFUSE, FateReason.LOCAL_DATA)),
        (running("ReplicaSet", **EMPTY_DIR), FORCE, (Fate.REFUSE, FateReason.LOCAL_DATA)),
        (running("ReplicaSet", **EMPTY_DIR), LOCAL, (Fate.EVICT, FateReason.ORDERED)),
        (running("ReplicaSet", **MEMORY), Orders(), (Fate.REFUSE, FateReason.LOCAL_DATA)),
        (running("ReplicaSet", **HOST_PATH), Orders(), (Fate.EVICT, FateReason.ORDERED)),
        (running(), Orders(), (Fate.REFUSE, FateReason.NO_CONTROLLER)),
        (running(), FORCE, (Fate.EVICT, FateReason.ORDERED)),
        (running(**EMPTY_DIR), LOCAL, (Fate.REFUSE, FateReason.NO_CONTROLLER)),
        # Batch work is waited for.
        (JOB, Orders(), (Fate.WAIT, FateReason.BATCH)),
        (JOB, Orders(evict_batch=True), (Fate.EVICT, FateReason.ORDERED)),
        (
            running("Workflow", "argoproj.io/v1alpha1", restartPolicy="Never"),
            Orders(),
            (Fate.WAIT, FateReason.BATCH),
        ),
        (running(restartPolicy="OnFailure"), FORCE, (Fate.WAIT, FateReason.BATCH)),
        (running("Job", "batch/v1", **EMPTY_DIR), Orders(), (Fate.REFUSE, FateReason.LOCAL_DATA)),
        (
            running(
                "ReplicaSet",
                annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "on-completion"},
            ),
            Orders(),
            (Fate.WAIT, FateReason.BATCH),
        ),
        # A member of a gang of one is a pod like any other.
        (running("ReplicaSet", annotations=GANG), Orders(), (Fate.EVICT, FateReason.ORDERED)),
        # What opted out refuses.
        (
            running("ReplicaSet", annotations={"rebalancer/evict": "false"}),
            Orders(),
            (Fate.REFUSE, FateReason.OPTED_OUT),
        ),
        (
            running("ReplicaSet", annotations={"rebalancer/evict": "false"}),
            FORCE,
            (Fate.EVICT, FateReason.ORDERED),
        ),
        (
            running("ReplicaSet", annotations={"karpenter.sh/do-not-disrupt": "2h"}),
            Orders(),
            (Fate.WAIT, FateReason.OPTED_OUT),
        ),
        (
            running("ReplicaSet", annotations={"karpenter.sh/do-not-disrupt": "5m"}),
            Orders(),
            (Fate.EVICT, FateReason.ORDERED),
        ),
        (running("ReplicaSet", deleting=True), Orders(), (Fate.WAIT, FateReason.TERMINATING)),
        (running("DaemonSet", deleting=True), Orders(), (Fate.REFUSE, FateReason.DAEMON_SET)),
    ],
)
def test_what_becomes_of_a_pod(made, orders, expected):
    assert fate(made, orders) == expected


def test_pods_elsewhere_and_pods_that_have_ended_are_no_business_of_a_drain():
    ended = running("Job", "batch/v1")
    ended["status"]["phase"] = "Succeeded"
    snapshot = snapshot_of([node("n1"), node("n2"), ended, running("ReplicaSet", on="n2")])
    assert triage_pods(snapshot, mask_of(snapshot, ["n1"]), Orders()) == []


def test_an_opt_out_of_the_namespace_counts():
    space = {
        "kind": "Namespace",
        "metadata": {"name": "default", "annotations": {"rebalancer/evict": "false"}},
    }
    assert fate(REPLICA, Orders(), space) == (Fate.REFUSE, FateReason.OPTED_OUT)
    assert fate(REPLICA, FORCE, space) == (Fate.EVICT, FateReason.ORDERED)


def test_the_pod_of_the_command_itself_refuses():
    own = Orders(force=True, own_pod="default/p")
    assert fate(REPLICA, own) == fate(JOB, own) == (Fate.REFUSE, FateReason.OWN_POD)
    assert fate(REPLICA, Orders(own_pod="other/p")) == (Fate.EVICT, FateReason.ORDERED)


def test_the_daemon_sets_to_look_up_are_those_on_the_nodes():
    snapshot = snapshot_of([node("n1"), node("n2"), AGENT])
    assert daemon_sets_on(snapshot, mask_of(snapshot, ["n1"])) == {("default", "agent")}
    assert daemon_sets_on(snapshot, mask_of(snapshot, ["n2"])) == set()


@pytest.mark.parametrize(
    ("kind", "orders", "expected"),
    [
        ("ReplicaSet", Orders(), (Fate.EVICT, FateReason.ORDERED)),
        # Its work comes to an end, and with it the gang.
        ("Job", Orders(), (Fate.WAIT, FateReason.BATCH)),
        ("Job", Orders(evict_batch=True), (Fate.EVICT, FateReason.ORDERED)),
    ],
)
def test_a_member_of_a_gang_has_the_fate_of_any_other_pod(kind, orders, expected):
    group = "batch/v1" if kind == "Job" else "apps/v1"
    other = running(kind, group, on="n2", annotations=GANG)
    other["metadata"] |= {"name": "q", "uid": "u2"}
    assert fate(running(kind, group, annotations=GANG), orders, other) == expected
