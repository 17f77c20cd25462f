"""Machines without a provider: objects and groups in, what is said of them out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from rebalancer.capacity.assessment import assess
from rebalancer.capacity.groups import Groups
from rebalancer.capacity.growth import NO_OUTLOOK, Growth, growth_of
from rebalancer.capacity.removal import NodeRemoval, removals
from rebalancer.capacity.report import CapacityReport
from rebalancer.planner.planning import Planning
from rebalancer.policy.load import load_policy
from rebalancer.providers.contract import NodeGroup
from rebalancer.registry import Registry
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import snapshot_of


@dataclass(frozen=True)
class Judged:
    """What is said of the nodes."""

    snapshot: Snapshot
    standings: list[NodeRemoval]
    growth: Growth | None = None

    def __getitem__(self, node):
        return self.standings[self.snapshot.nodes.index[node]]

    @property
    def codes(self):
        return {self.snapshot.nodes.names[one.node]: one.code.value for one in self.standings}


@dataclass(frozen=True)
class Grown:
    """What is said of the pods that wait."""

    snapshot: Snapshot
    growth: Growth

    def __getitem__(self, pod):
        (one,) = [of for of in self.growth.pods if self.snapshot.pods.name[of.pod] == pod]
        return one

    @property
    def by(self):
        return {step.group: self.growth.by(step.group) for step in self.growth.increases}

    @property
    def codes(self):
        return {self.snapshot.pods.name[of.pod]: of.code.value for of in self.growth.pods}


@dataclass(frozen=True)
class Given:
    """A provider that knows these groups."""

    known: Sequence[NodeGroup]

    def groups(self, nodes):
        return self.known

    def template(self, group):
        return None

    def grow(self, group, desired):
        raise AssertionError("a look acts on nothing")

    def terminate(self, group, instance):
        raise AssertionError("a look acts on nothing")


class Machines:
    """Asks about machines under a policy."""

    def __init__(self, folder):
        self._folder, self._registry = folder, Registry.installed()

    def planning(self, policy=""):
        path = self._folder / "policy.yaml"
        strategies = "" if "strategies:" in policy else "strategies: {}\n"
        path.write_text(f"apiVersion: rebalancer/v1\nkind: Policy\n{strategies}{policy}")
        return Planning(load_policy(path, self._registry), self._registry, Scope())

    def judge(self, objects, groups=(), policy="", *, asked=True) -> Judged:
        planning, snapshot = self.planning(policy), snapshot_of(objects)
        of = Groups(snapshot, groups)
        under = planning.loaded.policy.capacity.under
        problem, settings = planning.problem(snapshot), planning.settings()
        needed = self.grow(objects, groups, policy).growth.needed
        return Judged(snapshot, removals(problem, settings, of, under, asked=asked, needed=needed))

    def look(self, objects, groups=(), policy="") -> Judged:
        """Ask as a run does, of a provider with these groups."""
        planning, snapshot = self.planning(policy), snapshot_of(objects)
        settings = planning.loaded.policy.capacity
        seen = assess(planning, settings, snapshot, "pools", Given(groups), lambda *_: NO_OUTLOOK)
        return Judged(snapshot, list(seen.nodes), seen.growth)

    def report(self, objects, groups=(), outlook=NO_OUTLOOK, policy="") -> CapacityReport:
        """Return all that is said of a cluster."""
        grown = self.grow(objects, groups, policy, outlook=outlook)
        judged = self.judge(objects, groups, policy)
        return CapacityReport(
            snapshot=grown.snapshot,
            provider="test",
            groups=Groups(grown.snapshot, groups),
            autoscalers=(),
            nodes=tuple(judged.standings),
            growth=grown.growth,
        )

    def grow(
        self, objects, groups=(), policy="", templates=None, outlook=NO_OUTLOOK, asking=None
    ) -> Grown:
        """``asking``: the names of the pods for which groups may grow; None: all."""
        planning, snapshot = self.planning(policy), snapshot_of(objects)
        if asking is not None:
            outlook = replace(outlook, asking=np.isin(list(snapshot.pods.name), asking))
        return Grown(
            snapshot,
            growth_of(
                snapshot,
                planning.scheduler_profile(snapshot),
                Groups(snapshot, groups),
                lambda group: (templates or {}).get(group.name),
                planning.loaded.policy.capacity,
                outlook,
            ),
        )


@pytest.fixture
def machines(tmp_path):
    return Machines(tmp_path)


def group(name, *nodes, low=0, high=10, desired=None, zones=()):
    """Return a group with these nodes."""
    wanted = len(nodes) if desired is None else desired
    return NodeGroup(
        name=name, instances=nodes, minimum=low, maximum=high, desired=wanted, zones=zones
    )
