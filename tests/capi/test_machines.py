"""Machines that Cluster API's own controllers make and end, at the word of the product."""

import json
import random

import pytest

from rebalancer.kube.access import CONDITION_RULES
from rebalancer.kube.client import connect
from rebalancer.machines.cluster_api import api as cluster_api
from rebalancer.machines.cluster_api.api import DELETE, ENDS, NOTE
from rebalancer.machines.cluster_api.groups import ClusterApiParams, ClusterApiProvider
from rebalancer.providers.contract import Guarded, KnownNode
from tests.capi.ground import STATUS
from tests.capi.infrastructure import CLUSTER, MACHINES, NAMESPACE
from tests.controlplane import objects, operations, wait_until
from tests.e2e.machines import surge_arguments
from tests.e2e.product import rebalancer
from tests.e2e.served import runs
from tests.e2e.watched import CONDITIONS, our_conditions, watched
from tests.support.contracts import check_provider
from tests.support.killed_processes import Kills, at_each_write, describe_node_patch, seen_by

CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
WEB = {"app": "web"}
_API = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{NAMESPACE}"


def opened(ground):
    """The provider with the rights that are documented, and the nodes."""
    client = connect(kubeconfig=ground.kubeconfig(), environ={})
    params = ClusterApiParams(cluster=f"{NAMESPACE}/{CLUSTER}")
    nodes = [
        KnownNode(one["metadata"]["name"], one["spec"]["providerID"]) for one in ground.nodes()
    ]
    return ClusterApiProvider().open_in(params, {}, client), nodes


def web(ground, replicas):
    """So many replicas of half a core: a machine of two holds three beside what is reserved."""
    ground.plane.apply(
        [objects.deployment("web", replicas, cpu="600m", memory="512Mi", labels=WEB)]
    )


def ready(ground):
    pods = operations.pods(ground.plane.api, selector="app=web")
    living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return sum(map(operations.is_ready, living)) if len(pods) == len(living) else -1


def serving(ground, policy, *more):
    return runs(f"--policy={policy}", f"--kubeconfig={ground.kubeconfig()}", *more)


def run(served):
    """(code, node) of what was done with machines since the last call."""
    return [(code, node) for code, node, _ in served.acts()]


def test_the_contract_of_providers_holds_in_both_versions(ground, monkeypatch):
    ground.deployment("pool", 2, 1, 4)
    provider, nodes = opened(ground)
    groups = check_provider(provider, nodes)
    assert [(one.name, one.minimum, one.desired, one.maximum) for one in groups] == [
        ("pool", 1, 2, 4)
    ]
    assert set(groups[0].instances) == {node.provider_id for node in nodes}
    assert not groups[0].held
    monkeypatch.setattr(cluster_api, "VERSIONS", ("v1beta1",))
    older, nodes = opened(ground)
    assert check_provider(older, nodes) == groups


def test_machines_end_one_by_one_and_each_is_the_named_one(ground):
    """Without waits in between: the next is named while Cluster API still deletes the last."""
    ground.deployment("pool", 8, 0, 8)
    provider, nodes = opened(ground)
    guarded = Guarded(provider, nodes)
    draw = random.Random(7)
    left = {node.provider_id for node in nodes}
    for _ in range(6):
        named = draw.choice(sorted(left))
        assert guarded.terminate("pool", named, lambda: True)
        left.discard(named)
        group = provider.group_named("pool", nodes)
        assert group is not None
        assert (set(group.instances), group.desired) == (left, len(left))
    ground.wait_nodes(2)
    assert {node["spec"]["providerID"] for node in ground.nodes()} == left
    assert ground.left_behind() == []
    assert guarded.increase("pool", 3)
    ground.wait_nodes(3)


def test_a_group_grows_for_pods_that_wait_from_zero_too(ground, tmp_path):
    sizes = {f"{CAPACITY}cpu": "2", f"{CAPACITY}memory": "4Gi"}
    ground.deployment("pool", 0, 0, 4, **sizes)
    web(ground, 4)
    policy = ground.policy(tmp_path, {"scale-out": {}})
    namespace, name = STATUS
    ground.plane.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}])
    status = f"--machine-state={namespace}/{name}"

    with serving(ground, policy, status) as served:

        def grows():
            return "ScaledUpGroup" in {code for code, _ in run(served)}

        wait_until(grows, 60, "it grows")
        assert ground.size("pool") == 2
        ground.wait_nodes(2)
        wait_until(lambda: ready(ground) == 4, 60, "all pods are Ready")
        assert run(served) == []


def test_scale_in_ends_the_machines_whose_nodes_it_has_emptied_and_no_other(ground, tmp_path):
    ground.deployment("pool", 4, 2, 6)
    web(ground, 8)
    wait_until(lambda: ready(ground) == 8, 60, "eight pods are Ready")
    web(ground, 4)
    wait_until(lambda: ready(ground) == 4, 60, "four pods are Ready")
    policy = ground.policy(
        tmp_path, {"scale-in": {"unneededFor": "3s", "coolDownAfterGrowth": "0s"}}
    )
    before = {node["metadata"]["name"] for node in ground.nodes()}
    acts: list[tuple[str, str]] = []
    least = 4

    with serving(ground, policy) as served:

        def step():
            nonlocal least
            acts.extend(run(served))
            least = min(least, ready(ground) if ready(ground) >= 0 else least)
            return ground.size("pool") == 2

        wait_until(step, 240, "two machines are asked for")
        acts.extend(run(served))
    ground.wait_nodes(2)
    gone = [node for code, node in acts if code == "Terminated"]
    assert len(gone) == len(set(gone)) == 2
    assert {node["metadata"]["name"] for node in ground.nodes()} == before - set(gone)
    wait_until(lambda: ready(ground) == 4, 60, "all pods are Ready")
    assert least >= 3
    assert ground.left_behind() == []
    # Cluster API had nothing left to evict: its own drain of these machines found empty nodes.
    assert "Evicting Pod" not in ground.log.read_text()


@pytest.mark.parametrize("pause", ["the cluster", "the group"])
def test_a_paused_group_is_left_as_it_is_and_said(ground, tmp_path, pause):
    ground.deployment("pool", 2, 0, 4)
    plural, name = (
        ("clusters", CLUSTER) if pause == "the cluster" else ("machinedeployments", "pool")
    )
    ground.plane.api.patch(f"{_API}/{plural}/{name}", {"spec": {"paused": True}})
    try:
        policy = ground.policy(
            tmp_path, {"scale-in": {"unneededFor": "0s", "coolDownAfterGrowth": "0s"}}
        )
        with serving(ground, policy) as served:
            for _ in range(3):
                assert run(served) == []
        flags = (f"--policy={policy}", "--output=json", f"--kubeconfig={ground.kubeconfig()}")
        report = rebalancer("capacity", *flags).report
        assert {one["code"] for one in report["nodes"]} == {"HeldByProvider"}
        assert "is paused" in json.dumps(report)
    finally:
        ground.plane.api.patch(
            f"{_API}/{plural}/{name}", {"spec": {"paused": None if name == "pool" else False}}
        )
    assert ground.size("pool") == 2


# -- replacement ---------------------------------------------------------------------------------------


@pytest.fixture
def service(ground):
    """A service of four replicas of which one may be away."""

    def begin():
        web(ground, 4)
        ground.plane.apply([objects.pdb("web", WEB, maxUnavailable=1)])
        wait_until(lambda: ready(ground) == 4, 60, "four pods are Ready")

    return begin


def check_replaced(ground, old, size):
    ground.wait_nodes(size)
    machines = ground.machines()
    assert not set(machines) & set(old)
    assert set(machines.values()) == {"v1.37.0"}
    assert ground.left_behind() == []
    for node in ground.nodes():
        assert not node["spec"].get("unschedulable")
        assert "rebalancer/" not in json.dumps(node["metadata"].get("annotations", {}))


def test_a_deployment_that_waits_for_deletions_is_replaced(ground, service, tmp_path):
    ground.deployment("pool", 2, 1, 4, "OnDelete")
    service()
    old = ground.machines()
    ground.new_template("pool")
    policy = ground.policy(tmp_path, {})
    with watched(ground.plane) as seen:
        done = rebalancer(*surge_arguments(policy, ground.kubeconfig()))
    assert done.code == 0, done.err + done.out
    check_replaced(ground, old, 2)
    assert ground.size("pool") == 2
    assert min(seen.nodes) >= 2
    assert min(seen.pods) >= 3


def test_a_set_alone_is_replaced(ground, service, tmp_path):
    ground.machine_set("alone", 2, 1, 4)
    service()
    old = ground.machines()
    ground.new_template("alone", "machinesets")
    policy = ground.policy(tmp_path, {})
    done = rebalancer(*surge_arguments(policy, ground.kubeconfig()))
    assert done.code == 0, done.err + done.out
    check_replaced(ground, old, 2)
    assert ground.size("alone", "machinesets") == 2


def test_machines_that_never_join_are_taken_back(ground, tmp_path):
    ground.machine_set("alone", 2, 1, 4)
    old = ground.machines()
    ground.new_template("alone", "machinesets")
    ground.provider.joins = False
    policy = ground.policy(tmp_path, {})
    done = rebalancer(*surge_arguments(policy, ground.kubeconfig()), "--ready-within=8s")
    assert done.code == 4, done.err + done.out
    ground.wait_nodes(2)
    assert ground.machines() == old
    assert ground.size("alone", "machinesets") == 2
    assert ground.left_behind() == []


def test_beside_old_machines_a_new_one_that_never_joins_stays_and_is_named(ground, tmp_path):
    """With OnDelete a decrease would end an old one; people delete the Machine, and remove the note."""
    ground.deployment("pool", 2, 1, 6, "OnDelete")
    old = ground.machines()
    ground.new_template("pool")
    ground.provider.joins = False
    flags = surge_arguments(ground.policy(tmp_path, {}), ground.kubeconfig())
    done = rebalancer(*flags, "--ready-within=5s")
    assert done.code == 4, done.err + done.out
    assert "none of the new ones can go" in done.out + done.err
    machines = ground.machines()
    assert old.items() < machines.items()
    assert (len(machines), ground.size("pool")) == (3, 3)
    assert not any(node["spec"].get("unschedulable") for node in ground.nodes())
    assert [one.rpartition(" ")[2] for one in ground.left_behind()] == [NOTE, NOTE, NOTE]
    (stuck,) = set(machines) - set(old)
    ground.provider.joins = True
    ground.plane.api.delete(f"{MACHINES}/{stuck}")
    ground.wait_nodes(3)
    ground.plane.api.patch(
        f"{_API}/machinedeployments/pool", {"metadata": {"annotations": {NOTE: None}}}
    )
    done = rebalancer(*flags)
    assert done.code == 0, done.err + done.out
    check_replaced(ground, old, 3)


def test_a_rollout_of_cluster_api_is_not_meddled_with(ground, tmp_path):
    ground.deployment("pool", 2, 1, 4)
    policy = ground.policy(tmp_path, {})
    ground.provider.joins = False
    ground.new_template("pool")
    wait_until(lambda: len(ground.machines()) == 3, 60, "Cluster API has begun")
    done = rebalancer(*surge_arguments(policy, ground.kubeconfig()))
    assert done.code == 3, done.err + done.out
    assert "a rollout is under way" in done.err
    assert ground.left_behind() == []


class Killing:
    """Kills after each kind of write to an object of Cluster API, and to a node, or after each write, once."""

    def __init__(self, *, each=False):
        self.kills = Kills(each=each)
        self._ends = 0
        """Decreases so far."""

    def seen(self, one):
        if (patch := describe_node_patch(one)) is not None:
            self.kills.at(f"node: {patch[1]}", patch[0])
        elif one.kind == "eviction" and one.status < 300:
            self.kills.at("eviction", one.target)
        elif one.method == "PATCH" and "cluster.x-k8s.io" in one.target and 200 <= one.status < 300:
            body = json.loads(one.body)
            annotations = body["metadata"].get("annotations", {})
            keys = [key for key in (NOTE, ENDS, DELETE) if key in annotations]
            values = [annotations[key] is not None for key in keys]
            size = body.get("spec", {}).get("replicas", "")
            # Of a group the same is written for each of its machines.
            which = f"{one.target} {self._ends}"
            self._ends += size != "" and keys == [ENDS]
            self.kills.at(f"{keys} {values} {size}", which)

    def check(self, *keys):
        """Each kind of write was killed at, and each condition of nodes."""
        text = " ".join(self.kills.points)
        names = [f"{name} True" for name in CONDITIONS]
        assert [one for one in (*keys, *names) if one not in text] == [], self.kills.points


def conditions_left(ground):
    return [kind for node in ground.nodes() for kind in our_conditions(node)]


@at_each_write
def test_killed_after_each_write_all_is_as_before_but_newer(ground, service, tmp_path, kills_each):
    size = 3 if kills_each else 2
    # One more for each zone: which of them a new machine is in is the infrastructure's choice.
    ground.deployment("pool", size, 1, size + 2, "OnDelete")
    service()
    old = ground.machines()
    ground.new_template("pool")
    policy = ground.policy(tmp_path, {}, nodeConditions=True)
    killing = Killing(each=kills_each)
    with (
        seen_by(ground.plane, ground.kubeconfig(*CONDITION_RULES), killing.seen) as kubeconfig,
        watched(ground.plane) as seen,
    ):
        done = killing.kills.until_done(surge_arguments(policy, kubeconfig), POD_NAME="replace")
    assert done.code == 0, done.err + done.out
    check_replaced(ground, old, size)
    assert ground.size("pool") == size
    assert min(seen.nodes) >= size
    assert min(seen.pods) >= 3
    assert (seen.untrue, conditions_left(ground)) == ([], [])
    # Notes, claims, marks, and sizes up and down.
    killing.check(NOTE, ENDS, DELETE)


def test_killed_after_each_write_scale_in_ends_each_machine_once(ground, service, tmp_path):
    ground.deployment("pool", 4, 2, 6)
    service()
    before = {node["metadata"]["name"] for node in ground.nodes()}
    times = {"unneededFor": "3s", "coolDownAfterGrowth": "0s", "coolDownAfterFailure": "1s"}
    policy = ground.policy(tmp_path, {"scale-in": times}, nodeConditions=True)
    killing = Killing()
    with (
        seen_by(ground.plane, ground.kubeconfig(*CONDITION_RULES), killing.seen) as kubeconfig,
        watched(ground.plane) as seen,
        runs(f"--policy={policy}", f"--kubeconfig={kubeconfig}", kills=killing.kills) as served,
    ):

        def step():
            for report in served():
                failed = [act for act in report["machines"] if act["status"] == "failed"]
                # Killed twice between its note on a node and the last write it gives up on that node, and says so.
                assert all("it is still there" in act["message"] for act in failed)
            return ground.size("pool") == 2

        wait_until(step, 900, "two machines are left")
        # The last one may have been killed right after it: the next one cleans up.
        ground.wait_nodes(2)
        step()
    left = {node["metadata"]["name"] for node in ground.nodes()}
    assert (len(left), left < before) == (2, True)
    assert ground.left_behind() == []
    assert not any(node["spec"].get("unschedulable") for node in ground.nodes())
    wait_until(lambda: ready(ground) == 4, 60, "all pods are Ready")
    assert min(seen.pods) >= 3
    assert (seen.untrue, conditions_left(ground)) == ([], [])
    assert "Evicting Pod" not in ground.log.read_text()
    killing.check(ENDS, DELETE, "eviction")
