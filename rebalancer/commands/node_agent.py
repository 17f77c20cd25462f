"""``node-agent``: write interruption notices from the instance's metadata on its own Node."""

from __future__ import annotations

from typing import Any

import click

from rebalancer.base.durations import at_least_a_second
from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ExitCode, PolicyError
from rebalancer.base.output import say
from rebalancer.base.sending import SendingError, check_url
from rebalancer.commands.flags import CLUSTER, examples, parse_with
from rebalancer.commands.panels import PanelCommand
from rebalancer.run.options import ClusterFlags

_TIMEOUT = 5.0
"""Seconds for an open request after a signal: longer than any of them needs then."""


def watch_machine(
    access: ClusterFlags, node: str, address: str, every: float, environment: Environment
) -> None:
    """Keep the notice on ``node`` current until a signal. ``address``: the metadata service; ``every``: seconds.

    Raises:
        ClusterReadError: no cluster is configured.
    """
    from rebalancer.machines.aws.agent import Agent, Imds  # noqa: PLC0415

    stop = environment.until_signal()
    client = access.client(environment, stop)

    def log(text: str) -> None:
        say(environment.err, f"rebalancer: {text}")

    Agent(node, Imds(address, stop), client, stop, log).live(every)


def _address(text: str) -> str:
    try:
        return check_url(text)
    except SendingError as error:
        raise ValueError(f"{text!r} {error}") from None


@click.command(
    "node-agent",
    cls=PanelCommand,
    epilog=examples("rebalancer node-agent --node ip-10-0-1-23.eu-west-1.compute.internal"),
)
@CLUSTER
@click.option(
    "--node",
    envvar="NODE_NAME",
    metavar="NAME",
    help="The node that this process runs on. Default: $NODE_NAME.",
)
@click.option(
    "--imds",
    "address",
    callback=parse_with(_address),
    default="http://169.254.169.254",
    show_default=True,
    metavar="URL",
    help="Where the instance metadata service is; http://[fd00:ec2::254] over IPv6.",
)
@click.option(
    "--every",
    callback=parse_with(at_least_a_second),
    default="5s",
    show_default=True,
    metavar="DURATION",
    help="When to look again.",
)
def command(node: str | None, address: str, every: float, **cluster: Any) -> int:
    """Announce on this node that its EC2 instance will go.

    It looks at the instance metadata (IMDSv2) for Spot interruptions, rebalance recommendations, scheduled events and
    the end of an instance in its Auto Scaling group, and writes the annotation rebalancer/notice of its own node, which
    it takes away again where a notice is withdrawn. It changes nothing else, and ends in good order at SIGTERM.
    """
    environment = system_environment(patience=_TIMEOUT)
    if not node:
        raise PolicyError(["--node: name the node that this process runs on, or set NODE_NAME"])
    access = ClusterFlags(**cluster)
    watch_machine(access, node, address, every, environment)
    return int(ExitCode.DONE)
