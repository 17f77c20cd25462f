"""Groups of LeaderWorkerSets move as a whole, each pod starts once, and what a run says of them is true."""

import time

import pytest

from tests.e2e.product import Product
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
strategies: {make-room: {pendingFor: 0s, steer: marks}}
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
