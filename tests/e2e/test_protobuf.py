"""The same cluster is the same snapshot, whether the server sends protobuf or JSON, whole or in pages."""

import dataclasses
from typing import Any

import pytest

from rebalancer.kube import decoders, read
from rebalancer.kube.client import JSON, Client, connect
from rebalancer.snapshot.columns import StringColumn
from rebalancer.snapshot.labels import ClassIndex, NodeLabels
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.protobuf import PROTOBUF
from tests.controlplane import ControlPlane, drift

_OF_THE_MOMENT = {"captured_at", "resource_version"}


def plain(value: Any, nodes: int) -> Any:
    """A part of a snapshot as something that can be compared."""
    if isinstance(value, NodeLabels):
        return [value.of(node) for node in range(nodes)]
    if isinstance(value, StringColumn):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name), nodes)
            for field in dataclasses.fields(value)
        }
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(part, nodes) for key, part in value.items()}
    if isinstance(value, tuple):
        return [plain(part, nodes) for part in value]
    assert not isinstance(value, ClassIndex)
    return value


def contents(snapshot: Snapshot) -> dict[str, Any]:
    found: dict[str, Any] = plain(snapshot, len(snapshot.nodes))
    return {name: part for name, part in found.items() if name not in _OF_THE_MOMENT}


@pytest.fixture
def client(cluster: ControlPlane) -> Client:
    drift.DRIFTS["zone-back"](cluster, seed=1)
    return connect(kubeconfig=cluster.kubeconfig, environ={})


def test_protobuf_and_json_give_the_same_snapshot(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    streamed = read.read_cluster(client, clock=lambda: 0.0)
    paged = read.read_cluster(client, clock=lambda: 0.0, page_size=7)
    monkeypatch.setattr(read, "POD_DECODERS", {JSON: decoders.POD_DECODERS[JSON]})
    for module in (read, decoders):
        monkeypatch.setattr(module, "IN_PROTOBUF", frozenset())
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
