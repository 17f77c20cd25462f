"""Duplicates: whose pods count, and how many of them a node may hold."""

import numpy as np
import pytest

from rebalancer.testing.contract import view_of
from rebalancer.testing.snapshots import node, snapshot_of, spread, workload
from strategies.duplicates import Duplicates

NODES = [node(f"n{i}") for i in range(4)]


def term_of(objects, **options):
    (term,) = Duplicates().terms(view_of(snapshot_of(objects)), Duplicates.Params(**options))
    return term


@pytest.mark.parametrize(
    ("on", "unmet"),
    [
        (["n0", "n1"], 0),
        (["n0", "n0"], 1),
        (["n0", "n0", "n0"], 2),
        # Five pods on four nodes: ceil(5 / 4) = 2 may share one.
        (["n0", "n0", "n1", "n2", "n3"], 0),
    ],
)
def test_a_node_may_hold_its_share_of_an_owners_pods(on, unmet):
    assert term_of([*NODES, *workload("web", on)]).potential() == unmet


def controlled_by(kind, name, pods):
    for pod in pods:
        pod["metadata"]["ownerReferences"] = [
            {"kind": kind, "name": name, "uid": name, "controller": True}
        ]
    return pods


@pytest.mark.parametrize(("kind", "name"), [("Node", "n0"), ("DaemonSet", "agent")])
def test_pods_that_belong_to_their_node_are_no_duplicates(kind, name):
    # kubeadm's etcd, API server and scheduler: static pods, all controlled by their Node.
    pods = workload("static", ["n0"] * 3, namespace="kube-system", kind="ReplicaSet")[1:]
    term = term_of([*NODES, *controlled_by(kind, name, pods)])
    assert (term.potential(), term.violated(), len(term.candidates().cls)) == (0, 0, 0)
    assert term.groups_of(np.zeros(1, np.int32)) == []


def test_excluded_kinds_may_share_nodes():
    web = workload("web", ["n0", "n0"])
    assert term_of([*NODES, *web], exclude_owner_kinds=("Deployment",)).potential() == 0


GONE = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
KEPT = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
SHUT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
OS = "kubernetes.io/os"


@pytest.mark.parametrize(
    ("changed", "spec", "feasible"),
    [
        ([node("n2"), node("n3")], {}, 4),
        # Nodes that pods must leave are no nodes that could hold one.
        ([node("n2", taints=[KEPT]), node("n3", taints=[GONE])], {}, 2),
        ([node("n2", labels={"pool": "b"}), node("n3")], {"nodeSelector": {"pool": "a"}}, 2),
        # One that is closed for a while holds its pod, and so does a full one.
        ([node("n2", unschedulable=True, taints=[SHUT]), node("n3", cpu="300m")], {}, 4),
        # No node takes a pod without the key of its hard constraint, or of its affinity.
        ([node("n2"), node("n3")], spread("web", hard=True), 2),
        ([node("n2"), node("n3")], spread("web"), 4),
        # Of another operating system.
        ([node("n2", labels={OS: "windows"}), node("n3")], {"os": {"name": "linux"}}, 3),
    ],
)
def test_nodes_that_could_hold_a_pod_or_hold_one_are_feasible(changed, spec, feasible):
    labels = {"pool": "a", OS: "linux"}
    nodes = [node("n0", "zone-a", labels=labels), node("n1", "zone-a", labels=labels), *changed]
    web = workload("web", ["n0", "n0", "n1", "n2", "n3"], cpu="200m", spec=spec)
    view = view_of(snapshot_of([*nodes, *web]))
    (term,) = Duplicates().terms(view, Duplicates.Params())
    (group,) = term.groups_of(np.zeros(1, np.int32))
    assert f"(5 pods, {feasible} feasible nodes)" in group.label
    assert term.potential() == max(0, 2 - -(-5 // feasible))
