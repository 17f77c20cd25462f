"""``snapshot``: the cluster's state as a file."""

from __future__ import annotations

import sys
from pathlib import Path

from rebalancer.environment import Environment
from rebalancer.errors import ExitCode
from rebalancer.kube.capture import write_cluster_snapshot
from rebalancer.kube.client import connect
from rebalancer.output import say


def save_snapshot(
    kubeconfig: str | None,
    context: str | None,
    path: str,
    environment: Environment,
    *,
    usage: bool = False,
) -> ExitCode:
    """Write the cluster's state to ``path``, with ``usage`` also what is really used, and say so.

    Raises:
        RebalancerError: the cluster could not be read, or the file not be written.
    """
    client = connect(
        kubeconfig=kubeconfig,
        context=context,
        environ=environment.environ,
        stop=environment.until_signal(),
    )
    target = sys.stdout.buffer if path == "-" else Path(path)
    captured = write_cluster_snapshot(client, target, clock=environment.clock.unix, usage=usage)
    for note in captured.notes:
        say(environment.err, f"rebalancer: {note}")
    say(environment.err, f"{path}: {sum(captured.counts.values())} objects")
    return ExitCode.DONE
