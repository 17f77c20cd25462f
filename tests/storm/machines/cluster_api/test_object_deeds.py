"""What was done to groups of Cluster API is read from watches, by tables of few objects."""

import pytest

from tests.storm.machines.cluster_api.deeds import deeds_of_objects
from tests.storm.machines.cluster_api.scenarios import DUTIES, scenario
from tests.storm.machines.deeds import OTHERS, Deed
from tests.storm.witnesses import Change

NOTE, MARK = "rebalancer/replace", "cluster.x-k8s.io/delete-machine"
HIGH = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
OURS, THEIRS = {MARK: "rebalancer m-1"}, {MARK: "by hand"}


def group(at, replicas, **annotations):
    meta = {"name": "pool", "uid": "g", "annotations": annotations}
    obj = {"metadata": meta, "spec": {"replicas": replicas}}
    return Change(at, float(at), "MachineDeployment", "MODIFIED", obj)


def machine_set(at, replicas):
    owner = {"controller": True, "kind": "MachineDeployment", "uid": "g"}
    meta = {"name": "pool-x", "uid": "s", "ownerReferences": [owner]}
    obj = {"metadata": meta, "spec": {"replicas": replicas}}
    return Change(at, float(at), "MachineSet", "MODIFIED", obj)


def machine(at, name, what="MODIFIED", **annotations):
    meta = {"name": name, "uid": name, "labels": {"pool": "pool"}, "annotations": annotations}
    meta |= {"deletionTimestamp": "2026-11-28T00:00:00Z"} if what == "MODIFIED" else {}
    return Change(at, float(at), "Machine", what, {"metadata": meta, "spec": {}})


def ends(at, name, by=""):
    return Deed(float(at), "ends", "pool", name, by=by)


def resizes(at, size, by=""):
    return Deed(float(at), "resizes", "pool", size=size, by=by)


CASES = {
    "a group grows": ([group(1, 2), group(2, 3)], [resizes(2, 3)]),
    "what stood before is no deed": ([group(1, 2)], []),
    "a decrease ends a machine, at the time of the decrease": (
        [group(1, 2), group(2, 1), machine(5, "m-1", **OURS)],
        [ends(2, "m-1")],
    ),
    "a machine ends once": (
        [
            group(1, 2),
            group(2, 1),
            machine(3, "m-1"),
            machine(4, "m-1"),
            machine(5, "m-1", "DELETED"),
        ],
        [ends(2, "m-1")],
    ),
    "a decrease that ends nothing sets a size": ([group(1, 2), group(2, 1)], [resizes(2, 1)]),
    "a machine without a decrease ends all the same": (
        [group(1, 2), machine(2, "m-1")],
        [ends(2, "m-1")],
    ),
    "each end belongs to the last decrease before": (
        [
            group(1, 3),
            group(2, 2),
            machine(3, "m-1", **OURS),
            group(4, 1),
            machine(5, "m-2", **OURS),
        ],
        [ends(2, "m-1"), ends(4, "m-2")],
    ),
    "others take one, and ours is the one that we have marked": (
        [group(1, 3), group(9, 2), group(10, 1), machine(11, "m-2"), machine(12, "m-1", **OURS)],
        [ends(9, "m-2", OTHERS), ends(10, "m-1")],
    ),
    "who deletes a machine itself has ended it": ([group(1, 3), machine(2, "gone")], []),
    "a MachineSet of a MachineDeployment is no group": ([machine_set(1, 2), machine_set(2, 3)], []),
    "a note is seen where it comes": (
        [group(1, 2), group(2, 2, **{NOTE: "x"}), group(3, 2, **{NOTE: "y"}), group(4, 2)],
        [Deed(2.0, "notes", "pool")],
    ),
    "limits are written": (
        [group(1, 2), group(2, 2, **{HIGH: "9"})],
        [Deed(2.0, "limits", "pool")],
    ),
}


@pytest.mark.parametrize(("changes", "deeds"), CASES.values(), ids=CASES)
def test_deeds(changes, deeds):
    assert deeds_of_objects(changes, {9}, {"gone"}, 0.0) == deeds


def test_what_was_before_the_product_began_is_left_out():
    changes = [group(1, 2), group(2, 3), group(4, 4)]
    assert deeds_of_objects(changes, (), (), 3.0) == [resizes(4, 4)]


def test_seeds_draw_every_duty_and_the_same_scenario_each_time():
    drawn = [scenario(seed) for seed in range(60)]
    assert drawn == [scenario(seed) for seed in range(60)]
    assert {one.duty for one in drawn} == set(DUTIES)
    assert not any(one.cloud for one in drawn)
