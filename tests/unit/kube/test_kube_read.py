"""From lists to a snapshot: paging, what breaks off, what is forbidden."""

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.access import ACT_RULES, lease_rules, missing_rules, require
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.read import read_cluster, read_version
from rebalancer.kube.resources import AccessRule
from tests.unit.kube.scripted import (
    Asked,
    Say,
    ScriptedServer,
    client_of,
    empty_cluster,
    list_body,
    node,
    pod,
    status_body,
)

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
REPLICA_SETS = "/apis/apps/v1/replicasets"
TEN = 1795168800.0
"""The scripted server's clock: 2026-11-20T10:00:00Z."""


def clock() -> float:
    return TEN + 60


def in_pages(*pages: list[Any]) -> tuple[Say, ...]:
    """Return the pages of one list, each with the token of the next."""
    last = len(pages) - 1
    return tuple(
        Say(list_body(page, go_on="" if index == last else f"token-{index}"))
        for index, page in enumerate(pages)
    )


def test_pages_are_followed_to_the_end_and_folded(server, tmp_path):
    empty_cluster(server)
    server.on("GET", PODS, *in_pages([pod("a"), pod("b")], [pod("c", "n2")]))
    server.on("GET", NODES, Say(list_body([node("n1"), node("n2")])))
    snapshot = read_cluster(client_of(server.url, tmp_path), clock=clock, page_size=2).snapshot
    assert list(snapshot.pods.name) == ["a", "b", "c"]
    assert snapshot.pods.node.tolist() == [0, 0, 1]
    assert snapshot.version == (1, 36)
    assert snapshot.resource_version == "99"
    assert snapshot.missing == ()
    first, second = (asked.query for asked in server.to(PODS))
    assert first == {"limit": "2", "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
    assert second == {**first, "continue": "token-0"}


def test_time_is_the_servers_and_the_difference_is_reported(server, tmp_path, sleeps):
    empty_cluster(server)
    reading = read_cluster(client_of(server.url, tmp_path, sleeps), clock=clock)
    assert reading.snapshot.captured_at == TEN
    assert reading.readings.clock_skew == pytest.approx(-59.5)
    assert reading.readings.server_version == "v1.36.3-test.1"
    assert reading.readings.read_bytes > 0


def test_replica_sets_without_pods_are_dropped(server, tmp_path):
    empty_cluster(server)
    reference = {"kind": "ReplicaSet", "name": "web-1", "uid": "rs-1", "controller": True}
    server.on("GET", PODS, Say(list_body([pod("a", ownerReferences=[reference])])))
    owner = {"kind": "Deployment", "name": "web", "uid": "d-1", "controller": True}
    sets = [
        {"metadata": {"name": name, "namespace": "default", "uid": uid, "ownerReferences": [owner]}}
        for name, uid in (("web-0", "rs-0"), ("web-1", "rs-1"))
    ]
    server.on("GET", REPLICA_SETS, Say(list_body(sets)))
    snapshot = read_cluster(client_of(server.url, tmp_path), clock=clock).snapshot
    assert [owner.ref for owner in snapshot.owners] == ["Deployment/default/web"]


def test_a_list_whose_pages_name_the_same_next_page_is_no_list(server, tmp_path):
    empty_cluster(server)
    server.on("GET", PODS, *[Say(list_body([pod("a")], go_on="more"))] * 3)
    with pytest.raises(ClusterReadError, match="list of pods does not go on"):
        read_cluster(client_of(server.url, tmp_path), clock=clock)
    assert len(server.to(PODS)) < 5


def expired(token: str) -> Say:
    body = status_body(410, "expired", reason="Expired", metadata={"continue": token})
    return Say(body, 410)


def test_a_list_that_expires_is_read_again_from_the_start(server, tmp_path):
    empty_cluster(server)
    first, second = in_pages([pod("a")], [pod("b")])
    server.on("GET", PODS, first, expired("later"), first, second)
    reading = read_cluster(client_of(server.url, tmp_path), clock=clock, page_size=1)
    assert list(reading.snapshot.pods.name) == ["a", "b"]
    assert reading.readings.notes == ()


def test_a_list_that_expires_twice_is_finished_from_a_later_moment_and_said_so(server, tmp_path):
    empty_cluster(server)
    first, second = in_pages([pod("a")], [pod("b")])
    server.on("GET", PODS, first, expired("x"), first, expired("later"), second)
    reading = read_cluster(client_of(server.url, tmp_path), clock=clock, page_size=1)
    assert list(reading.snapshot.pods.name) == ["a", "b"]
    assert server.to(PODS)[-1].query["continue"] == "later"
    assert "list of pods expired" in reading.readings.notes[0]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Say(list_body([pod("a")]), cut=80), "broke"),
        (
            Say(b'{"metadata": {"resourceVersion": "1"}, "items": [{"meta'),
            "broke off or is not JSON",
        ),
        (Say(b"<html>maintenance</html>", headers={"Content-Type": "text/html"}), "no proxy"),
        (Say({"items": []}), "no resourceVersion"),
        (Say({}), "missing required field `items`"),
        (Say({"metadata": {"resourceVersion": "1"}}), "missing required field `items`"),
        (Say(list_body([{"metadata": {"name": 7}}])), r"expects.*\.metadata\.name"),
    ],
)
@pytest.mark.parametrize("path", [PODS, NODES, REPLICA_SETS])
def test_a_list_that_is_none_is_an_error_never_a_short_snapshot(
    server, tmp_path, sleeps, path, answer, said
):
    empty_cluster(server)
    server.on("GET", path, answer)
    with pytest.raises(ClusterReadError, match=said):
        read_cluster(client_of(server.url, tmp_path, sleeps), clock=clock)


def test_the_second_page_may_not_be_missing(server, tmp_path, sleeps):
    empty_cluster(server)
    first, _ = in_pages([pod("a")], [])
    server.on("GET", PODS, first, Say(hang_up=True))
    with pytest.raises(ClusterReadError, match="broke"):
        read_cluster(client_of(server.url, tmp_path, sleeps), clock=clock)


def test_every_forbidden_list_is_named_at_once(server, tmp_path):
    empty_cluster(server)
    for path in (NODES, REPLICA_SETS, "/apis/policy/v1/poddisruptionbudgets"):
        server.on("GET", path, Say(status_body(403, "no"), 403))
    with pytest.raises(ForbiddenError) as caught:
        read_cluster(client_of(server.url, tmp_path), clock=clock)
    assert {rule.resource for rule in caught.value.missing} == {
        "nodes",
        "replicasets",
        "poddisruptionbudgets",
    }
    assert '- {apiGroups: ["policy"], resources: ["poddisruptionbudgets"]' in str(caught.value)


def test_a_kind_that_the_server_does_not_serve_is_missing_unless_it_is_essential(server, tmp_path):
    empty_cluster(server)
    server.on("GET", "/apis/batch/v1/jobs", Say(b"404 page not found", 404))
    client = client_of(server.url, tmp_path)
    assert read_cluster(client, clock=clock).snapshot.missing == (
        "jobs: the API server does not serve them",
    )
    server.on("GET", NODES, Say(b"404 page not found", 404))
    with pytest.raises(ClusterReadError, match="could not list nodes: HTTP 404"):
        read_cluster(client, clock=clock)


def test_a_proxy_that_finds_nothing_does_not_say_that_a_kind_is_not_served(server, tmp_path):
    empty_cluster(server)
    server.on("GET", "/apis/batch/v1/jobs", Say(b"<html>404 Not Found</html>", 404))
    with pytest.raises(ClusterReadError, match=r"could not list jobs.*: HTTP 404: <html>"):
        read_cluster(client_of(server.url, tmp_path), clock=clock)


@pytest.mark.parametrize("body", [b"<html>", {}, {"major": "x", "minor": "1"}])
def test_what_has_no_version_is_no_api_server(server, tmp_path, body):
    server.on("GET", "/version", Say(body))
    with pytest.raises(ClusterReadError, match="is not a Kubernetes API server"):
        read_version(client_of(server.url, tmp_path))


def test_what_a_run_may_not_do_is_asked_beforehand(server, tmp_path):
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

    def script(asked: Asked) -> Say:
        spec = asked.body["spec"]["resourceAttributes"]
        refused = (spec["resource"], spec.get("subresource")) == ("pods", "eviction")
        refused |= (spec["resource"], spec["verb"], spec.get("name")) == ("leases", "update", "run")
        return Say({"status": {"allowed": not refused}}, 201)

    server.handle("POST", reviews, script)
    client = client_of(server.url, tmp_path)
    with pytest.raises(ForbiddenError) as caught:
        require(client, [*ACT_RULES, *lease_rules("ops", "run")])
    assert caught.value.missing == (
        AccessRule("create", "", "pods/eviction"),
        AccessRule("update", "coordination.k8s.io", "leases", "ops", "run"),
    )
    assert 'resourceNames: ["run"], verbs: ["update"]' in str(caught.value)
    server.on("POST", reviews, Say(status_body(403, "may not ask"), 403))
    assert missing_rules(client, ACT_RULES) == ()


NESTED = (
    b'{"metadata": {"resourceVersion": "1", "x": '
    + b"[" * 100_000
    + b"]" * 100_000
    + b'}, "items": []}'
)
STRANGE = {
    "no list": b"[1, 2]",
    "no UTF-8": b'{"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "\xff"}}]}',
    "nested": NESTED,
    "items of another kind": b'{"metadata": {"resourceVersion": "1"}, "items": [7]}',
    "a spec that is none": b'{"metadata": {"resourceVersion": "1"}, "items": [{"spec": []}]}',
    "a page of a proxy": b"<html>sign in</html>",
}
SENT_AS = ("application/json", "application/vnd.kubernetes.protobuf")


@pytest.mark.parametrize("path", ["/api/v1/pods", "/api/v1/nodes", "/apis/apps/v1/replicasets"])
@pytest.mark.parametrize("content_type", SENT_AS)
@pytest.mark.parametrize("what", [*STRANGE, "protobuf that is none", "protobuf cut short"])
def test_a_list_that_is_not_understood_is_named(server, tmp_path, what, content_type, path):
    empty_cluster(server)
    body = {
        "protobuf that is none": b"k8s\x00\x12\x05\x12\x03\x0a\xff\xff",
        "protobuf cut short": b"k8s\x00\x12\x7f\x12\x03",
        **STRANGE,
    }[what]
    server.on("GET", path, Say(body, headers={"Content-Type": content_type}))
    plural = path.rsplit("/", 1)[1]
    with pytest.raises(ClusterReadError, match=f"list of {plural}"):
        read_cluster(client_of(server.url, tmp_path, attempts=1), clock=lambda: 0.0)


def test_a_pod_whose_spec_is_not_understood_is_no_crash(server, tmp_path):
    """What is alike in all pods of a class is decoded when the first is folded."""
    empty_cluster(server)
    strange = pod("a")
    strange["spec"]["affinity"] = 7
    server.on("GET", PODS, Say(list_body([strange])))
    with pytest.raises(ClusterReadError, match="list of pods"):
        read_cluster(client_of(server.url, tmp_path, attempts=1), clock=lambda: 0.0)


@settings(max_examples=20, deadline=None)
@given(body=st.binary(max_size=300), protobuf=st.booleans(), magic=st.booleans())
def test_no_bytes_of_a_list_let_another_error_out(tmp_path_factory, body, protobuf, magic):
    with ScriptedServer() as server:
        empty_cluster(server)
        sent = b"k8s\x00\x12" + bytes([len(body) % 128]) + body if magic else body
        server.on("GET", "/api/v1/nodes", Say(sent, headers={"Content-Type": SENT_AS[protobuf]}))
        folder = tmp_path_factory.mktemp("kube")
        with contextlib.suppress(ClusterReadError):
            read_cluster(client_of(server.url, folder, attempts=1), clock=lambda: 0.0)
