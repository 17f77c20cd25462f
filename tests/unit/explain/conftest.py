"""Explanations without a process: objects in, facts, data or text out."""

from dataclasses import dataclass
from typing import Any

import pytest

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.base.plain_text import WIDE
from rebalancer.explain.find import find_node, find_workload
from rebalancer.explain.node import NodeRecorder, format_node, node_data, node_facts
from rebalancer.explain.workload import (
    WorkloadRecorder,
    format_workload,
    workload_data,
    workload_facts,
)
from rebalancer.planner.planning import make_plan
from rebalancer.planner.rules import History, RunRules
from rebalancer.policy.load import load_policy
from rebalancer.registry import Registry
from rebalancer.report.document import ReportDocument
from rebalancer.report.model import RunReport
from rebalancer.run.ending import outcomes_of
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import snapshot_of


def _shown(blocks):
    """As a terminal shows it that is wide enough."""
    return ReportDocument(blocks, {}).show("table", 2 * WIDE)


@dataclass(frozen=True)
class Explained:
    """One explanation in both forms, with the report of the dry run that it is about."""

    data: dict[str, Any]
    table: str
    report: RunReport

    def pod(self, name):
        (entry,) = [pod for pod in self.data["pods"] if pod["pod"] == name]
        return entry


class Explaining:
    """Explains on objects or their snapshot, under a policy."""

    def __init__(self, folder):
        self._folder = folder
        self._registry = Registry.installed()

    def plan(self, objects, observer_of=None, policy=None, cooling=None):
        """Return the report of a dry run, and who looked on."""
        path = None
        if policy is not None:
            path = self._folder / "policy.yaml"
            path.write_text(f"apiVersion: rebalancer/v1\nkind: Policy\n{policy}")
        loaded = load_policy(path, self._registry)
        snapshot = objects if isinstance(objects, Snapshot) else snapshot_of(objects)
        rules = RunRules(loaded, self._registry, Scope())
        observe = None if observer_of is None else lambda: observer_of(snapshot)
        planned = make_plan(
            rules, snapshot, Timings(SystemClock()), history=History(cooling or {}), observe=observe
        )
        report = RunReport(
            dry_run=True,
            source="cluster.json",
            snapshot=snapshot,
            loaded=loaded,
            plan=planned.plan,
            outcomes=outcomes_of(planned, None),
            standstill=planned.standstill,
        )
        return report, planned.observer

    def node(self, name, objects, **options):
        report, watched = self.plan(
            objects, lambda snapshot: NodeRecorder(snapshot, find_node(snapshot, name)), **options
        )
        facts = node_facts(report, watched)
        return Explained(node_data(facts), _shown(format_node(report, facts)), report)

    def workload(self, ref, objects, **options):
        report, watched = self.plan(
            objects,
            lambda snapshot: WorkloadRecorder(snapshot, find_workload(snapshot, ref)),
            **options,
        )
        facts = workload_facts(report, watched)
        return Explained(workload_data(facts), _shown(format_workload(report, facts)), report)


@pytest.fixture(scope="session")
def explaining(tmp_path_factory):
    return Explaining(tmp_path_factory.mktemp("explaining"))
