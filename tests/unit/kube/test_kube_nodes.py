"""A node is changed on what it was when it was read, or read again: what others write is never undone."""

import time
from typing import Any

import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.nodes import NodeChange, NodeView, change_node, read_node
from tests.unit.kube.scripted import Asked, Say, client_of, status_body

PATH = "/api/v1/nodes/n1"
OTHERS_TAINT = {"key": "k", "effect": "NoExecute", "timeAdded": "2026-11-20T10:00:00Z"}


def node(version: str = "7", **spec: Any) -> dict[str, Any]:
    """Return a Node as the server sends it."""
    return {
        "metadata": {
            "name": "n1",
            "uid": "u1",
            "resourceVersion": version,
            "annotations": {"theirs": "kept"},
        },
        "spec": {"podCIDR": "10.0.0.0/24", **spec},
        "status": {"phase": ""},
    }


def cordon(view: NodeView) -> NodeChange | None:
    return None if view.unschedulable else NodeChange(unschedulable=True, annotations={"a": "b"})


def test_a_change_names_the_node_and_the_version_that_was_read(server, tmp_path):
    server.on("GET", PATH, Say(node()))
    server.on("PATCH", PATH, Say(node("8", unschedulable=True)))
    changed = change_node(client_of(server.url, tmp_path), "n1", cordon)
    (asked,) = server.to(PATH, "PATCH")
    assert asked.headers["Content-Type"] == "application/merge-patch+json"
    assert asked.body == {
        "metadata": {"uid": "u1", "resourceVersion": "7", "annotations": {"a": "b"}},
        "spec": {"unschedulable": True},
    }
    assert changed is not None
    assert (changed.unschedulable, changed.resource_version) == (True, "8")


@pytest.mark.parametrize(
    ("change", "spec"),
    [
        (NodeChange(unschedulable=False), {"unschedulable": None}),
        (NodeChange(taints=()), {"taints": None}),
        (
            NodeChange(taints=({"key": "k", "effect": "NoSchedule"},)),
            {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        ),
    ],
)
def test_what_is_taken_away_is_null_in_the_patch(server, tmp_path, change, spec):
    server.on("GET", PATH, Say(node()))
    server.on("PATCH", PATH, Say(node("8")))
    change_node(client_of(server.url, tmp_path), "n1", lambda _: change)
    (asked,) = server.to(PATH, "PATCH")
    assert asked.body["spec"] == spec


def test_a_node_that_is_as_wanted_is_not_written(server, tmp_path):
    server.on("GET", PATH, Say(node(unschedulable=True, taints=[OTHERS_TAINT])))
    node_now = change_node(client_of(server.url, tmp_path), "n1", cordon)
    assert not server.to(PATH, "PATCH")
    assert node_now is not None
    assert node_now.annotations == {"theirs": "kept"}
    assert node_now.taints == (OTHERS_TAINT,)


def test_who_was_slower_reads_again_and_decides_again(server, tmp_path):
    server.on("GET", PATH, Say(node()), Say(node("9")))
    server.on("PATCH", PATH, Say(status_body(409, "changed"), 409), Say(node("10")))
    change_node(client_of(server.url, tmp_path), "n1", cordon)
    versions = [asked.body["metadata"]["resourceVersion"] for asked in server.to(PATH, "PATCH")]
    assert versions == ["7", "9"]


def test_a_lost_reply_is_looked_up_and_not_repeated(server, tmp_path):
    state: dict[str, Any] = {"unschedulable": False}

    def patch(_: Asked) -> Say:
        state["unschedulable"] = True
        return Say(hang_up=True)

    server.handle("GET", PATH, lambda _: Say(node(**state)))
    server.handle("PATCH", PATH, patch)
    node_now = change_node(client_of(server.url, tmp_path), "n1", cordon)
    assert node_now is not None
    assert node_now.unschedulable
    assert len(server.to(PATH, "PATCH")) == 1


def test_a_node_that_is_gone_is_none(server, tmp_path):
    server.on("GET", PATH, Say(status_body(404, "nodes not node_now"), 404))
    client = client_of(server.url, tmp_path)
    assert read_node(client, "n1") is None
    assert change_node(client, "n1", cordon) is None


def test_a_right_that_is_missing_is_named(server, tmp_path):
    server.on("GET", PATH, Say(node()))
    server.on("PATCH", PATH, Say(status_body(403, "cannot patch"), 403))
    with pytest.raises(ForbiddenError, match="patch nodes"):
        change_node(client_of(server.url, tmp_path), "n1", cordon)


def test_a_node_that_never_rests_is_an_error(server, tmp_path):
    server.on("GET", PATH, Say(node()))
    server.on("PATCH", PATH, Say(status_body(409, "changed"), 409))
    with pytest.raises(ClusterReadError, match="changes faster"):
        change_node(client_of(server.url, tmp_path), "n1", cordon)


@pytest.mark.parametrize("body", [b"{}", b"nonsense", b"[]"])
def test_what_is_no_node_is_an_error(server, tmp_path, body):
    server.on("GET", PATH, Say(body))
    with pytest.raises(ClusterReadError, match="not a node"):
        read_node(client_of(server.url, tmp_path), "n1")


@pytest.mark.parametrize("method", ["GET", "PATCH"])
def test_a_server_that_answers_too_slowly_is_not_waited_for(server, tmp_path, monkeypatch, method):
    monkeypatch.setattr("rebalancer.kube.nodes._SECONDS", 0.2)
    slow = Say(node("8"), after=60.0)
    server.on("GET", PATH, slow if method == "GET" else Say(node()))
    server.on("PATCH", PATH, slow)
    began = time.monotonic()
    with pytest.raises(ClusterReadError):
        change_node(client_of(server.url, tmp_path), "n1", cordon)
    assert time.monotonic() - began < 30.0
