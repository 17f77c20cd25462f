"""Which protections hold which pods."""

import pytest

from rebalancer.policy.protect import Protect
from rebalancer.snapshot.protect import Scope, names_of, protect
from rebalancer.testing.snapshots import snapshot_of
from rebalancer.testing.workloads import OLD, node


def reference(kind, api_version):
    return {"kind": kind, "apiVersion": api_version, "name": "w", "uid": "w", "controller": True}


def pods(kind="ReplicaSet", api_version="apps/v1", *, count=2, annotations=None, **spec):
    """Pods of one controller that was not read."""
    return [
        {
            "kind": "Pod",
            "metadata": {
                "name": f"p{index}",
                "namespace": "default",
                "uid": f"p{index}",
                "creationTimestamp": OLD,
                "annotations": annotations or {},
                "ownerReferences": [reference(kind, api_version)],
            },
            "spec": {"nodeName": "a", "containers": [{"name": "c"}], **spec},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": OLD}],
            },
        }
        for index in range(count)
    ]


def held(objects, **rules):
    """The protections of the first pod."""
    snapshot = snapshot_of([node("a"), *objects])
    return names_of(int(protect(snapshot, Protect(**rules), Scope())[0]))


@pytest.mark.parametrize(
    ("kind", "api_version", "expected"),
    [
        ("ReplicaSet", "apps/v1", []),
        ("StatefulSet", "apps/v1", []),
        ("ReplicationController", "v1", []),
        ("Job", "batch/v1", ["job"]),
        ("DaemonSet", "apps/v1", ["daemonSet"]),
        ("Node", "v1", ["mirror"]),
        ("Workflow", "argoproj.io/v1alpha1", ["notRecreated"]),
        ("CloneSet", "apps.kruise.io/v1alpha1", ["notRecreated"]),
        # Custom controllers that bear the name of one of Kubernetes' own.
        ("StatefulSet", "apps.kruise.io/v1beta1", ["notRecreated"]),
        ("Job", "batch.volcano.sh/v1alpha1", ["notRecreated"]),
        ("ReplicationController", "", []),
    ],
)
def test_only_known_controllers_are_trusted_to_create_a_pod_anew(kind, api_version, expected):
    assert held(pods(kind, api_version)) == expected


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_pods_that_do_not_start_again_stay_even_where_their_kind_is_named(policy):
    named = {"recreatedBy": ["Workflow.argoproj.io"]}
    step = pods("Workflow", "argoproj.io/v1alpha1", restartPolicy=policy)
    assert held(step, **named) == ["notRecreated"]
    assert held(pods("Workflow", "argoproj.io/v1alpha1"), **named) == []


def test_a_named_kind_is_named_with_its_group():
    assert held(pods("CloneSet", "apps.example.com/v1"), recreatedBy=["CloneSet.apps.kruise.io"])
    assert not held(pods("CloneSet", "apps.kruise.io/v1"), recreatedBy=["CloneSet.apps.kruise.io"])


def test_jobs_are_lifted_by_their_own_key_only():
    never = pods("Job", "batch/v1", restartPolicy="Never")
    assert held(never, jobs=False) == []
    other = pods("Job", "batch.volcano.sh/v1alpha1", restartPolicy="Never")
    assert held(other, jobs=False) == ["notRecreated"]
