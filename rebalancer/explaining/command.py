"""The commands ``explain pod``, ``explain node`` and ``explain workload``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rebalancer.deciding import Deciding
from rebalancer.environment import Environment
from rebalancer.errors import ExitCode, PolicyError
from rebalancer.explaining.names import find_node, find_pod, find_workload
from rebalancer.explaining.node import WatchedNode, node_data, node_facts
from rebalancer.explaining.node_table import node_table
from rebalancer.explaining.pods import facts_of, standing_data
from rebalancer.explaining.text import pod_words
from rebalancer.explaining.watched import Watched
from rebalancer.explaining.workload import WatchedWorkload, workload_data, workload_facts
from rebalancer.explaining.workload_table import workload_table
from rebalancer.options import RunOptions, reference, scope_of
from rebalancer.output import write
from rebalancer.plain_text import printable_json, printable_lines
from rebalancer.planner.planner import Onlooker
from rebalancer.planning import Planning, scheduler_profile
from rebalancer.policy.load import load_policy
from rebalancer.registry import Registry
from rebalancer.report.explained import explained_as_table
from rebalancer.report.model import RunReport
from rebalancer.report.text import wrapped
from rebalancer.report.version import API_VERSION
from rebalancer.reporting import outcomes_of
from rebalancer.scheduler.explain import explain_pod as explain_landing
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.state import ClusterState
from rebalancer.wire.times import rfc3339

if TYPE_CHECKING:
    from rebalancer.kube.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """The flags that all explanations have."""

    policy_path: str | None = None
    kubeconfig: str | None = None
    context_name: str | None = None
    snapshot_path: str | None = None
    memory: str | None = None
    output: str = "table"


def explain_pod(
    ref: str, node: str | None, options: ExplainOptions, environment: Environment
) -> ExitCode:
    """Explain where a pod's replacement would land (on one ``node`` only, if given), and the plan for the pod.

    Raises:
        PolicyError: there is no such pod or node.
        ClusterReadError: the cluster could not be read.
    """
    explaining = _Explaining(options, environment)
    snapshot, profile = explaining.snapshot, explaining.profile
    pod = find_pod(snapshot, ref)
    if node is not None and node not in snapshot.nodes.index:
        raise PolicyError([f"--node {node}: there is no such node"])
    watched = Watched(snapshot.pods.cls[[pod]], int(snapshot.pods.node[pod]))
    report = explaining.planned(watched)
    (facts,) = facts_of(report, watched, [pod])
    # In a model and a state of its own: those of the plan have moved on.
    landing = explain_landing(
        snapshot, SchedulerModel(snapshot, profile), ClusterState(snapshot), pod
    )
    table = explained_as_table(landing, node)
    if node is None:
        plan = [line for text in pod_words(report, facts) for line in wrapped(text, "  ", "    ")]
        table = "\n".join([table, "In the plan of a dry run", *plan, ""])
    data = landing.as_json() | standing_data(facts)
    return explaining.write("PodExplanation", report, data, table)


def explain_node(name: str, options: ExplainOptions, environment: Environment) -> ExitCode:
    """Explain a node: what is seen in it, and what the plan moves from and to it.

    Raises:
        PolicyError: there is no such node.
        ClusterReadError: the cluster could not be read.
    """
    explaining = _Explaining(options, environment)
    watched = WatchedNode(explaining.snapshot, find_node(explaining.snapshot, name))
    report = explaining.planned(watched)
    facts = node_facts(report, watched)
    return explaining.write("NodeExplanation", report, node_data(facts), node_table(report, facts))


def explain_workload(ref: str, options: ExplainOptions, environment: Environment) -> ExitCode:
    """Explain a workload: how it stands, by which rules, and what the plan does about it.

    Raises:
        PolicyError: there is no such workload, or more than one of that name.
        ClusterReadError: the cluster could not be read.
    """
    explaining = _Explaining(options, environment)
    watched = WatchedWorkload(explaining.snapshot, find_workload(explaining.snapshot, ref))
    report = explaining.planned(watched)
    facts = workload_facts(report, watched)
    table = workload_table(report, facts)
    return explaining.write("WorkloadExplanation", report, workload_data(facts), table)


class _Explaining:
    """Reads and plans exactly as a dry run with the same flags does, but writes an explanation."""

    def __init__(self, options: ExplainOptions, environment: Environment) -> None:
        self._options, self._environment = options, environment
        registry = Registry.installed()
        self._loaded = load_policy(options.policy_path, registry)
        memory = None if options.memory is None else reference("--memory", options.memory)
        if memory is not None and options.snapshot_path is not None:
            raise PolicyError(
                ["--memory is in the cluster; a snapshot file is explained without it"]
            )
        planning = Planning(self._loaded, registry, scope_of(RunOptions(), environment))
        self._deciding = Deciding(planning, environment, self._loaded, memory)
        self._client: Client | None = None
        self._clock_skew, self._source = 0.0, options.snapshot_path or ""
        self.snapshot = self._read()
        self.profile = scheduler_profile(self._loaded.policy, self.snapshot)

    def _read(self) -> Snapshot:
        options, deciding = self._options, self._deciding
        if options.snapshot_path is not None:
            return deciding.load(options.snapshot_path)
        from rebalancer.kube.client import connect  # noqa: PLC0415

        environment = self._environment
        self._client = client = connect(
            kubeconfig=options.kubeconfig,
            context=options.context_name,
            environ=environment.environ,
            stop=environment.until_signal(),
        )
        reading = deciding.read(client, keep=False)
        self._source, self._clock_skew = client.server, reading.readings.clock_skew or 0.0
        return reading.snapshot

    def planned(self, onlooker: Onlooker) -> RunReport:
        """Return the report that a dry run would write."""
        planned = self._deciding.plan(
            self.snapshot, client=self._client, clock_skew=self._clock_skew, onlooker=onlooker
        )
        return RunReport(
            dry_run=True,
            source=self._source,
            snapshot=self.snapshot,
            loaded=self._loaded,
            plan=planned.plan,
            outcomes=outcomes_of(planned, None),
            standstill=planned.standstill,
            timings=dict(self._deciding.timings.seconds),
            warnings=(*self._deciding.notes, *planned.plan.warnings),
        )

    def write(self, kind: str, report: RunReport, data: Mapping[str, Any], table: str) -> ExitCode:
        """Write the explanation in the form that was asked for."""
        text = printable_lines(table)
        if self._options.output == "json":
            text = json.dumps({**_head(kind, report), **data}, indent=2, ensure_ascii=False)
            text = printable_json(text) + "\n"
        write(self._environment.out, [text])
        return ExitCode.DONE


def _head(kind: str, report: RunReport) -> dict[str, Any]:
    snapshot, loaded = report.snapshot, report.loaded
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "source": report.source,
        "capturedAt": rfc3339(snapshot.captured_at),
        "serverVersion": f"{snapshot.version[0]}.{snapshot.version[1]}",
        "mode": loaded.policy.mode.value,
        "policySource": loaded.source,
        "policyHash": loaded.policy_hash,
        "standstill": list(report.standstill),
        "warnings": list(report.warnings),
    }
