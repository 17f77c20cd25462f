"""Whether an owner is settled: by the pods that are seen, whatever its status says."""

from typing import Any

import pytest

from rebalancer.snapshot.model import Owner
from rebalancer.testing.snapshots import node, snapshot_of, workload


def owner_of(objects: list[dict[str, Any]]) -> Owner:
    (owner,) = snapshot_of([node("a"), *objects]).owners
    return owner


def unready(objects: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """The objects, the first ``count`` pods of which are not Ready."""
    pods = [item for item in objects if item["kind"] == "Pod"]
    for pod in pods[:count]:
        pod["status"]["conditions"][0]["status"] = "False"
    return objects


def going(objects: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """The objects, the first ``count`` pods of which are terminating."""
    pods = [item for item in objects if item["kind"] == "Pod"]
    for pod in pods[:count]:
        pod["metadata"]["deletionTimestamp"] = "2027-01-15T07:59:50Z"
    return objects


def custom(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The pods alone, of a controller of another kind."""
    pods = [item for item in objects if item["kind"] == "Pod"]
    for pod in pods:
        pod["metadata"]["ownerReferences"][0].update(kind=kind, apiVersion="example.com/v1")
    return pods


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
@pytest.mark.parametrize(
    ("pods", "not_ready", "terminating", "unsettled"),
    [
        (3, 0, 0, None),
        (3, 1, 0, "2 of 3 replicas ready"),
        (3, 2, 0, "1 of 3 replicas ready"),
        (3, 0, 1, "2 of 3 replicas ready"),
        (2, 0, 0, "2 of 3 replicas ready"),
        # The replacement is Ready, and its victim not gone yet.
        (4, 0, 1, None),
    ],
)
def test_a_status_that_says_three_of_three_does_not_make_up_for_pods(
    kind, pods, not_ready, terminating, unsettled
):
    web = workload("web", ["a"] * pods, kind=kind, replicas=3)
    assert owner_of(unready(going(web, terminating), not_ready)).unsettled == unsettled


@pytest.mark.parametrize(
    ("status", "unsettled"),
    [
        ({}, None),
        # A rollout: of the pods that were counted one is new, whatever those look like that were listed.
        ({"replicas": 3, "updatedReplicas": 1}, "rollout: 1 of 3 updated"),
        ({"replicas": 4, "updatedReplicas": 2}, "rollout: 2 of 3 updated"),
        ({"replicas": 3}, "rollout: 0 of 3 updated"),
        # After an eviction: the replacement is seen, and not counted yet.
        ({"replicas": 2, "updatedReplicas": 2}, None),
    ],
)
def test_a_status_that_says_a_rollout_runs_is_believed(status, unsettled):
    web = workload("web", ["a"] * 3)
    web[0]["status"] = {"readyReplicas": 3, **(status or web[0]["status"])}
    assert owner_of(web).unsettled == unsettled


@pytest.mark.parametrize(
    ("not_ready", "terminating", "expected"),
    [
        (0, 0, (3, None)),
        (1, 0, (3, "2 of 3 replicas ready")),
        (0, 1, (2, None)),
        # The one that is not Ready is the one that goes.
        (1, 1, (2, None)),
    ],
)
def test_the_living_pods_of_an_owner_that_is_not_read_are_its_count(
    not_ready, terminating, expected
):
    web = custom(workload("web", ["a"] * 3), "CloneSet")
    owner = owner_of(unready(going(web, terminating), not_ready))
    assert (owner.replicas, owner.unsettled) == expected


def rollout(*sets: tuple[int, int]) -> list[dict[str, Any]]:
    """ReplicaSets of one Argo Rollout: (pods, replicas) of each."""
    objects: list[dict[str, Any]] = []
    for index, (pods, replicas) in enumerate(sets):
        made = workload(f"web-{index}", ["a"] * pods, kind="ReplicaSet", replicas=replicas)
        top = {"kind": "Rollout", "apiVersion": "argoproj.io/v1", "name": "web", "uid": "r"}
        made[0]["metadata"]["ownerReferences"] = [{**top, "controller": True}]
        objects += made
    return objects


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ([(3, 3)], (3, None)),
        ([(2, 3)], (3, "2 of 3 replicas ready")),
        ([(2, 2), (1, 1)], (3, "rollout: pods of 2 controllers")),
        ([(0, 0), (3, 3)], (3, None)),
    ],
)
def test_replica_sets_count_for_an_owner_that_is_not_read(sets, expected):
    owner = owner_of(rollout(*sets))
    assert (owner.kind, owner.replicas, owner.unsettled) == ("Rollout", *expected)
