"""What a simulation is measured by, on clusters that a person can check."""

import pytest

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.fleet.simulation import measure, unevenness
from rebalancer.plan.plan import Cost
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from rebalancer.testing.snapshots import disruption_budget, node, snapshot_of, spread, workload
from rebalancer.whatif.cycles import Conditions, play
from tests.unit.fleet.worlds import SPREAD

REGISTRY = Registry.installed()


def test_unevenness_is_the_standard_deviation_of_requested_shares():
    nodes = [node("n-1", cpu="4", memory="4Gi"), node("n-2", cpu="4", memory="4Gi")]
    nodes.append(node("cordoned", unschedulable=True))
    pods = workload("web", ["n-1"], cpu="2", memory="0")
    # cpu 0.5 and 0: deviation 0.25; memory even: 0.
    assert unevenness(snapshot_of([*nodes, *pods])) == pytest.approx(0.125)
    assert unevenness(snapshot_of(nodes[2:])) == 0


def test_evictions_shares_and_runs_of_a_skewed_workload():
    nodes = [node(f"n-{zone}", zone) for zone in "abc"]
    web = workload("web", ["n-a", "n-b", "n-a", "n-b"], spec=spread("web"))
    budget = disruption_budget("web", "web", allowed=2, healthy=4)
    played = play(
        snapshot_of([*nodes, *web, budget]),
        load_text(SPREAD.encode(), "p", REGISTRY),
        REGISTRY,
        Conditions(),
        Timings(SystemClock()),
        seed=1,
    )
    measures = measure(played, Cost(0.0, 1.25, 3.0))
    assert measures["evictions"] == 1
    assert measures["movedTwice"] == 0
    assert measures["workloadShare"] == 0.25
    assert measures["budgetShare"] == 0.5
    assert (measures["hardLeft"], measures["softLeft"]) == (0, 1.25)
    assert measures["runs"] == 2
    # The third node was empty, and is not any more.
    assert measures["nodesEmpty"] == 0
    assert measures["waiting"] == 0
