"""Long lists come as one answer where the server can do that, and in pages where it cannot or did not."""

from pathlib import Path

import pytest

from rebalancer.errors import ClusterReadError
from rebalancer.kube.read import read_cluster
from rebalancer.wire.protobuf import PROTOBUF
from tests.unit.kube.scripted import (
    Say,
    ScriptedServer,
    Sleeps,
    client_of,
    empty_cluster,
    list_body,
    node,
    pod,
)
from tests.unit.wire import protobuf_bytes

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
IN_PROTOBUF = {"Content-Type": f"{PROTOBUF}; charset=utf-8"}


def pods(*names: str, cut: int | None = None) -> Say:
    body = protobuf_bytes.listed([protobuf_bytes.pod(name) for name in names], version="41")
    return Say(body[:cut], headers=IN_PROTOBUF)


def test_pods_come_as_one_answer_in_protobuf(server: ScriptedServer, tmp_path: Path) -> None:
    empty_cluster(server)
    server.on("GET", PODS, pods("a", "b"))
    reading = read_cluster(client_of(server.url, tmp_path), clock=lambda: 0.0)
    assert list(reading.snapshot.pods.name) == ["a", "b"]
    assert reading.snapshot.resource_version == "41"
    (asked,) = server.to(PODS)
    assert "limit" not in asked.query
    assert asked.headers["Accept"] == f"{PROTOBUF}, application/json"


def test_a_server_before_1_33_is_asked_for_pages(server: ScriptedServer, tmp_path: Path) -> None:
    empty_cluster(server)
    server.on("GET", "/version", Say({"major": "1", "minor": "32", "gitVersion": "v1.32.1"}))
    server.on("GET", PODS, pods("a"))
    reading = read_cluster(client_of(server.url, tmp_path), clock=lambda: 0.0)
    assert list(reading.snapshot.pods.name) == ["a"]
    assert [asked.query["limit"] for asked in server.to(PODS)] == ["500"]


@pytest.mark.parametrize(
    "first",
    [
        pods("a", "b", cut=-40),
        Say(pods("a", "b").encoded(), headers=IN_PROTOBUF, cut=60),
        Say(b"<html>no</html>", headers={"Content-Type": "text/html"}),
        Say(hang_up=True),
        Say({}, status=429),
    ],
)
def test_what_does_not_arrive_whole_is_read_again_in_pages(
    server: ScriptedServer, tmp_path: Path, sleeps: Sleeps, first: Say
) -> None:
    empty_cluster(server)
    server.on("GET", PODS, first, pods("a", "b"))
    reading = read_cluster(client_of(server.url, tmp_path, sleeps), clock=lambda: 0.0)
    assert list(reading.snapshot.pods.name) == ["a", "b"]
    assert [asked.query.get("limit") for asked in server.to(PODS)] == [None, "500"]


def test_a_list_that_is_never_whole_is_an_error(
    server: ScriptedServer, tmp_path: Path, sleeps: Sleeps
) -> None:
    empty_cluster(server)
    server.on("GET", PODS, pods("a", "b", cut=-40))
    with pytest.raises(ClusterReadError, match="broke off"):
        read_cluster(client_of(server.url, tmp_path, sleeps), clock=lambda: 0.0)


def test_a_server_without_protobuf_answers_in_json(server: ScriptedServer, tmp_path: Path) -> None:
    empty_cluster(server)
    server.on("GET", PODS, Say(list_body([pod("a")])))
    server.on("GET", NODES, Say(list_body([node("n1")])))
    reading = read_cluster(client_of(server.url, tmp_path), clock=lambda: 0.0)
    assert reading.snapshot.pods.node.tolist() == [0]
    assert len(server.to(PODS)) == 1
