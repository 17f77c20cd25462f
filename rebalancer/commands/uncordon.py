"""``uncordon``: open nodes, and take back what drains have left on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ExitCode
from rebalancer.base.output import say, write
from rebalancer.commands.flags import CLUSTER, complete_nodes, examples, nodes_named
from rebalancer.commands.panels import PanelCommand
from rebalancer.machines.drain.cordon import NO_NODE, open_node
from rebalancer.node_record.conditions import NodeConditions
from rebalancer.run.options import ClusterFlags


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
def command(nodes: tuple[str, ...], **cluster: Any) -> int:
    """Open nodes, and take back what drains have left on them.

    As kubectl uncordon, and with the cordon the label that takes a node out of load balancers, the conditions and the
    records of drain and replace go, if these have set them. A node stays closed where scale-in, an interruption, an
    autoscaler's taint or the annotation rebalancer/leave wants that, and where its machine is being removed.
    """
    return int(uncordon(ClusterFlags(**cluster), nodes, system_environment()))
