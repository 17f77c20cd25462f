"""``replace --surge`` on a real control plane: KWOK's nodes are the machines behind moto's groups.

The process is killed after each of its writes, to the cloud and to nodes, and the next one goes on.
"""

import json

import pytest

from rebalancer.kube.access import CONDITION_RULES, DRAIN_RULES
from rebalancer.machines.aws.groups import ACTS
from rebalancer.machines.aws.outdated import REPLACES, TAG
from tests.controlplane import objects, operations, wait_until
from tests.controlplane.stages import COMPLETE_AFTER
from tests.e2e.machines import fleet_of, policy_of, surge_arguments
from tests.e2e.product import RUN_RULES, grant, rebalancer
from tests.e2e.watched import CONDITIONS, count_ready_and_open, our_conditions, watched
from tests.support.killed_processes import Kills, at_each_write, describe_node_patch, seen_by

RULES = (*RUN_RULES, *DRAIN_RULES)
REPLICAS = 4
WEB = {"app": "web"}
WRITES = frozenset({*ACTS, *REPLACES})


@pytest.fixture
def fleet(cluster, monkeypatch):
    with fleet_of(cluster, monkeypatch) as made:
        yield made


@pytest.fixture
def kills_each():
    """Where nothing is killed."""
    return False


@pytest.fixture
def size(kills_each):
    """Machines of the old version."""
    return 3 if kills_each else 2


@pytest.fixture
def policy(cluster, fleet, tmp_path, size):
    """Machines of the old version with a service, a DaemonSet and work that is waited for; short times."""
    fleet.add("pool", size, low=1, high=4)
    cluster.apply([objects.deployment("web", REPLICAS, labels=WEB, cpu="300m", memory="256Mi")])
    cluster.apply([objects.pdb("web", WEB, maxUnavailable=1)])
    cluster.apply([objects.daemonset("agent", tolerations=[{"operator": "Exists"}])])
    job = {"parallelism": 1, "completions": 1, "backoffLimit": 0}
    annotations = {COMPLETE_AFTER: "8s"}
    cluster.apply([objects.job("sums", job_spec=job, pod_annotations=annotations)])
    operations.wait_pods_ready(cluster.api, REPLICAS + size + 1)
    return policy_of(fleet, tmp_path, {})


class Killing:
    """Kills at the first call of each name, eviction and change of a node, or at each; what ended is kept in order."""

    def __init__(self, fleet, *, each):
        self._fleet, self._each = fleet, each
        self.kills = Kills(each=each)
        self.ended: list[str] = []

    def called(self, call, form):
        if call == ACTS[1]:
            self.ended.append(form["InstanceId"])
        if call in ACTS:
            self._fleet.join()
        if call in WRITES:
            number = f" {len(self.ended)} {form.get('DesiredCapacity', '')}"
            self.kills.at(call + number * self._each)

    def seen(self, request):
        if (patch := describe_node_patch(request)) is not None:
            self.kills.at(f"node: {patch[1]}" if self._each else "node:", patch[0])
        elif request.kind == "eviction" and request.status < 300:
            self.kills.at("eviction", request.target)


@at_each_write
def test_killed_after_each_write_all_is_as_before_but_newer(
    cluster, fleet, policy, size, kills_each
):
    old = fleet.machines("pool")
    new = fleet.new_version(ImageId="ami-03cf127a")
    killing = Killing(fleet, each=kills_each)
    fleet.cloud.after_call = killing.called
    rules = (*RULES, *CONDITION_RULES)
    with (
        watched(cluster) as seen,
        seen_by(cluster, grant(cluster, rules), killing.seen) as kubeconfig,
    ):
        # One name: the next process knows the note as its own, and does not wait until it is stale.
        arguments = [*surge_arguments(policy, kubeconfig), "--node-conditions"]
        done = killing.kills.until_done(arguments, POD_NAME="replace")
    assert done.code == 0, done.err + done.out
    fleet.join()
    group = fleet.group("pool")
    assert (group["MinSize"], group["MaxSize"], group["DesiredCapacity"]) == (1, 4, size)
    assert group["SuspendedProcesses"] == []
    assert TAG not in {tag["Key"] for tag in group["Tags"]}
    assert sorted(killing.ended) == old
    versions = {one["LaunchTemplate"]["Version"] for one in group["Instances"]}
    assert versions == {str(new)}
    # Each kind of write was killed at: notes, processes, sizes, ends; nodes and evictions.
    points = killing.kills.points
    assert {point.split()[0] for point in points} == WRITES | {"node:", "eviction"}
    assert min(seen.nodes) >= size
    assert min(seen.pods) >= REPLICAS - 1
    assert (seen.untrue, seen.stale) == ([], [])
    status = cluster.api.get("/apis/batch/v1/namespaces/default/jobs/sums")["status"]
    assert (status["succeeded"], status.get("failed", 0)) == (1, 0)
    for node in cluster.api.list_all("/api/v1/nodes"):
        assert not node["spec"].get("unschedulable")
        assert "rebalancer/" not in json.dumps(node["metadata"].get("annotations", {}))
        assert not our_conditions(node)
    operations.wait_pods_ready(cluster.api, REPLICAS + size)
    if kills_each:
        # Of each of the three nodes.
        third = " ".join(point for point in points if point.endswith("(3)"))
        assert all(f"{name} True" in third for name in CONDITIONS), points


def test_a_machine_that_never_loses_its_startup_taint_is_taken_back(cluster, fleet, policy, size):
    old = fleet.machines("pool")
    fleet.new_version(ImageId="ami-03cf127a")
    fleet.cloud.after_call = lambda call, _: fleet.join() if call in ACTS else None
    taint = {"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"}
    join = fleet.join
    fleet.join = lambda *of, **more: join(*of, taints=[taint], **more)
    done = rebalancer(
        *surge_arguments(policy, grant(cluster, RULES)),
        "--ready-within=8s",
        "--set=capacity.startupTaints=[node.cilium.io/agent-not-ready]",
    )
    assert done.code == 4, done.err + done.out
    assert "start-up taint, after 8s" in done.out
    join()
    assert fleet.machines("pool") == old
    group = fleet.group("pool")
    assert (group["DesiredCapacity"], group["SuspendedProcesses"]) == (size, [])
    assert TAG not in {tag["Key"] for tag in group["Tags"]}
    wait_until(lambda: count_ready_and_open(cluster.api) == size, 30, "the nodes as before")
