"""Groups of machines that are nodes of an embedded cluster, and runs that act on them, in this process."""

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rebalancer.base.environment import SystemClock
from rebalancer.base.errors import ProviderError, ProviderRefusalError
from rebalancer.machines.capacity import of_run as commands
from rebalancer.providers.contract import NodeGroup, NodeTemplate
from rebalancer.testing.objects import EmbeddedCluster, deployment, node
from rebalancer.wire.marks import SCALE_IN
from tests.support.worlds import FAST
from tests.unit.commands.embedded import ServedRunner

TICK = 120.0
"""Seconds between two runs of ``serve``."""
POLICY = """
apiVersion: rebalancer/v1
kind: Policy
provider: {{aws: {{names: [pool]}}}}
protect: {{minPodAge: 0s, singleReplicas: false}}
{more}
strategies: {{{strategies}}}
"""


class OurClock(SystemClock):
    """The time of day is the cluster's."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    def unix(self) -> float:
        return self._cluster.clock.now()


@dataclass
class Pool:
    """A provider with one group of nodes, which does what it is asked, as AWS does: beyond the sizes, too."""

    cluster: EmbeddedCluster
    group: NodeGroup
    template_node: dict[str, Any]
    ended: list[str] = field(default_factory=list)
    """The machines that were ended, in order."""
    refuses: str | None = None
    """What each call to act is answered with."""
    lost: str | None = None
    """What becomes of requests to end a machine whose reply is lost: ``done`` or ``ignored``."""
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def groups(self, nodes):
        return [self.group]

    def group_named(self, name, nodes):
        return next((one for one in self.groups(nodes) if one.name == name), None)

    def template(self, group):
        return NodeTemplate({}, (), {**self.template_node, "pods": "110"})

    def launch_failure(self, group, since):
        return None

    def is_launching(self, group):
        return False

    def set_size(self, group, desired):
        self._refuse()
        self.group = replace(self.group, desired=desired)

    def terminate(self, group, instance):
        self._refuse()
        if self.lost == "ignored":
            raise ProviderError("read timeout")
        self.ended.append(instance)
        left = tuple(one for one in self.group.instances if one != instance)
        self.group = replace(self.group, instances=left, desired=(self.group.desired or 0) - 1)
        if self.lost == "done":
            raise ProviderError("read timeout")

    def _refuse(self):
        if self.refuses is not None:
            raise ProviderRefusalError(self.refuses)

    # -- the world ---------------------------------------------------------------------------------

    def catch_up(self):
        """Start machines, and have the cloud controller remove the nodes of those that have ended."""
        while len(self.group.instances) < (self.group.desired or 0):
            name = f"n{next(self._numbers)}"
            self.cluster.apply(node(name, **self.template_node))
            self.group = replace(self.group, instances=(*self.group.instances, name))
        for one in self.cluster.objects("Node"):
            if one["metadata"]["name"] not in self.group.instances:
                self.cluster.remove_node(one["metadata"]["name"])


@dataclass
class Ground:
    """A cluster on a group of machines, and runs every two minutes."""

    cluster: EmbeddedCluster
    pool: Pool
    runner: ServedRunner
    policy: Any

    def run(self, **options: Any) -> tuple[int, dict[str, Any]]:
        """Run once."""
        return self.runner(**options)

    def tick(self, seconds: float = TICK, **options: Any) -> list[tuple[str, str, str]]:
        """Let time pass, then run; return code, node and status of what was done to machines."""
        self.cluster.advance(seconds)
        self.pool.catch_up()
        self.cluster.settle()
        code, report = self.run(**options)
        self.report = report
        acts = [(act["code"], act["node"], act["status"]) for act in report["machines"]]
        assert code == (4 if any(status == "failed" for *_, status in acts) else 0), report
        self.cluster.settle()
        return acts

    def state(self, name: str) -> dict[str, Any] | None:
        """What scale-in has written on a node."""
        annotations = self.cluster.get("Node", name)["metadata"].get("annotations") or {}
        return json.loads(annotations[SCALE_IN]) if SCALE_IN in annotations else None

    def stated(self, name: str) -> dict[str, Any]:
        """The same of a node on which something stands."""
        state = self.state(name)
        assert state is not None
        return state

    def closed(self, name: str) -> bool:
        """Whether a node is cordoned and tainted by us."""
        spec = self.cluster.get("Node", name)["spec"]
        keys = [taint["key"] for taint in spec.get("taints", ())]
        return bool(spec.get("unschedulable")) and SCALE_IN in keys

    def is_open(self, name: str) -> bool:
        """Whether nothing of ours is on a node that closes it."""
        spec = self.cluster.get("Node", name)["spec"]
        return not spec.get("unschedulable") and SCALE_IN not in str(spec.get("taints"))

    @property
    def nodes(self) -> list[str]:
        return [one["metadata"]["name"] for one in self.cluster.objects("Node")]

    def ready(self, name: str) -> int:
        """How many replicas of a Deployment are ready."""
        return int(self.cluster.get("Deployment", name)["status"].get("readyReplicas", 0))


@contextmanager
def grounded(
    folder: Path,
    monkeypatch,
    size: int,
    *,
    low: int = 0,
    high: int = 10,
    options: str = "",
    strategies: str = "",
    more: str = "",
    **template: str,
) -> Iterator[Ground]:
    """Yield a cluster on a group of so many machines, whose nodes joined an hour ago.

    ``options``: of scale-in; ``strategies``: those in its place.
    """
    with EmbeddedCluster(timings=FAST) as cluster:
        group = NodeGroup(name="pool", instances=(), minimum=low, maximum=high, desired=size)
        pool = Pool(cluster, group, {"cpu": "2", "memory": "4Gi", **template})
        pool.catch_up()
        cluster.settle()
        cluster.advance(3600.0)
        monkeypatch.setattr(commands, "open_provider", lambda *_: ("pool", pool))
        strategies = strategies or f"scale-in: {{{options}}}"
        policy = POLICY.format(strategies=strategies, more=more)
        runner = ServedRunner(cluster, folder, policy, OurClock(cluster))
        yield Ground(cluster, pool, runner, policy)


def fill(ground, *names):
    """Fill these nodes, so that they stay."""
    for name in names:
        ground.cluster.apply(
            deployment(f"pad-{name}", 1, cpu="1500m", nodeSelector={"kubernetes.io/hostname": name})
        )
    ground.cluster.settle()


def tick_until(ground, code, node, limit=20):
    """Tick until this is done to a node; return how many ticks that took."""
    for number in range(1, limit + 1):
        if any(act[:2] == (code, node) for act in ground.tick()):
            return number
    raise AssertionError(f"{code} did not come for {node}: {ground.report['machines']}")
