"""The ground itself: what other tests take for granted of the control plane is true."""

import time
from typing import Any

import pytest

from tests.controlplane import ApiError, ControlPlane, access, drift, objects, operations, stages

LABELS = {"app": "web"}
# Kubernetes looks every 20 s, and 40 s later once more, before it believes that a node is gone.
ORPHAN_SECONDS = 150.0


@pytest.fixture
def web(cluster):
    """Three nodes and a Deployment of three Ready replicas."""
    cluster.apply(objects.node(f"node-{zone}", zone=zone) for zone in "abc")
    # All three, or the scheduler takes the first that is there for all replicas.
    operations.wait_nodes_ready(cluster.api, 3)
    cluster.apply([objects.deployment("web", 3)])
    operations.wait_pods_ready(cluster.api, 3)
    return cluster


def names(plane: ControlPlane) -> set[str]:
    """Return the names of all pods."""
    return {pod["metadata"]["name"] for pod in operations.pods(plane.api)}


def test_server_says_its_version(control_plane, kubernetes):
    """The version is stamped into the binary; clients decide by it."""
    version = control_plane.api.get("/version")
    major, minor, _ = kubernetes.split(".")
    said = (version["gitVersion"], version["major"], version["minor"])
    assert said == (f"v{kubernetes}", major, minor)


def test_each_evicted_pod_of_a_stateful_set_is_replaced_once(cluster):
    """A kubelet ends the pod that it ran, never the next one of that name."""
    replicas = 20
    cluster.apply([objects.node("node-a"), objects.statefulset("db", replicas, cpu="10m")])
    operations.wait_pods_ready(cluster.api, replicas)
    pods = "/api/v1/namespaces/default/pods"
    version = cluster.api.get(pods)["metadata"]["resourceVersion"]
    evicted = [f"db-{index}" for index in range(replicas)]
    for name in evicted:
        operations.evict(cluster.api, "default", name)
    operations.wait_pods_ready(cluster.api, replicas)
    cluster.apply([objects.pod("last")])
    added = []
    for event in cluster.api.watch(f"{pods}?resourceVersion={version}", 60):
        if event["type"] == "ADDED":
            added.append(event["object"]["metadata"]["name"])
            if added[-1] == "last":
                break
    assert sorted(added) == [*sorted(evicted), "last"]


def test_service_account_may_do_what_its_role_says(cluster):
    """A real token under RBAC reads nodes, and is refused everything else."""
    cluster.apply(
        [
            access.service_account("reader"),
            access.cluster_role(
                "reader", [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
            ),
            access.cluster_role_binding("reader", "reader", "reader"),
        ]
    )
    client = cluster.client(cluster.token_for_service_account("default", "reader"))

    def may_list() -> bool:
        # The authoriser learns of a new binding by its watch.
        try:
            return client.list_all("/api/v1/nodes") == []
        except ApiError:
            return False

    cluster.wait_until(may_list, 10, "the role binding in force")
    for path in ("/api/v1/pods", "/api/v1/secrets"):
        with pytest.raises(ApiError) as refused:
            client.get(path)
        assert refused.value.status == 403
    expired = cluster.client(cluster.token_for_service_account("default", "reader", -60))
    with pytest.raises(ApiError) as refused:
        expired.get("/api/v1/nodes")
    assert refused.value.status == 401


def test_short_lived_token_of_our_own_is_taken(cluster):
    """Tokens shorter than the server itself gives out are valid until they expire."""
    client = cluster.client(cluster.token_for_service_account("default", "default", 60))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    assert answer["status"]["userInfo"]["username"] == "system:serviceaccount:default:default"


def test_not_ready_node_is_tainted_and_recovers(web):
    """The node-lifecycle controller taints a node whose kubelet reports NotReady, and lifts it."""
    node = "/api/v1/nodes/node-a"

    def tainted() -> bool:
        taints = web.api.get(node)["spec"].get("taints", [])
        return any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints)

    web.api.patch(node, {"metadata": {"annotations": {stages.NODE_NOT_READY: "true"}}})
    web.wait_until(tainted, 15, "the not-ready taint")
    web.api.patch(node, {"metadata": {"annotations": {stages.NODE_NOT_READY: None}}})
    web.wait_until(lambda: not tainted(), 15, "the taint lifted")


def test_pod_can_be_made_unready(web):
    """The annotation takes readiness away from a running pod, and its absence gives it back."""
    name = min(names(web))
    path = f"/api/v1/namespaces/default/pods/{name}"
    web.api.patch(path, {"metadata": {"annotations": {stages.NEVER_READY: "true"}}})
    web.wait_until(lambda: not operations.is_ready(web.api.get(path)), 10, "the pod unready")
    assert web.api.get(path)["status"]["phase"] == "Running"
    web.api.patch(path, {"metadata": {"annotations": {stages.NEVER_READY: None}}})
    web.wait_until(lambda: operations.is_ready(web.api.get(path)), 10, "the pod ready again")


@pytest.mark.parametrize(("fails", "field"), [("false", "succeeded"), ("true", "failed")])
def test_job_ends(cluster, fails, field):
    """A Job's pod completes, or fails where it is set to."""
    annotations = {stages.FAILS: fails, stages.COMPLETE_AFTER: "200ms"}
    cluster.apply(
        [
            objects.node("node-a"),
            objects.job("once", pod_annotations=annotations, job_spec={"backoffLimit": 0}),
        ]
    )
    path = "/apis/batch/v1/namespaces/default/jobs/once"
    cluster.wait_until(lambda: cluster.api.get(path)["status"].get(field) == 1, 20, f"Job {field}")


def test_grace_period_is_honoured_up_to_its_cap(cluster):
    """A pod with a long grace goes after the cap, not after its thirty minutes, nor at once."""
    cluster.apply([objects.node("node-a"), objects.pod("slow", terminationGracePeriodSeconds=1800)])
    operations.wait_pods_ready(cluster.api, 1)
    start = time.monotonic()
    cluster.api.delete("/api/v1/namespaces/default/pods/slow")
    operations.wait_pods_ready(cluster.api, 0)
    assert time.monotonic() - start > 0.8


@pytest.mark.long
def test_pods_of_a_deleted_node_go(web):
    """The pod garbage collector removes them, in its own time, and replacements stand elsewhere."""
    web.api.delete("/api/v1/nodes/node-a")

    def moved() -> bool:
        pods = operations.pods(web.api)
        return len(pods) == 3 and all(
            operations.is_ready(pod) and pod["spec"]["nodeName"] != "node-a" for pod in pods
        )

    web.wait_until(moved, ORPHAN_SECONDS, "the pods of the deleted node gone")


def test_pods_of_a_removed_node_go_at_once(web):
    """`remove_node` does what a cloud does, for tests that cannot wait a minute."""
    operations.remove_node(web.api, "node-a")
    pods = operations.wait_pods_ready(web.api, 3, timeout=10)
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node-b", "node-c"}


def test_components_can_be_restarted(web):
    """API server and etcd keep address and data; the others find them again."""
    before = names(web)
    web.restart("kube-apiserver")
    assert names(web) == before
    web.stop("etcd")
    with pytest.raises(ApiError):
        web.api.request("GET", "/api/v1/nodes", timeout=3)
    web.start("etcd")
    web.wait_ready("kube-apiserver")
    assert names(web) == before
    web.api.patch("/apis/apps/v1/namespaces/default/deployments/web", {"spec": {"replicas": 5}})
    web.restart_clients()
    operations.wait_pods_ready(web.api, 5, timeout=60)


def test_reset_leaves_nothing(web):
    """What a test makes is gone for the next one, and the same names can be used at once."""
    made: list[dict[str, Any]] = [
        objects.namespace("shop"),
        objects.resource_quota("small", namespace="shop", pods="2"),
        objects.pdb("web", LABELS, maxUnavailable=1),
        access.cluster_role("mine", []),
    ]
    for _ in range(2):
        web.apply(made)
        web.reset()
        assert operations.pods(web.api) == []
        assert web.api.list_all("/api/v1/nodes") == []
        assert web.api.find("/api/v1/namespaces/shop") is None
        assert web.api.find("/apis/rbac.authorization.k8s.io/v1/clusterroles/mine") is None
        web.apply([objects.node("node-a"), objects.deployment("web", 2)])
        operations.wait_pods_ready(web.api, 2, timeout=15)


def test_the_drift_of_the_story_is_what_it_says(cluster):
    """Three replicas stand 2/1/0, and nothing of Kubernetes' own moves them."""
    drift.article(cluster)
    hosts = sorted(pod["spec"]["nodeName"] for pod in operations.pods(cluster.api))
    assert len(hosts) == 3
    assert set(hosts) == {"zone-a-0", "zone-b-0"}
    nodes = cluster.api.list_all("/api/v1/nodes")
    assert {node["metadata"]["name"] for node in nodes} == {"zone-a-0", "zone-b-0", "zone-c-0"}
