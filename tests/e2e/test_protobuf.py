"""The same cluster is the same snapshot, whether the server sends protobuf or JSON, whole or in pages."""

from typing import Any

import pytest

from rebalancer.kube import lists, read
from rebalancer.kube.client import JSON, connect
from rebalancer.wire.protobuf import PROTOBUF
from tests.controlplane import drift, objects, operations
from tests.same import contents


@pytest.fixture
def client(cluster):
    drift.DRIFTS["zone-back"](cluster, seed=1)
    operations.wait_nodes_labelled(cluster.api)
    cluster.api.post("/api/v1/namespaces/default/pods", peculiar())
    [name, *_] = sorted(node["metadata"]["name"] for node in cluster.api.list_all("/api/v1/nodes"))
    declared = {"status": {"declaredFeatures": ["RestartAllContainersOnContainerExits"]}}
    cluster.api.patch(f"/api/v1/nodes/{name}/status", declared)
    return connect(kubeconfig=cluster.kubeconfig, environ={})


def peculiar() -> dict[str, Any]:
    """Return a pending pod with what few pods have."""
    disks: list[dict[str, Any]] = [
        {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
        {"awsElasticBlockStore": {"volumeID": "v"}},
        {"iscsi": {"iqn": "iqn.2026-01.com.example:x", "targetPortal": "t", "lun": 0}},
        {"rbd": {"monitors": ["m1", "m2"], "image": "i"}},
        {"azureDisk": {"diskName": "d", "diskURI": "/subscriptions/d", "kind": "Managed"}},
        {"cinder": {"volumeID": "v"}},
        {"vsphereVolume": {"volumePath": "p"}},
        {"portworxVolume": {"volumeID": "v"}},
    ]
    pod = objects.pod("peculiar", nodeSelector={"no": "where"})
    pod["spec"]["volumes"] = [{"name": f"disk-{i}", **disk} for i, disk in enumerate(disks)]
    pod["spec"].update(hostUsers=False, os={"name": "linux"})
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [7]}}
    pod["spec"]["containers"][0].update(restartPolicy="Never", restartPolicyRules=[rule])
    return pod


def test_protobuf_and_json_give_the_same_snapshot(client, monkeypatch):
    streamed = read.read_cluster(client, clock=lambda: 0.0)
    paged = read.read_cluster(client, clock=lambda: 0.0, page_size=7)
    monkeypatch.setattr(lists, "POD_DECODERS", {JSON: lists.POD_DECODERS[JSON]})
    monkeypatch.setattr(lists, "IN_PROTOBUF", frozenset())
    in_json = read.read_cluster(client, clock=lambda: 0.0)
    assert len(in_json.snapshot.pods) > 100
    [spec] = [c.spec for c in in_json.snapshot.classes if c.labels.get("app") == "peculiar"]
    assert [volume.disk is not None for volume in spec.volumes or ()] == [True] * 8
    assert spec.host_users is False
    assert spec.os is not None
    assert spec.os.name == "linux"
    assert spec.containers[0].restart_policy_rules is not None
    assert in_json.snapshot.nodes.declared_features["RestartAllContainersOnContainerExits"].sum()
    assert in_json.readings.read_bytes > 1.3 * streamed.readings.read_bytes
    assert contents(streamed.snapshot) == contents(in_json.snapshot)
    assert contents(paged.snapshot) == contents(in_json.snapshot)


@pytest.mark.parametrize(
    "path",
    ["/api/v1/pods", "/api/v1/nodes", "/apis/apps/v1/replicasets", "/apis/apps/v1/deployments"],
)
def test_the_server_sends_protobuf_for_what_we_ask_in_it(control_plane, path):
    client = connect(kubeconfig=control_plane.kubeconfig, environ={})
    response = client.get(path, query={"limit": 1}, accept=f"{PROTOBUF}, {JSON}")
    assert response.content_type == PROTOBUF
