"""``snapshot``: the cluster's state as a file."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from rebalancer.commands.flags import CLUSTER, with_flags
from rebalancer.commands.options import Access
from rebalancer.environment import Environment, system_environment
from rebalancer.errors import ExitCode, PolicyError
from rebalancer.kube.capture import write_cluster_snapshot
from rebalancer.output import say

_TEXT = (".json", ".yaml", ".yml", ".gz")


def save_snapshot(
    access: Access,
    path: str,
    environment: Environment,
    *,
    usage: bool = False,
) -> ExitCode:
    """Write the cluster's state to ``path``, with ``usage`` also what is really used, and say so.

    Raises:
        RebalancerError: the cluster could not be read, or the file not be written.
    """
    if path.endswith(_TEXT):
        name = path.partition(".")[0] or "cluster"
        problem = (
            f"{path}: a snapshot is a zip archive, not {Path(path).suffix}: name it {name}.zip"
        )
        raise PolicyError([f"{problem}. For JSON: kubectl get pods,nodes,... -A -o json"])
    client = access.client(environment, environment.until_signal())
    target = sys.stdout.buffer if path == "-" else Path(path)
    captured = write_cluster_snapshot(client, target, clock=environment.clock.unix, usage=usage)
    for note in captured.notes:
        say(environment.err, f"rebalancer: {note}")
    say(environment.err, f"{path}: {sum(captured.counts.values())} objects")
    return ExitCode.DONE


@click.command("snapshot")
@with_flags(CLUSTER)
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(),
    required=True,
    help="File to write, a zip archive ('-': standard output).",
)
@click.option(
    "--usage", is_flag=True, help="Also what is really used, from the metrics API (metrics-server)."
)
def command(kubeconfig: str | None, context_name: str | None, path: str, usage: bool) -> int:
    """Write the cluster's state to a file, for run --snapshot.

    The file is a zip archive: the lists as the API server sent them, without environment variables,
    managedFields and last-applied-configuration, and a manifest.json with time, source and version.
    """
    access = Access(kubeconfig=kubeconfig, context_name=context_name)
    return int(save_snapshot(access, path, system_environment(), usage=usage))
