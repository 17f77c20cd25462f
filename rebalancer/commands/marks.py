"""What is left on nodes: ``marks`` of runs, and what ``uncordon`` removes after drains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ClusterReadError, ExitCode
from rebalancer.base.output import say, write
from rebalancer.base.plain_text import printable
from rebalancer.commands.flags import (
    CLUSTER,
    complete_nodes,
    examples,
    nodes_named,
    output_flag,
)
from rebalancer.commands.panels import PanelCommand
from rebalancer.kube.client import Client
from rebalancer.machines.capacity.writing import clear_state
from rebalancer.machines.drain.cordon import NO_NODE, open_node
from rebalancer.node_record.conditions import NodeConditions
from rebalancer.node_record.marks import NodeMark, list_marks, remove_marks
from rebalancer.report.document import FORMS, Block, ReportDocument, Table
from rebalancer.run.options import ClusterFlags
from rebalancer.wire.times import rfc3339


def show_marks(
    access: ClusterFlags,
    output: str,
    environment: Environment,
    *,
    clear: bool,
) -> ExitCode:
    """Print the marks of all nodes in the form ``output``; remove them first, with ``clear``.

    Raises:
        ClusterReadError: the nodes could not be read.
    """
    client = access.client(environment, environment.until_signal())
    marks = sorted(list_marks(client), key=lambda mark: mark.node)
    left: set[NodeMark] = set()
    for mark in marks if clear else ():
        if (why := _clear(client, mark)) is not None:
            say(environment.err, f"rebalancer: {why}")
            left.add(mark)
    now = environment.clock.unix()
    states = [_state(mark, now, cleared=clear and mark not in left) for mark in marks]
    _document_of(marks, states).print_to(environment, output)
    return ExitCode.PARTIAL if left else ExitCode.DONE


def _clear(client: Client, mark: NodeMark) -> str | None:
    """Remove a mark; return what stays of it and why, or None."""
    try:
        if mark.of_scale_in:
            return clear_state(client, mark.node)
        remove_marks(client, mark.node, lambda _: True)
    except ClusterReadError as error:
        return str(error)
    return None


def _state(mark: NodeMark, now: float, *, cleared: bool) -> str:
    if cleared:
        return "removed"
    if mark.scale_in is not None:
        return mark.scale_in.phase.value
    said = mark.mark
    if said is None:
        return "unreadable"
    return "expired" if said.expires <= now else "standing"


def _document_of(marks: Sequence[NodeMark], states: Sequence[str]) -> ReportDocument:
    rows = [_row(mark, state) for mark, state in zip(marks, states, strict=True)]
    blocks: list[Block] = ["No node carries a mark."]
    if rows:
        heads = [key.upper() for key in rows[0]]
        cells = [[printable(text or "-") for text in row.values()] for row in rows]
        blocks = [Table([heads, *cells], "", range(len(heads)))]
    return ReportDocument(blocks, {"marks": rows})


def _row(mark: NodeMark, state: str) -> dict[str, str]:
    if mark.of_scale_in:
        by = mark.scale_in.by if mark.scale_in is not None else ""
        return {"node": mark.node, "reason": "scale-in", "expires": "", "run": by, "state": state}
    said = mark.mark
    return {
        "node": mark.node,
        "reason": said.reason if said else mark.value,
        "expires": rfc3339(said.expires) if said else "",
        "run": said.run if said else "",
        "state": state,
    }


@click.command(
    "marks",
    cls=PanelCommand,
    epilog=examples(
        "rebalancer marks",
        "rebalancer marks --clear",
    ),
)
@CLUSTER
@click.option("--clear", is_flag=True, help="Remove them all, also those of a run under way.")
@output_flag(*FORMS, of="list")
def command(output: str, clear: bool, **cluster: Any) -> int:
    """Show the marks that runs have set on nodes, or remove them.

    A run removes those that steer; what a killed run has left, the next one that steers removes. Those of
    consolidation stay from run to run, until a run needs them no longer or they expire. What scale-in has written is listed,
    too: removing it cancels the scale-in, and uncordons the node if scale-in cordoned it.
    """
    environment = system_environment()
    access = ClusterFlags(**cluster)
    return int(show_marks(access, output, environment, clear=clear))


def uncordon(access: ClusterFlags, nodes: Sequence[str], environment: Environment) -> ExitCode:
    """Open each of the nodes, and report; return the exit code.

    Raises:
        ClusterReadError: a node could not be read or written.
    """

    def warn(text: str) -> None:
        say(environment.err, f"rebalancer: {text}")

    client = access.client(environment, environment.until_signal())
    conditions = NodeConditions(True, environment.clock.unix, warn)
    closed: dict[str, str] = {}
    for name in nodes:
        if (why := open_node(client, name)) is not None:
            closed[name] = why
            warn(f"node {name} is not opened: {why}")
            continue
        conditions.show(client, name)
        write(environment.out, [f"node {name} is open\n"])
    if all(closed.get(name) == NO_NODE for name in nodes):
        return ExitCode.USAGE
    return ExitCode.PARTIAL if closed else ExitCode.DONE


@click.command("uncordon", cls=PanelCommand, epilog=examples("rebalancer uncordon node-a1"))
@click.argument(
    "nodes",
    nargs=-1,
    required=True,
    metavar="NODE...",
    shell_complete=complete_nodes,
    callback=nodes_named,
)
@CLUSTER
def uncordon_command(nodes: tuple[str, ...], **cluster: Any) -> int:
    """Open nodes, and take back what drains have left on them.

    As kubectl uncordon, and with the cordon the label that takes a node out of load balancers, the conditions and the
    records of drain and replace go, if these have set them. A node stays closed where scale-in, an interruption, an
    autoscaler's taint or the annotation rebalancer/leave wants that, and where its machine is being removed.
    """
    return int(uncordon(ClusterFlags(**cluster), nodes, system_environment()))
