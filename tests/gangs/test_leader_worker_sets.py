"""Groups of LeaderWorkerSets move as a whole, each pod starts once, and what a run says of them is true."""

import time

import pytest

from rebalancer.kube.access import DRAIN_RULES, MARK_RULES, POD_GROUP_RULES, SCALE_OUT_RULES
from tests.controlplane import objects
from tests.e2e.product import RUN_RULES, Product, grant, rebalancer
from tests.gangs.ground import Lives, lws

TAINTS = """
apiVersion: rebalancer/v1
kind: Policy
protect: {minPodAge: 0s}
budgets: {perRun: 100%, inFlight: 100%, perOwner: 100%, perNode: 100}
strategies: {taints: {}}
"""
ROOM = """
apiVersion: rebalancer/v1
kind: Policy
protect: {minPodAge: 0s}
budgets: {perRun: 100%, inFlight: 100%, perOwner: 100%, perNode: 100}
steer: marks
strategies: {make-room: {after: 0s}}
"""


def outcomes(ran):
    """Pod -> (outcome, where its replacement landed)."""
    return {one["pod"]: (one["outcome"], one["landed"]) for one in ran.report["moves"]}


@pytest.mark.parametrize("named", ["leader", "worker"])
def test_a_group_leaves_a_tainted_node_and_each_of_its_pods_starts_once(ground, tmp_path, named):
    ground.nodes([f"n{n}" for n in range(4)], cpu="4")
    ground.make(lws("serve", 3, cpu="3"), 3)
    product = Product(ground.plane, tmp_path, TAINTS)
    pod = "serve-0" if named == "leader" else "serve-0-2"
    ground.taint(ground.where("serve")[pod])
    began = time.monotonic()
    with Lives(ground) as lives:
        ran = product.run()
    assert ran.code == 0, (ran.err, ran.out)
    assert time.monotonic() - began < 30, "it waits for replacements that are there"
    ground.settle("serve", 3)
    assert lives.starts == {"serve-0": 1, "serve-0-1": 1, "serve-0-2": 1}
    landed = {pod: where for pod, (_, where) in outcomes(ran).items()}
    where = ground.where("serve")
    assert landed["serve-0"] == where["serve-0"]
    assert sorted(landed.values()) == sorted(where.values())
    assert {how for how, _ in outcomes(ran).values()} <= {"evicted", "gone"}


@pytest.mark.parametrize("named", ["leader", "worker"])
def test_where_workers_come_back_alone_the_leader_takes_its_group_with_it(ground, tmp_path, named):
    """``restartPolicy: None``: the StatefulSet of the workers goes with the leader, and makes no pod again before that."""
    ground.nodes([f"n{n}" for n in range(4)], cpu="4")
    ground.make(lws("serve", 3, cpu="3", restarts="None"), 3)
    product = Product(ground.plane, tmp_path, TAINTS, POD_GROUP_RULES)
    ground.taint(ground.where("serve")["serve-0" if named == "leader" else "serve-0-2"])
    with Lives(ground) as lives:
        ran = product.run()
    assert ran.code == 0, (ran.err, ran.out)
    ground.settle("serve", 3)
    assert lives.starts == {"serve-0": 1, "serve-0-1": 1, "serve-0-2": 1}
    assert all(landed for _, landed in outcomes(ran).values())


def test_two_groups_leave_in_one_run(ground, tmp_path):
    """The second one waits for the first to be back: what it sees of it is its pods, not their controllers."""
    ground.nodes([f"n{n}" for n in range(5)], cpu="4")
    ground.make(lws("serve", 2, cpu="1500m", replicas=2), 4)
    for node in {ground.where("serve")["serve-0"], ground.where("serve")["serve-1"]}:
        ground.taint(node)
    product = Product(ground.plane, tmp_path, TAINTS)
    ran = product.run()
    assert ran.code == 0, (ran.err, ran.out)
    ground.settle("serve", 4)
    assert {how for how, _ in outcomes(ran).values()} <= {"evicted", "gone"}, ran.out
    assert len(outcomes(ran)) == 4
    assert product.run().report["moves"] == []


def test_a_group_whose_workers_come_after_the_leader_is_ready_gets_no_room_by_parts(
    ground, tmp_path
):
    """Only its leader exists. With its workers there would be room for none of them."""
    ground.nodes([f"n{n}" for n in range(3)], cpu="8")
    stays = objects.deployment("small", 3, cpu="3", labels={"app": "small"})
    ground.plane.apply([stays])
    ground.settle("small", 3)
    ground.plane.apply([lws("wide", 3, cpu="6", startup="LeaderReady")])
    ground.await_unschedulable("wide-0")
    before = ground.where("small")
    ran = run_room(ground, tmp_path)
    assert ran.code == 0, ran.err
    assert ran.report["moves"] == []
    assert any("1 of 3 pods of it exist" in skip["message"] for skip in ran.report["skipped"])
    assert ground.where("small") == before


def test_a_group_leaves_for_a_pod_that_waits_and_the_run_ends_when_both_are_back(ground, tmp_path):
    ground.nodes(["n0", "n1"], cpu="8")
    ground.make(lws("serve", 2, cpu="4"), 2)
    ground.nodes(["n2"], cpu="8")
    spread = set(ground.where("serve").values())
    ground.plane.apply(
        [
            objects.deployment(
                "stays",
                1,
                cpu="4",
                labels={"app": "stays"},
                pod_annotations={"rebalancer/evict": "false"},
            )
        ]
    )
    ground.settle("stays", 1)
    ground.plane.apply([objects.deployment("big", 1, cpu="7", labels={"app": "big"})])
    ground.await_unschedulable("big")
    began = time.monotonic()
    ran = run_room(ground, tmp_path)
    assert ran.code == 0, (ran.err, ran.out)
    assert time.monotonic() - began < 40, f"it waits for replacements that are there ({spread})"
    ground.settle("big", 1)
    ground.settle("serve", 2)


def test_a_group_with_a_rack_to_itself_follows_its_leader_into_another(ground, tmp_path):
    """Its workers' nodeSelector names the rack of the leader; their controller writes it anew with each start."""
    ground.nodes(["n0", "n1"], cpu="4", labels={"rack": "a"})
    ground.make(lws("serve", 2, cpu="3", topology="rack"), 2)
    ground.nodes(["n2", "n3"], cpu="4", labels={"rack": "b"})
    assert set(ground.where("serve").values()) == {"n0", "n1"}
    kubeconfig = grant(ground.plane, (*RUN_RULES, *DRAIN_RULES))
    flags = ("--ignore-daemonsets", f"--kubeconfig={kubeconfig}", "-o", "json")
    # With one node of its rack left the leader may stay in it, where its worker has no room.
    unsure = rebalancer("drain", "n1", *flags)
    assert unsure.code == 3
    assert "not predictable: it may land in each rack of a, b" in unsure.out
    done = rebalancer("drain", "n0", "n1", *flags)
    assert done.code == 0, (done.err, done.out)
    ground.settle("serve", 2)
    assert set(ground.where("serve").values()) == {"n2", "n3"}
    assert {one["landed"] for one in done.report["outcomes"]} == {"n2", "n3"}


def run_room(ground, folder):
    """Run make-room once."""
    policy = folder / "policy.yaml"
    policy.write_text(ROOM)
    kubeconfig = grant(ground.plane, (*RUN_RULES, *MARK_RULES, *SCALE_OUT_RULES))
    return rebalancer(
        "run", "--yes", f"--policy={policy}", f"--kubeconfig={kubeconfig}", "--output=json"
    )
