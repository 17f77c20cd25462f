"""Time, and what only time brings about: determinism, nodes that fall silent, orphans, back-offs."""

import time
from collections import Counter
from typing import Any

import pytest

from rebalancer.embedded.apiserver import kinds
from rebalancer.embedded.apiserver.eviction import evict
from rebalancer.embedded.apiserver.kinds import ApiError, condition, is_ready
from rebalancer.embedded.apiserver.store import EmbeddedClock
from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.embedded.controllers.nodes import (
    COMPLETE_AFTER,
    FAILS,
    NEVER_ENDS,
    NEVER_READY,
    READY_AFTER,
)
from rebalancer.embedded.controllers.scheduling import Placer
from rebalancer.embedded.engine import Durations
from rebalancer.embedded.manifests import (
    deployment,
    job,
    namespace,
    node,
    pdb,
    pod,
    prefer_apart,
    replicaset,
    statefulset,
)
from rebalancer.snapshot.model import Snapshot

START = 1_800_000_000.0


def names(cluster: EmbeddedCluster) -> list[str]:
    return [each["metadata"]["name"] for each in cluster.objects("Pod")]


def hosts(cluster: EmbeddedCluster) -> Counter[str]:
    return Counter(each["spec"].get("nodeName", "") for each in cluster.objects("Pod"))


def log_of(seed: int) -> list[tuple[int, str, str, str]]:
    with EmbeddedCluster(EmbeddedClock(START), seed=seed) as cluster:
        for zone in "abc":
            cluster.add_node(f"node-{zone}", f"zone-{zone}")
        cluster.apply(deployment("web", 5), statefulset("db"), pdb("web", {"app": "web"}))
        cluster.settle()
        cluster.cordon(["node-a"])
        with cluster.store.lock:
            victim = names(cluster)[-1]
            evict(cluster.store, "default", victim, {"metadata": {"name": victim}})
        cluster.settle()
        return [
            (c.version, c.kind.kind, "/".join(c.key), c.object["metadata"]["uid"])
            for c in cluster.store.changes_since(1)
        ]


def test_the_same_seed_lives_the_same_life():
    assert log_of(1) == log_of(1)
    assert log_of(1) != log_of(2)


def test_a_clock_that_stands_moves_only_by_advance(three):
    now = three.clock.now()
    three.apply(pod("a"))
    assert three.get("Pod", "a")["status"]["phase"] == "Pending"
    three.advance(2.9)
    assert three.get("Pod", "a")["status"]["phase"] == "Pending"
    three.advance(0.2)
    assert is_ready(three.get("Pod", "a"))
    assert three.clock.now() == pytest.approx(now + 3.1)


def test_a_clock_that_runs_can_begin_in_the_past_and_catch_up():
    source = [500.0]
    clock = EmbeddedClock(100.0, lambda: source[0])
    with EmbeddedCluster(clock, timings=Durations(node_start_up=10)) as cluster:
        cluster.add_node("node-a")
        cluster.advance(60)
        assert is_ready(cluster.get("Node", "node-a"))
        assert clock.lag() == 340
        cluster.catch_up()
        assert clock.now() == 500.0
        source[0] = 501.0
        assert clock.now() == 501.0


def test_settling_names_what_does_not_come_to_rest(three):
    three.apply(pod("slow", annotations={READY_AFTER: "1h"}))
    with pytest.raises(TimeoutError, match="after 60 s still moving: pod default/slow"):
        three.settle(60)


def test_a_life_that_breaks_is_not_silent():
    def broken(_: Snapshot) -> Placer:
        raise ZeroDivisionError("the placer is broken")

    def live() -> None:
        clock = EmbeddedClock(time.time(), time.time)
        with EmbeddedCluster(clock, make_placer=broken) as cluster:
            cluster.add_node("node-a")
            cluster.apply(pod("a"))
            # Its own thread meets the bug now, as nothing else runs.
            assert cluster._thread is not None
            cluster._thread.join(60)
            cluster.settle(1)

    with pytest.raises(RuntimeError, match="embedded cluster has failed") as shown:
        live()
    assert isinstance(shown.value.__cause__, ZeroDivisionError)


def test_a_kubelet_that_falls_silent_loses_its_pods(three):
    three.apply(deployment("web", 3))
    three.settle()
    (lost,) = [p for p in three.objects("Pod") if p["spec"]["nodeName"] == "node-a"]
    three.break_nodes(["node-a"], silent=True)
    three.advance(40)
    assert is_ready(three.get("Node", "node-a"))
    three.advance(20)
    silent = three.get("Node", "node-a")
    assert (condition(silent["status"], "Ready") or {})["status"] == "Unknown"
    taints = {(t["key"].rsplit("/")[1], t["effect"]) for t in silent["spec"]["taints"]}
    assert taints == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
    assert not is_ready(three.get("Pod", lost["metadata"]["name"]))
    three.advance(299)
    # No kubelet is there to end it: the pod terminates for ever, its replacement stands elsewhere.
    three.advance(60)
    assert "deletionTimestamp" in three.get("Pod", lost["metadata"]["name"])["metadata"]
    assert hosts(three)["node-a"] == 1
    assert len(names(three)) == 4
    three.break_nodes(["node-a"], on=False, silent=True)
    three.settle()
    assert hosts(three)["node-a"] == 0
    assert len(names(three)) == 3


def test_where_most_of_a_small_zone_fails_its_pods_stay():
    with EmbeddedCluster(EmbeddedClock(START)) as cluster:
        for index in range(4):
            cluster.add_node(f"a{index}", "zone-a")
        cluster.add_node("b0", "zone-b")
        cluster.settle()
        for broken in (["a0", "a1"], ["a2"]):
            cluster.break_nodes(broken)
            cluster.advance(1)

        def evicts(name: str) -> bool:
            taints = cluster.get("Node", name)["spec"].get("taints", [])
            return any(taint["effect"] == "NoExecute" for taint in taints)

        # The first two failed while the zone still counted as healthy.
        assert [evicts(name) for name in ("a0", "a1", "a2")] == [True, True, False]


def test_the_pods_of_a_node_that_is_gone_are_collected_after_a_while(three):
    three.apply(deployment("web", 3))
    three.settle()
    three.delete("Node", "node-a")
    three.advance(39)
    assert hosts(three)["node-a"] == 1
    three.advance(10)
    assert hosts(three) == {"node-b": 1, "node-c": 2} or hosts(three) == {"node-b": 2, "node-c": 1}


def test_a_terminating_pod_ends_with_its_grace_or_sooner():
    timings = Durations(shutdown=20)
    with EmbeddedCluster(EmbeddedClock(START), timings=timings) as cluster:
        cluster.add_node("node-a")
        cluster.apply(pod("short", terminationGracePeriodSeconds=5), pod("long"), pod("forced"))
        cluster.settle()
        for name in ("short", "long"):
            cluster.delete("Pod", name)
        cluster.delete("Pod", "forced", grace=0)
        assert names(cluster) == ["long", "short"]
        cluster.advance(6)
        assert names(cluster) == ["long"]
        cluster.advance(15)
        assert names(cluster) == []


def test_a_pod_that_never_ends_terminates_until_it_is_allowed_to(three):
    three.apply(pod("held", annotations={NEVER_ENDS: "true"}), pod("taken"))
    three.settle()
    three.delete("Pod", "held")
    three.delete("Pod", "taken")
    hold_back(three, "taken", "true")
    three.advance(1000)
    assert names(three) == ["held", "taken"]
    for name in ("held", "taken"):
        hold_back(three, name, "false")
    three.settle()
    assert names(three) == []


def hold_back(cluster: EmbeddedCluster, name: str, flag: str) -> None:
    metadata = {"name": name, "annotations": {NEVER_ENDS: flag}}
    cluster.apply({**pod_patch(name), "metadata": metadata})


def test_a_second_delete_can_only_shorten_the_grace(three):
    three.apply(pod("a", terminationGracePeriodSeconds=100))
    three.settle()
    three.delete("Pod", "a")
    first = three.get("Pod", "a")["metadata"]["deletionTimestamp"]
    three.delete("Pod", "a", grace=200)
    assert three.get("Pod", "a")["metadata"]["deletionTimestamp"] == first
    three.delete("Pod", "a", grace=10)
    metadata = three.get("Pod", "a")["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 10
    assert metadata["deletionTimestamp"] < first


def test_a_job_waits_longer_after_every_failure():
    timings = Durations(start_up=1, job=1)
    with EmbeddedCluster(EmbeddedClock(START), timings=timings) as cluster:
        cluster.add_node("node-a")
        cluster.settle()
        cluster.apply(job("bad", pod_annotations={FAILS: "true"}, job_spec={"backoffLimit": 2}))
        cluster.advance(200)
        created = [
            change.object["metadata"]["creationTimestamp"][14:19]
            for change in cluster.store.changes_since(1)
            if change.kind is kinds.POD and change.old is None
        ]
        # Each lives two seconds; then ten and twenty seconds pass; then the Job gives up.
        assert created == ["00:01", "00:13", "00:35"]
        status = cluster.get("Job", "bad")["status"]
        assert (status["failed"], status["active"]) == (3, 0)
        assert condition(status, "Failed") is not None


def test_a_job_is_complete_when_enough_have_succeeded(three):
    three.apply(
        job(
            "good",
            pod_annotations={COMPLETE_AFTER: "10s"},
            job_spec={"completions": 3, "parallelism": 2},
        )
    )
    three.advance(100)
    status = three.get("Job", "good")["status"]
    assert (status["succeeded"], status["active"]) == (3, 0)
    assert condition(status, "Complete") is not None
    assert {p["status"]["phase"] for p in three.objects("Pod")} == {"Succeeded"}


def test_a_recreated_deployment_has_no_old_and_new_pods_together(three):
    web = deployment("web", 2)
    web["spec"]["strategy"] = {"type": "Recreate"}
    three.apply(web)
    three.settle()
    before = set(names(three))
    web["spec"]["template"]["metadata"]["annotations"] = {"round": "two"}
    three.apply(web)
    together = []
    for _ in range(40):
        three.advance(0.5)
        now = set(names(three))
        together.append(bool(now & before) and bool(now - before))
    assert not any(together)
    assert len(set(names(three)) - before) == 2


def test_a_stateful_set_updates_from_its_highest_ordinal_one_by_one(three):
    db = statefulset("db", 3)
    three.apply(db)
    three.settle()
    start = three.store.version
    db["spec"]["template"]["metadata"]["annotations"] = {"round": "two"}
    three.apply(db)
    for _ in range(20):
        three.advance(1)
    gone = [
        change.key[1]
        for change in three.store.changes_since(start)
        if change.kind is kinds.POD and change.new is None
    ]
    assert gone == ["db-2", "db-1", "db-0"]
    status = three.get("StatefulSet", "db")["status"]
    assert status["currentRevision"] == status["updateRevision"]
    assert status["readyReplicas"] == 3


def test_a_shrinking_set_gives_up_unready_then_cheap_then_crowded_pods(three):
    three.apply(replicaset("web", 4))
    three.settle()
    every = names(three)
    three.apply(
        {
            **pod_patch(every[0]),
            "metadata": {"name": every[0], "annotations": {NEVER_READY: "true"}},
        }
    )
    three.settle()
    cost = {"controller.kubernetes.io/pod-deletion-cost": "-5"}
    three.apply({**pod_patch(every[1]), "metadata": {"name": every[1], "annotations": cost}})
    for replicas, left in ((3, every[1:]), (2, every[2:])):
        three.apply(replicaset("web", replicas))
        three.settle()
        assert names(three) == left


def pod_patch(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}


def test_a_namespace_goes_with_everything_in_it(three):
    three.apply(namespace("shop"), deployment("web", 2, namespace="shop"))
    three.settle()
    three.delete("Namespace", "shop")
    with pytest.raises(ApiError, match="because it is being terminated"):
        three.apply(pod("late", namespace="shop"))
    three.settle()
    assert three.objects("Pod") == []
    assert "shop" not in [n["metadata"]["name"] for n in three.objects("Namespace")]


def test_a_budget_whose_pods_have_an_unknown_owner_fails_its_sync(three):
    orphan = pod("a", labels={"app": "web"})
    reference = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "u"}
    orphan["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    three.apply(orphan, pdb("web", {"app": "web"}, maxUnavailable=1))
    three.settle()
    status = three.get("PodDisruptionBudget", "web")["status"]
    says = condition(status, "DisruptionAllowed") or {}
    assert (says["reason"], says["message"]) == (
        "SyncFailed",
        'found no controllers for pod "a"',
    )
    assert status["disruptionsAllowed"] == 0


def test_a_granted_eviction_that_never_happens_is_given_back_in_two_minutes(three):
    three.apply(deployment("web", 3), pdb("web", {"app": "web"}, maxUnavailable=1))
    three.settle()
    victim = names(three)[0]
    body = {
        "metadata": {"name": victim},
        "deleteOptions": {"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}},
    }
    with pytest.raises(ApiError) as refused, three.store.lock:
        evict(three.store, "default", victim, body)
    assert refused.value.code == 409

    def allowed() -> int:
        return int(three.get("PodDisruptionBudget", "web")["status"]["disruptionsAllowed"])

    three.advance(100)
    assert allowed() == 0
    three.advance(30)
    assert allowed() == 1


def test_a_pods_zone_label_is_copied_from_1_35_on():
    zones = []
    for version in ((1, 34), (1, 35)):
        with EmbeddedCluster(EmbeddedClock(START), version=version) as cluster:
            cluster.add_node("node-a", "zone-a")
            cluster.apply(pod("a"))
            cluster.settle()
            labels = cluster.get("Pod", "a")["metadata"]["labels"]
            zones.append(labels.get("topology.kubernetes.io/zone"))
    assert zones == [None, "zone-a"]


def test_pending_pods_are_placed_by_priority_then_by_creation(three):
    with three.store.lock:
        three.apply(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "high"},
                "value": 1000,
            },
            node("small", cpu="1", labels={"room": "one"}),
        )
        spec: dict[str, Any] = {"nodeSelector": {"room": "one"}, "cpu": "1"}
        three.apply(pod("z-first", **spec), pod("a-second", **spec))
        three.apply(pod("m-important", priorityClassName="high", **spec))
    three.settle()
    bound = [p["metadata"]["name"] for p in three.objects("Pod") if "nodeName" in p["spec"]]
    assert bound == ["m-important"]
    three.delete("Pod", "m-important")
    three.settle()
    bound = [p["metadata"]["name"] for p in three.objects("Pod") if "nodeName" in p["spec"]]
    assert bound == ["z-first"]


def test_three_replicas_of_the_story_stand_two_one_and_stay_so(cluster):
    for zone in "ab":
        cluster.add_node(f"node-{zone}", f"zone-{zone}")
    cluster.settle()
    cluster.apply(deployment("web", 3, affinity=prefer_apart({"app": "web"})))
    cluster.settle()
    assert sorted(hosts(cluster).values()) == [1, 2]
    before = hosts(cluster)
    cluster.add_node("node-c", "zone-c")
    cluster.advance(3600)
    assert hosts(cluster) == before
