"""Article 004, the shrinking half, on a real scheduler: KWOK's nodes are the machines behind moto's groups."""

import json
from typing import Any

import pytest

from rebalancer.kube.access import CONDITION_RULES, MARK_RULES
from rebalancer.machines.aws.groups import ACTS, CALLS
from rebalancer.node_record.protocol import EXCLUDE
from tests.controlplane import objects, operations, wait_until
from tests.e2e.machines import fleet_of, policy_of
from tests.e2e.product import RUN_RULES, grant, rebalancer
from tests.e2e.served import runs
from tests.e2e.watched import CONDITIONS, our_conditions, watched
from tests.support.killed_processes import Kills, describe_node_patch, seen_by

LOW = 2
KEEP = "cluster-autoscaler.kubernetes.io/scale-down-disabled"


@pytest.fixture
def fleet(cluster, monkeypatch):
    with fleet_of(cluster, monkeypatch) as made:
        yield made


def web(cluster, replicas):
    cluster.apply([objects.deployment("web", replicas, cpu="500m", memory="512Mi")])
    wait_until(lambda: ready(cluster) == replicas, 60, f"{replicas} pods are Ready")


def ready(cluster):
    pods = operations.pods(cluster.api, selector="app=web")
    living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return sum(map(operations.is_ready, living)) if len(pods) == len(living) else -1


@pytest.fixture
def policy(cluster, fleet, tmp_path):
    """Four machines, of which two are enough for the four replicas that are left of ten; times are short."""
    fleet.add("pool", 4, low=LOW, high=6)
    web(cluster, 10)
    web(cluster, 4)
    times = {"unneededFor": "3s", "coolDownAfterGrowth": "0s"}
    return policy_of(fleet, tmp_path, {"scale-in": times})


def test_machines_go_with_the_rights_of_the_chart_and_pods_leave_first(cluster, fleet, policy):
    kubeconfig = grant(cluster, (*RUN_RULES, *MARK_RULES))
    acts: list[tuple[str, str]] = []
    moves: list[dict[str, Any]] = []
    least = 4

    flags = (f"--policy={policy}",)

    excluded: set[str] = set()

    with runs(*flags, f"--kubeconfig={kubeconfig}") as served:

        def run():
            nonlocal least
            for report in served():
                acts.extend((act["code"], act["node"]) for act in report["machines"])
                moves.extend(report["moves"])
            least = min(least, ready(cluster) if ready(cluster) >= 0 else least)
            assert fleet.sizes["pool"] >= LOW
            excluded.update(_excluded(cluster))
            fleet.join()
            return fleet.sizes["pool"] == LOW

        wait_until(run, 240, "two machines are left")
        run()
    gone = [node for code, node in acts if code == "Terminated"]
    assert len(set(gone)) == len(gone) == 2
    assert least >= 3
    evicted = [one for one in moves if one["outcome"] == "evicted"]
    assert {one["strategy"] for one in evicted} <= {"scale-in"}
    assert {one["from"] for one in evicted} <= set(gone)
    nodes = cluster.api.list_all("/api/v1/nodes")
    assert len(nodes) == LOW
    wait_until(lambda: ready(cluster) == 4, 60, "all pods are Ready")
    # Load balancers were told before.
    assert set(gone) <= excluded
    assert not _excluded(cluster)
    # Nothing of ours is left on those that stay.
    for node in nodes:
        assert not node["spec"].get("unschedulable")
        assert "rebalancer" not in json.dumps((node["spec"], node["metadata"]["annotations"]))


def _excluded(cluster):
    """The nodes that load balancers leave out."""
    return {
        node["metadata"]["name"]
        for node in cluster.api.list_all("/api/v1/nodes")
        if EXCLUDE in node["metadata"]["labels"]
    }


@pytest.mark.long
@pytest.mark.usefixtures("policy")
def test_killed_after_each_write_each_machine_ends_once_and_nothing_is_left_on_nodes(
    cluster, fleet, tmp_path
):
    """serve may be killed after what it has written to a node or to the cloud; another process goes on."""
    # One more than there are machines: none is empty, and two are enough.
    web(cluster, 5)
    times = {"unneededFor": "3s", "coolDownAfterGrowth": "0s"}
    policy = policy_of(fleet, tmp_path, {"scale-in": times}, nodeConditions=True)
    rules = (*RUN_RULES, *MARK_RULES, *CONDITION_RULES)
    kills, ended = Kills(), []

    def called(call, form):
        if call == ACTS[1]:
            ended.append(form["InstanceId"])
            kills.at(f"{call} {len(ended)}")

    def wrote(request):
        if (patch := describe_node_patch(request)) is not None:
            kills.at(f"node: {patch[1]}")
        elif request.kind == "eviction" and request.status < 300:
            kills.at("eviction")

    fleet.cloud.after_call = called
    with (
        watched(cluster) as seen,
        seen_by(cluster, grant(cluster, rules), wrote) as kubeconfig,
        runs(f"--policy={policy}", f"--kubeconfig={kubeconfig}", kills=kills) as served,
    ):

        def run():
            served()
            fleet.join()
            return fleet.sizes["pool"] == LOW

        wait_until(run, 900, "two machines are left")
        run()
    assert len(ended) == len(set(ended)) == 4 - LOW
    assert set(ended).isdisjoint(fleet.machines("pool"))
    assert {f"{ACTS[1]} 1", f"{ACTS[1]} 2", "eviction"} <= set(kills.points)
    written = " ".join(kills.points)
    assert [one for one in CONDITIONS if f"{one} True" not in written] == []
    assert min(seen.pods) >= 4
    assert seen.untrue == []
    for node in cluster.api.list_all("/api/v1/nodes"):
        assert not node["spec"].get("unschedulable")
        assert "rebalancer" not in json.dumps(node["spec"].get("taints", []))
        assert not our_conditions(node)
        assert EXCLUDE not in node["metadata"]["labels"]


def test_who_protects_a_node_between_the_last_read_and_the_request_keeps_it(cluster, fleet, policy):
    kubeconfig = grant(cluster, (*RUN_RULES, *MARK_RULES))
    protected: list[str] = []

    def protect(call, form):
        """Once the group is read by its name, the request is next."""
        if call == CALLS[0] and "AutoScalingGroupNames.member.1" in form:
            nodes = cluster.api.list_all("/api/v1/nodes")
            leaving = [
                one["metadata"]["name"] for one in nodes if EXCLUDE in one["metadata"]["labels"]
            ]
            for name in leaving:
                body = {"metadata": {"annotations": {KEEP: "true"}}}
                cluster.api.patch(f"/api/v1/nodes/{name}", body)
            protected.extend(leaving)

    fleet.cloud.after_call = protect
    acts: list[tuple[str, str]] = []
    with runs(f"--policy={policy}", f"--kubeconfig={kubeconfig}") as served:

        def run():
            acts.extend((code, node) for code, node, _ in served.acts())
            return bool(protected) and ("Cancelled", protected[0]) in acts

        wait_until(run, 240, "a machine would be ended")
    kept = protected[0]
    assert ACTS[1] not in fleet.cloud.ours
    assert fleet.sizes == {"pool": 4}
    node = cluster.api.get(f"/api/v1/nodes/{kept}")
    assert not node["spec"].get("unschedulable")
    assert EXCLUDE not in node["metadata"]["labels"]
    assert "rebalancer" not in json.dumps(node["spec"].get("taints", []))


def test_without_the_right_to_change_nodes_serve_names_it_and_nothing_is_done(
    cluster, fleet, policy
):
    flags = (f"--policy={policy}", "--output=json", f"--kubeconfig={grant(cluster)}")
    ran = rebalancer("serve", "--yes", *flags)
    assert ran.code == 3
    assert "patch nodes" in ran.err
    # One run alone is refused, with whatever rights.
    ran = rebalancer("run", "--yes", *flags)
    assert ran.code == 2
    assert "strategies.scale-in" in ran.err
    assert "rebalancer serve" in ran.err
    assert fleet.sizes == {"pool": 4}
