"""The metrics API: what it answers, what it refuses, and what a run makes of that."""

import json
from pathlib import Path
from typing import Any

import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.access import ACT_RULES, FOLLOW_RULES, READ_RULES, USAGE_RULES
from rebalancer.kube.capture import write_cluster_snapshot
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.metrics import MetricsApi
from rebalancer.kube.read import ClusterReading, read_cluster
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.model import Snapshot
from tests.unit.kube.scripted import (
    Asked,
    Say,
    ScriptedServer,
    Sleeps,
    client_of,
    empty_cluster,
    list_body,
    node,
    pod,
    status_body,
)

NODES, PODS = "/apis/metrics.k8s.io/v1beta1/nodes", "/apis/metrics.k8s.io/v1beta1/pods"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
TEN = 1795168800.0
"""The scripted server's clock: 2026-11-20T10:00:00Z."""
AT = "2026-11-20T09:59:40Z"
MIB = 1 << 20
# In the shape of metrics-server 0.9: labels copied, created when answered, containers in any order.
OF_NODE = {
    "metadata": {
        "name": "n1",
        "creationTimestamp": "2026-11-20T10:00:00Z",
        "labels": {"kubernetes.io/hostname": "n1", "topology.kubernetes.io/zone": "a"},
    },
    "timestamp": AT,
    "window": "18.258s",
    "usage": {"cpu": "1500000016n", "memory": "2Mi"},
}
OF_POD = {
    "metadata": {
        "name": "a",
        "namespace": "default",
        "creationTimestamp": "2026-11-20T10:00:00Z",
        "labels": {"app": "web"},
    },
    "timestamp": AT,
    "window": "1m1.411s",
    "containers": [
        {"name": "sidecar", "usage": {"cpu": "0", "memory": "4Ki"}},
        {"name": "main", "usage": {"cpu": "7000002n", "memory": "1020Ki"}},
    ],
}
OF_FALLEN: dict[str, Any] = {
    "metadata": {"name": "b", "namespace": "default", "creationTimestamp": "2026-11-20T10:00:00Z"},
    "timestamp": None,
    "window": "0s",
    "containers": [],
}
"""Of a pod whose counters are lower than before."""


def metrics_list(kind: str, *items: Any) -> Say:
    """As metrics-server answers: nothing in the list's metadata, no kind in the items."""
    head = {"kind": f"{kind}List", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}}
    return Say({**head, "items": list(items)})


@pytest.fixture
def measured(server):
    """A server with one node and two pods, of which one was measured."""
    empty_cluster(server)
    server.on("GET", "/api/v1/pods", Say(list_body([pod("a"), pod("b", "n2")])))
    server.on("GET", "/api/v1/nodes", Say(list_body([node("n1"), node("n2")])))
    server.on("GET", NODES, metrics_list("NodeMetrics", OF_NODE))
    server.on("GET", PODS, metrics_list("PodMetrics", OF_POD))
    return server


def read(
    server: ScriptedServer, folder: Path, *, usage: bool = False, **how: Any
) -> ClusterReading:
    client = client_of(server.url, folder, Sleeps())
    source = MetricsApi(client) if usage else None
    return read_cluster(client, clock=lambda: TEN, usage=source, **how)


def columns(snapshot: Snapshot) -> tuple[Any, ...]:
    usage = snapshot.usage
    assert usage is not None
    return usage.nodes.tolist(), usage.known.tolist(), usage.classes.tolist(), usage.at


WANTED = ([[1500, 0], [2 * MIB, 0]], [True, False], [[7], [MIB]], TEN - 20)


@pytest.mark.parametrize("page_size", [None, 1])
@pytest.mark.parametrize("keep", [False, True])
def test_what_was_measured_is_read_beside_the_rest(measured, tmp_path, page_size, keep):
    reading = read(measured, tmp_path, usage=True, page_size=page_size, keep=keep)
    assert columns(reading.snapshot) == WANTED
    assert reading.readings.notes == ()
    # Whole, and once: metrics-server knows no pages, and would send the same for each.
    assert [asked.query for asked in (*measured.to(NODES), *measured.to(PODS))] == [{}, {}]
    if reading.kept is not None:
        kinds = {listing.resource.kind for listing in reading.kept.listings}
        assert "Pod" in kinds
        assert not kinds & {"NodeMetrics", "PodMetrics"}
        settled = reading.kept.fold.settle()
        assert settled.snapshot(captured_at=TEN, version=(1, 36)).usage is None


def test_who_does_not_ask_for_usage_does_not_touch_the_metrics_api(measured, tmp_path):
    reading = read(measured, tmp_path)
    assert reading.snapshot.usage is None
    assert measured.to(NODES) == measured.to(PODS) == []


def test_metrics_are_neither_listed_nor_watched_by_everybody():
    rules = {(rule.group, rule.resource) for rule in (*READ_RULES, *ACT_RULES, *FOLLOW_RULES)}
    assert not rules & {(rule.group, rule.resource) for rule in USAGE_RULES}


UNREACHED = b"error trying to reach service: dial tcp 192.0.2.1:4443: connect: connection refused\n"
"""Until the API server has noticed that metrics-server is gone."""
UNSURE = b'Internal Server Error: "/apis/metrics.k8s.io/v1beta1/nodes": subjectaccessreviews is forbidden\n'
"""Where metrics-server itself lacks rights."""
NOT_THERE = [
    (Say(b"404 page not found\n", 404), "the API server does not serve them"),
    (Say(b"<html>Not Found</html>", 404), "HTTP 404 (<html>Not Found</html>)"),
    (Say(b"service unavailable\n", 503), "HTTP 503 (service unavailable)"),
    (Say(UNREACHED, 503), "HTTP 503 (error trying to reach service: dial tcp 192.0.2.1:4443"),
    (Say(UNSURE, 500), "HTTP 500 (Internal Server Error:"),
    (Say(status_body(500, "boom"), 500), "HTTP 500 (boom)"),
    (Say(hang_up=True), "broke"),
    (Say({}), "is no list of"),
    (Say(list_body([])), "is no list of"),
    (Say(b"<html>maintenance</html>"), "is no list of"),
    (Say(metrics_list("NodeMetrics", OF_NODE).body, cut=120), "broke"),
    (Say(json.dumps(metrics_list("NodeMetrics", OF_NODE).body)[:-2].encode()), "broke off"),
]


@pytest.mark.parametrize(("answer", "said"), NOT_THERE)
@pytest.mark.parametrize("path", [NODES, PODS])
def test_without_one_of_the_lists_nothing_is_known_and_a_note_says_why(
    measured, tmp_path, path, answer, said
):
    measured.on("GET", path, answer)
    reading = read(measured, tmp_path, usage=True)
    assert reading.snapshot.usage is None
    assert len(reading.snapshot.pods) == 2
    assert reading.snapshot.missing == ()
    [note] = reading.readings.notes
    assert note.startswith(f"usage is not known: {path.rsplit('/', 1)[1]}.metrics.k8s.io: ")
    assert said in note
    assert "Install metrics-server" in note
    assert len(measured.to(path)) == 1


@pytest.mark.parametrize(("answer", "said"), NOT_THERE[:2])
def test_one_note_reports_both_lists(measured, tmp_path, answer, said):
    measured.on("GET", NODES, answer)
    measured.on("GET", PODS, answer)
    [note] = read(measured, tmp_path, usage=True).readings.notes
    both = "nodes.metrics.k8s.io and pods.metrics.k8s.io"
    assert note.startswith(f"usage is not known: {both}: {said}. Install")


def test_that_no_node_has_been_measured_yet_is_said(measured, tmp_path):
    measured.on("GET", NODES, metrics_list("NodeMetrics"))
    reading = read(measured, tmp_path, usage=True)
    assert reading.snapshot.usage is None
    assert "no node has been measured yet" in reading.readings.notes[0]


@pytest.mark.parametrize("odd", [7, {}, {"metadata": []}, {"metadata": {"name": 7}}])
def test_what_is_no_object_was_not_measured(measured, tmp_path, odd):
    measured.on("GET", NODES, metrics_list("NodeMetrics", odd, OF_NODE))
    measured.on("GET", PODS, metrics_list("PodMetrics", odd, OF_POD))
    assert columns(read(measured, tmp_path, usage=True).snapshot) == WANTED


def test_a_pod_whose_counters_fell_was_not_measured(measured, tmp_path):
    measured.on("GET", PODS, metrics_list("PodMetrics", OF_POD, OF_FALLEN))
    assert columns(read(measured, tmp_path, usage=True).snapshot) == WANTED


def test_the_rights_that_are_missing_are_named_with_all_others(measured, tmp_path):
    def review(asked: Asked) -> Say:
        return Say({"status": {"allowed": False}}, 201)

    measured.handle("POST", REVIEWS, review)
    for path in (PODS, "/api/v1/services"):
        measured.on("GET", path, Say(status_body(403, "no"), 403))
    with pytest.raises(ForbiddenError) as caught:
        read(measured, tmp_path, usage=True)
    assert {(r.group, r.resource) for r in caught.value.missing} == {
        ("", "services"),
        ("metrics.k8s.io", "nodes"),
        ("metrics.k8s.io", "pods"),
    }
    assert set(USAGE_RULES) < set(caught.value.missing)
    assert '- {apiGroups: ["metrics.k8s.io"], resources: ["pods"], verbs: ["list"]}' in str(
        caught.value
    )


def test_credentials_that_are_not_accepted_are_no_matter_of_metrics(measured, tmp_path):
    measured.on("GET", NODES, Say(status_body(401, "no"), 401))
    with pytest.raises(ClusterReadError, match="unauthorized"):
        read(measured, tmp_path, usage=True)


# -- files -----------------------------------------------------------------------------------------


def capture(
    server: ScriptedServer, folder: Path, *, usage: bool = False
) -> tuple[Path, tuple[str, ...]]:
    path = folder / "cluster.zip"
    client = client_of(server.url, folder, Sleeps())
    source = MetricsApi(client) if usage else None
    return path, write_cluster_snapshot(client, path, clock=lambda: TEN, usage=source).notes


def test_a_file_holds_what_was_measured_if_that_was_asked_for(measured, tmp_path):
    path, notes = capture(measured, tmp_path, usage=True)
    assert notes == ()
    snapshot = load_snapshot(path)
    assert columns(snapshot) == WANTED
    assert snapshot.missing == ()
    path, _ = capture(measured, tmp_path)
    snapshot = load_snapshot(path)
    assert snapshot.usage is None
    assert snapshot.missing == ()
    assert len(measured.to(NODES)) == 1


@pytest.mark.parametrize("path", [NODES, PODS])
def test_a_file_without_all_of_it_has_none_of_it(measured, tmp_path, path):
    torn = json.dumps(metrics_list("PodMetrics", OF_POD).body)[:-2].encode()
    measured.on("GET", path, Say(torn))
    file, notes = capture(measured, tmp_path, usage=True)
    assert "broke off" in notes[0]
    assert load_snapshot(file).usage is None


def test_forbidden_metrics_are_named_and_leave_no_file(measured, tmp_path):
    measured.on("GET", NODES, Say(status_body(403, "no"), 403))
    with pytest.raises(ForbiddenError, match=r"list nodes in API group \"metrics.k8s.io\""):
        capture(measured, tmp_path, usage=True)
    assert not (tmp_path / "cluster.zip").exists()


def kubectl(shape: str) -> dict[str, Any]:
    """What ``kubectl get nodes,pods,nodes.metrics,pods.metrics -A -o json`` prints."""
    version = "metrics.k8s.io/v1beta1"
    items = [
        {"apiVersion": "v1", "kind": "Node", **node("n1")},
        {"apiVersion": "v1", "kind": "Node", **node("n2")},
        {"apiVersion": "v1", "kind": "Pod", **pod("a")},
        {"apiVersion": version, "kind": "NodeMetrics", **OF_NODE},
        {"apiVersion": version, "kind": "PodMetrics", **OF_POD},
    ]
    if shape == "metrics first":
        items.reverse()
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}


@pytest.mark.parametrize("shape", ["metrics first", "metrics last"])
def test_what_kubectl_prints_of_metrics_is_read(tmp_path, shape):
    file = tmp_path / "file.json"
    file.write_text(json.dumps(kubectl(shape)))
    snapshot = load_snapshot(file)
    assert columns(snapshot) == WANTED
    # The newest word in it, which is when kubectl asked.
    assert snapshot.captured_at == TEN
