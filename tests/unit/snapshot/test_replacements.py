"""What the replacement of a pod asks for where the pod and its controller's template differ."""

import json
from typing import Any

import pytest

from rebalancer.testing.snapshots import node, snapshot_of, workload
from rebalancer.wire.pods import is_as_created

HASH, REVISION = "pod-template-hash", "controller-revision-hash"
SPREAD: dict[str, Any] = {
    "maxSkew": 5,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "ScheduleAnyway",
}
ON_A: dict[str, Any] = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}
            ]
        }
    }
}
LIKES: dict[str, Any] = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}


def differing(
    kind: str,
    *,
    generation: int,
    revisions: tuple[str, str, str] = ("", "", ""),
    partition: int = 0,
) -> list[dict[str, Any]]:
    """A pod of 2 processors that wants pool a, whose template asks for 100m and names another affinity.

    ``revisions``: the pod's, and its controller's current and newest one; of a Deployment the hash of the pod's
    template, and twice that of the ReplicaSet's.
    """
    mine, current, newest = revisions
    # Through JSON, since template and pod share what they have.
    objects = json.loads(json.dumps(workload("web", ["a"], kind=kind, spec={"affinity": LIKES})))
    for one in objects:
        if one["kind"] == "Pod":
            one["metadata"].update(generation=generation)
            label = REVISION if kind == "StatefulSet" else HASH
            one["metadata"]["labels"] |= {label: mine, "apps.kubernetes.io/pod-index": "0"}
            one["spec"]["affinity"] = LIKES | ON_A
            one["spec"]["topologySpreadConstraints"] = [SPREAD]
            one["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
        elif one["kind"] == "ReplicaSet":
            one["spec"]["template"]["metadata"]["labels"] |= {HASH: newest}
        elif one["kind"] == "StatefulSet":
            one["status"] |= {"currentRevision": current, "updateRevision": newest}
            rolling = {"partition": partition}
            one["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": rolling}
    return objects


@pytest.mark.parametrize(
    ("objects", "cpu", "bound"),
    [
        # What VPA, or any other webhook, has written into a pod when it was created it writes again.
        (differing("Deployment", generation=1, revisions=("x", "x", "x")), 2000, True),
        # The spec has changed since, and of all this only sizes can be changed: it was resized in place.
        (differing("Deployment", generation=2, revisions=("x", "x", "x")), 100, True),
        # Kubernetes before 1.33 counts no generations.
        (differing("Deployment", generation=0, revisions=("x", "x", "x")), 100, True),
        # Of a ReplicaSet without a Deployment the template may have been edited.
        (differing("ReplicaSet", generation=1), 100, False),
        (differing("StatefulSet", generation=1, revisions=("x", "x", "x")), 2000, True),
        # A rollout: the pod is of an older template.
        (differing("StatefulSet", generation=1, revisions=("x", "x", "y")), 100, False),
        # ... which it keeps, since it is below the partition.
        (
            differing("StatefulSet", generation=1, revisions=("x", "x", "y"), partition=1),
            2000,
            True,
        ),
        (
            differing("StatefulSet", generation=1, revisions=("w", "x", "y"), partition=1),
            100,
            False,
        ),
    ],
)
def test_a_replacement_asks_for_what_its_template_and_admission_make_of_it(objects, cpu, bound):
    snapshot = snapshot_of([node("a", labels={"pool": "a"}), node("b"), *objects])
    of_pod = snapshot.classes[int(snapshot.pods.cls[0])]
    wanted = snapshot.classes[of_pod.replacement]
    asked = snapshot.requests[snapshot.resources.index("cpu"), of_pod.replacement]
    affinity = wanted.spec.affinity
    assert (asked, affinity is not None and affinity.node_affinity is not None) == (cpu, bound)
    assert bool(wanted.spec.topology_spread_constraints)


@pytest.mark.parametrize(
    ("generation", "deleting", "expected"),
    [(0, False, False), (1, False, True), (2, False, False), (2, True, True), (3, True, False)],
)
def test_a_deletion_changes_no_spec(generation, deleting, expected):
    assert is_as_created(generation, deleting=deleting) is expected
