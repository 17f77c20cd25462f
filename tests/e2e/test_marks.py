"""Landings that are chosen, on a real scheduler: marks send a replacement where it fixes a rule, and none is left."""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from rebalancer.kube.access import MARK_RULES, lease_rules
from tests.controlplane import objects, operations
from tests.e2e.product import RUN_RULES, grant, rebalancer

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/turns"
RULES = (*RUN_RULES, *MARK_RULES, *lease_rules("default", "turns"))
TEAM = {"key": "team", "value": "x", "effect": "NoSchedule"}
POLICY = """
apiVersion: rebalancer/v1
kind: Policy
steer: {steer}
budgets: {{perHour: 100%}}
protect:
  minPodAge: 0s
  systemCritical: {{except: {{namespaces: [kube-system], labels: {{k8s-app: kube-dns}}}}}}
strategies: {strategies}
"""
DUPLICATES = "{duplicates: {}}"
DNS = """{topology-spread: {defaults: [
  {labels: {k8s-app: kube-dns}, topologyKey: topology.kubernetes.io/zone}]}}"""
KILLS = 2


class Steered:
    """The command on one cluster, with a policy that steers or does not."""

    def __init__(self, plane, folder, strategies):
        self.plane = plane
        self.kubeconfig = grant(plane, RULES)
        self.policies = {}
        for steer in ("off", "marks"):
            path = self.policies[steer] = folder / f"{steer}.yaml"
            path.write_text(POLICY.format(steer=steer, strategies=strategies))

    def arguments(self, *more, steer="marks"):
        flags = (f"--policy={self.policies[steer]}", f"--kubeconfig={self.kubeconfig}")
        return ("run", "--yes", "--output=json", *flags, *more)

    def run(self, *more, steer="marks"):
        ran = rebalancer(*self.arguments(*more, steer=steer))
        assert ran.code == 0, ran.err
        return ran


def marks(plane):
    """Node -> values of its marks."""
    return {
        node["metadata"]["name"]: [t["value"] for t in taints]
        for node in plane.api.list_all("/api/v1/nodes")
        if (taints := [t for t in node["spec"].get("taints", ()) if t["key"] == "rebalancer/mark"])
    }


def full(node, cpu):
    """A pod that stands on a node from the beginning, and stays."""
    pod = objects.pod(f"full-{node}", cpu=cpu)
    pod["spec"]["nodeName"] = node
    return pod


def standing(plane, selector):
    """Return node -> pods."""
    pods = operations.pods(plane.api, selector=selector)
    return Counter(p["spec"]["nodeName"] for p in pods if "deletionTimestamp" not in p["metadata"])


def put(plane, make, nodes):
    """Create the pods of a workload one after the other, each where only one node takes pods."""
    names = [node["metadata"]["name"] for node in plane.api.list_all("/api/v1/nodes")]
    for count, node in enumerate(nodes, start=1):
        operations.cordon(plane.api, [name for name in names if name != node])
        operations.cordon(plane.api, [node], on=False)
        for workload in make(count):
            plane.apply([workload])
        wanted = len(make(count)) * count
        operations.wait_pods_ready(plane.api, wanted, 60, selector="placed=here")
    operations.cordon(plane.api, names, on=False)


def coredns(count):
    """Its own rules are about hosts only, and switch the scheduler's default spreading over zones off."""
    labels = {"k8s-app": "kube-dns", "placed": "here"}
    rule = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    return [
        objects.deployment(
            "coredns",
            count,
            namespace="kube-system",
            labels=labels,
            topologySpreadConstraints=[rule],
            priorityClassName="system-cluster-critical",
        )
    ]


def test_coredns_in_one_zone_gets_one_eviction_the_other_zone_and_silence(cluster, tmp_path):
    nodes = [objects.node(f"a{i}", zone="a") for i in range(3)]
    cluster.apply([*nodes, *(objects.node(f"b{i}", zone="b") for i in range(2))])
    operations.wait_nodes_ready(cluster.api, 5)
    put(cluster, coredns, ["a0", "a1"])
    # The idle a2 is better by far than b0 and b1, and fixes nothing.
    cluster.apply([full(node, "6") for node in ("b0", "b1")])
    operations.wait_pods_ready(cluster.api, 4, 60)
    product = Steered(cluster, tmp_path, DNS)
    assert product.run(steer="off").report["moves"] == []

    first = product.run()
    (move,) = first.evicted
    assert move["predicted"] is True
    assert move["landed"] in ("b0", "b1")
    assert "a2" in move["marks"]
    assert marks(cluster) == {}
    operations.wait_pods_ready(cluster.api, 2, selector="k8s-app=kube-dns")
    for _ in range(2):
        assert product.run().report["moves"] == []
    zones = Counter(node[0] for node in standing(cluster, "k8s-app=kube-dns").elements())
    assert zones == {"a": 1, "b": 1}


APPS = 8


def webs(count):
    """Workloads whose replacements all go to the emptiest node; they tolerate the taint of another team."""
    rule = {
        "maxSkew": 9,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"placed": "here"}},
    }
    return [
        objects.deployment(
            f"web{i}",
            count,
            labels={"app": f"web{i}", "placed": "here"},
            topologySpreadConstraints=[rule],
            tolerations=[{"key": "team", "operator": "Exists"}],
            cpu="200m",
        )
        for i in range(APPS)
    ]


@pytest.fixture
def rested(cluster):
    """Each of the workloads has two pods on n0 and one on n1, which is emptier than all others."""
    cluster.apply([objects.node(f"n{i}", zone="a") for i in range(5)])
    operations.wait_nodes_ready(cluster.api, 5)
    put(cluster, webs, ["n0", "n0", "n1"])
    cluster.apply([full(f"n{i}", "5") for i in range(2, 5)])
    operations.wait_pods_ready(cluster.api, 3 * APPS + 3, 60)
    cluster.api.patch("/api/v1/nodes/n1", {"spec": {"taints": [TEAM]}})
    return cluster


def duplicates(plane):
    """How many pods are too many on their nodes."""
    return sum(
        max(0, count - 1) for i in range(APPS) for count in standing(plane, f"app=web{i}").values()
    )


def test_duplicates_that_have_come_to_rest_are_fixed_and_no_kill_leaves_a_mark_for_long(
    rested, tmp_path
):
    product = Steered(rested, tmp_path, DUPLICATES)
    at_rest = product.run(steer="off")
    assert at_rest.report["moves"] == []
    assert {skip["code"] for skip in at_rest.report["skipped"]} <= {"NoGain", "ComesBack"}
    assert duplicates(rested) == APPS

    rested.api.post(
        LEASE.rpartition("/")[0],
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "turns"}},
    )
    points, left = random.Random(1), 0
    for number in range(KILLS):
        kill_once_marked(product, points.uniform(0, 0.4) if number else 0)
        left += bool(marks(rested))
        operations.wait_pods_ready(rested.api, 3 * APPS, 60, selector="placed=here")
        expire_lease(rested)
    assert left > 0
    listed = rebalancer("marks", f"--kubeconfig={product.kubeconfig}", "--output=json")
    assert len(json.loads(listed.out)["marks"]) == sum(map(len, marks(rested).values()))

    while duplicates(rested):
        done = product.run("--lease=default/turns")
        assert all(move["predicted"] for move in done.evicted)
        assert any(move["marks"] for move in done.evicted)
        assert marks(rested) == {}
        operations.wait_pods_ready(rested.api, 3 * APPS, 60, selector="placed=here")
    assert product.run("--lease=default/turns").report["moves"] == []
    assert marks(rested) == {}
    assert rested.api.get("/api/v1/nodes/n1")["spec"]["taints"] == [TEAM]


def kill_once_marked(product, later):
    """Start a run, and kill it so many seconds after it has marked a node."""
    arguments = product.arguments("--lease=default/turns", "--quiet")
    command = [sys.executable, "-m", "rebalancer", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        until = time.monotonic() + 120
        while not marks(product.plane) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(later)
        process.kill()


def expire_lease(plane):
    """Let the term of a dead holder's Lease pass."""
    past = datetime.now(UTC) - timedelta(seconds=60)
    renewed = past.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    plane.api.patch(LEASE, {"spec": {"renewTime": renewed, "leaseDurationSeconds": 1}})


def test_marks_left_behind_are_shown_and_cleared_by_hand(cluster, tmp_path):
    cluster.apply([objects.node("n0"), objects.node("n1")])
    operations.wait_nodes_ready(cluster.api, 2)
    ours = {
        "key": "rebalancer/mark",
        "value": "steer.20200101T000000Z.dead",
        "effect": "PreferNoSchedule",
    }
    cluster.api.patch("/api/v1/nodes/n0", {"spec": {"taints": [ours, TEAM]}})
    kubeconfig = grant(cluster, RULES)
    shown = rebalancer("marks", f"--kubeconfig={kubeconfig}")
    assert (shown.code, shown.out.split()[-5:]) == (
        0,
        ["n0", "steer", "2020-01-01T00:00:00Z", "dead", "expired"],
    )
    cleared = rebalancer("marks", "--clear", f"--kubeconfig={kubeconfig}")
    assert cleared.code == 0, cleared.err
    assert cluster.api.get("/api/v1/nodes/n0")["spec"]["taints"] == [TEAM]
    assert rebalancer("marks", f"--kubeconfig={kubeconfig}").out == "No node carries a mark.\n"
