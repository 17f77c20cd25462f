"""``drain``: cordon nodes and move their pods to other nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from rebalancer.base.data_text import DATA_FORMS
from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ClusterReadError, ExitCode, PolicyError
from rebalancer.base.terminal import print_text
from rebalancer.commands.flags import (
    CLUSTER,
    POLICY,
    PROGRESS,
    SET,
    KubectlFlags,
    Whole,
    complete_nodes,
    duration,
    examples,
    label_selector,
    nodes_named,
    output_flag,
    parse_named,
    reference,
    with_flags,
)
from rebalancer.machines.drain.cordon import NodeChoice
from rebalancer.machines.drain.draining import Drain
from rebalancer.machines.drain.preflight import refuses
from rebalancer.machines.drain.report import DrainReport
from rebalancer.machines.drain.rounds import EmptyingOptions, EmptyingRounds, Preflight
from rebalancer.machines.drain.triage import Orders
from rebalancer.run.names import own_pod


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOptions(EmptyingOptions):
    """The flags of ``drain``."""

    nodes: tuple[str, ...] = ()
    selector: str | None = None
    pod_selector: str | None = None
    uncordon_on_failure: bool = False


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
    print_text(emptying.environment, report.render(options.output), options.output)
    return code


EMPTYING: list[Callable[..., Any]] = [
    click.option(
        "--dry-run",
        type=click.Choice(["none", "client", "server"]),
        default="none",
        help="Only the pre-flight; 'server' also asks the API server about every eviction.",
    ),
    click.option(
        "--snapshot",
        "snapshot_path",
        type=click.Path(),
        help="The pre-flight on a snapshot file ('-': standard input), without a cluster.",
    ),
    click.option(
        "--force",
        is_flag=True,
        help="Also evict pods that nothing recreates: those without a controller, those of a DaemonSet that is gone, "
        "and pods that opted out by an annotation.",
    ),
    click.option("--ignore-daemonsets", is_flag=True, help="Leave the pods of DaemonSets alone."),
    click.option(
        "--delete-emptydir-data", is_flag=True, help="Also evict pods whose emptyDir would be lost."
    ),
    click.option(
        "--grace-period",
        type=Whole(min=-1),
        default=-1,
        show_default=True,
        metavar="SECONDS",
        help="Time that each evicted pod has to end; -1: its own.",
    ),
    click.option(
        "--timeout",
        callback=parse_named(duration),
        default="0s",
        show_default=True,
        metavar="DURATION",
        help="Give up after this time, for all nodes together, with the wait for the Lease and the pre-flight: 90s, 5m; 0s: never.",
    ),
    click.option(
        "--skip-wait-for-delete-timeout",
        type=Whole(min=0),
        default=0,
        show_default=True,
        metavar="SECONDS",
        help="Do not wait for pods whose deletion is longer overdue, as on a node whose kubelet is gone; 0: wait for every one.",
    ),
    click.option(
        "--wait-batch",
        callback=parse_named(duration),
        default="6h",
        show_default=True,
        metavar="DURATION",
        help="How long to wait for pods whose work comes to an end (Jobs, restartPolicy other than Always), and until the "
        "results of finished ones are read; then give up.",
    ),
    click.option(
        "--evict-batch",
        is_flag=True,
        help="Evict such pods when --wait-batch is over (0s: at once, as kubectl does).",
    ),
    click.option(
        "--evict-gangs",
        is_flag=True,
        help="Evict pods of gangs (PodGroup, LeaderWorkerSet, JobSet ...) one by one, as kubectl does. Without it, all pods of "
        "a gang leave together, on other nodes too, or none: then the order is refused.",
    ),
    click.option(
        "--without-landing",
        is_flag=True,
        help="Also evict pods for which no landing is foreseen: their replacements may stay Pending, as after kubectl "
        "drain. Without it such a pod refuses the whole order.",
    ),
    click.option("--reason", default="", metavar="TEXT", help="Why; written on the nodes."),
    click.option(
        "--exclude-from-load-balancers",
        is_flag=True,
        help="Label the nodes node.kubernetes.io/exclude-from-external-load-balancers with the cordon, so that load balancers "
        "send nothing more through them; the label is taken back with it.",
    ),
    click.option(
        "--node-conditions",
        is_flag=True,
        help="Set the conditions DrainInProgress, Drained and the like on the nodes, as the policy's nodeConditions does. "
        "Needs patch on nodes/status; without it a warning is given.",
    ),
    click.option(
        "--lease",
        callback=parse_named(reference),
        metavar="NS/NAME",
        help="Lease that keeps this and runs apart: this waits for a run to end, and runs do nothing meanwhile. serve "
        "keeps its Lease until it ends. It must exist.",
    ),
    output_flag("table", *DATA_FORMS, of="report"),
    click.option(
        "--max-requests",
        type=Whole(min=1),
        default=8,
        show_default=True,
        metavar="N",
        hidden=True,
        help="Most requests to the API server at once.",
    ),
    *PROGRESS,
]
"""Flags of ``drain`` and ``replace``."""


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
@click.option(
    "-l",
    "--selector",
    metavar="LABELS",
    help="Nodes with these labels, as kubectl takes them: pool=old.",
)
@click.option(
    "--pod-selector",
    metavar="LABELS",
    help="Only pods with these labels; the nodes need be empty of these only.",
)
@with_flags([POLICY, SET, *CLUSTER])
@with_flags(EMPTYING)
@click.option(
    "--uncordon-on-failure",
    is_flag=True,
    help="Take the cordon away again if the nodes do not become empty; a cordon that was there before stays.",
)
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
