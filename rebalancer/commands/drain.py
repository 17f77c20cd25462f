"""``drain``: cordon nodes and move their pods to other nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ExitCode, PolicyError
from rebalancer.commands.flags import (
    ACCESS,
    KubectlFlags,
    complete_nodes,
    examples,
    label_selector,
    nodes_named,
    takes,
)
from rebalancer.machines.drain.command import EmptyingOptions, NodeCommand
from rebalancer.machines.drain.cordon import NodeChoice
from rebalancer.machines.drain.draining import Drain
from rebalancer.node_record.tasks import Course
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
    selector = label_selector("--pod-selector", options.pod_selector or "")
    ordered = NodeCommand.of(options, environment, selector)
    preflight = ordered.preflight(NodeChoice(options.nodes, options.selector))

    def empty() -> Course[str | None]:
        failing = options.uncordon_on_failure
        draining = Drain(ordered, preflight.uids, uncordon_on_failure=failing)
        return draining.run(options.wait_batch)

    return ordered.carry_out(preflight, empty)


EMPTYING = (
    f"policy_path settings {ACCESS} dry_run snapshot_path force ignore_daemonsets delete_emptydir_data grace_period timeout"
    " skip_wait_for_delete_timeout wait_batch evict_batch evict_gangs without_landing reason exclude_from_load_balancers"
    " node_conditions lease output max_requests quiet log_format"
)
"""Flags of ``drain`` and ``replace``."""

NOT_OF_A_RUN: Mapping[str, Mapping[str, Any]] = {
    "snapshot_path": {
        "help": "The pre-flight on a snapshot file ('-': standard input), without a cluster.",
        "argument": False,
    },
    "lease": {
        "help": "Lease that keeps this and runs apart: this waits for a run to end, and runs do nothing meanwhile. serve keeps"
        " its Lease until it ends. It must exist."
    },
}
"""Help of flags that runs also have, in the words of these commands."""


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
