"""``replace --surge`` on a real control plane: KWOK's nodes are the machines behind moto's groups.

The process is killed after each of its writes to the cloud, and the next one goes on.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from rebalancer.kube.access import (
    ACT_RULES,
    DRAIN_RULES,
    EVENT_RULES,
    FOLLOW_RULES,
    READ_RULES,
)
from rebalancer.machines.aws.groups import ACTS
from rebalancer.machines.aws.outdated import REPLACES, TAG
from tests.controlplane import objects, operations, wait_until
from tests.controlplane.stages import COMPLETE_AFTER
from tests.e2e.machines import fleet_of, policy_of
from tests.e2e.product import PATIENCE, grant, rebalancer

RULES = (*READ_RULES, *ACT_RULES, *FOLLOW_RULES, *EVENT_RULES, *DRAIN_RULES)
SIZE, REPLICAS = 2, 4
WEB = {"app": "web"}
WRITES = frozenset({*ACTS, *REPLACES})


@pytest.fixture
def fleet(cluster, monkeypatch):
    with fleet_of(cluster, monkeypatch) as made:
        yield made


@pytest.fixture
def policy(cluster, fleet, tmp_path):
    """Two machines of the old version with a service, a DaemonSet and work that is waited for; short times."""
    fleet.add("pool", SIZE, low=1, high=4)
    cluster.apply([objects.deployment("web", REPLICAS, labels=WEB, cpu="300m", memory="256Mi")])
    cluster.apply([objects.pdb("web", WEB, maxUnavailable=1)])
    cluster.apply([objects.daemonset("agent", tolerations=[{"operator": "Exists"}])])
    job = {"parallelism": 1, "completions": 1, "backoffLimit": 0}
    annotations = {COMPLETE_AFTER: "8s"}
    cluster.apply([objects.job("sums", job_spec=job, pod_annotations=annotations)])
    operations.wait_pods_ready(cluster.api, REPLICAS + SIZE + 1)
    return policy_of(fleet, tmp_path, {})


def flags(cluster, policy):
    return [
        "replace",
        "--outdated=template",
        "--surge=1",
        f"--policy={policy}",
        f"--kubeconfig={grant(cluster, RULES)}",
        "--ignore-daemonsets",
        "--pause=0s",
        "--timeout=300s",
        "--output=json",
    ]


def ready_and_open(client):
    return sum(
        operations.is_ready(node) and not node["spec"].get("unschedulable")
        for node in client.list_all("/api/v1/nodes")
    )


@contextmanager
def watched(plane):
    """Sample, while inside, how many nodes are Ready and open, and how many pods of the service are Ready."""
    nodes: list[int] = []
    pods: list[int] = []
    end = threading.Event()

    def sample():
        client = plane.client(plane.admin_token)
        while not end.wait(0.05):
            nodes.append(ready_and_open(client))
            pods.append(sum(map(operations.is_ready, operations.pods(client, selector="app=web"))))
        client.close()

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield nodes, pods
    finally:
        end.set()
        thread.join()


class Killing:
    """Kills the process at each of its writes to the cloud once; each write is carried out before."""

    def __init__(self, fleet):
        self._fleet = fleet
        self.process: subprocess.Popen[str] | None = None
        self.points: list[str] = []
        self._counts: dict[str, int] = {}
        self.ended: list[str] = []

    def called(self, call, form):
        if call == ACTS[1]:
            self.ended.append(form["InstanceId"])
        if call in ACTS:
            self._fleet.join()
        process = self.process
        if call in WRITES and process is not None and process.poll() is None:
            # The same write by the next process passes, so that it comes further.
            point = f"{call} {len(self.ended)} {form.get('DesiredCapacity', '')}"
            if self._counts.get(point, 0) < 1:
                self._counts[point] = 1
                self.points.append(point)
                process.send_signal(signal.SIGKILL)
                process.wait(PATIENCE)


def test_killed_after_each_write_to_the_cloud_all_is_as_before_but_newer(cluster, fleet, policy):
    old = fleet.machines("pool")
    new = fleet.new_version(ImageId="ami-03cf127a")
    killing = Killing(fleet)
    fleet.cloud.after_call = killing.called
    command = [sys.executable, "-m", "rebalancer", *flags(cluster, policy)]
    # One name: the next process knows the note as its own, and does not wait until it is stale.
    environ = {**os.environ, "POD_NAME": "replace"}
    with watched(cluster) as (nodes, pods):
        while True:
            process = killing.process = subprocess.Popen(
                command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            out, err = process.communicate(timeout=PATIENCE)
            if process.returncode != -signal.SIGKILL:
                break
            assert len(killing.points) < 40, killing.points
    assert process.returncode == 0, err + out
    fleet.join()
    group = fleet.group("pool")
    assert (group["MinSize"], group["MaxSize"], group["DesiredCapacity"]) == (1, 4, SIZE)
    assert group["SuspendedProcesses"] == []
    assert TAG not in {tag["Key"] for tag in group["Tags"]}
    assert sorted(killing.ended) == old
    versions = {one["LaunchTemplate"]["Version"] for one in group["Instances"]}
    assert versions == {str(new)}
    # Each kind of write was killed at: notes, processes, sizes, ends.
    assert {point.split()[0] for point in killing.points} == WRITES
    assert min(nodes) >= SIZE
    assert min(pods) >= REPLICAS - 1
    assert (
        cluster.api.get("/apis/batch/v1/namespaces/default/jobs/sums")["status"]["succeeded"] == 1
    )
    assert (
        cluster.api.get("/apis/batch/v1/namespaces/default/jobs/sums")["status"].get("failed", 0)
        == 0
    )
    for node in cluster.api.list_all("/api/v1/nodes"):
        assert not node["spec"].get("unschedulable")
        assert "rebalancer/" not in json.dumps(node["metadata"].get("annotations", {}))
    operations.wait_pods_ready(cluster.api, REPLICAS + SIZE)


def test_a_machine_that_never_loses_its_startup_taint_is_taken_back(cluster, fleet, policy):
    old = fleet.machines("pool")
    fleet.new_version(ImageId="ami-03cf127a")
    fleet.cloud.after_call = lambda call, _: fleet.join() if call in ACTS else None
    taint = {"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"}
    join = fleet.join
    fleet.join = lambda *of, **more: join(*of, taints=[taint], **more)
    done = rebalancer(
        *flags(cluster, policy),
        "--ready-within=8s",
        "--set=capacity.startupTaints=[node.cilium.io/agent-not-ready]",
    )
    assert done.code == 4, done.err + done.out
    assert "start-up taint, after 8s" in done.out
    join()
    assert fleet.machines("pool") == old
    group = fleet.group("pool")
    assert (group["DesiredCapacity"], group["SuspendedProcesses"]) == (SIZE, [])
    assert TAG not in {tag["Key"] for tag in group["Tags"]}
    wait_until(lambda: ready_and_open(cluster.api) == SIZE, 30, "the nodes as before")
