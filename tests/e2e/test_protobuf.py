"""The same cluster is the same snapshot, whether the server sends protobuf or JSON, whole or in pages."""

import pytest

from rebalancer.kube import decoders, lists, read
from rebalancer.kube.client import JSON, Client, connect
from rebalancer.wire.protobuf import PROTOBUF
from tests.controlplane import ControlPlane, drift, operations
from tests.same import contents


@pytest.fixture
def client(cluster: ControlPlane) -> Client:
    drift.DRIFTS["zone-back"](cluster, seed=1)
    operations.wait_nodes_labelled(cluster.api)
    return connect(kubeconfig=cluster.kubeconfig, environ={})


def test_protobuf_and_json_give_the_same_snapshot(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    streamed = read.read_cluster(client, clock=lambda: 0.0)
    paged = read.read_cluster(client, clock=lambda: 0.0, page_size=7)
    monkeypatch.setattr(lists, "POD_DECODERS", {JSON: decoders.POD_DECODERS[JSON]})
    monkeypatch.setattr(decoders, "IN_PROTOBUF", frozenset())
    in_json = read.read_cluster(client, clock=lambda: 0.0)
    assert len(in_json.snapshot.pods) > 100
    assert in_json.readings.read_bytes > 1.3 * streamed.readings.read_bytes
    assert contents(streamed.snapshot) == contents(in_json.snapshot)
    assert contents(paged.snapshot) == contents(in_json.snapshot)


@pytest.mark.parametrize(
    "path",
    ["/api/v1/pods", "/api/v1/nodes", "/apis/apps/v1/replicasets", "/apis/apps/v1/deployments"],
)
def test_the_server_sends_protobuf_for_what_we_ask_in_it(client: Client, path: str) -> None:
    response = client.get(path, query={"limit": 1}, accept=f"{PROTOBUF}, {JSON}")
    assert response.content_type == PROTOBUF
