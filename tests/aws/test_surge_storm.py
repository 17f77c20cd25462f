"""``replace --surge`` while answers fail or are late, processes die, nodes are registered again and people act, by seed.

What may be ended is asked of moto and the cluster, not of the product. SURGE_SEEDS=100-139 plays other seeds.
"""

import os
import random
from contextlib import suppress

import pytest

from rebalancer.base.errors import ProviderError
from rebalancer.machines.aws.groups import ACTS, AutoScalingGroups
from rebalancer.machines.aws.outdated import TAG
from rebalancer.machines.drain import replacing
from rebalancer.machines.surge import surging
from tests.aws.test_steps import pytestmark as pytestmark  # noqa: PLC0414  # moto's open files
from tests.aws.test_surge import SIZE, WEB, WRITES, dying, grounded, register_again, registered_anew
from tests.aws.test_surge import short_pauses as short_pauses  # noqa: PLC0414  # a fixture
from tests.support.killing import Killed, Killing
from tests.unit.commands.draining import is_cordoned

_FIRST, _, _LAST = os.environ.get("SURGE_SEEDS", "0-1").partition("-")
SEEDS = range(int(_FIRST), int(_LAST or _FIRST) + 1)
KEPT = 2
"""Machines that are current when it begins."""
READS = ("group_named", "find_launches", "find_outdated")
ACTIONS = ("registers again", "goes away", "increases", "uncordons")
_MOST_RUNS = 25
_SHARE = 0.04
"""Of calls to the provider that go wrong in one way."""


class Storm:
    """Faults and acts drawn from a seed, and what must hold at each end of a machine."""

    def __init__(self, seed, ground, monkeypatch):
        self.draw = random.Random(seed)  # a storm, no secret
        self.ground, self.cloud, self.cluster = ground, ground.cloud, ground.cluster
        self.quiet, self.calls = False, 0
        self.acts = {
            self.draw.randint(5, 80): self.draw.choice(ACTIONS)
            for _ in range(self.draw.randint(1, 3))
        }
        self.increased, self.done, self.wrong = 0, [], []
        self.away = {}
        for name in (*READS, *WRITES):
            self._disturb(monkeypatch, name)
        self.kept = self._keep()
        self.size = SIZE + KEPT
        ground.cloud.after_call = self.called

    def _keep(self):
        """Let machines of the new version be there from the start."""
        client = self.cloud.client("autoscaling")
        client.set_desired_capacity(AutoScalingGroupName="pool", DesiredCapacity=SIZE + KEPT)
        self.ground.join()
        return set(self.ground.fleet.machines("pool")) - set(self.ground.old)

    def _disturb(self, monkeypatch, name):
        method, last = getattr(AutoScalingGroups, name), dict[str, object]()

        def disturbed(groups, *of):
            fate = 1.0 if self.quiet else self.draw.random()
            self._act()
            if fate < _SHARE:
                raise ProviderError(f"{name} was not answered")
            if name == "group_named" and fate < 2 * _SHARE:
                return last.get(of[0]) if self.draw.random() < 0.5 else None
            answer = method(groups, *of)
            if name == "group_named":
                last[of[0]] = answer
            elif name in WRITES and fate > 1 - _SHARE and not self.quiet:
                raise ProviderError(f"the answer to {name} was lost")
            return answer

        monkeypatch.setattr(AutoScalingGroups, name, disturbed)

    def _act(self):
        self.calls += 1
        for name, node in list(self.away.items()):
            del self.away[name]
            if name in self.ground.fleet.machines("pool"):
                self.cluster.apply(node)
        if (act := self.acts.pop(self.calls, None)) is None:
            return
        self.done.append(act)
        there = [one for one in self.ground.fleet.machines("pool") if self._node(one) is not None]
        name = self.draw.choice(there)
        match act:
            case "registers again":
                register_again(self.cluster, name)
            case "goes away":
                self.away[name] = registered_anew(self.cluster.get("Node", name))
                self.cluster.delete("Node", name)
            case "increases":
                size = self.ground.fleet.sizes["pool"]
                if size < 10:
                    self.increased += 1
                    self.cloud.client("autoscaling").set_desired_capacity(
                        AutoScalingGroupName="pool", DesiredCapacity=size + 1
                    )
                    self.ground.join()
            case "uncordons":
                self.cluster.cordon(
                    [one for one in there if is_cordoned(self.cluster, one)], on=False
                )

    def _node(self, name):
        return next(
            (n for n in self.cluster.objects("Node") if n["metadata"]["name"] == name), None
        )

    def called(self, call, form):
        if call == ACTS[1]:
            self.ended(form["InstanceId"])
        if call in ACTS:
            if (size := self.ground.fleet.sizes["pool"]) < self.size:
                self.wrong.append(f"the group has {size} machines, and had {self.size}")
            self.ground.join()

    def ended(self, instance):
        if instance in self.kept:
            self.wrong.append(f"{instance} was current when it began, and was ended")
        if instance in self.ground.ended:
            self.wrong.append(f"{instance} was ended twice")
        self.ground.ended.append(instance)
        pods = [
            pod["metadata"]["name"]
            for pod in self.cluster.objects("Pod")
            if pod["spec"].get("nodeName") == instance
            and not pod["metadata"].get("deletionTimestamp")
            and pod["status"].get("phase") == "Running"
        ]
        if pods and self._node(instance) is not None:
            self.wrong.append(f"{instance} was ended with {pods}")

    def assert_calm(self):
        """All old machines are replaced, what was current is there, and nothing is left behind."""
        ground = self.ground
        ground.join()
        self.cluster.settle()
        group = ground.fleet.group("pool")
        assert set(ground.versions.values()) == {str(ground.new)}, self.done
        assert self.kept <= set(ground.versions)
        assert self.size <= group["DesiredCapacity"] <= self.size + self.increased, self.done
        assert group["SuspendedProcesses"] == []
        assert TAG not in {tag["Key"] for tag in group["Tags"]}
        for node in self.cluster.objects("Node"):
            assert not is_cordoned(self.cluster, node["metadata"]["name"]), self.done
        assert self.cluster.get("Deployment", "web")["status"]["readyReplicas"] == WEB


@dying
@pytest.mark.parametrize("seed", SEEDS)
def test_no_machine_is_ended_that_should_live(cloud, tmp_path, monkeypatch, seed):
    monkeypatch.setattr(surging, "STALE", 0.0)
    monkeypatch.setattr(surging, "_SETTLED", 0.3)
    monkeypatch.setattr(surging, "_POLL_INTERVAL", 0.1)
    monkeypatch.setattr(replacing, "SECONDS", 0.0)
    with grounded(cloud, tmp_path) as ground:
        storm = Storm(seed, ground, monkeypatch)
        killing = Killing(monkeypatch, after=storm.draw.random() < 0.5)
        codes: list[int | None] = []
        # A node that is away when old ones are chosen is left to the next call.
        while codes[-2:] != [0, 0]:
            storm.quiet = len(codes) > _MOST_RUNS // 2
            killing.begin(10**6 if storm.quiet else storm.draw.randint(4, 60))
            done = None
            with suppress(Killed):
                done = ground.replace(
                    by=f"p{len(codes)}",
                    surge=storm.draw.randint(1, 3),
                    max_unavailable=storm.draw.randint(1, 2),
                    ready_within=5.0,
                )
            killing.begin(10**6)
            codes.append(None if done is None else done.code)
            assert storm.wrong == [], storm.done
            assert len(codes) < _MOST_RUNS, (codes, storm.done, done and done.err)
        storm.assert_calm()
