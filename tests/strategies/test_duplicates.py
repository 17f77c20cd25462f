"""Duplicates: whose pods count, and how many of them a node may hold."""

import numpy as np
import pytest

from rebalancer.testing.contract import view_of
from rebalancer.testing.snapshots import node, snapshot_of, workload
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
