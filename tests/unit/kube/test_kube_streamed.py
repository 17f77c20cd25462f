"""Long lists come as one answer where the server can do that, and in pages where it cannot or did not."""

import dataclasses
import gzip
import time

import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.read import read_cluster
from rebalancer.wire.kinds import LISTED
from rebalancer.wire.protobuf import PROTOBUF
from tests.unit.kube.scripted import (
    Asked,
    Say,
    client_of,
    empty_cluster,
    list_body,
    node,
    pod,
    status_body,
)
from tests.unit.wire import protobuf_bytes

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
ZIPPED = {"Content-Type": PROTOBUF, "Content-Encoding": "gzip"}
IN_PROTOBUF = {"Content-Type": f"{PROTOBUF}; charset=utf-8"}


def pods(*names: str, cut: int | None = None) -> Say:
    body = protobuf_bytes.listed([protobuf_bytes.pod(name) for name in names], version="41")
    return Say(body[:cut], headers=IN_PROTOBUF)


def zipped(*names: str) -> bytes:
    return gzip.compress(pods(*names).encoded(), mtime=0)


def test_pods_come_as_one_answer_in_protobuf(server, tmp_path):
    empty_cluster(server)
    server.on("GET", PODS, pods("a", "b"))
    reading = read_cluster(client_of(server.url, tmp_path), clock=lambda: 0.0)
    assert list(reading.snapshot.pods.name) == ["a", "b"]
    assert reading.snapshot.resource_version == "41"
    (asked,) = server.to(PODS)
    assert "limit" not in asked.query
    assert asked.headers["Accept"] == f"{PROTOBUF}, application/json"


def test_a_server_before_1_33_is_asked_for_pages(server, tmp_path):
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
        Say({}, status=503),
        Say(zipped("a", "b")[:-20], headers=ZIPPED),
    ],
)
def test_what_does_not_arrive_whole_is_read_again_in_pages(server, tmp_path, sleeps, first):
    empty_cluster(server)
    server.on("GET", PODS, first, pods("a", "b"))
    reading = read_cluster(client_of(server.url, tmp_path, sleeps), clock=lambda: 0.0)
    assert list(reading.snapshot.pods.name) == ["a", "b"]
    assert [asked.query.get("limit") for asked in server.to(PODS)] == [None, "500"]
    (note,) = reading.readings.notes
    assert note.startswith("the list of pods was read in pages, as one answer failed: ")


def test_a_list_that_broke_off_is_reported_in_words(server, tmp_path, sleeps):
    empty_cluster(server)
    server.on("GET", PODS, Say(lines=({"items": []},), torn=True), pods("a", "b"))
    reading = read_cluster(client_of(server.url, tmp_path, sleeps), clock=lambda: 0.0)
    assert reading.readings.notes[0].endswith(
        "broke: the connection ended before the answer was complete"
    )


@pytest.mark.parametrize("compressed", [False, True])
def test_a_list_is_compressed_on_its_way_if_asked_for(server, tmp_path, compressed):
    empty_cluster(server)
    server.on("GET", PODS, Say(zipped("a", "b"), headers=ZIPPED) if compressed else pods("a", "b"))
    client = client_of(server.url, tmp_path, compressed=compressed)
    assert list(read_cluster(client, clock=lambda: 0.0).snapshot.pods.name) == ["a", "b"]
    asked = {one.headers.get("Accept-Encoding") == "gzip" for one in server.asked}
    assert asked == {compressed}


def test_a_throttled_list_is_asked_for_again_when_the_server_said(server, tmp_path, sleeps):
    empty_cluster(server)
    server.on("GET", PODS, Say({}, status=429, headers={"Retry-After": "7"}), pods("a"))
    reading = read_cluster(client_of(server.url, tmp_path, sleeps), clock=lambda: 0.0)
    assert list(reading.snapshot.pods.name) == ["a"]
    assert [asked.query.get("limit") for asked in server.to(PODS)] == [None, None]
    assert sleeps.waits == [7.0]
    assert reading.readings.notes == ()


def test_a_list_that_expires_between_pages_after_it_broke_off_is_read_again(
    server, tmp_path, sleeps
):
    def one_page(token: str, name: str) -> Say:
        item = protobuf_bytes.pod(name)
        body = protobuf_bytes.listed([item], version="41", token=token)
        return Say(body, headers=IN_PROTOBUF)

    expired = Say(status_body(410, "expired", metadata={"continue": "later"}), 410)
    empty_cluster(server)
    cut = pods("a", "b", cut=-40)
    server.on("GET", PODS, cut, one_page("more", "a"), expired, one_page("more", "a"), pods("b"))
    reading = read_cluster(client_of(server.url, tmp_path, sleeps), clock=lambda: 0.0)
    assert list(reading.snapshot.pods.name) == ["a", "b"]
    (note,) = reading.readings.notes
    assert "in pages" in note


def test_a_stream_takes_a_place_among_the_requests_in_flight(server, tmp_path):
    empty_cluster(server)
    others, silence = server.fallback, 0.3
    arrived: list[float] = []

    def other(asked: Asked) -> Say:
        arrived.append(time.monotonic())
        return others(asked)

    def slow_pods(_: Asked) -> Say:
        arrived.append(time.monotonic())
        arrived.append(arrived[-1] + silence)
        return dataclasses.replace(pods("a"), after=silence)

    server.fallback = other
    server.handle("GET", PODS, slow_pods)
    read_cluster(client_of(server.url, tmp_path, in_flight=1), clock=lambda: 0.0)
    # While the pods were awaited, nothing else was asked for; afterwards all the rest was.
    assert arrived == sorted(arrived)
    assert len(server.asked) == len(LISTED) + 1


def test_a_failing_list_gives_up_the_place_that_the_pods_held(server, tmp_path):
    empty_cluster(server)
    server.on("GET", PODS, pods("a", "b"))
    server.on("GET", NODES, Say(status_body(403, "no"), 403))
    with pytest.raises(ForbiddenError, match="nodes"):
        read_cluster(client_of(server.url, tmp_path, in_flight=1), clock=lambda: 0.0)


def test_a_long_list_in_json_is_noted(server, tmp_path):
    empty_cluster(server)
    long_pod = pod("a", annotations={"note": "x" * (5 << 20)})
    server.on("GET", PODS, Say(list_body([long_pod])))
    reading = read_cluster(client_of(server.url, tmp_path), clock=lambda: 0.0)
    (note,) = reading.readings.notes
    assert note.startswith("the list of pods came as application/json")


def test_a_list_that_is_never_whole_is_an_error(server, tmp_path, sleeps):
    empty_cluster(server)
    server.on("GET", PODS, pods("a", "b", cut=-40))
    with pytest.raises(ClusterReadError, match="broke off"):
        read_cluster(client_of(server.url, tmp_path, sleeps), clock=lambda: 0.0)


def test_a_server_without_protobuf_answers_in_json(server, tmp_path):
    empty_cluster(server)
    server.on("GET", PODS, Say(list_body([pod("a")])))
    server.on("GET", NODES, Say(list_body([node("n1")])))
    reading = read_cluster(client_of(server.url, tmp_path), clock=lambda: 0.0)
    assert reading.snapshot.pods.node.tolist() == [0]
    assert len(server.to(PODS)) == 1
