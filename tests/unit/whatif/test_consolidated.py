"""Consolidation from run to run, in the simulation: whole nodes, then silence."""

import numpy as np
import pytest

from rebalancer.snapshot.marks import to_be_empty
from rebalancer.testing.snapshots import HOSTNAME, ZONE, apart, node, snapshot_of, spread, workload
from tests.unit.whatif.play import evictions, play

POLICY = """
apiVersion: rebalancer/v1
kind: Policy
steer: marks
budgets: {perRun: %s, perHour: 100%%}
strategies: {consolidation: {}}
"""


@pytest.fixture
def policy(tmp_path):
    def written(per_run="100%"):
        path = tmp_path / "policy.yaml"
        path.write_text(POLICY % per_run)
        return path

    return written


def pods_on(world):
    return np.bincount(world.node, minlength=len(world.nodes))


def test_nodes_are_emptied_over_several_runs_one_after_the_other_and_stay_empty(policy):
    nodes = [node(f"n{i}") for i in range(4)]
    objects = [*nodes, *workload("web", [f"n{i}" for i in range(4)] * 4, cpu="200m")]
    world, course = play(objects, path=policy("3"))
    assert sum(evictions(course)) == 12
    assert max(evictions(course)) == 3
    assert sorted(pods_on(world).tolist()) == [0, 0, 0, 16]
    assert (to_be_empty(world.snapshot) == (pods_on(world) == 0)).all()
    assert course.silent is not None
    assert course.later == 0
    assert course.cycles[-1].moved_twice == 0


def random_cluster(seed):
    """4 to 7 nodes with pods at random, some of which may not be moved or have hard rules."""
    random = np.random.default_rng(seed)
    count = int(random.integers(4, 8))
    nodes = [node(f"n{i}", "ab"[i % 2], cpu=str(random.choice([2, 4]))) for i in range(count)]
    specs = [
        lambda _: {},
        lambda name: apart(name, HOSTNAME),
        lambda name: spread(name, ZONE, hard=True, max_skew=2),
        lambda _: {"volumes": [{"name": "data", "emptyDir": {}}]},
    ]
    objects = list(nodes)
    for index in range(int(random.integers(2, 6))):
        name = f"w{index}"
        on = [f"n{n}" for n in random.permutation(count)[: int(random.integers(2, 4))]]
        cpu = str(random.choice(["100m", "400m", "700m"]))
        kind = int(random.choice(4, p=[0.55, 0.2, 0.15, 0.1]))
        objects += workload(name, on, cpu=cpu, spec=specs[kind](name))
    return objects


@pytest.mark.parametrize("seed", range(8))
def test_a_node_is_emptied_or_left_alone_and_then_nothing_moves(policy, seed):
    objects = random_cluster(seed)
    world, course = play(objects, path=policy(), random=np.random.default_rng(seed))
    before = np.bincount(snapshot_of(objects).pods.node, minlength=len(world.nodes))
    after = pods_on(world)
    assert ((after == 0) | (after >= before)).all()
    assert (after > 0).sum() >= course.cycles[-1].after["consolidation"].nodes.needed
    assert course.pods == after.sum()
    assert course.silent is not None
    assert course.later == 0
