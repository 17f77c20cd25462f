"""Machines without a provider: objects and groups in, what is said of them out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from rebalancer.machines.capacity.groups import Groups
from rebalancer.machines.capacity.of_run import assess
from rebalancer.machines.capacity.removal import NodeRemoval, removals
from rebalancer.machines.capacity.report import CapacityReport
from rebalancer.machines.capacity.scale_out_plan import NO_INPUTS, ScaleOutPlan, plan_scale_out
from rebalancer.planner.rules import NO_HISTORY, RunRules
from rebalancer.policy.load import load_policy
from rebalancer.providers.contract import NodeGroup, NodeTemplate
from rebalancer.registry import Registry
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import snapshot_of


@dataclass(frozen=True)
class Judged:
    """What is said of the nodes."""

    snapshot: Snapshot
    standings: list[NodeRemoval]
    scale_out: ScaleOutPlan | None = None

    def __getitem__(self, node):
        return self.standings[self.snapshot.nodes.index[node]]

    @property
    def codes(self):
        return {self.snapshot.nodes.names[one.node]: one.code.value for one in self.standings}


@dataclass(frozen=True)
class Planned:
    """What is said of the pending pods."""

    snapshot: Snapshot
    scale_out: ScaleOutPlan

    def __getitem__(self, pod):
        (one,) = [of for of in self.scale_out.pods if self.snapshot.pods.name[of.pod] == pod]
        return one

    @property
    def by(self):
        return {
            step.group: self.scale_out.increase_of(step.group) for step in self.scale_out.increases
        }

    @property
    def codes(self):
        return {self.snapshot.pods.name[of.pod]: of.code.value for of in self.scale_out.pods}


@dataclass(frozen=True)
class Given:
    """A provider that knows these groups."""

    known: Sequence[NodeGroup]
    templates: Mapping[str, NodeTemplate] = field(default_factory=dict)

    def groups(self, nodes):
        return self.known

    def group_named(self, name, nodes):
        return next((one for one in self.known if one.name == name), None)

    def template(self, group):
        return self.templates.get(group.name)

    def launch_failure(self, group, since):
        return None

    def is_launching(self, group):
        return False

    def set_size(self, group, desired):
        raise AssertionError("a look acts on nothing")

    def terminate(self, group, instance):
        raise AssertionError("a look acts on nothing")


def _read(objects):
    return objects if isinstance(objects, Snapshot) else snapshot_of(objects)


class Machines:
    """Asks about machines under a policy."""

    def __init__(self, folder):
        self._folder, self._registry = folder, Registry.installed()

    def rules(self, policy=""):
        path = self._folder / "policy.yaml"
        strategies = "" if "strategies:" in policy else "strategies: {}\n"
        path.write_text(f"apiVersion: rebalancer/v1\nkind: Policy\n{strategies}{policy}")
        return RunRules(load_policy(path, self._registry), self._registry, Scope())

    def judge(self, objects, groups=(), policy="", *, has_provider=True) -> Judged:
        rules, snapshot = self.rules(policy), _read(objects)
        of = Groups(snapshot, groups)
        capacity = rules.loaded.policy.capacity
        problem, settings = rules.problem(snapshot), rules.settings()
        needed = self.scale_out(objects, groups, policy).scale_out.needed
        return Judged(
            snapshot,
            removals(problem, settings, of, capacity, has_provider=has_provider, needed=needed),
        )

    def look(self, objects, groups=(), policy="", unneeded=()) -> Judged:
        """Ask as a run does, of a provider with these groups; ``unneeded``: uids that could go before."""
        seen = self.assess(objects, groups, policy, unneeded)
        return Judged(seen.snapshot, list(seen.nodes), seen.scale_out)

    def assess(self, objects, groups=(), policy="", unneeded=()) -> CapacityReport:
        """Return what a run sees, with a provider that has these groups."""
        rules, snapshot = self.rules(policy), snapshot_of(objects)
        return assess(
            rules,
            NO_HISTORY,
            snapshot,
            "pools",
            Given(groups),
            lambda *_: NO_INPUTS,
            unneeded=unneeded,
        )

    def report(self, objects, groups=(), inputs=NO_INPUTS, policy="") -> CapacityReport:
        """Return all that is said of a cluster."""
        planned = self.scale_out(objects, groups, policy, inputs=inputs)
        judged = self.judge(objects, groups, policy)
        return CapacityReport(
            snapshot=planned.snapshot,
            provider="test",
            groups=Groups(planned.snapshot, groups),
            autoscalers=(),
            nodes=tuple(judged.standings),
            scale_out=planned.scale_out,
        )

    def scale_out(
        self, objects, groups=(), policy="", templates=None, inputs=NO_INPUTS, triggering=None
    ) -> Planned:
        """``triggering``: the names of the pods for which groups may grow; None: all."""
        rules, snapshot = self.rules(policy), _read(objects)
        if triggering is not None:
            inputs = replace(inputs, triggering=np.isin(list(snapshot.pods.name), triggering))
        return Planned(
            snapshot,
            plan_scale_out(
                snapshot,
                rules.scheduler_profile(snapshot),
                Groups(snapshot, groups),
                lambda group: (templates or {}).get(group.name),
                rules.loaded.policy.capacity,
                inputs,
                rules.loaded.policy.prices,
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
