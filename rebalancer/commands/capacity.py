"""``capacity``: show which nodes can be removed, and which machine groups must be scaled up. It changes nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click

from rebalancer import API_VERSION
from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ExitCode
from rebalancer.commands.flags import ACCESS, POLICY, examples, output_flag, takes
from rebalancer.commands.panels import PanelCommand
from rebalancer.machines.capacity.of_run import judge_machines
from rebalancer.machines.capacity.report import capacity_data, format_capacity
from rebalancer.planner.planning import make_plan
from rebalancer.planner.rules import room_after
from rebalancer.registry import Registry
from rebalancer.report.document import FORMS, ReportDocument
from rebalancer.run.context import run_context
from rebalancer.run.one_run import recall
from rebalancer.run.options import RunOptions
from rebalancer.run.source import Reading, open_source
from rebalancer.snapshot.zones import closed_zones


@click.command(
    "capacity",
    cls=PanelCommand,
    epilog=examples(
        "rebalancer capacity",
        "rebalancer capacity cluster.zip -o json",
        "rebalancer capacity --set capacity.under=70% --set capacity.expander=most-pods",
    ),
)
@takes(
    RunOptions,
    f"{POLICY} {ACCESS} snapshot_path memory machine_state",
    snapshot_path={"help": "Judge a snapshot file ('-': standard input), without a cluster."},
    memory={"help": "ConfigMap of run --memory: which owners cool down."},
    machine_state={"help": "ConfigMap of serve --machine-state: which groups are in a back-off."},
)
@output_flag(*FORMS, of="report")
def command(**flags: Any) -> int:
    """Say which nodes can be removed, and which groups need more.

    For each node whether it can be removed, and if not what keeps it. For each pending pod why it is, and which group of
    machines would have to be increased by how many nodes. Nothing is changed.
    """
    return int(capacity(RunOptions.of(dry_run=True, **flags), system_environment()))


def capacity(options: RunOptions, environment: Environment) -> ExitCode:
    """Write the report.

    Raises:
        PolicyError: the policy, a flag or the file is invalid.
        ClusterReadError: the cluster, or the stored state, could not be read.
        ProviderError: the machine provider could not be queried.
    """
    run = run_context(options, environment)
    with open_source(run, options.cluster) as source:
        reading = recall(source.read())
        report, notes = judge_machines(reading)
        report = replace(report, moves=_moves(reading))
    troubles = list(_troubles(reading))
    data = {**_head(reading.noting(*notes, *troubles)), **capacity_data(report)}
    blocks = [
        *(f"Note: {one}" for one in troubles),
        *[""] * bool(troubles),
        *format_capacity(report),
    ]
    ReportDocument(blocks, data).print_to(environment, options.ending.output)
    return ExitCode.DONE


def _moves(reading: Reading) -> dict[str, int]:
    """Return uid of a pending pod -> the moves that would let it in, if a strategy of the policy makes room."""
    run = reading.run
    if math.isinf(room_after(run.loaded.policy, Registry.installed())):
        return {}
    plan = make_plan(run.rules, reading.snapshot, run.timings, history=reading.history).plan
    return Counter(move.makes_way_for for move in plan.moves if move.room is not None)


def _troubles(reading: Reading) -> Iterator[str]:
    """Yield why nothing is moved or removed now, whatever the report says of each node."""
    rules, snapshot = reading.run.rules, reading.snapshot
    for why in rules.standstill(snapshot, reading.clock_skew, reading.history):
        yield f"a run stands still now, and no machine is removed: {why}"
    if why := closed_zones(snapshot):
        yield why


def _head(reading: Reading) -> dict[str, Any]:
    run, snapshot = reading.run, reading.snapshot
    return {
        "apiVersion": API_VERSION,
        "kind": "Capacity",
        "source": reading.source.name,
        "capturedAt": snapshot.known_time,
        "serverVersion": snapshot.known_version,
        "policySource": run.loaded.source,
        "policyHash": run.loaded.policy_hash,
        "warnings": list(dict.fromkeys((*run.notes, *reading.notes))),
    }
