"""What shows that another autoscaler is at work."""

import pytest

from rebalancer.snapshot.autoscalers import autoscalers
from rebalancer.testing.snapshots import node, snapshot_of, workload

_TAINT = {"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"}


@pytest.mark.parametrize(
    ("objects", "names"),
    [
        ([node("a"), *workload("web", ["a"])], []),
        ([node("a", labels={"karpenter.sh/nodepool": "general"})], ["Karpenter"]),
        ([node("a", taints=[_TAINT])], ["Cluster Autoscaler"]),
        (
            [
                node("a"),
                *workload(
                    "x",
                    ["a"],
                    labels={"app.kubernetes.io/name": "karpenter"},
                    namespace="karpenter",
                ),
            ],
            ["Karpenter"],
        ),
        (
            [
                node("a"),
                *workload(
                    "x", ["a"], labels={"app": "cluster-autoscaler"}, namespace="kube-system"
                ),
            ],
            ["Cluster Autoscaler"],
        ),
        ([node("a"), *workload("x", [""], labels={"app": "cluster-autoscaler"})], []),
        (
            [node("a"), *workload("main-aws-cluster-autoscaler", ["a"], namespace="kube-system")],
            ["Cluster Autoscaler"],
        ),
        ([node("a"), *workload("cluster-autoscaler-exporter", ["a"])], []),
        ([node("a"), *workload("x", ["a"], labels={"app": "karpenter"})], []),
    ],
)
def test_pods_taints_and_labels_show_it(objects, names):
    assert [one.name for one in autoscalers(snapshot_of(objects))] == names
