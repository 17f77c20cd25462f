"""What controllers, kubelets and the scheduler do: budgets, replacements, taints, conditions."""

import threading
import time
from typing import Any

import pytest

from tests.contract.ground import (
    BUDGETS,
    LABELS,
    PODS,
    UNENDING,
    Ground,
    condition,
    names_of,
    version,
)
from tests.controlplane import objects, operations, stages

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
STATEFUL_SETS = "/apis/apps/v1/namespaces/default/statefulsets"
NOT_READY = "node.kubernetes.io/not-ready"


class Recorder:
    """Records the events of the pods of the default namespace until a story is complete."""

    def __init__(self, ground: Ground) -> None:
        self.events: list[dict[str, Any]] = []
        self._ground = ground
        self._version = version(ground.api.get(PODS))
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._record, daemon=True)
        self._thread.start()

    def _record(self) -> None:
        """Watch in short slices, each from where the last one ended, so that the end is never far."""
        while not self._enough.is_set():
            path = f"{PODS}?resourceVersion={self._version}&allowWatchBookmarks=true"
            for event in self._ground.api.watch(path, 1):
                self._version = version(event["object"])
                if event["type"] != "BOOKMARK":
                    self.events.append(event)

    def until(self, done: Any, what: str) -> list[dict[str, Any]]:
        """Wait until the events satisfy ``done``, and return them."""
        try:
            self._ground.wait(lambda: done(list(self.events)), what)
        finally:
            self._enough.set()
            self._thread.join()
        return self.events


def story(events: list[dict[str, Any]], *kinds: str) -> list[tuple[str, str]]:
    """Return (type, name) of the events of these types."""
    return [
        (event["type"], event["object"]["metadata"]["name"])
        for event in events
        if event["type"] in kinds
    ]


# -- budgets ----------------------------------------------------------------------------------------


COUNTED: list[tuple[dict[str, Any], int, int]] = [
    ({"maxUnavailable": 1}, 2, 1),
    ({"maxUnavailable": 0}, 3, 0),
    ({"maxUnavailable": "34%"}, 1, 2),
    ({"maxUnavailable": "100%"}, 0, 3),
    ({"minAvailable": 2}, 2, 1),
    ({"minAvailable": 5}, 5, 0),
    ({"minAvailable": "50%"}, 2, 1),
    ({"minAvailable": "0%"}, 0, 3),
]
"""Spec of a budget over three pods -> how many have to be healthy, and how many may go."""


def test_a_budgets_arithmetic(ground):
    ground.nodes("a")
    ground.web(3)
    for number, (spec, desired, allowed) in enumerate(COUNTED):
        status = ground.budget(f"web-{number}", **spec)["status"]
        assert status["currentHealthy"] == 3
        assert status["expectedPods"] == 3
        assert (status["desiredHealthy"], status["disruptionsAllowed"]) == (desired, allowed), spec
        says = condition({"status": status}, "DisruptionAllowed")
        expected = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
        assert (says["status"], says["reason"]) == expected


def test_a_percentage_is_of_the_replicas_wanted_not_of_those_there(ground):
    ground.nodes("a")
    ground.apply(objects.deployment("web", 4, nodeSelector={"no": "such"}))
    ground.wait(lambda: len(ground.names()) == 4, "four pods pending")
    ground.apply(objects.pdb("web", LABELS, maxUnavailable="50%"))
    status = ground.wait(lambda: observed(ground), "the budget observed")
    assert (status["expectedPods"], status["desiredHealthy"]) == (4, 2)
    assert (status["currentHealthy"], status["disruptionsAllowed"]) == (0, 0)


def observed(ground: Ground) -> dict[str, Any] | None:
    """Return the budget's status once its controller has seen its generation and the pods."""
    status = ground.api.get(f"{BUDGETS}/web").get("status", {})
    return status if status.get("observedGeneration") and status.get("expectedPods") else None


def test_a_budget_over_nothing_allows_nothing(ground):
    ground.apply(objects.pdb("web", LABELS, maxUnavailable=1))

    def seen() -> Any:
        status = ground.api.get(f"{BUDGETS}/web").get("status", {})
        return status if status.get("observedGeneration") else None

    status = ground.wait(seen, "the budget observed")
    assert (status["expectedPods"], status["disruptionsAllowed"]) == (0, 0)


def test_a_changed_budget_counts_only_once_it_was_observed(ground):
    ground.nodes("a")
    ground.web(3)
    first = ground.budget(maxUnavailable=0)
    second = ground.budget(maxUnavailable=2)
    assert second["metadata"]["generation"] == first["metadata"]["generation"] + 1
    assert second["status"]["disruptionsAllowed"] == 2


# -- owners -----------------------------------------------------------------------------------------


def test_a_deployment_owns_a_replica_set_that_owns_pods(ground):
    ground.nodes("a")
    names = ground.web(2)
    deployment = ground.api.get(f"{DEPLOYMENTS}/web")
    (replica_set,) = ground.api.get(REPLICA_SETS)["items"]
    revision = replica_set["metadata"]["labels"]["pod-template-hash"]
    assert replica_set["metadata"]["name"] == f"web-{revision}"
    assert replica_set["spec"]["selector"]["matchLabels"] == {
        **LABELS,
        "pod-template-hash": revision,
    }
    assert controller(replica_set) == ("Deployment", deployment["metadata"]["uid"])
    for name in names:
        pod = ground.pod(name)
        assert name.startswith(f"web-{revision}-")
        assert len(name) == len(f"web-{revision}-") + 5
        # Since 1.35 a pod bears the zone of its node from its binding on.
        zone = {objects.ZONE: "a"}
        assert pod["metadata"]["labels"] == {**LABELS, **zone, "pod-template-hash": revision}
        assert controller(pod) == ("ReplicaSet", replica_set["metadata"]["uid"])

    def counted() -> dict[str, Any] | None:
        # The controller counts a little later than pods become ready.
        status: dict[str, Any] = ground.api.get(f"{DEPLOYMENTS}/web")["status"]
        counts = [status.get(name) for name in ("replicas", "readyReplicas", "updatedReplicas")]
        return status if counts == [2, 2, 2] else None

    status = ground.wait(counted, "two replicas counted")
    assert status["observedGeneration"] == deployment["metadata"]["generation"]


def controller(obj: dict[str, Any]) -> tuple[str, str]:
    """Return kind and uid of an object's controller."""
    (reference,) = [r for r in obj["metadata"]["ownerReferences"] if r.get("controller")]
    return reference["kind"], reference["uid"]


def test_a_replica_sets_replacement_comes_while_its_victim_terminates(ground):
    ground.nodes("a")
    victim, _ = ground.web(2, pod_annotations=UNENDING)
    recorder = Recorder(ground)
    ground.evict(victim)
    events = recorder.until(lambda seen: story(seen, "ADDED"), "the replacement there")
    ((_, replacement),) = story(events, "ADDED", "DELETED")
    assert replacement != victim
    assert "deletionTimestamp" in ground.pod(victim)["metadata"]
    ground.let_end(victim)


def test_a_stateful_sets_replacement_comes_when_its_victim_is_gone(ground):
    ground.nodes("a")
    ground.apply(objects.statefulset("db", 2))
    operations.wait_pods_ready(ground.api, 2)
    before = ground.pod("db-1")
    recorder = Recorder(ground)
    ground.evict("db-1")
    events = recorder.until(lambda seen: story(seen, "ADDED"), "the replacement there")
    assert story(events, "ADDED", "DELETED") == [("DELETED", "db-1"), ("ADDED", "db-1")]
    operations.wait_pods_ready(ground.api, 2)
    after = ground.pod("db-1")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    labels = after["metadata"]["labels"]
    assert labels["statefulset.kubernetes.io/pod-name"] == "db-1"
    assert labels["apps.kubernetes.io/pod-index"] == "1"
    status = ground.api.get(f"{STATEFUL_SETS}/db")["status"]
    assert labels["controller-revision-hash"] == status["updateRevision"]
    assert status["currentRevision"] == status["updateRevision"]


def test_an_ordered_stateful_set_starts_one_after_the_other(ground):
    ground.nodes("a")
    recorder = Recorder(ground)
    ground.apply(objects.statefulset("db", 2, parallel=False))
    operations.wait_pods_ready(ground.api, 2)
    events = recorder.until(lambda seen: len(story(seen, "ADDED")) == 2, "both pods there")
    names = story(events, "ADDED")
    assert names == [("ADDED", "db-0"), ("ADDED", "db-1")]
    position = next(
        i for i, event in enumerate(events) if event["object"]["metadata"]["name"] == "db-1"
    )
    earlier = [event["object"] for event in events[:position]]
    assert condition(earlier[-1], "Ready")["status"] == "True"


def test_a_jobs_replacement_comes_after_a_pause(ground):
    """An eviction counts as a failure: the first one costs ten seconds, longer than these graces."""
    ground.nodes("a")
    ground.apply(objects.job("batch", pod_annotations={stages.COMPLETE_AFTER: "1m"}))
    (victim,) = names_of(operations.wait_pods_ready(ground.api, 1))
    recorder = Recorder(ground)
    ground.evict(victim)
    events = recorder.until(lambda seen: story(seen, "ADDED"), "the replacement there")
    assert [kind for kind, _ in story(events, "ADDED", "DELETED")] == ["DELETED", "ADDED"]


def test_a_job_that_waits_replaces_only_what_is_gone(ground):
    ground.nodes("a")
    ground.apply(
        objects.job(
            "batch",
            pod_annotations={stages.COMPLETE_AFTER: "1m"},
            job_spec={"podReplacementPolicy": "Failed"},
        )
    )
    (victim,) = names_of(operations.wait_pods_ready(ground.api, 1))
    recorder = Recorder(ground)
    ground.evict(victim)
    events = recorder.until(lambda seen: story(seen, "ADDED"), "the replacement there")
    failed = [
        event["object"]["metadata"]["name"]
        for event in events[: [event["type"] for event in events].index("ADDED")]
        if event["object"]["status"].get("phase") == "Failed"
    ]
    assert victim in failed


def test_a_replica_set_that_shrinks_gives_up_what_has_no_node(ground):
    ground.nodes("a")
    standing = ground.web(2, cpu="3")
    ground.api.patch(f"{DEPLOYMENTS}/web", {"spec": {"replicas": 3}})
    ground.wait(lambda: len(ground.names()) == 3, "a third pod, for which there is no room")
    ground.api.patch(f"{DEPLOYMENTS}/web", {"spec": {"replicas": 2}})
    operations.wait_pods_ready(ground.api, 2)
    assert ground.names() == standing


def test_a_rolling_update_replaces_all_pods_and_never_goes_below_its_floor(ground):
    ground.nodes("a")
    before = set(ground.web(4))
    recorder = Recorder(ground)
    template = {"metadata": {"annotations": {"round": "two"}}}
    ground.api.patch(f"{DEPLOYMENTS}/web", {"spec": {"template": template}})

    def done() -> bool:
        deployment = ground.api.get(f"{DEPLOYMENTS}/web")
        status = deployment["status"]
        seen = status["observedGeneration"] == deployment["metadata"]["generation"]
        return bool(seen and status.get("updatedReplicas") == status.get("readyReplicas") == 4)

    ground.wait(done, "the rollout done")
    operations.wait_pods_ready(ground.api, 4)
    assert not before & set(ground.names())
    ready, floor = set(before), len(before)
    for event in recorder.until(lambda seen: len(story(seen, "DELETED")) == 4, "old pods gone"):
        name = event["object"]["metadata"]["name"]
        alive = operations.is_ready(event["object"]) and event["type"] != "DELETED"
        ready = ready | {name} if alive else ready - {name}
        floor = min(floor, len(ready))
    assert floor == 3


def test_dependents_go_with_their_owner(ground):
    ground.nodes("a")
    ground.web(2)
    ground.api.delete(f"{DEPLOYMENTS}/web", {"propagationPolicy": "Background"})
    operations.wait_pods_ready(ground.api, 0)
    ground.wait(lambda: not ground.api.get(REPLICA_SETS)["items"], "the ReplicaSet gone")


def test_a_daemon_set_has_one_pod_on_each_node(ground):
    ground.nodes("a", "b")
    operations.cordon(ground.api, ["node-b"])
    ground.apply(objects.daemonset("agent"))
    operations.wait_pods_ready(ground.api, 2)
    hosts = sorted(pod["spec"]["nodeName"] for pod in operations.pods(ground.api))
    assert hosts == ["node-a", "node-b"]


@pytest.mark.parametrize(
    ("effect", "stays", "comes"),
    [
        ("PreferNoSchedule", True, True),
        ("NoSchedule", True, False),
        ("NoExecute", False, False),
    ],
)
def test_what_a_taint_does_to_the_pods_of_a_daemon_set(ground, effect, stays, comes):
    """A pod that runs there stays unless the taint is NoExecute; a new one comes only where it is preferred that none does."""
    ground.nodes("a", "b")
    ground.apply(objects.daemonset("agent"))
    operations.wait_pods_ready(ground.api, 2)
    taint = {"key": "example.com/closed", "effect": effect}
    ground.api.patch("/api/v1/nodes/node-b", {"spec": {"taints": [taint]}})
    ground.wait(lambda: _has_agent(ground) == stays, "what becomes of the pod")
    counts = (2 if comes else 1, int(stays and not comes))
    ground.wait(lambda: _count_agents(ground) == counts, "desired and misscheduled pods")
    for name in ground.names():
        ground.api.delete(f"{PODS}/{name}")
    ground.wait(lambda: _has_agent(ground) == comes, "whether another pod comes")


def _count_agents(ground: Ground) -> tuple[int, int]:
    """How many pods its status desires and calls misscheduled, after a change of it.

    A taint that neither ends nor brings a pod has the controller count nothing anew.
    """
    path = "/apis/apps/v1/namespaces/default/daemonsets/agent"
    seen = ground.api.get(path)["metadata"]["resourceVersion"]
    ground.api.patch(path, {"metadata": {"annotations": {"example.com/seen": seen}}})
    status = ground.api.get(path).get("status", {})
    return status.get("desiredNumberScheduled", 0), status.get("numberMisscheduled", 0)


def _has_agent(ground: Ground) -> bool:
    return any(
        pod["spec"].get("nodeName") == "node-b" and "deletionTimestamp" not in pod["metadata"]
        for pod in operations.pods(ground.api)
    )


# -- scheduler, kubelets and nodes ------------------------------------------------------------------


def test_a_pod_that_fits_nowhere_says_so_and_goes_on_when_it_does(ground):
    ground.nodes("a")
    ground.apply(objects.pod("big", cpu="9"))
    pod = ground.wait(lambda: refused_pod(ground, "big"), "the pod unschedulable")
    scheduled = condition(pod, "PodScheduled")
    assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
    assert scheduled["message"].startswith("0/1 nodes are available: ")
    assert pod["status"]["phase"] == "Pending"
    assert "nodeName" not in pod["spec"]
    ground.apply(objects.node("roomy", cpu="16"))
    operations.wait_pods_ready(ground.api, 1)
    assert ground.pod("big")["spec"]["nodeName"] == "roomy"


def refused_pod(ground: Ground, name: str) -> dict[str, Any] | None:
    """Return a pod once the scheduler has looked at it without success."""
    pod = ground.pod(name)
    return pod if condition(pod, "PodScheduled").get("status") == "False" else None


def test_a_gated_pod_is_not_looked_at(ground):
    ground.nodes("a")
    ground.apply(objects.pod("gated", schedulingGates=[{"name": "example.com/wait"}]))
    pod = ground.wait(lambda: refused_pod(ground, "gated"), "the pod gated")
    assert condition(pod, "PodScheduled")["reason"] == "SchedulingGated"


def test_a_started_pod_is_running_and_ready(ground):
    ground.nodes("a")
    pod = ground.pod(ground.web(1)[0])
    assert pod["status"]["phase"] == "Running"
    for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready"):
        assert condition(pod, kind)["status"] == "True", kind
    assert pod["status"]["containerStatuses"][0]["ready"] is True
    assert pod["spec"]["terminationGracePeriodSeconds"] == 30
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert pod["spec"]["priority"] == 0
    tolerated = {t["key"]: t["tolerationSeconds"] for t in pod["spec"]["tolerations"]}
    assert tolerated == {NOT_READY: 300, "node.kubernetes.io/unreachable": 300}


def test_three_replicas_that_would_stand_apart_stand_in_three_zones(ground):
    ground.nodes("a", "b", "c")
    ground.web(3, affinity=objects.prefer_apart(LABELS))
    hosts = sorted(pod["spec"]["nodeName"] for pod in operations.pods(ground.api))
    assert hosts == ["node-a", "node-b", "node-c"]


def test_a_new_zone_moves_nothing_until_a_pod_is_evicted(ground):
    ground.nodes("a", "b")
    ground.web(3, affinity=objects.prefer_apart(LABELS))
    crowded = crowd(ground)
    ground.nodes("a", "b", "c")
    assert crowd(ground) == crowded
    ground.evict(crowded[0])
    operations.wait_pods_ready(ground.api, 3)
    hosts = sorted(pod["spec"]["nodeName"] for pod in operations.pods(ground.api))
    assert hosts == ["node-a", "node-b", "node-c"]


def crowd(ground: Ground) -> list[str]:
    """Return the pods of the node that holds two of them."""
    on: dict[str, list[str]] = {}
    for pod in operations.pods(ground.api):
        on.setdefault(pod["spec"]["nodeName"], []).append(pod["metadata"]["name"])
    (crowded,) = [names for names in on.values() if len(names) == 2]
    return crowded


def test_a_cordon_is_a_taint_and_keeps_pods_away(ground):
    ground.nodes("a", "b")
    operations.cordon(ground.api, ["node-a"])
    key = "node.kubernetes.io/unschedulable"
    ground.wait(lambda: taints(ground, "node-a").get(key) == {"NoSchedule"}, "the taint")
    ground.web(2)
    assert {p["spec"]["nodeName"] for p in operations.pods(ground.api)} == {"node-b"}
    operations.cordon(ground.api, ["node-a"], on=False)
    ground.wait(lambda: not taints(ground, "node-a"), "the taint lifted")


def taints(ground: Ground, node: str) -> dict[str, set[str]]:
    """Return the taints of a node: key -> effects."""
    effects: dict[str, set[str]] = {}
    for taint in ground.api.get(f"/api/v1/nodes/{node}")["spec"].get("taints", []):
        effects.setdefault(taint["key"], set()).add(taint["effect"])
    return effects


def test_a_node_that_fails_alone_is_tainted_and_its_pods_stay_for_a_while(ground):
    ground.nodes("a", "b")
    name = ground.web(1, nodeSelector={objects.HOSTNAME: "node-a"})[0]
    annotations = {"metadata": {"annotations": {stages.NODE_NOT_READY: "true"}}}
    ground.api.patch("/api/v1/nodes/node-a", annotations)
    expected = {"NoSchedule", "NoExecute"}
    ground.wait(lambda: taints(ground, "node-a").get(NOT_READY) == expected, "the taints")
    # The kubelet itself reported: nothing else reports on its pods.
    assert operations.is_ready(ground.pod(name))
    annotations["metadata"]["annotations"][stages.NODE_NOT_READY] = "false"
    ground.api.patch("/api/v1/nodes/node-a", annotations)
    ground.wait(lambda: not taints(ground, "node-a"), "the taints lifted")


def test_where_all_nodes_fail_no_pod_is_driven_out(ground):
    ground.nodes("a")
    fail = {"metadata": {"annotations": {stages.NODE_NOT_READY: "true"}}}
    ground.api.patch("/api/v1/nodes/node-a", fail)
    ground.wait(lambda: taints(ground, "node-a"), "the taint")
    # Long enough for the second taint, if there were to be one.
    time.sleep(1.5)
    assert taints(ground, "node-a") == {NOT_READY: {"NoSchedule"}}


def test_pods_that_do_not_tolerate_a_taint_go(ground):
    ground.nodes("a")
    name = ground.web(1)[0]
    taint = {"key": "example.com/out", "effect": "NoExecute"}
    ground.api.patch("/api/v1/nodes/node-a", {"spec": {"taints": [taint]}})
    ground.wait(lambda: ground.api.find(f"{PODS}/{name}") is None, "the pod gone")
