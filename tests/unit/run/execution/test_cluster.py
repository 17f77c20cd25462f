"""The executor's actor and feed on a real API server."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from rebalancer.base.environment import SystemClock
from rebalancer.base.errors import ClusterReadError
from rebalancer.base.stop import Stop
from rebalancer.kube.evict import AnswerKind
from rebalancer.kube.watch import EventType
from rebalancer.run.execution.act import ClusterActor, open_feed
from rebalancer.testing.snapshots import node, snapshot_of, workload
from tests.strategies.pod_states import with_state
from tests.unit.kube.scripted import Say, ScriptedServer, client_of, status_body
from tests.unit.run.execution.test_feed import names, record
from tests.unit.run.execution.world import move

POD = "/api/v1/namespaces/default/pods/web-0"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
SNAPSHOT = snapshot_of(
    [
        node("n1", "a"),
        *workload("web", ["n1", "n1"]),
        *workload("db", ["n1"]),
        *workload("api", ["n1"]),
    ]
)
UIDS = dict(zip(SNAPSHOT.pods.name, SNAPSHOT.pods.uid, strict=True))


def planned(name, owner):
    return replace(move(name), uid=UIDS[name], owner=f"Deployment/default/{owner}")


def actor(server: ScriptedServer, tmp_path: Path, warnings: list[str]) -> ClusterActor:
    client = client_of(server.url, tmp_path)
    return ClusterActor(client, SNAPSHOT, clock=lambda: 1e9, instance="run-1", warn=warnings.append)


def test_it_evicts_by_uid_and_reads_by_name(server, tmp_path):
    server.on("POST", f"{POD}/eviction", Say({"kind": "Status", "status": "Success"}, 201))
    server.on(
        "GET", POD, Say({"kind": "Pod", "metadata": {"uid": "u"}, "spec": {"nodeName": "n1"}})
    )
    acting = actor(server, tmp_path, [])
    assert acting.evict("default", "web-0", "u").kind is AnswerKind.EVICTED
    [sent] = server.to(f"{POD}/eviction", "POST")
    assert sent.body["deleteOptions"]["preconditions"] == {"uid": "u"}
    seen = acting.read_pod("default", "web-0", seconds=2.0)
    assert seen is not None
    assert (seen.uid, seen.node, seen.ready) == ("u", "n1", False)


def test_after_the_stop_the_fate_of_a_pod_is_read_all_the_same(server, tmp_path):
    signalled = threading.Event()
    client = client_of(server.url, tmp_path, Stop(SystemClock(), signalled=signalled))
    acting = ClusterActor(client, SNAPSHOT, clock=lambda: 1e9, instance="run-1", warn=print)
    server.on("GET", POD, Say({"kind": "Pod", "metadata": {"uid": "u"}}))
    signalled.set()
    with pytest.raises(ClusterReadError, match="stopped by a signal"):
        acting.read_pod("default", "web-0", seconds=2.0)
    assert acting.read_pod("default", "web-0", seconds=2.0, after_stop=True) is not None


def test_a_pod_that_cannot_be_read_is_an_error(server, tmp_path):
    server.on("GET", POD, Say(status_body(403, "pods is forbidden"), 403))
    with pytest.raises(ClusterReadError):
        actor(server, tmp_path, []).read_pod("default", "web-0", seconds=2.0)


@pytest.mark.parametrize(("code", "warns"), [(201, False), (403, True), (429, True), (500, True)])
def test_an_eviction_is_announced_on_the_pod_and_its_owner_or_a_warning_says_not(
    server, tmp_path, code, warns
):
    server.on("POST", EVENTS, Say({} if code == 201 else status_body(code, "no"), code))
    warnings: list[str] = []
    acting = actor(server, tmp_path, warnings)
    acting.announce(planned("web-0", "web"))
    acting.close()
    notes = [asked.body["note"] for asked in server.to(EVENTS, "POST")]
    assert notes[0] == "moved off n1 by duplicates: two on one node; expected on n2 (100%)"
    assert warns or notes[1:] == [f"pod web-0: {notes[0]}"]
    assert bool(warnings) is warns


def test_only_pods_of_the_moved_ones_controllers_are_replacements():
    moves = [planned("web-0", "web"), planned("db-0", "db")]
    feed = open_feed(SNAPSHOT, moves)
    controller = {name: feed.controller_of(uid) for name, uid in UIDS.items()}
    assert controller["web-0"] is not None
    assert controller["db-0"] not in (None, controller["web-0"])
    # What is not moved is not asked for.
    assert (controller["web-1"], controller["api-0"]) == (None, None)
    # Pods of the snapshot are no replacements, whatever happens to them; a new one is.
    old = record("web-1", controller=controller["web-0"])._replace(uid=UIDS["web-1"])
    feed.take(EventType.MODIFIED, old)
    assert names(feed) == []
    feed.take(EventType.ADDED, record("web-2", controller=controller["web-0"]))
    feed.take(EventType.ADDED, record("api-1", controller="another"))
    assert names(feed) == ["web-2"]


@pytest.mark.parametrize("ready", [False, True])
def test_of_an_owner_that_lacks_ready_pods_the_feed_knows_those_of_the_snapshot(ready):
    objects = workload("web", ["n1", "n1", "n1"])
    for name in ("web-0", "web-1"):
        objects = with_state(objects, name, ready=ready)
    snapshot = snapshot_of([node("n1"), *objects])
    uids = dict(zip(snapshot.pods.name, snapshot.pods.uid, strict=True))
    feed = open_feed(snapshot, [replace(planned("web-0", "web"), uid=uids["web-0"])])
    assert feed.unready_sibling(uids["web-0"]) == (None if ready else "web-1")


def test_a_plan_without_moves_follows_nothing():
    feed = open_feed(SNAPSHOT, [])
    feed.take(EventType.ADDED, record("web-2", controller="any"))
    assert names(feed) == []
