"""A followed cluster is the one that a new read would give, also when following goes wrong."""

import dataclasses
import math
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rebalancer.base.errors import ClusterReadError
from rebalancer.embedded import manifests
from rebalancer.embedded.apiserver.http import Fault
from rebalancer.embedded.apiserver.store import EmbeddedClock
from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.kube import cache as cached
from rebalancer.kube.cache import ClusterCache, RunView
from rebalancer.kube.client import Client, connect
from rebalancer.kube.lists import read_pods
from rebalancer.kube.read import Kept, read_cluster
from rebalancer.kube.transport import FollowLimits, Limits
from rebalancer.kube.watch import EventType
from rebalancer.snapshot.model import PodFlag, Snapshot, Usage
from rebalancer.wire.kinds import AUTOSCALERS, LISTED, PODS
from rebalancer.wire.pods import PodRecord
from rebalancer.wire.times import rfc3339
from tests.same import contents
from tests.unit.kube.scripted import Asked, Say, Sleeps, empty_cluster, list_body, status_body
from tests.unit.kube.scripted import client_of as scripted_client

START = 1_800_000_000.0
LABELS = {"app": "web"}
BUSY = 600.0
"""Seconds that something may take on a machine that does much else."""


class Heard:
    """A listener that notes what it hears."""

    def __init__(self) -> None:
        self.events: list[tuple[EventType, str]] = []
        self.failed: list[ClusterReadError] = []

    def take(self, event: EventType, pod: PodRecord) -> None:
        self.events.append((event, pod.name))

    def fail(self, error: ClusterReadError) -> None:
        self.failed.append(error)


@contextmanager
def small_cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(EmbeddedClock(START)) as cluster:
        for zone in "abc":
            cluster.add_node(f"n-{zone}", zone)
        cluster.apply(
            manifests.deployment("web", 3, labels=LABELS),
            manifests.statefulset("db", 2, labels={"app": "db"}),
            manifests.pdb("web", LABELS, minAvailable=2),
            manifests.service("web", LABELS),
        )
        cluster.settle()
        yield cluster


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A watch that is late on a busy machine is waited for; tests of late ones say how long."""
    monkeypatch.setattr(cached, "_TIMEOUT", BUSY)


@pytest.fixture
def cluster():
    with small_cluster() as made:
        yield made


def client_of(cluster: EmbeddedCluster) -> Client:
    return connect(kubeconfig=cluster.kubeconfig, environ={})


@contextmanager
def viewing(client: Client, kept: Kept, heard: Heard | None = None) -> Iterator[RunView]:
    """Follow what was kept; yield the view of the run that has read it."""
    cache = ClusterCache(client, kept, seconds=600)
    view = cache.view_first(kept.snapshot, kept.at)
    with view.listen(heard or Heard()) as whole, cache:
        assert whole
        yield view


@contextmanager
def following(cluster: EmbeddedCluster, heard: Heard | None = None) -> Iterator[RunView]:
    client = client_of(cluster)
    kept = read_cluster(client, clock=cluster.clock.now, keep=True).kept
    assert kept is not None
    with viewing(client, kept, heard) as view:
        yield view


def view_fresh(view: RunView, evicted: Collection[str] = ()) -> RunView:
    """Return the view of the next run."""
    return view._cache.view_now(evicted, captured_at=START, version=(1, 36))


def read(cluster: EmbeddedCluster) -> Snapshot:
    return read_cluster(client_of(cluster), clock=cluster.clock.now).snapshot


def same_soon(cluster: EmbeddedCluster, view: RunView) -> None:
    """What happened arrives within a moment."""
    wanted = contents(read(cluster))
    until = time.monotonic() + BUSY
    while (seen := contents(view.snapshot(()))) != wanted and time.monotonic() < until:
        time.sleep(0.05)
    assert seen == wanted
    budgets = view.snapshot(()).budgets
    assert view.list_exhausted_budgets(()) == {
        budget.ref for budget in budgets if budget.allowed <= 0
    }


# -- what may happen --------------------------------------------------------------------------------


def evict(cluster: EmbeddedCluster, number: int) -> None:
    pods = cluster.objects("Pod", "default")
    if pods:
        cluster.delete("Pod", pods[number % len(pods)]["metadata"]["name"])


def cordon(cluster: EmbeddedCluster, number: int) -> None:
    cluster.cordon([f"n-{'abc'[number % 3]}"], on=number % 2 == 0)


def join(cluster: EmbeddedCluster, number: int) -> None:
    if f"x-{number}" not in {node["metadata"]["name"] for node in cluster.objects("Node")}:
        cluster.add_node(f"x-{number}", "c")


def leave(cluster: EmbeddedCluster, number: int) -> None:
    if f"x-{number}" in {node["metadata"]["name"] for node in cluster.objects("Node")}:
        cluster.remove_node(f"x-{number}")


def scale(cluster: EmbeddedCluster, number: int) -> None:
    cluster.apply(manifests.deployment("web", number % 5, labels=LABELS))


def roll_out(cluster: EmbeddedCluster, number: int) -> None:
    cluster.apply(manifests.deployment("web", 3, labels={**LABELS, "release": str(number)}))


def guard(cluster: EmbeddedCluster, number: int) -> None:
    if number % 3 == 0 and cluster.objects("PodDisruptionBudget"):
        cluster.delete("PodDisruptionBudget", "web")
    else:
        cluster.apply(manifests.pdb("web", LABELS, minAvailable=number % 3))


def settle_in(cluster: EmbeddedCluster, number: int) -> None:
    space = f"space-{number}"
    cluster.apply(
        manifests.namespace(space, {"team": str(number)}),
        manifests.service("own", {"app": space}, namespace=space),
        manifests.resource_quota("all", namespace=space, pods="9"),
        manifests.replicaset("alone", 1 + number % 2, labels={"app": space}, namespace=space),
    )


def wait(cluster: EmbeddedCluster, number: int) -> None:
    cluster.advance(number / 2)


ACTS: tuple[Callable[[EmbeddedCluster, int], None], ...] = (
    evict,
    cordon,
    join,
    leave,
    scale,
    roll_out,
    guard,
    settle_in,
    wait,
)


@settings(max_examples=6, deadline=None)
@example([[(guard, 0), (join, 1)], [(leave, 1), (settle_in, 2)], [(roll_out, 1), (evict, 0)]])
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 5)), min_size=1, max_size=4),
        min_size=1,
        max_size=3,
    )
)
def test_a_followed_cluster_is_the_one_that_is_read_again(waves):
    with small_cluster() as cluster, following(cluster) as view:
        for acts in waves:
            for act, number in acts:
                act(cluster, number)
            same_soon(cluster, view)
        assert view.notes == ()


def test_lists_are_read_once_however_often_one_looks(cluster):
    client, heard = client_of(cluster), Heard()
    kept = read_cluster(client, clock=cluster.clock.now, keep=True).kept
    assert kept is not None
    cluster.faults.requests.clear()
    with viewing(client, kept, heard) as view:
        until(lambda: len(cluster.faults.requests) == len(LISTED))
        for _ in range(3):
            gone = cluster.objects("Pod", "default")[0]["metadata"]
            cluster.delete("Pod", gone["name"])
            cluster.settle()
            snapshot = view.snapshot({gone["uid"]})
            going = (snapshot.pods.flags & PodFlag.TERMINATING) != 0
            living = [uid for uid, ends in zip(snapshot.pods.uid, going, strict=True) if not ends]
            assert gone["uid"] not in living
        until(lambda: (EventType.DELETED, gone["name"]) in heard.events)
        watches = sorted(cluster.faults.requests)
    assert watches == sorted(f"GET {resource.path()}" for resource in LISTED)


def autoscaler(ago: int) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 9},
        "status": {
            "currentReplicas": 3,
            "desiredReplicas": 3,
            "lastScaleTime": rfc3339(START - ago),
        },
    }


def test_autoscalers_are_read_and_followed_only_where_they_are_asked_for(cluster):
    client, path = client_of(cluster), f"GET {AUTOSCALERS.path()}"
    assert read_cluster(client, clock=cluster.clock.now, keep=True).snapshot.autoscalers is None
    assert path not in cluster.faults.requests
    kept = read_cluster(client, clock=cluster.clock.now, keep=True, autoscalers=True).kept
    assert kept is not None
    assert kept.snapshot.autoscalers == ()
    with viewing(client, kept) as view:
        for ago in (500, 5):
            cluster.apply(autoscaler(ago))

            def seen(ago: int = ago) -> bool:
                autoscalers = view.snapshot(()).autoscalers or ()
                return [START - each.scaled_at for each in autoscalers] == [ago]

            until(seen)
        cluster.delete("HorizontalPodAutoscaler", "web")
        until(lambda: view.snapshot(()).autoscalers == ())
        assert view.notes == ()
    assert cluster.faults.requests.count(path) == 2  # a list and a watch


def test_what_was_measured_at_first_goes_along_with_the_pods(cluster):
    client = client_of(cluster)
    kept = read_cluster(client, clock=cluster.clock.now, keep=True).kept
    assert kept is not None
    first, each = kept.snapshot, np.array([[50], [1 << 20]])
    usage = Usage(
        nodes=np.repeat(10 * each, 3, axis=1),
        known=np.ones(3, np.bool_),
        classes=np.repeat(each, len(first.classes), axis=1),
        at=START,
    )
    kept = dataclasses.replace(kept, snapshot=dataclasses.replace(first, usage=usage))
    with viewing(client, kept) as view:
        cluster.cordon(["n-a"])
        victim = next(p for p in cluster.objects("Pod") if p["spec"].get("nodeName") == "n-a")
        cluster.delete("Pod", victim["metadata"]["name"])
        cluster.settle()
        later = view.snapshot({victim["metadata"]["uid"]})
    assert later.usage is not None
    pods_on = [np.bincount(of.pods.node, minlength=3) for of in (first, later)]
    assert pods_on[0][0] == pods_on[1][0] + 1
    assert later.usage.nodes[0].tolist() == (500 + 50 * (pods_on[1] - pods_on[0])).tolist()
    assert later.usage.at == START


def test_only_pods_are_followed_where_no_one_looks(cluster):
    client, heard = client_of(cluster), Heard()
    kept = read_cluster(client, clock=cluster.clock.now, keep=True).kept
    assert kept is not None
    cluster.faults.requests.clear()
    kept = dataclasses.replace(kept, listings=kept.listings[:1])
    cache = ClusterCache(client, kept, seconds=600, namespace="default")
    with cache.view_first(kept.snapshot, kept.at).listen(heard), cache:
        evict(cluster, 0)
        until(lambda: bool(heard.events))
    assert set(cluster.faults.requests) == {"GET /api/v1/namespaces/default/pods"}


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + BUSY
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def impatient(view: RunView, monkeypatch: pytest.MonkeyPatch, *, without: str = "") -> None:
    """Have what is late listed again soon, once all that can be followed is (all but ``without``)."""
    until(
        lambda: all(
            each.watch is not None and each.watch.live
            for each in view._cache._reflectors
            if each.resource.plural != without
        )
    )
    monkeypatch.setattr(cached, "_TIMEOUT", 0.5)


# -- when it cannot be followed ---------------------------------------------------------------------


def test_what_may_not_be_watched_is_listed_for_each_snapshot(cluster):
    cluster.access.denied |= {("watch", "nodes"), ("watch", "poddisruptionbudgets.policy")}
    with following(cluster) as view:
        for number in (1, 2):
            cordon(cluster, number)
            guard(cluster, number)
            same_soon(cluster, view)
    assert view.notes == (
        "nodes, poddisruptionbudgets were listed again between waves: our account may not watch them",
    )


def test_a_version_that_was_forgotten_is_listed_once_more_and_followed_from_there(cluster):
    heard = Heard()
    client = client_of(cluster)
    kept = read_cluster(client, clock=cluster.clock.now, keep=True).kept
    assert kept is not None
    evict(cluster, 0)
    cluster.settle()
    cluster.forget_history()
    with viewing(client, kept, heard) as view:
        same_soon(cluster, view)
        evict(cluster, 1)
        cluster.settle()
        same_soon(cluster, view)
    assert len(view.notes) == 1
    assert "poddisruptionbudgets, pods, replicasets" in view.notes[0]
    assert "the API server had forgotten their changes" in view.notes[0]
    assert (EventType.MODIFIED, "db-1") in heard.events
    assert heard.failed == []


def test_a_watch_that_does_not_open_is_replaced_by_a_list(cluster, monkeypatch):
    client = client_of(cluster)
    kept = read_cluster(client, clock=cluster.clock.now, keep=True).kept
    assert kept is not None
    cluster.faults.add(Fault("GET", "/api/v1/nodes$", status=503, times=4))
    with viewing(client, kept) as view:
        impatient(view, monkeypatch, without="nodes")
        cordon(cluster, 0)
        assert view.snapshot(()).nodes.unschedulable.tolist() == [True, False, False]
        assert view.notes == (
            "nodes were listed again between waves: their watch was broken or late",
        )
        cordon(cluster, 2)
        same_soon(cluster, view)
    assert len(view.notes) == 1


def test_an_eviction_that_no_watch_reports_is_looked_for_in_the_list(cluster, monkeypatch):
    with following(cluster) as view:
        impatient(view, monkeypatch)
        view.snapshot({"a uid that no event will name"})
        assert view.notes == (
            "pods were listed again between waves: their watch was broken or late",
        )
        same_soon(cluster, view)
        view.snapshot({"a uid that no event will name"})
    assert len(view.notes) == 1


def owned_pod(name: str, uid: str) -> dict[str, Any]:
    made = manifests.pod(name, labels={"app": "lone"})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "lone", "uid": uid}
    made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return made


def test_a_controller_that_pods_name_and_no_watch_reported_is_looked_for_once(cluster, monkeypatch):
    """One that owned no pod when it was listed was not kept: a rollback may scale it up again."""
    (lone,) = cluster.apply(manifests.replicaset("lone", 0, labels={"app": "lone"}))
    with following(cluster) as view:
        impatient(view, monkeypatch)
        cluster.apply(owned_pod("new", lone["metadata"]["uid"]))
        same_soon(cluster, view)
        assert view.notes == (
            "replicasets were listed again between waves: pods name some that no watch had reported",
        )
        view.snapshot(())  # with the new watch open
        cluster.faults.requests.clear()
        view.snapshot(())
    assert cluster.faults.requests == []


def test_a_controller_that_was_not_there_at_first_is_not_looked_for(cluster):
    cluster.apply(owned_pod("orphan", "a uid that is gone"))
    with following(cluster) as view:
        assert "orphan" in set(view.snapshot(()).pods.name)
        assert view.notes == ()


def test_who_may_not_watch_pods_is_reported(cluster):
    cluster.access.denied.add(("watch", PODS.plural))
    heard = Heard()
    with following(cluster, heard):
        until(lambda: bool(heard.failed))
    assert "may not watch pods" in str(heard.failed[0])


def test_no_thread_outlives_it(cluster):
    with following(cluster) as view:
        view.snapshot(())
    named = [t.name for t in threading.enumerate() if t.name.startswith("watch-")]
    assert named == []


def kept_by(view: RunView) -> dict[str, int]:
    """How much of everything is kept."""
    pods, objects = view._cache._fold._pods, view._cache._fold._objects
    return {
        "pods": len(pods._rows),
        "changes": len(pods._news),
        "changed": len(pods._newest),
        "classes": len(pods._classes),
        "keys": len(pods._class_ids),
        "controllers": len(pods._controllers),
        "states": len(pods._state_ids),
        "names of nodes": len(pods._node_names),
        "going": len(view._cache._ending),
        "without": len(view._cache._absent),
        **{kind: len(of) for kind, of in objects.items() if of},
    }


def test_what_is_gone_leaves_nothing(cluster):
    client = client_of(cluster)
    kept = read_cluster(client, clock=cluster.clock.now, keep=True).kept
    assert kept is not None
    with viewing(client, kept) as view:
        for number in range(4):
            for act in (join, roll_out, evict, settle_in, wait):
                act(cluster, number)
            cluster.settle()
            leave(cluster, number)
            cluster.settle()
            same_soon(cluster, view)
            view_fresh(view)
            view._cache.compact(())
        reread = read_cluster(client, clock=cluster.clock.now, keep=True).kept
        assert reread is not None
        with viewing(client, reread) as restarted:
            assert kept_by(view) == kept_by(restarted)


def test_a_listener_hears_what_happened_since_the_fresh_snapshot(cluster):
    client, heard = client_of(cluster), Heard()
    kept = read_cluster(client, clock=cluster.clock.now, keep=True).kept
    assert kept is not None
    with viewing(client, kept) as view:
        early, late, after = (
            pod["metadata"]["name"] for pod in cluster.objects("Pod", "default")[:3]
        )
        cluster.delete("Pod", early)
        same_soon(cluster, view)
        second = view_fresh(view)
        cluster.delete("Pod", late)
        same_soon(cluster, second)
        with second.listen(heard) as whole:
            assert whole
            names = {name for _, name in heard.events}
            assert late in names
            assert early not in names
            cluster.delete("Pod", after)
            until(lambda: after in {name for _, name in heard.events})
        # A relist between snapshot and listener: what it did not hear is not whole.
        third = view_fresh(view)
        assert third.list_pods()
        with third.listen(heard) as whole:
            assert not whole


def test_what_a_run_that_failed_has_seen_going_is_not_looked_for_again(cluster):
    client = client_of(cluster)
    kept = read_cluster(client, clock=cluster.clock.now, keep=True).kept
    assert kept is not None
    with viewing(client, kept) as view:
        gone = cluster.objects("Pod", "default")[0]["metadata"]
        cluster.delete("Pod", gone["name"])
        for _ in range(2):
            assert view_fresh(view, [gone["uid"]]).notes == ()


def test_what_is_listed_again_while_a_run_begins_is_not_whole(cluster, monkeypatch):
    client = client_of(cluster)
    kept = read_cluster(client, clock=cluster.clock.now, keep=True).kept
    assert kept is not None
    with viewing(client, kept) as view:
        reads, settled = threading.Event(), threading.Event()

        def slowly(*arguments: Any) -> Any:
            reads.set()
            assert settled.wait(BUSY)
            return read_pods(*arguments)

        cache = view._cache
        waited = cache.await_controllers

        def meanwhile() -> Any:
            # All watches were open; now the one of pods is replaced.
            lister.start()
            assert reads.wait(BUSY)
            return waited()

        lister = threading.Thread(target=cache.list_pods)
        monkeypatch.setattr(cached, "read_pods", slowly)
        monkeypatch.setattr(cache, "await_controllers", meanwhile)
        second = view_fresh(view)
        settled.set()
        lister.join(BUSY)
        with second.listen(Heard()) as whole:
            assert not whole


# -- without an end ---------------------------------------------------------------------------------


class Noted:
    """An observer that notes which lists are not followed."""

    def __init__(self) -> None:
        self.failed: list[tuple[str, str]] = []

    def pod_changed(self, pod: PodRecord) -> None: ...

    def object_changed(self, kind: str, before: Any | None, after: Any | None) -> None: ...

    def watch_failed(self, plural: str, why: str) -> None:
        self.failed.append((plural, why))


@contextmanager
def lasting(cluster: EmbeddedCluster, noted: Noted) -> Iterator[ClusterCache]:
    limits = Limits(first_wait=0.01, follow=QUICK)
    client = connect(kubeconfig=cluster.kubeconfig, environ={}, limits=limits)
    kept = read_cluster(client, clock=cluster.clock.now, keep=True).kept
    assert kept is not None
    with ClusterCache(client, kept, seconds=math.inf, observer=noted) as cache:
        yield cache


QUICK = FollowLimits(1.0, 0.01, 0.02, first_relist=0.01, longest_relist=0.02)
"""Streams end after a second, and what fails is tried again soon."""


OUTAGES: dict[str, list[Fault]] = {
    "refused for a moment": [Fault("GET", "/api/v1/nodes$", status=401, times=2)],
    "refused for long": [Fault("GET", "/api/v1/nodes$", status=401, times=40)],
    "forbidden for long": [Fault("GET", "/api/v1/nodes$", status=403, times=40)],
    "not there for long": [Fault("GET", "/api/v1/nodes$", status=404, times=40)],
    "forgotten, and no list": [
        Fault("GET", "/api/v1/nodes$", status=410, reason="Expired"),
        Fault("GET", "/api/v1/nodes$", status=503, times=40),
    ],
    "forgotten for long": [Fault("GET", "/api/v1/nodes$", status=410, reason="Expired", times=20)],
}


@pytest.mark.parametrize("what", OUTAGES)
def test_without_an_end_a_list_is_followed_again_after_each_outage(cluster, what):
    noted = Noted()
    with lasting(cluster, noted) as cache:
        faults = [cluster.faults.add(dataclasses.replace(fault)) for fault in OUTAGES[what]]
        until(lambda: all(fault.times <= 0 for fault in faults))
        cluster.cordon(["n-b"])
        until(lambda: [bool(node.spec.unschedulable) for node in cache.nodes()].count(True) == 1)
        until(lambda: not cache.is_behind(()))
        assert cache.troubles() == {}
        assert cache.describe_troubles() == ""
    # Reported once, however often it was tried.
    assert {plural for plural, _ in noted.failed} <= {"nodes"}
    assert len(noted.failed) <= 1
    assert bool(noted.failed) == ("for long" in what or "no list" in what)


def test_what_is_not_received_is_said_with_its_reason_while_it_lasts(cluster):
    noted = Noted()
    with lasting(cluster, noted) as cache:
        cluster.access.denied |= {("watch", "nodes"), ("list", "nodes")}
        until(lambda: "nodes" in cache.troubles())
        assert re.fullmatch(
            r"changes of nodes are not received for \d+ s: our account may not watch them",
            cache.describe_troubles(),
        )
        cluster.access.denied.clear()
        until(lambda: cache.troubles() == {})
    assert noted.failed == [("nodes", "our account may not watch them")]


def test_a_list_that_fails_for_a_run_is_followed_again_without_another_run(cluster):
    with lasting(cluster, Noted()) as cache:
        until(lambda: not cache.is_behind(()))
        fault = cluster.faults.add(Fault("GET", "/api/v1/pods$", status=503, times=20))
        with pytest.raises(ClusterReadError):
            cache.list_pods()
        until(lambda: fault.times <= 0)
        until(lambda: not cache.is_behind(()))


def test_lists_follow_each_other_with_longer_and_longer_pauses(server, tmp_path):
    """Time passes only while it is waited for; the server forgets each version at once."""
    sleeps = Sleeps(deadline=1300.0)
    empty_cluster(server)
    client = scripted_client(server.url, tmp_path, sleeps)
    kept = read_cluster(client, clock=lambda: START, keep=True).kept
    assert kept is not None
    server.asked.clear()
    refused = Say(status_body(410, "too old", reason="Expired"), 410)

    def script(asked: Asked) -> Say:
        return refused if "watch" in asked.query else Say(list_body([]))

    server.handle("GET", "/api/v1/pods", script)
    sleeps.waits.clear()
    kept = dataclasses.replace(kept, listings=kept.listings[:1])
    with ClusterCache(client, kept, seconds=math.inf):
        until(lambda: sleeps.reason() is not None)
    assert sleeps.waits[:7] == [1, 2, 4, 8, 16, 30, 30]
    assert len(server.asked) < 40
