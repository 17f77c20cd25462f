"""A node that is hot by use where requests are even: only marks keep the scheduler from putting its pods back."""

import time

import pytest

from rebalancer.kube.access import MARK_RULES, USAGE_RULES
from tests.controlplane import metrics, objects, operations
from tests.e2e.product import RUN_RULES, grant, rebalancer
from tests.e2e.test_marks import marks, standing

RULES = (*RUN_RULES, *MARK_RULES, *USAGE_RULES)
POLICY = """
apiVersion: rebalancer/v1
kind: Policy
steer: {steer}
budgets: {{perHour: 100%, perOwner: 100%}}
protect: {{minPodAge: 0s, singleReplicas: false}}
strategies: {{low-utilisation: {{signal: usage, runs: 1, under: {{cpu: 30%}}, over: {{cpu: 60%}}}}}}
"""
NODES = ("n0", "n1", "n2")
BUSY = ("hot0", "hot1", "hot2", "hot3")


def measure(plane):
    """Have all measured: a busy pod uses 700m, an idle one nearly nothing."""
    # A measurement is of a second; what was moved within it is not in it.
    time.sleep(1.1)
    plane.api.delete(f"{metrics.ROOT}/nodes")
    plane.api.delete(f"{metrics.ROOT}/namespaces/default/pods")
    used = dict.fromkeys(NODES, 0)
    for pod in operations.pods(plane.api, "default"):
        if "deletionTimestamp" in pod["metadata"]:
            continue
        busy = pod["metadata"]["labels"]["app"] in BUSY
        used[pod["spec"]["nodeName"]] += 700 if busy else 10
        metrics.tell_pod(plane.api, pod, [{"cpu": "700m" if busy else "10m", "memory": "64Mi"}])
    for name, cpu in used.items():
        metrics.tell_node(plane.api, name, {"cpu": f"{cpu}m", "memory": "1Gi"})
    return used


@pytest.fixture
def hot(cluster):
    """Four busy pods on n0, five idle ones on each other node; all ask for the same."""
    cluster.apply([objects.node(name, zone="a", cpu="4") for name in NODES])
    operations.wait_nodes_ready(cluster.api, 3)
    rule = objects.spread({"app": "any"}, "rack", hard=False)
    places = {**dict.fromkeys(BUSY, "n0"), **{f"idle{n}": f"n{1 + n % 2}" for n in range(10)}}

    for place in NODES:
        names = [name for name, of in places.items() if of == place]
        operations.cordon(cluster.api, [name for name in NODES if name != place])
        operations.cordon(cluster.api, [place], on=False)
        more = {"cpu": "200m", "topologySpreadConstraints": [rule]}
        cluster.apply(
            [
                objects.deployment(name, 1, labels={"app": name, "placed": "here"}, **more)
                for name in names
            ]
        )
        before = sum(of < place for of in places.values())
        operations.wait_pods_ready(cluster.api, before + len(names), 60, selector="placed=here")
    operations.cordon(cluster.api, NODES, on=False)
    with metrics.served(cluster.api):
        yield cluster


def test_pods_leave_a_node_that_is_hot_by_use_and_stay_away(hot, tmp_path):
    kubeconfig = grant(hot, RULES)

    def run(steer):
        path = tmp_path / f"{steer}.yaml"
        path.write_text(POLICY.format(steer=steer))
        ran = rebalancer(
            "run", "--yes", "--output=json", f"--policy={path}", f"--kubeconfig={kubeconfig}"
        )
        assert ran.code == 0, ran.err
        return ran

    assert measure(hot)["n0"] == 2800
    without = run("off")
    assert without.evicted == []
    assert {skip["code"] for skip in without.report["skipped"]} == {"ComesBack"}
    ran = run("marks")
    assert ran.evicted
    assert all(move["from"] == "n0" and move["predicted"] for move in ran.evicted)
    assert all(move["landed"] != "n0" and "n0" in move["marks"] for move in ran.evicted)
    assert marks(hot) == {}
    operations.wait_pods_ready(hot.api, 14, selector="placed=here")
    assert max(measure(hot).values()) <= 0.6 * 4000
    assert run("marks").report["moves"] == []
    assert standing(hot, "placed=here").total() == 14
