"""Pods with responders, from the policy to the report: where nothing serves requests, in files, and requests that are late."""

import json
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from rebalancer.embedded.engine import Durations
from rebalancer.kube.eviction_requests import ASKED_AT
from rebalancer.policy.model import Methods
from rebalancer.run.tidying import withdraw_late
from rebalancer.snapshot.in_flight import with_requests
from rebalancer.snapshot.requests import REQUESTER, EvictionRequest, request_name
from rebalancer.testing.objects import EmbeddedCluster, deployment
from rebalancer.testing.objects import node as embedded_node
from rebalancer.testing.snapshots import node, snapshot_of, workload
from tests.unit.commands.called import called
from tests.unit.commands.embedded import ClusterClock, Runner
from tests.unit.kube.scripted import Say, ScriptedServer, client_of, status_body

MOVER = "acme.example/mover"
NAMED = {"evictionResponders": [{"name": MOVER, "priority": 10000}]}
POLICY = """
apiVersion: rebalancer/v1
kind: Policy
method: {evictionRequests: 1h}
protect: {minPodAge: 0s, singleReplicas: false}
strategies: {node-affinity: {}}
"""
AT, NOW = "2027-01-15T06:00:00Z", 1_800_000_000.0


def test_where_the_api_is_not_served_the_pod_is_evicted_and_the_report_says_so(tmp_path):
    timings = Durations(start_up=0.3, shutdown=0.3, node_start_up=0.05)
    with EmbeddedCluster(timings=timings) as cluster:
        cluster.apply(embedded_node("n-a", labels={"pool": "web"}))
        cluster.settle()
        cluster.apply(deployment("web", 1, nodeSelector={"pool": "web"}, **NAMED))
        cluster.settle()
        cluster.apply(embedded_node("n-a", labels={"pool": "other"}))
        cluster.apply(embedded_node("n-b", labels={"pool": "web"}))
        cluster.settle()
        code, report = Runner(cluster, tmp_path, POLICY, clock=ClusterClock(cluster))()
    (move,) = report["moves"]
    assert (code, move["method"], move["outcome"], move["landed"]) == (0, "evict", "evicted", "n-b")
    assert any("serves no EvictionRequests" in note for note in report["warnings"])


@pytest.fixture
def file(tmp_path):
    """A file with two pods on one node of two, which name a responder."""
    items = [node("a"), node("b"), *workload("web", ["a", "a"], spec=NAMED)]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    return str(path)


@pytest.mark.parametrize(
    ("flags", "method", "says"),
    [
        ((), "evict", "runs evict it (method.evictionRequests is not set"),
        (("--set", "method.evictionRequests=1h"), "request", "runs ask them by an EvictionRequest"),
    ],
)
def test_a_pod_in_a_file_shows_its_responders_and_how_it_would_move(file, flags, method, says):
    planned = called("plan", "--snapshot", file, "-o", "json", *flags)
    (move,) = json.loads(planned.stdout)["moves"]
    assert (move["method"], MOVER in move["reason"]) == (method, method == "request")
    shown = called("explain", "pod", f"default/{move['pod']}", "--snapshot", file, *flags)
    text = " ".join(shown.stdout.split())
    assert f"responders by priority: {MOVER} (10000)" in text
    assert says in text
    data = called("explain", "pod", f"default/{move['pod']}", "--snapshot", file, "-o", "json")
    named = json.loads(data.stdout)["responders"]
    assert named == [{"name": MOVER, "priority": 10000}]


def request_for(snapshot, row, **more):
    uid, pod = snapshot.pods.uid[row], snapshot.pods.name[row]
    made = EvictionRequest("default", request_name(uid), pod, uid, REQUESTER, False, NOW - 7200)
    return replace(made, **more)


@pytest.mark.parametrize(
    ("more", "namespace", "answer", "says"),
    [
        ({}, None, None, "is withdrawn: open for more than 1h"),
        ({}, "default", None, "is withdrawn: open for more than 1h"),
        ({}, None, Say(status_body(503, "etcd is away"), 503), "is not withdrawn: HTTP 503"),
        # It may not be: the run has rights in its namespace only.
        ({}, "shop", None, None),
        ({"asked_at": NOW - 3500}, None, None, None),
        ({"requester": "acme.example/drains"}, None, None, None),
        # It is named otherwise: what is withdrawn is the request of that name.
        ({"name": "mine"}, None, None, None),
    ],
)
def test_requests_that_are_open_for_too_long_are_withdrawn(tmp_path, more, namespace, answer, says):
    read = replace(snapshot_of([node("a"), *workload("web", ["a"], spec=NAMED)]), captured_at=NOW)
    one = request_for(read, 0, **more)
    withdrawn = {
        "metadata": {"name": one.name, "namespace": "default"},
        "spec": {
            "target": {"pod": {"name": one.pod, "uid": one.pod_uid}},
            "requester": REQUESTER,
            "intent": "Withdrawn",
        },
    }
    methods = Methods(eviction_requests=timedelta(hours=1))
    loaded = SimpleNamespace(policy=SimpleNamespace(method=methods))
    rules = SimpleNamespace(namespace=namespace)
    run: Any = SimpleNamespace(loaded=loaded, rules=rules)
    path = f"/apis/lifecycle.k8s.io/v1alpha1/namespaces/default/evictionrequests/{quote(one.name, safe='')}"
    with ScriptedServer() as server:
        server.on("PATCH", path, answer or Say(withdrawn))
        client = client_of(server.url, tmp_path)
        notes = withdraw_late(run, client, with_requests(read, [one], 3600))
        sent = server.to(path, "PATCH")
    assert [says in note for note in notes] == [True] * (says is not None), notes
    assert [one.body["metadata"]["annotations"] for one in sent] == [{ASKED_AT: AT}] * len(notes)
