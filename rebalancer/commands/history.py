"""The command ``rebalancer history``."""

from __future__ import annotations

from typing import Any

import click

from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ClusterReadError, ExitCode
from rebalancer.base.output import say, write
from rebalancer.commands.flag_values import named, reference
from rebalancer.commands.flags import CLUSTER, examples, output_flag, with_flags
from rebalancer.kube.config_map import ConfigMapStore
from rebalancer.run.memory.document import decode
from rebalancer.run.memory.history import render_history
from rebalancer.run.options import ClusterFlags


def show_history(
    access: ClusterFlags,
    where: tuple[str, str],
    output: str,
    environment: Environment,
) -> ExitCode:
    """Print the memory in the ConfigMap ``where``, (namespace, name), in the form ``output``.

    Raises:
        ClusterReadError: it could not be read, or there is none.
    """
    client = access.client(environment, environment.until_signal())
    known = ConfigMapStore(client, *where).read()
    if known is None:
        raise ClusterReadError(f"there is no ConfigMap {'/'.join(where)}: nothing is remembered")
    document, flaw = decode(known.data)
    if flaw is not None:
        say(environment.err, f"rebalancer: {flaw.message}")
    write(environment.out, [render_history(document, environment.clock.unix(), output)])
    return ExitCode.DONE


@click.command(
    "history",
    epilog=examples(
        "rebalancer history --memory default/memory",
    ),
)
@with_flags(CLUSTER)
@click.option(
    "--memory",
    callback=named(reference),
    metavar="NS/NAME",
    required=True,
    help="ConfigMap of run --memory.",
)
@output_flag("table", "json", "yaml", of="history")
def command(memory: tuple[str, str], output: str, **cluster: Any) -> int:
    """Print what is remembered of earlier runs.

    Their moves, which workloads cool down until when, and which nodes were over-used.
    """
    access = ClusterFlags(**cluster)
    return int(show_history(access, memory, output, system_environment()))
