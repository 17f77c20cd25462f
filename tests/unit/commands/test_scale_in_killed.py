"""Runs that are killed at each of their writes, to nodes and to the provider, and others that go on."""

import random

import pytest

from rebalancer.testing.objects import deployment, pdb, require_apart
from tests.support.killing import Killed, Killing
from tests.unit.commands.scaling import TICK, grounded

# The threads of a process that was killed end, too.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
ENOUGH = 120
"""Runs; each is killed at one of its first writes."""


def _ready(cluster, name):
    return int(cluster.get("Deployment", name)["status"].get("readyReplicas", 0))


@pytest.mark.parametrize("after", [False, True], ids=["before-it", "after-it"])
def test_killed_at_each_write_the_next_run_goes_on(tmp_path, monkeypatch, after):
    """Each run does one or two writes: what it leaves is what the next one reads."""
    with grounded(tmp_path, monkeypatch, 4, low=2) as ground:
        cluster, labels = ground.cluster, {"app": "pad"}
        cluster.apply(
            deployment("pad", 2, cpu="1100m", affinity=require_apart(labels), labels=labels)
        )
        cluster.apply(pdb("web", {"app": "web"}, minAvailable=2))
        cluster.settle()
        free = [
            node
            for node in ground.nodes
            if not any(
                one["spec"].get("nodeName") == node for one in cluster.objects("Pod", "default")
            )
        ]
        full = [node for node in ground.nodes if node not in free]
        cluster.cordon([*full, free[1]])
        cluster.apply(deployment("web", 3, cpu="200m", memory="256Mi"))
        cluster.settle()
        cluster.cordon([*full, free[1]], on=False)
        killing = Killing(monkeypatch, after=after)
        killing.watch(ground.pool, "terminate")
        kills, writes = 0, random.Random(0)
        for _ in range(ENOUGH):
            cluster.advance(TICK)
            ground.pool.catch_up()
            cluster.settle()
            killing.begin(writes.randint(1, 2))
            try:
                ground.run()
            except Killed:
                kills += 1
            killing.begin(10**6)
            cluster.settle()
            assert (ground.pool.group.desired or 0) >= 2
            assert len(ground.pool.group.instances) >= 2
            assert _ready(cluster, "web") >= 2
            assert all(one in free for one in ground.pool.ended)
            if len(ground.nodes) == 2:
                break
        assert sorted(ground.pool.ended) == sorted(free)
        assert kills >= 6
        assert all(ground.is_open(name) and ground.state(name) is None for name in ground.nodes)
        assert (_ready(cluster, "web"), _ready(cluster, "pad")) == (3, 2)
