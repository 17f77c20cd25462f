"""Nodes are emptied on a real control plane, with exactly the rights that are documented for it."""

import itertools
import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rebalancer.kube.access import DRAIN_RULES, lease_rules
from rebalancer.node_record.records import BUSY
from rebalancer.snapshot.leaving import DRAIN
from tests.controlplane import audit, objects, operations, wait_until
from tests.controlplane.build import binary
from tests.controlplane.stages import COMPLETE_AFTER
from tests.e2e.product import RUN_RULES, Product, grant, rebalancer
from tests.e2e.watched import sampling
from tests.support.killed_processes import signal_at

RULES = (*RUN_RULES, *DRAIN_RULES)
ACCOUNT = "system:serviceaccount:default:rebalancer"
OLD, NEW = [f"old-{i}" for i in range(3)], [f"new-{i}" for i in range(3)]
WEB = {"app": "web"}
REPLICAS = 6
LEAVING = """
apiVersion: rebalancer/v1
kind: Policy
protect: {minPodAge: 0s}
strategies: {leaving: {}}
"""


def nodes(plane, names, generation):
    plane.apply([objects.node(name, labels={"generation": generation}) for name in names])


def article(plane, *, job_seconds=8):
    """Three old nodes with a service and batch work under a budget that only ends with it, and three new ones."""
    nodes(plane, OLD, "old")
    operations.wait_nodes_ready(plane.api, 3)
    plane.apply([objects.deployment("web", REPLICAS, labels=WEB)])
    plane.apply([objects.pdb("web", WEB, maxUnavailable=1)])
    job = {"parallelism": 3, "completions": 3, "backoffLimit": 0}
    annotations = {COMPLETE_AFTER: f"{job_seconds}s"}
    plane.apply([objects.job("sums", job_spec=job, pod_annotations=annotations)])
    plane.apply([objects.pdb("sums", {"job": "sums"}, minAvailable=65535)])
    operations.wait_pods_ready(plane.api, REPLICAS + 3)
    nodes(plane, NEW, "new")
    operations.wait_nodes_ready(plane.api, 6)


def whereabouts(plane, selector="app=web"):
    listed = operations.pods(plane.api, selector=selector)
    return sorted(pod["spec"]["nodeName"] for pod in listed if operations.is_ready(pod))


def names_of_nodes(plane):
    return {node["metadata"]["name"] for node in plane.api.list_all("/api/v1/nodes")}


@contextmanager
def watched(plane) -> Iterator[list[int]]:
    """Sample, while inside, how many nodes are unavailable for a replacement."""
    samples: list[int] = []

    def sample(client):
        records = [
            json.loads(text)
            for node in client.list_all("/api/v1/nodes")
            if (text := (node["metadata"].get("annotations") or {}).get(DRAIN))
        ]
        samples.append(sum(one["stage"]["phase"] in BUSY for one in records if "stage" in one))

    with sampling(plane, sample, pause=0.05):
        yield samples


def command(plane, kubeconfig):
    """The replacement of the article; kubectl deletes the nodes, as the provider would."""
    remove = f"{binary('kubectl')} --kubeconfig={plane.kubeconfig} delete node"
    return [
        "replace",
        "--selector=generation=old",
        f"--kubeconfig={kubeconfig}",
        "--pause=0s",
        "--timeout=300s",
        f"--then={remove}",
        "--output=json",
    ]


def granted_turns(plane):
    """Return the kubeconfig of an account that may take a Lease, too."""
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    plane.apply([{**lease, "metadata": {"name": "turns", "namespace": "default"}}])
    return grant(plane, (*RULES, *lease_rules("default", "turns")))


def two_at_once(arguments):
    """Call the command twice, the second half a second later; return what both did."""
    done = []
    threads = [
        threading.Thread(target=lambda: done.append(rebalancer(*arguments))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
        time.sleep(0.5)
    for thread in threads:
        thread.join()
    return done


def test_old_nodes_are_replaced_though_batch_work_runs_and_the_command_is_killed_again_and_again(
    cluster,
):
    article(cluster)
    kubeconfig = grant(cluster, RULES)
    log = audit.AuditLog(cluster.audit_log)
    arguments = command(cluster, kubeconfig)
    kills, code = 0, None
    with watched(cluster) as unavailable:
        while code in (None, -signal.SIGKILL) and kills < 3:
            # Each one is killed later in its life: after it has cordoned, evicted, removed.
            code = signal_at(arguments, lambda number, _: number == 1 + 3 * kills).code  # noqa: B023  # at once
            kills += code == -signal.SIGKILL
        if code != 0 and names_of_nodes(cluster) & set(OLD):
            done = rebalancer(*arguments)
            assert done.code == 0, done.err + done.out
    assert kills == 3
    assert names_of_nodes(cluster) == set(NEW)
    assert set(unavailable) <= {0, 1}
    assert max(unavailable) == 1
    wait_until(lambda: len(whereabouts(cluster)) == REPLICAS, 30, "the service whole")
    assert set(whereabouts(cluster)) <= set(NEW)
    # The batch work came to its end, untouched.
    status = cluster.api.get("/apis/batch/v1/namespaces/default/jobs/sums")["status"]
    assert (status.get("succeeded"), status.get("failed")) == (3, None)
    assert not [r for r in log.evictions(ACCOUNT) if r.name.startswith("sums")]


def test_two_drains_at_once_empty_the_node_and_evict_no_pod_twice(cluster):
    article(cluster, job_seconds=2)
    kubeconfig = granted_turns(cluster)
    log = audit.AuditLog(cluster.audit_log)
    arguments = ["drain", *OLD[:2], f"--kubeconfig={kubeconfig}", "--output=json"]
    arguments += ["--timeout=200s", "--lease=default/turns"]
    done = two_at_once(arguments)
    assert [one.code for one in done] == [0, 0], [one.err for one in done]
    assert not set(whereabouts(cluster)) & set(OLD[:2])
    wait_until(lambda: len(whereabouts(cluster)) == REPLICAS, 30, "the service whole")
    evicted = [r.name for r in log.evictions(ACCOUNT) if r.code == 201]
    assert len(evicted) == len(set(evicted))
    for name in OLD[:2]:
        node = cluster.api.get(f"/api/v1/nodes/{name}")
        assert node["spec"]["unschedulable"]
        assert "rebalancer/drain" not in (node["metadata"].get("annotations") or {})


def test_two_replacements_at_once_empty_node_after_node_and_remove_each_once(cluster):
    article(cluster, job_seconds=2)
    arguments = [*command(cluster, granted_turns(cluster)), "--lease=default/turns"]
    log = audit.AuditLog(cluster.audit_log)
    was_on = {
        pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in operations.pods(cluster.api)
    }
    done = two_at_once(arguments)
    # kubectl fails on a node that is gone: none was removed twice.
    assert [one.code for one in done] == [0, 0], [one.err for one in done]
    assert names_of_nodes(cluster) == set(NEW)
    wait_until(lambda: len(whereabouts(cluster)) == REPLICAS, 30, "the service whole")
    evicted = [was_on[request.name] for request in log.evictions(ACCOUNT) if request.code == 201]
    # No node is begun before the one before it is empty.
    emptied = [node for node, _ in itertools.groupby(evicted)]
    assert len(emptied) == len(set(emptied))


def test_a_run_empties_nodes_that_are_announced_to_go_without_the_right_to_change_one(
    cluster, tmp_path
):
    nodes(cluster, OLD, "old")
    operations.wait_nodes_ready(cluster.api, 3)
    cluster.apply([objects.deployment("web", REPLICAS, labels=WEB)])
    operations.wait_pods_ready(cluster.api, REPLICAS)
    nodes(cluster, NEW, "new")
    operations.wait_nodes_ready(cluster.api, 6)
    product = Product(cluster, tmp_path, LEAVING)
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
    cluster.api.patch(f"/api/v1/nodes/{OLD[0]}", {"spec": {"taints": [taint]}})
    announced = {"annotations": {"rebalancer/leave": "now"}}
    spec = {"unschedulable": True}
    cluster.api.patch(f"/api/v1/nodes/{OLD[1]}", {"metadata": announced, "spec": spec})
    gone = [node for node in whereabouts(cluster) if node in OLD[:2]]
    assert gone
    done = product.run()
    assert done.code == 0, done.err
    assert len(done.evicted) == len(gone)
    assert {move["strategy"] for move in done.evicted} == {"leaving"}
    wait_until(lambda: len(whereabouts(cluster)) == REPLICAS, 30, "the service whole")
    assert not set(whereabouts(cluster)) & set(OLD[:2])
    assert product.run().report["moves"] == []


def test_what_the_server_would_say_is_asked_without_an_eviction(cluster):
    nodes(cluster, OLD, "old")
    operations.wait_nodes_ready(cluster.api, 3)
    cluster.apply(
        [objects.deployment("web", 3, labels=WEB), objects.pdb("web", WEB, minAvailable=3)]
    )
    operations.wait_pods_ready(cluster.api, 3)
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web"
    wait_until(
        lambda: cluster.api.get(path)["status"].get("expectedPods") == 3, 30, "the budget counted"
    )
    kubeconfig = grant(cluster, RULES)
    arguments = [f"--kubeconfig={kubeconfig}", "--output=json"]
    refused = rebalancer("drain", *OLD, *arguments)
    assert refused.code == 3, refused.err
    assert {node["verdict"] for node in refused.report["nodes"]} <= {
        "never-satisfiable",
        "drainable",
    }
    cluster.api.patch(path, {"spec": {"minAvailable": 2}})
    wait_until(lambda: cluster.api.get(path)["status"]["disruptionsAllowed"] == 1, 30, "a budget")
    asked = rebalancer("drain", OLD[0], "--dry-run=server", *arguments)
    assert asked.code == 0, asked.err
    assert {node["verdict"] for node in asked.report["nodes"]} == {"drainable"}
    assert len(operations.pods(cluster.api)) == 3
    assert not cluster.api.get(f"/api/v1/nodes/{OLD[0]}")["spec"].get("unschedulable")


def test_a_right_that_is_missing_is_named_before_anything_is_changed(cluster):
    nodes(cluster, OLD, "old")
    operations.wait_nodes_ready(cluster.api, 3)
    kubeconfig = grant(cluster, [rule for rule in RULES if rule.verb != "patch"])
    done = rebalancer("drain", OLD[0], f"--kubeconfig={kubeconfig}")
    assert done.code == 3
    assert "patch nodes" in done.err
    assert not cluster.api.get(f"/api/v1/nodes/{OLD[0]}")["spec"].get("unschedulable")
