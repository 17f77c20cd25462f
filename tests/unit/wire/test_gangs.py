"""Which gang a pod names, by each of the ways there are, and whether a class remembers it."""

import pytest

from rebalancer.testing.snapshots import node, snapshot_of, workload

LWS = "leaderworkerset.sigs.k8s.io"


@pytest.mark.parametrize(
    ("given", "gang"),
    [
        ({}, ""),
        ({"spec": {"schedulingGroup": {"podGroupName": "train-0"}}}, "PodGroup train-0"),
        ({"spec": {"schedulingGroup": {}}}, ""),
        (
            {"spec": {"workloadRef": {"name": "train", "podGroup": "workers"}}},
            "Workload train, PodGroup workers",
        ),
        (
            {"spec": {"workloadRef": {"name": "w", "podGroup": "g", "podGroupReplicaKey": "1"}}},
            "Workload w, PodGroup g 1",
        ),
        (
            {"labels": {f"{LWS}/name": "llm", f"{LWS}/group-index": "2", f"{LWS}/worker-index": "1"}},
            "LeaderWorkerSet llm, group 2",
        ),
        ({"labels": {f"{LWS}/name": "llm"}}, "LeaderWorkerSet llm"),
        ({"labels": {"jobset.sigs.k8s.io/jobset-name": "js"}}, "JobSet js"),
        ({"labels": {"scheduling.x-k8s.io/pod-group": "pg"}}, "PodGroup pg"),
        ({"labels": {"pod-group.scheduling.sigs.k8s.io": "pg"}}, "PodGroup pg"),
        ({"labels": {"pod-group.scheduling.sigs.k8s.io/name": "pg"}}, "PodGroup pg"),
        ({"labels": {"volcano.sh/job-name": "vj"}}, "Volcano Job vj"),
        ({"annotations": {"scheduling.k8s.io/group-name": "pg"}}, "PodGroup pg"),
        ({"annotations": {"scheduling.volcano.sh/group-name": "pg"}}, "PodGroup pg"),
        ({"annotations": {"pod-group-name": "pg"}}, "PodGroup pg"),
        ({"annotations": {"pod-group-name": ""}}, ""),
        ({"annotations": {"gang.scheduling.koordinator.sh/name": "pg"}}, "PodGroup pg"),
        # Of several the scheduler's own counts.
        (
            {
                "spec": {"schedulingGroup": {"podGroupName": "own"}},
                "labels": {f"{LWS}/name": "llm"},
                "annotations": {"pod-group-name": "other"},
            },
            "PodGroup own",
        ),
        # Queues and roles are no gangs.
        (
            {"labels": {"kai.scheduler/queue": "q", "kueue.x-k8s.io/queue-name": "q"}},
            "",
        ),
    ],
)  # fmt: skip
def test_a_gang_is_what_a_pod_names(given, gang):
    labels = {"app": "w", **given.pop("labels", {})}
    snapshot = snapshot_of([node("a"), *workload("w", ["a", "a"], labels=labels, **given)])
    assert {cls.gang for cls in snapshot.classes} == {gang}
    assert snapshot.fellows(snapshot.classes[0]) == (1 if gang else 0)


def test_pods_of_one_controller_may_be_of_two_gangs_by_annotation():
    objects = workload("w", ["a", "a", "a"])
    for one, group in zip(objects[-3:], ("x", "x", "y"), strict=True):
        one["metadata"]["annotations"] = {"pod-group-name": group}
    snapshot = snapshot_of([node("a"), *objects])
    assert [snapshot.classes[cls].gang for cls in snapshot.pods.cls] == [
        "PodGroup x",
        "PodGroup x",
        "PodGroup y",
    ]


def test_gangs_of_the_same_name_in_two_namespaces_are_two():
    label = {"scheduling.x-k8s.io/pod-group": "pg"}
    objects = [
        *workload("w", ["a"], labels=label),
        *workload("v", ["a"], labels=label, namespace="b"),
    ]
    snapshot = snapshot_of([node("a"), *objects])
    assert {snapshot.fellows(cls) for cls in snapshot.classes} == {0}
