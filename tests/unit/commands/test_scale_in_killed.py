"""Runs that are killed at each of their writes, to nodes and to the provider, and others that go on."""

import random

import pytest

from rebalancer.kube.client import Client
from rebalancer.testing.objects import deployment, pdb, require_apart
from tests.unit.commands.scaling import TICK, grounded

# The threads of a process that was killed end, too.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
ENOUGH = 120
"""Runs; each is killed at one of its first writes."""


class Killed(BaseException):
    """SIGKILL: nothing of the process reaches anything any more."""


class Killing:
    """Has everything fail at the write after so many: before it is done, or right after."""

    def __init__(self, monkeypatch, pool, *, after):
        self.left, self._after, self.dead = 10**6, after, False
        call, one = Client._call, self._one

        def of_client(client, method, *positional, **named):
            writes = method != "GET" and "selfsubject" not in str(positional)
            return one(lambda: call(client, method, *positional, **named), writes=writes)

        monkeypatch.setattr(Client, "_call", of_client)
        terminate = pool.terminate
        monkeypatch.setattr(pool, "terminate", lambda *of: one(lambda: terminate(*of), writes=True))

    def begin(self, writes):
        self.left, self.dead = writes, False

    def _one(self, act, *, writes):
        if self.dead or (writes and self.left <= 0 and not self._after):
            self.dead = True
            raise Killed
        answer = act()
        self.left -= writes
        if self._after and self.left <= 0:
            self.dead = True
            raise Killed
        return answer


def _ready(cluster, name):
    return int(cluster.get("Deployment", name)["status"].get("readyReplicas", 0))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("after", [False, True], ids=["before-it", "after-it"])
def test_killed_at_each_write_the_next_run_goes_on(tmp_path, monkeypatch, after, seed):
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
        cluster.apply(deployment("web", 3, cpu="200m"))
        cluster.settle()
        cluster.cordon([*full, free[1]], on=False)
        killing = Killing(monkeypatch, ground.pool, after=after)
        kills, writes = 0, random.Random(seed)
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
        assert kills >= 8
        assert all(ground.is_open(name) and ground.state(name) is None for name in ground.nodes)
        assert (_ready(cluster, "web"), _ready(cluster, "pad")) == (3, 2)
