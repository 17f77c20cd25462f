"""The server's face: who is let in, what goes wrong on purpose, how watches begin and end."""

import itertools
import threading
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from rebalancer.embedded.apiserver.http import Fault
from rebalancer.embedded.cluster import TOKEN, EmbeddedCluster
from rebalancer.embedded.manifests import pdb, pod
from tests.controlplane import ApiClient, ApiError

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def api(cluster):
    client = ApiClient(cluster.url, Path("unused"), TOKEN)
    yield client
    client.close()


def refused(call: Any, *arguments: Any) -> tuple[int, Any]:
    with pytest.raises(ApiError) as error:
        call(*arguments)
    return error.value.status, error.value.body


def test_only_our_token_is_let_in(cluster):
    for token in (None, "wrong"):
        client = ApiClient(cluster.url, Path("unused"), token)
        code, body = refused(client.get, "/api/v1/pods")
        assert (code, body["reason"], body["message"]) == (401, "Unauthorized", "Unauthorized")
        client.close()


def test_the_kubeconfig_names_server_and_token(cluster):
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    assert config["clusters"][0]["cluster"] == {"server": cluster.url}
    assert config["users"][0]["user"] == {"token": TOKEN}
    assert cluster.kubeconfig.stat().st_mode & 0o077 == 0


def test_what_is_denied_is_named_with_verb_resource_group_and_place(cluster, api):
    cluster.access.denied |= {
        ("list", "poddisruptionbudgets.policy"),
        ("create", "pods/eviction"),
        ("watch", "pods"),
    }
    code, body = refused(api.get, "/apis/policy/v1/poddisruptionbudgets")
    assert code == 403
    assert body["message"] == (
        "poddisruptionbudgets.policy is forbidden: User "
        '"system:serviceaccount:kube-system:embedded-admin" cannot list resource '
        '"poddisruptionbudgets" in API group "policy" at the cluster scope'
    )
    _, evicting = refused(api.post, "/api/v1/namespaces/shop/pods/a/eviction", {})
    assert (
        'cannot create resource "pods/eviction" in API group "" in the namespace "shop"'
        in (evicting["message"])
    )
    assert api.get("/api/v1/pods")["items"] == []
    assert refused(lambda: list(api.watch("/api/v1/pods", 1)))[0] == 403


def test_an_access_review_knows_what_is_denied(cluster, api):
    cluster.access.denied.add(("create", "pods/eviction"))
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

    def allowed(**attributes: str) -> bool:
        answer = api.post(path, {"spec": {"resourceAttributes": attributes}})
        return bool(answer["status"]["allowed"])

    assert not allowed(verb="create", resource="pods", subresource="eviction", group="")
    assert allowed(verb="create", resource="pods")
    assert allowed(verb="list", resource="deployments", group="apps")


def test_the_date_header_is_the_clusters_time(cluster):
    with urllib3.PoolManager() as pool:
        answer = pool.request("GET", f"{cluster.url}/version")
    date = parsedate_to_datetime(answer.headers["Date"]).timestamp()
    assert date == cluster.clock.now()
    assert answer.json()["minor"] == "36"


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v1/colours", 404),
        ("PUT", "/api/v1/pods", 405),
        ("POST", "/api/v1/pods", 405),
        ("GET", "/api/v1/namespaces/default/pods/a/eviction", 405),
        ("POST", MAPS, 400),
    ],
)
def test_requests_that_make_no_sense_are_refused(api, method, path, code):
    assert refused(api.request, method, path, [1])[0] == code


def test_discovery_reports_kinds_by_group(api):
    listed = api.get("/apis/apps/v1")
    assert listed["groupVersion"] == "apps/v1"
    assert {r["kind"] for r in listed["resources"]} == {
        "DaemonSet",
        "Deployment",
        "ReplicaSet",
        "Scale",
        "StatefulSet",
    }
    assert "policy" in {group["name"] for group in api.get("/apis")["groups"]}


# -- faults -----------------------------------------------------------------------------------------


def test_the_third_matching_request_fails_once(cluster, api):
    cluster.faults.add(Fault(method="GET", path="/nodes$", skip=2, status=503, retry_after=7))
    for _ in range(2):
        api.get("/api/v1/nodes")
    api.get("/api/v1/pods")
    assert refused(api.get, "/api/v1/nodes")[0] == 503
    api.get("/api/v1/nodes")
    assert cluster.faults.count_seen("GET", "/nodes$") == 4


def test_a_fault_can_ask_to_come_back_later(cluster):
    cluster.faults.add(Fault(status=429, retry_after=7, reason="TooManyRequests"))
    with urllib3.PoolManager() as pool:
        answer = pool.request("GET", f"{cluster.url}/api/v1/nodes", retries=False)
    assert (answer.status, answer.headers["Retry-After"]) == (429, "7")
    assert answer.json()["reason"] == "TooManyRequests"


def test_a_dropped_request_is_not_carried_out_and_a_late_drop_is(cluster, api):
    for name, late in (("early", False), ("late", True)):
        cluster.faults.add(Fault(method="POST", drop=True, late=late))
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        assert refused(api.post, MAPS, body)[0] == 0
    assert [m["metadata"]["name"] for m in cluster.objects("ConfigMap")] == ["late"]


def test_a_body_can_break_off(cluster, api):
    cluster.faults.add(Fault(path="/nodes$", truncate=10))
    assert refused(api.get, "/api/v1/nodes")[0] == 0
    assert api.get("/api/v1/nodes")["items"] == []


def test_an_answer_can_be_slow(cluster, api):
    cluster.faults.add(Fault(delay=0.3))
    began = time.monotonic()
    api.get("/api/v1/nodes")
    assert time.monotonic() - began >= 0.3


# -- watches ----------------------------------------------------------------------------------------


def test_a_watch_sends_bookmarks_only_when_asked(api):
    asked = list(api.watch(f"{MAPS}?allowWatchBookmarks=true", 1))
    assert [event["type"] for event in asked][-1:] == ["BOOKMARK"]
    assert asked[-1]["object"]["kind"] == "ConfigMap"
    assert int(asked[-1]["object"]["metadata"]["resourceVersion"]) > 0
    assert list(api.watch(MAPS, 1)) == []


def test_a_watch_from_a_forgotten_version_ends_with_410(cluster, api):
    """As the watch cache does: an ERROR event, not an error answer."""
    cluster.apply(pod("a"))
    cluster.forget_history()
    (event,) = api.watch("/api/v1/pods?resourceVersion=1", 5)
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"].startswith("too old resource version: 1 (")


def test_a_list_that_was_forgotten_answers_410(cluster, api):
    cluster.apply(pod("a"), pod("b"))
    page = api.get("/api/v1/pods?limit=1")
    cluster.forget_history()
    token = page["metadata"]["continue"]
    code, body = refused(api.get, f"/api/v1/pods?limit=1&continue={token}")
    assert (code, body["reason"]) == (410, "Expired")
    rest = api.get(f"/api/v1/pods?limit=1&continue={body['metadata']['continue']}")
    assert [p["metadata"]["name"] for p in rest["items"]] == ["b"]


def test_a_watch_of_a_namespace_hears_of_nothing_else(cluster, api):
    path = f"/api/v1/namespaces/kube-system/pods?resourceVersion={cluster.store.version}"

    def act() -> None:
        cluster.apply(pod("here", namespace="kube-system"), pod("there"))
        cluster.apply(pod("last", namespace="kube-system"))

    actor = threading.Timer(0.2, act)
    actor.start()
    events = itertools.islice(api.watch(path, 60), 2)
    assert [event["object"]["metadata"]["name"] for event in events] == ["here", "last"]
    actor.join()


def test_a_cluster_that_is_left_ends_its_watches_and_connections():
    with EmbeddedCluster() as cluster:
        api = ApiClient(cluster.url, Path("unused"), TOKEN)
        watch = api.watch("/api/v1/namespaces", 600)
        assert next(watch)["type"] == "ADDED"
        began = time.monotonic()
    assert time.monotonic() - began < 300
    with pytest.raises(urllib3.exceptions.ProtocolError):
        list(watch)
    api.close()


def test_threads_evict_one_after_the_other_under_one_budget(cluster, api):
    """Ten evictions at once, a budget of three: the first three pods go."""
    names = [f"p{index}" for index in range(10)]
    cluster.add_node("node-a")
    cluster.apply(*(pod(name, labels={"app": "web"}) for name in names))
    cluster.apply(pdb("web", {"app": "web"}, minAvailable=7))
    cluster.settle()
    codes: list[int] = []

    def evict(name: str) -> None:
        body = {"metadata": {"name": name}}
        try:
            api.post(f"/api/v1/namespaces/default/pods/{name}/eviction", body)
            codes.append(201)
        except ApiError as error:
            codes.append(error.status)

    threads = [threading.Thread(target=evict, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [201] * 3 + [429] * 7
    cluster.settle()
    assert len(cluster.objects("Pod")) == 7
