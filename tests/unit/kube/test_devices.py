"""Reading devices and claims, where pods have claims."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.kube.capture import write_cluster_snapshot
from rebalancer.kube.read import read_cluster
from rebalancer.kube.seldom_read import list_device_kinds, read_devices
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.redact import Redactor
from tests.unit.kube.scripted import (
    Say,
    ScriptedServer,
    client_of,
    list_body,
    node,
    owned_pod,
    status_body,
)
from tests.unit.kube.test_capture import cluster

ROOT = "/apis/resource.k8s.io/v1"
RULES = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
SLICE = {
    "metadata": {"name": "n1"},
    "spec": {
        "driver": "gpu.example.com",
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
    },
}
REQUEST = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}
TEMPLATE = {
    "metadata": {"name": "one", "namespace": "default"},
    "spec": {"spec": {"devices": {"requests": [REQUEST]}}},
}
LISTS: dict[str, list[Any]] = {
    "resourceclaims": [],
    "resourceclaimtemplates": [TEMPLATE],
    "resourceslices": [SLICE],
    "deviceclasses": [{"metadata": {"name": "gpu"}, "spec": {}}],
}


RESOURCE = "example.com/gpu"


def claim_of(pod: Any) -> Any:
    """Return the claim of a pod that has a device."""
    meta = pod["metadata"]
    owner = {"kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
    result = {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    return {
        "metadata": {"name": "of-pod", "namespace": "default", "ownerReferences": [owner]},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "uid": meta["uid"]}],
        },
    }


def with_devices(
    server: ScriptedServer,
    answer: Say | None = None,
    *,
    claiming: bool = True,
    asking: bool = False,
) -> None:
    """Answer with a cluster whose pods have claims; ``answer``: instead of each list of devices."""
    cluster(server)
    pod = owned_pod("a")
    if claiming:
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
        lists = {**LISTS, "resourceclaims": [claim_of(pod)]}
    else:
        lists = LISTS
        resources = {"requests": {RESOURCE: "1"}} if asking else {}
        pod["spec"]["containers"] = [{"name": "c", "resources": resources}]
    server.on("GET", "/api/v1/pods", Say(list_body([pod])))
    for plural, objects in lists.items():
        server.on("GET", f"{ROOT}/{plural}", answer or Say(list_body(objects)))
    server.on("GET", RULES, Say(b"404 page not found", 404))


def unmodelled(snapshot: Snapshot) -> tuple[str, ...]:
    model = SchedulerModel(snapshot, SchedulerProfile.for_version((1, 36)))
    return model.find_unmodelled(int(snapshot.pods.cls[0]))


def test_a_run_and_a_file_know_the_same_devices(server, tmp_path):
    with_devices(server)
    client, path = client_of(server.url, tmp_path), tmp_path / "cluster.zip"
    live, notes = read_devices(client, read_cluster(client, clock=lambda: 0.0).snapshot)
    assert (notes, unmodelled(live)) == ((), ())
    captured = write_cluster_snapshot(client, path, clock=lambda: 0.0)
    stored = load_snapshot(path)
    assert (captured.notes, captured.counts["ResourceSlice"]) == ((), 1)
    assert stored.devices == live.devices
    assert stored.resources == live.resources
    assert stored.nodes.allocatable.tolist() == live.nodes.allocatable.tolist()


def test_a_redacted_file_holds_no_devices_and_a_plan_on_it_says_so(server, tmp_path):
    with_devices(server)
    path = tmp_path / "cluster.zip"
    write_cluster_snapshot(
        client_of(server.url, tmp_path),
        path,
        clock=lambda: 0.0,
        redactor=Redactor(b"0123456789abcdef"),
    )
    assert "the snapshot holds no ResourceClaims" in unmodelled(load_snapshot(path))[0]


def test_without_claims_no_request_is_sent(server, tmp_path):
    with_devices(server, Say(status_body(500, "not asked"), 500), claiming=False)
    client = client_of(server.url, tmp_path)
    read = read_cluster(client, clock=lambda: 0.0).snapshot
    assert read_devices(client, read) == (read, ())


@pytest.mark.parametrize("resource", [RESOURCE, "example.com/other"])
def test_device_classes_say_whether_devices_are_read_for_an_extended_resource(
    server, tmp_path, resource
):
    with_devices(server, claiming=False, asking=True)
    provider = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": resource}}
    server.on("GET", f"{ROOT}/deviceclasses", Say(list_body([provider])))
    offering = node("n1")
    offering["status"]["allocatable"][RESOURCE] = "2"
    server.on("GET", "/api/v1/nodes", Say(list_body([offering])))
    client = client_of(server.url, tmp_path)
    read = read_cluster(client, clock=lambda: 0.0).snapshot
    snapshot, notes = read_devices(client, read)
    assert notes == ()
    assert (snapshot.devices is not None) is (resource == RESOURCE)
    assert bool(server.to(f"{ROOT}/resourceslices")) is (resource == RESOURCE)


def test_without_the_right_a_resource_that_a_node_offers_is_one_of_a_plug_in(server, tmp_path):
    with_devices(server, Say(status_body(403, "may not"), 403), claiming=False, asking=True)
    offering = node("n1")
    offering["status"]["allocatable"][RESOURCE] = "2"
    server.on("GET", "/api/v1/nodes", Say(list_body([offering])))
    client = client_of(server.url, tmp_path)
    read = read_cluster(client, clock=lambda: 0.0).snapshot
    assert read_devices(client, read) == (read, ())


@pytest.mark.parametrize("served", [False, True])
def test_a_right_on_taint_rules_is_missed_only_where_they_are_served(server, tmp_path, served):
    with_devices(server)
    server.on("GET", RULES, Say(status_body(403, "may not"), 403))
    kinds = [{"name": "resourceclaims"}, {"name": "devicetaintrules"}][: 1 + served]
    server.on("GET", RULES.rpartition("/")[0], Say({"resources": kinds}))
    client, path = client_of(server.url, tmp_path), tmp_path / "cluster.zip"
    snapshot, notes = read_devices(client, read_cluster(client, clock=lambda: 0.0).snapshot)
    assert (len(notes), bool(unmodelled(snapshot))) == (served, served)
    captured = write_cluster_snapshot(client, path, clock=lambda: 0.0)
    assert ("ResourceSlice" in captured.counts) is not served


def test_devices_that_a_run_may_not_read_are_said(server, tmp_path):
    with_devices(server, Say(status_body(403, "may not"), 403))
    client = client_of(server.url, tmp_path)
    snapshot, notes = read_devices(client, read_cluster(client, clock=lambda: 0.0).snapshot)
    (note,) = notes
    assert "pods with resource claims" in note
    assert "rbac.devices: true" in note
    assert unmodelled(snapshot) != ()


def test_a_file_without_devices_that_may_not_be_read_is_written(server, tmp_path):
    with_devices(server, Say(status_body(403, "may not"), 403))
    path = tmp_path / "cluster.zip"
    captured = write_cluster_snapshot(client_of(server.url, tmp_path), path, clock=lambda: 0.0)
    assert captured.notes == ()
    assert "the snapshot holds no ResourceClaims" in unmodelled(load_snapshot(path))[0]


@pytest.mark.parametrize(("version", "rules"), [((1, 36), "v1beta2"), ((1, 37), "v1")])
def test_each_kind_is_asked_for_in_the_version_that_is_served(version, rules):
    *others, last = list_device_kinds(version)
    assert {one.version for one in others} == {"v1"}
    assert (last.plural, last.version) == ("devicetaintrules", rules)
