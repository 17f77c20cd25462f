"""``drain``: cordon nodes and move their pods to other nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ClusterReadError, ExitCode, PolicyError
from rebalancer.commands.flags import (
    ACCESS,
    KubectlFlags,
    complete_nodes,
    examples,
    label_selector,
    nodes_named,
    takes,
)
from rebalancer.machines.drain.cordon import NodeChoice
from rebalancer.machines.drain.draining import Drain
from rebalancer.machines.drain.preflight import refuses
from rebalancer.machines.drain.report import DrainReport
from rebalancer.machines.drain.rounds import EmptyingOptions, EmptyingRounds, Preflight
from rebalancer.machines.drain.triage import Orders
from rebalancer.run.names import own_pod
from rebalancer.run.options import flag


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOptions(EmptyingOptions):
    """The flags of ``drain``."""

    nodes: tuple[str, ...] = ()
    selector: str | None = flag(
        "Nodes with these labels, as kubectl takes them: pool=old.",
        "-l",
        "--selector",
        default=None,
        metavar="LABELS",
    )
    pod_selector: str | None = flag(
        "Only pods with these labels; the nodes need be empty of these only.",
        default=None,
        metavar="LABELS",
    )
    uncordon_on_failure: bool = flag(
        "Take the cordon away again if the nodes do not become empty; a cordon that was there before stays.",
        default=False,
    )


def drain(options: DrainOptions, environment: Environment) -> ExitCode:
    """Check, cordon, empty, report; return the exit code.

    Raises:
        RebalancerError: nothing was changed, or the cluster can no longer be read.
    """
    if bool(options.nodes) == (options.selector is not None):
        raise PolicyError(["name nodes, or select them with -l: one of the two"])
    orders = orders_of(options, environment, options.pod_selector)
    emptying = EmptyingRounds.of(options, environment, orders)
    preflight = emptying.preflight(NodeChoice(options.nodes, options.selector))
    refused = refuses(preflight.checks)
    if options.dry or refused:
        code = ExitCode.UNREADABLE if refused else ExitCode.DONE
        return end_report(emptying, preflight, options, code)
    environment.committed.set()
    draining = Drain(
        emptying,
        emptying.client,
        preflight.uids,
        uncordon_on_failure=options.uncordon_on_failure,
    )
    why = draining.run(options.wait_batch)
    return end_report(emptying, preflight, options, exit_code(emptying, preflight, why), why)


def exit_code(emptying: EmptyingRounds, preflight: Preflight, why: str | None) -> ExitCode:
    """Return the exit code once nodes were emptied, or were not for the reason ``why``; note the gangs that are not back."""
    if why is not None:
        return ExitCode.PARTIAL
    try:
        missing = emptying.find_missing(preflight.snapshot)
    except ClusterReadError as error:
        missing = [f"whether the gangs that left are back is not known: {error}"]
    emptying.base.notes.extend(missing)
    return ExitCode.PARTIAL if missing else ExitCode.DONE


def orders_of(
    options: EmptyingOptions, environment: Environment, pod_selector: str | None = None
) -> Orders:
    """Return the orders about single pods from the flags."""
    return Orders(
        skip_wait_for_delete=float(options.skip_wait_for_delete_timeout),
        force=options.force,
        delete_emptydir_data=options.delete_emptydir_data,
        ignore_daemonsets=options.ignore_daemonsets,
        pod_selector=label_selector("--pod-selector", pod_selector or ""),
        # Else once that time is over.
        evict_batch=options.evict_batch and options.wait_batch <= 0,
        evict_gangs=options.evict_gangs,
        own_pod="/".join(own) if (own := own_pod(environment)) else None,
    )


def end_report(
    emptying: EmptyingRounds,
    preflight: Preflight,
    options: EmptyingOptions,
    code: ExitCode,
    why: str | None = None,
    *,
    kind: str = "DrainReport",
) -> ExitCode:
    """Write the report; return the exit code."""
    report = DrainReport(
        source=preflight.source,
        dry_run=options.dry,
        snapshot=preflight.snapshot,
        checks=preflight.checks,
        exit_code=int(code),
        outcomes=emptying.outcomes,
        ended=why,
        warnings=emptying.base.notes,
        kind=kind,
    )
    report.document.print_to(emptying.environment, options.output)
    return code


EMPTYING = (
    f"policy_path settings {ACCESS} dry_run snapshot_path force ignore_daemonsets delete_emptydir_data grace_period timeout"
    " skip_wait_for_delete_timeout wait_batch evict_batch evict_gangs without_landing reason exclude_from_load_balancers"
    " node_conditions lease output max_requests quiet log_format"
)
"""Flags of ``drain`` and ``replace``."""

NOT_OF_A_RUN: Mapping[str, Mapping[str, str]] = {
    "snapshot_path": {
        "help": "The pre-flight on a snapshot file ('-': standard input), without a cluster."
    },
    "lease": {
        "help": "Lease that keeps this and runs apart: this waits for a run to end, and runs do nothing meanwhile. serve keeps"
        " its Lease until it ends. It must exist."
    },
}
"""What these say otherwise of flags that runs have, too."""


def exit_codes(done: str, partial: str) -> str:
    """Return the help on exit codes for a command that empties nodes; ``done`` explains 0, ``partial`` explains 4."""
    return f"""\b
Exit codes:
  0    {done}
  2    a flag is wrong
  3    refused by the pre-flight or by the cluster: nothing was changed
  4    {partial}
  130  stopped by Ctrl-C or SIGTERM before anything was changed

"""


@click.command(
    "drain",
    cls=KubectlFlags,
    epilog=exit_codes(
        "all nodes are empty, or would be", "not all are empty, or a gang is not back"
    )
    + examples(
        "rebalancer drain node-a1 --ignore-daemonsets --dry-run=client",
        "rebalancer drain -l pool=old --ignore-daemonsets --timeout 30m",
    ),
)
@click.argument(
    "nodes", nargs=-1, metavar="[NODE]...", shell_complete=complete_nodes, callback=nodes_named
)
@takes(DrainOptions, f"selector pod_selector {EMPTYING} uncordon_on_failure", **NOT_OF_A_RUN)
def command(**flags: Any) -> int:
    """Cordon nodes and move their pods away.

    First a pre-flight: nothing is changed if a node can never become empty, a flag is missing, or the other nodes
    do not hold the pods. Then all nodes are cordoned, and their pods evicted as in a run: planned together, within
    the policy's inFlight and perOwner and all PodDisruptionBudgets, each replacement waited for. With --set
    method.singleReplicas=restart a workload's only pod goes once another is Ready, and with method.unevictable=restart
    the Deployments go by one rollout whose budgets never allow an eviction. Nothing is ever deleted. Call it again to
    go on with a drain that was killed.
    """
    return int(drain(DrainOptions.of(**flags), system_environment()))
