"""``drain``: cordon nodes and move their pods to other nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ClusterReadError, ExitCode, PolicyError
from rebalancer.base.output import print_text, say
from rebalancer.base.plain_text import count
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
from rebalancer.machines.drain.preflight import refuses
from rebalancer.machines.drain.report import DrainReport
from rebalancer.machines.drain.rounds import EmptyingOptions, EmptyingRounds, Preflight
from rebalancer.machines.drain.triage import Orders
from rebalancer.run.names import own_pod
from rebalancer.run.options import flag

if TYPE_CHECKING:
    from rebalancer.kube.client import Client
    from rebalancer.machines.drain.draining import RemainingPods


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
    print_text(emptying.environment, report.render(options.output), options.output)
    return code


class Drain:
    """A drain in progress: the steps of :func:`rebalancer.machines.drain.draining.empty`."""

    def __init__(
        self,
        emptying: EmptyingRounds,
        client: Client,
        uids: Mapping[str, str],
        *,
        uncordon_on_failure: bool,
        keeps_record: bool = False,
        replaces: bool = False,
    ) -> None:
        """``uids``: name of each node -> its uid. Another Node with the same name is not touched.

        ``keeps_record``: nodes that are empty keep the record, until their machines are gone. ``replaces``: that they
        are to be replaced is recorded, too.
        """
        self._emptying, self._uids, self._names = emptying, uids, list(uids)
        self._uncordon, self._keeps, self._replaces = uncordon_on_failure, keeps_record, replaces
        self._client = client
        self._order = emptying.order(replaces=replaces)
        self._reported: object = None
        self._most = 0
        """Pods that were in the way at once, at most."""
        self._version = (0, 0)
        self._reached: Callable[[int, int], None] = lambda _done, _total: None

    def run(self, wait_batch: float) -> str | None:
        """Cordon all nodes, then empty them; return None once they are empty, else why they are not.

        Raises:
            ClusterReadError: the cluster can no longer be read or written.
        """
        from rebalancer.machines.drain.draining import empty  # noqa: PLC0415

        names = self._names
        text = names[0] if len(names) == 1 else count(len(names), "node")
        why: str | None = "it was cut off"
        try:
            with self._emptying.progress.course(f"emptying {text}", "pods") as self._reached:
                why = empty(self, self._emptying.stop, self.cordon_all() + wait_batch)
        except ClusterReadError as error:
            why = str(error)
        finally:
            left = self.end(empty=why is None)
        return why or left

    def of(self, names: Sequence[str]) -> Drain:
        """Return a drain of only the nodes ``names``."""
        uids = {name: self._uids[name] for name in names}
        return Drain(
            self._emptying,
            self._client,
            uids,
            uncordon_on_failure=self._uncordon,
            replaces=self._replaces,
        )

    def cordon_all(self) -> float:
        """Cordon all nodes; return the latest start of a node's drain, as a time of the stop's clock.

        Raises:
            ClusterReadError: a node could not be read or written.
        """
        from msgspec.structs import replace  # noqa: PLC0415

        from rebalancer.machines.drain.cordon import cordon, order_of  # noqa: PLC0415
        from rebalancer.wire.times import unix_seconds  # noqa: PLC0415

        newest = 0.0
        for name in self._names:
            node = cordon(self._client, name, replace(self._order, uid=self._uids[name]))
            if node is None:
                self._emptying.progress.note("gone", f"gone     {name}", node=name)
                continue
            self._emptying.conditions.show(self._client, name)
            order = order_of(node)
            newest = max(newest, unix_seconds(order.at) if order else 0.0)
            self._emptying.progress.note("cordoned", f"cordoned {name}", node=name)
        clock = self._emptying.environment.clock
        return clock.now() - max(0.0, clock.unix() - newest)

    def end(self, *, empty: bool) -> str | None:
        """Remove our records from nodes that are empty or given back; mark the others as given up.

        Return a message on records that could not be written, or None.
        """
        if empty and self._keeps:
            return None
        from rebalancer.machines.drain.cordon import finish, give_up  # noqa: PLC0415

        client, by = self._client.last_words, self._order.by
        conditions = self._emptying.conditions

        def write(name: str) -> str | None:
            try:
                if empty:
                    # First: without the record nobody would know that it is empty.
                    conditions.show(client, name, emptied_by=by)
                    finish(client, name, by)
                    return None
                if self._uncordon:
                    finish(client, name, by, uncordon=True)
                else:
                    give_up(client, name, by)
                conditions.show(client, name)
            except ClusterReadError as error:
                say(self._emptying.environment.err, f"rebalancer: {error}")
                return f"what the drain wrote on node {name} could not be changed: {error}"
            return None

        # Some at once: the last words of a command have seconds.
        with ThreadPoolExecutor(self._emptying.options.cluster.max_requests, "end") as pool:
            return next((why for why in pool.map(write, self._names) if why is not None), None)

    # -- steps -------------------------------------------------------------------------------------

    def look(self) -> RemainingPods:
        """Return the pods still on the nodes."""
        from rebalancer.kube.node_pods import read_node_pods  # noqa: PLC0415
        from rebalancer.machines.drain.draining import list_remaining  # noqa: PLC0415

        pods = read_node_pods(
            self._client,
            self._there(),
            clock=self._emptying.environment.clock.unix,
            version=self._version,
        )
        left = list_remaining(pods, self._emptying.orders)
        self._most = max(self._most, left.pods)
        self._reached(self._most - left.pods, self._most)
        return left

    def evict(self) -> str | None:
        """Plan and evict once; return what prevents progress, or None."""
        there = self._there()
        for name in there:
            self._emptying.conditions.show(self._client, name)
        return self._emptying.evict({name: self._uids[name] for name in there})

    def _there(self) -> list[str]:
        """Return the nodes, without names that another Node has now, whose pods must not be touched.

        The pods of a deleted Node count until their objects are gone.
        """
        from rebalancer.kube.nodes import read_node  # noqa: PLC0415

        there = ((name, read_node(self._client, name)) for name in self._names)
        return [name for name, node in there if node is None or node.uid == self._uids[name]]

    def end_of_batch(self) -> bool:
        """End the wait for batch work; return whether it is evicted from now on."""
        if not self._emptying.options.evict_batch:
            return False
        self._emptying.evict_batch()
        return True

    def report_remaining(self, left: RemainingPods, why: str | None) -> None:
        """Report the remaining pods when they change."""
        if (left, why) != self._reported:
            self._reported = (left, why)
            text = left.text() + (f" ({why})" if why else "")
            self._emptying.progress.note("left", f"left     {text}")


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
