"""A node that is hot by measurement, under the installed chart: the third run in a row moves pods, then silence."""

import json
import time
from collections import Counter

import pytest

from rebalancer.base.errors import ExitCode
from tests.controlplane import metrics, objects, operations
from tests.e2e.installed import NAMESPACE, Installed

OTHERS = ("topology-spread", "anti-affinity", "duplicates", "node-affinity", "taints")
BY_USAGE = {"signal": "usage", "runs": 3}
AT_ONCE = {"budgets": {"perOwner": "100%"}}


def running(plane):
    pods = operations.pods(plane.api, "default", "app=web")
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def per_node(plane):
    return dict(Counter(pod["spec"]["nodeName"] for pod in running(plane)))


def measure(plane):
    """Have everything measured again: each pod uses a fifth of a node."""
    # A measurement is of a second; what was moved within it is not in it.
    time.sleep(1.1)
    plane.api.delete(f"{metrics.ROOT}/nodes")
    plane.api.delete(f"{metrics.ROOT}/namespaces/default/pods")
    pods = per_node(plane)
    for name in ("n-0", "n-1"):
        used = {"cpu": f"{800 * pods.get(name, 0) + 50}m", "memory": "1Gi"}
        metrics.tell_node(plane.api, name, used)
    for pod in running(plane):
        metrics.tell_pod(plane.api, pod, [{"cpu": "800m", "memory": "64Mi"}])


@pytest.fixture
def hot(cluster):
    """Four busy pods that ask for little on one node, and another that has just joined."""
    cluster.apply([objects.node("n-0", zone="a", cpu="4")])
    operations.wait_nodes_ready(cluster.api, 1)
    cluster.apply([objects.deployment("web", 4, labels={"app": "web"}, cpu="100m")])
    operations.wait_pods_ready(cluster.api, 4)
    cluster.apply([objects.node("n-1", zone="b", cpu="4")])
    operations.wait_nodes_ready(cluster.api, 2)
    with metrics.served(cluster.api):
        yield cluster


@pytest.fixture
def installed(hot, tmp_path):
    """The chart with nothing but low-utilisation, by usage."""
    off = {name: {"mode": "off"} for name in OTHERS}
    return Installed(hot, tmp_path, policy=AT_ONCE, strategies={"low-utilisation": BY_USAGE, **off})


def remembered(installed):
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{installed.name}-memory"
    signals = json.loads(installed.api.get(path)["data"]["memory.json"])["streaks"]
    return signals["low-utilisation"]["runs"]


def test_a_node_hot_for_three_runs_gives_and_then_there_is_silence(hot, installed):
    def run(*args):
        done = installed.run(*args)
        assert done.code == ExitCode.DONE, done.err
        return done

    for number in (1, 2):
        measure(hot)
        waits = run()
        assert waits.report["moves"] == []
        assert waits.report["funnel"]["TooFewRuns"] == 4
        assert f"so far in {number} of 3 runs in a row" in waits.report["skipped"][0]["message"]
        assert remembered(installed) == {"n-0": number}
        # The same measurement once more is no further run.
        assert run().report["moves"] == []
        assert remembered(installed) == {"n-0": number}
    measure(hot)
    planned = run("--dry-run")
    assert [move["landings"][0]["node"] for move in planned.report["moves"]] == ["n-1", "n-1"]
    third = run()
    assert [move["landed"] for move in third.evicted] == ["n-1", "n-1"]
    assert third.report["moves"][0]["reason"] == "node n-0: cpu 81% used (over 50%)"
    operations.wait_pods_ready(hot.api, 4)
    assert per_node(hot) == {"n-0": 2, "n-1": 2}

    # What is known is of before: n-0 looks as hot as ever, and must not be emptied for it.
    outdated = run()
    assert outdated.report["moves"] == []
    assert any("until the next measurement" in line for line in outdated.report["warnings"])
    for _ in range(3):
        measure(hot)
        silent = run()
        assert silent.report["moves"] == []
        assert silent.report["stopped"] == "Nothing to do: every rule holds."
    assert per_node(hot) == {"n-0": 2, "n-1": 2}
