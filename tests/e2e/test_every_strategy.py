"""Every strategy that a policy can hold at once: silence on a healthy cluster, and after few runs on one that drifted."""

import pytest

from rebalancer.kube.access import SCALE_OUT_RULES
from rebalancer.kube.deletion_costs import CHANGE_POD
from rebalancer.policy.values import Direction
from rebalancer.registry import Registry
from tests.controlplane import objects, operations, wait_until
from tests.controlplane.stages import NEVER_READY
from tests.e2e.product import Product

POLICY = """
apiVersion: rebalancer/v1
kind: Policy
protect: {minPodAge: 0s}
budgets: {perOwner: 100%}  # a pod that is not Ready counts as one in flight for ten minutes
strategies:
  anti-affinity: {}
  deletion-cost: {}
  duplicates: {}
  failed-pods: {minPodLifetime: 0s}
  leaving: {}
  lifetime: {maxPodLifeTime: 1d}
  low-utilisation: {}
  make-room: {}  # observes only, without marks
  node-affinity: {preferred: true}
  placement: {avoid: {pool: batch}, select: {labels: {app: plain}}}
  pod-affinity: {preferred: true}
  restarts: {podRestartThreshold: 5}
  slots: {free: {cpu: 1}}  # as make-room
  stuck: {after: 1s}
  taints: {preferNoSchedule: true}
  topology-spread: {}
"""
NODES = [f"{zone}-{number}" for zone in "abc" for number in (0, 1)]
PODS = 21
SSD = {"disk": "ssd"}
DEDICATED = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}


def joined(*names):
    """Nodes of a name like ``a-0``, in zone a; the first of each zone has a disk that pods prefer."""
    for name in names:
        labels = SSD if name.endswith("0") else {}
        yield objects.node(name, zone=f"zone-{name[0]}", labels=labels)


def workloads():
    near = {"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": objects.ZONE}
    with_cache = {
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 50, "podAffinityTerm": near}
            ]
        }
    }
    ssd = {"key": "disk", "operator": "In", "values": ["ssd"]}
    on_ssd = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchExpressions": [ssd]}}
        ]
    }

    def evenly(app):
        return [objects.spread({"app": app})]

    large = evenly("large")
    yield objects.deployment("large", 3, cpu="2", topologySpreadConstraints=large)
    yield objects.deployment("cache", 3, topologySpreadConstraints=evenly("cache"))
    yield objects.deployment("web", 3, topologySpreadConstraints=evenly("web"), affinity=with_cache)
    yield objects.deployment("api", 3, affinity=objects.prefer_apart({"app": "api"}))
    yield objects.deployment("plain", 4)
    yield objects.statefulset(
        "db", 3, affinity={**objects.require_apart({"app": "db"}), "nodeAffinity": on_ssd}
    )
    yield objects.deployment(
        "batch",
        2,
        nodeSelector={"pool": "batch"},
        tolerations=[{"key": "dedicated", "operator": "Exists"}],
    )


@pytest.fixture
def product(cluster, tmp_path):
    """Every strategy, on a cluster in which nothing is wrong."""
    cluster.apply(joined(*NODES))
    pool = {"pool": "batch"}
    cluster.apply(
        objects.node(name, zone=f"zone-{name[0]}", labels=pool, taints=[DEDICATED])
        for name in ("a-9", "b-9")
    )
    operations.wait_nodes_ready(cluster.api, len(NODES) + 2)
    for manifest in workloads():
        cluster.apply([manifest])
    cluster.apply([objects.pdb("web", {"app": "web"}, maxUnavailable=1)])
    operations.wait_pods_ready(cluster.api, PODS, timeout=300)
    return Product(cluster, tmp_path, POLICY, (*SCALE_OUT_RULES, CHANGE_POD))


def run(product):
    done = product.run()
    assert done.code == 0, done.err
    assert done.report["standstill"] == []
    return done


def reasons(done):
    return [(move["from"], move["strategy"], move["reason"]) for move in done.report["moves"]]


def pods_of(cluster, app=""):
    return operations.pods(cluster.api, "default", f"app={app}" if app else "")


def pod_path(pod):
    return f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"


def test_the_policy_holds_all_that_do_not_contradict_each_other(tmp_path):
    registry = Registry.installed()
    names = set(registry)
    packing = {name for name in names if registry[name].direction is Direction.PACK}
    # Without a provider they are a policy error.
    scaling = {name for name in names if registry[name].scales is not None}
    missing = {name for name in names if f"\n  {name}: " not in POLICY}
    assert (packing, scaling) == ({"consolidation"}, {"scale-in", "scale-out"})
    assert missing & {name for name in names if not name.startswith("per-")} == packing | scaling


def test_on_a_healthy_cluster_no_run_moves_anything(product):
    for _ in range(2):
        done = run(product)
        assert done.report["moves"] == [], reasons(done)
        assert done.report["stopped"].startswith("Nothing to do"), done.report["stopped"]


def test_on_one_that_drifted_few_runs_fix_all_and_then_none_moves_anything(cluster, product):
    wrong = drift(cluster)
    evictions: list[int] = []
    while not evictions or evictions[-1]:
        done = run(product)
        evictions.append(len(done.evicted))
        assert len(evictions) <= 6, (evictions, reasons(done))
    assert sum(evictions) <= PODS, evictions
    assert run(product).report["moves"] == []
    now = operations.wait_pods_ready(cluster.api, PODS, timeout=300)
    assert not wrong & {pod["metadata"]["uid"] for pod in now}
    others = [pod for pod in now if pod["metadata"]["labels"]["app"] != "batch"]
    assert not {"b-1", "c-1"} & {pod["spec"]["nodeName"] for pod in others}


def drift(cluster):
    """Let a node come back, a second get a taint, a third be announced to go, and one pod each fail, restart, be stuck.

    Return the uids of these pods.
    """
    api = cluster.api
    operations.remove_node(api, "c-0")
    operations.wait_pods_ready(api, PODS, timeout=300)
    cluster.apply(joined("c-0"))
    operations.wait_nodes_ready(api, len(NODES) + 2)
    api.patch("/api/v1/nodes/b-1", {"spec": {"taints": [DEDICATED]}})
    api.patch("/api/v1/nodes/c-1", {"metadata": {"annotations": {"rebalancer/leave": "now"}}})
    operations.cordon(api, ["c-1"])
    failed, restarted = (pods_of(cluster, app)[0] for app in ("plain", "api"))
    # The other node of this zone, which it has to stay in, takes the replacement.
    (stuck,) = (p for p in pods_of(cluster, "large") if p["spec"]["nodeName"].startswith("a"))
    api.patch(f"{pod_path(failed)}/status", {"status": {"phase": "Failed", "reason": "Evicted"}})
    api.patch(f"{pod_path(restarted)}/status", {"status": {"containerStatuses": [restarting()]}})
    api.patch(pod_path(stuck), {"metadata": {"annotations": {NEVER_READY: "true"}}})
    wait_until(lambda: not operations.is_ready(api.get(pod_path(stuck))), 300, "a pod not Ready")
    wait_until(lambda: len(pods_of(cluster, "plain")) == 5, 300, "another pod for the failed one")
    return {pod["metadata"]["uid"] for pod in (failed, restarted, stuck)}


def restarting():
    return {
        "name": "main",
        "image": "x",
        "imageID": "",
        "restartCount": 9,
        "ready": True,
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }
