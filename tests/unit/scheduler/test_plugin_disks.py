"""Disks that pods name themselves: cases of kube-scheduler's own tests (``plugins/volumerestrictions``)."""

from __future__ import annotations

import pytest

from rebalancer.policy.protect import Protect
from rebalancer.snapshot.protect import Scope, names_of, protect
from tests.unit.scheduler.worlds import Json, World, node, pod


def gce(name: str, *, read_only: bool = False) -> Json:
    return {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}}


def aws(name: str, *, read_only: bool = False) -> Json:
    return {"awsElasticBlockStore": {"volumeID": name, "readOnly": read_only}}


def iscsi(name: str, *, read_only: bool = False) -> Json:
    return {"iscsi": {"iqn": name, "targetPortal": "x", "lun": 0, "readOnly": read_only}}


def rbd(*monitors: str, pool: str = "foo", image: str = "bar", read_only: bool = False) -> Json:
    return {
        "rbd": {"monitors": list(monitors), "pool": pool, "image": image, "readOnly": read_only}
    }


def mounting(name: str, *disks: Json, on: str = "") -> Json:
    return pod(name, on=on, volumes=[{"name": f"v{i}", **d} for i, d in enumerate(disks)])


@pytest.mark.parametrize(
    ("mounted", "wanted", "fits"),
    [
        (gce("foo"), gce("foo"), False),
        (gce("foo"), gce("bar"), True),
        (gce("foo", read_only=True), gce("foo", read_only=True), True),
        (gce("foo"), gce("foo", read_only=True), False),
        (aws("foo"), aws("foo"), False),
        (aws("foo", read_only=True), aws("foo", read_only=True), False),
        (aws("foo"), aws("bar"), True),
        (iscsi("iqn.1"), iscsi("iqn.1"), False),
        (iscsi("iqn.1", read_only=True), iscsi("iqn.1", read_only=True), True),
        (iscsi("iqn.1"), iscsi("iqn.2"), True),
        (rbd("a", "b"), rbd("c", "d"), True),
        (rbd("a", "b"), rbd("b", "c"), False),
        (rbd("a", "b"), rbd("a", image="other"), True),
        (rbd("a", "b"), rbd("a", pool="other"), True),
        (rbd("a", read_only=True), rbd("a", read_only=True), True),
        (gce("foo"), aws("foo"), True),
    ],
)
def test_a_disk_is_mounted_once_unless_all_only_read_it(mounted, wanted, fits):
    world = World([node("a"), node("b")], [mounting("old", mounted, on="a"), mounting("p", wanted)])
    assert world.filters("p") == {"a": "" if fits else "VolumeRestrictions", "b": ""}


def test_the_disk_of_a_terminating_pod_is_still_taken():
    world = World(
        [node("a"), node("b")],
        [mounting("old", gce("foo"), on="a"), mounting("p", gce("foo"))],
    )
    world.state.evict(world.row("old"))
    assert world.feasible("p") == ["b"]
    world.state.reap()
    assert world.feasible("p") == ["a", "b"]


def test_the_refusal_is_said_in_the_words_of_the_scheduler():
    world = World([node("a")], [mounting("old", aws("foo"), on="a"), mounting("p", aws("foo"))])
    assert world.evaluate("p").reasons(0) == ("node(s) had no available disk",)


@pytest.mark.parametrize(
    ("disk", "driver"),
    [
        (aws, "ebs.csi.aws.com"),
        (gce, "pd.csi.storage.gke.io"),
        (lambda x: {"azureDisk": {"diskName": x, "diskURI": x}}, "disk.csi.azure.com"),
        (lambda x: {"cinder": {"volumeID": x}}, "cinder.csi.openstack.org"),
        (lambda x: {"portworxVolume": {"volumeID": x}}, "pxd.portworx.com"),
    ],
)
@pytest.mark.parametrize(("limit", "expected"), [(1, "NodeVolumeLimits"), (2, "")])
def test_a_disk_counts_towards_the_limit_of_the_driver_that_attaches_it(
    disk, driver, limit, expected
):
    limited = {"name": driver, "allocatable": {"count": limit}}
    csi_node = {"metadata": {"name": "a"}, "spec": {"drivers": [limited]}}
    pods = [mounting("old", disk("x"), on="a"), mounting("p", disk("y"))]
    world = World([node("a")], pods, csi_nodes=[csi_node])
    assert world.filters("p") == {"a": expected}
    assert world.model.find_unmodelled(world.cls("p")) == ()


@pytest.mark.parametrize("disk", [gce("x"), aws("x"), iscsi("x"), rbd("m")])
def test_a_disk_protects_its_pod_as_a_claim_does(disk):
    world = World([node("a")], [mounting("p", disk, on="a"), pod("plain", on="a")])
    attached, plain = (
        names_of(int(protect(world.snapshot, Protect(), Scope())[world.row(name)]))
        for name in ("p", "plain")
    )
    assert set(attached) - set(plain) == {"volumes"}
