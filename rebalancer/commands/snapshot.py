"""``snapshot``: save the cluster's state to a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ExitCode, PolicyError
from rebalancer.base.output import say
from rebalancer.commands.flags import CLUSTER, REDACT, WrittenFile, examples
from rebalancer.commands.panels import PanelCommand
from rebalancer.kube.capture import write_cluster_snapshot
from rebalancer.policy.cluster import UsageSettings
from rebalancer.registry import Registry
from rebalancer.run.options import ClusterFlags, PolicyFlags
from rebalancer.run.source import usage_source
from rebalancer.snapshot.redact import Redactor
from rebalancer.wire.kinds import KUBECTL_GET
from rebalancer.wire.pods import FINISHED

_TEXT = (".json", ".yaml", ".yml", ".gz")


def save_snapshot(
    access: ClusterFlags,
    path: str,
    environment: Environment,
    *,
    usage: UsageSettings | None = None,
    finished: bool = False,
    autoscalers: bool = False,
    events: bool = False,
    buffers: bool = False,
    redactor: Redactor | None = None,
) -> ExitCode:
    """Write the cluster's state to ``path``, with ``usage`` also measured usage, and report it.

    ``finished``: include finished pods; ``autoscalers``: include HorizontalPodAutoscalers; ``events``: include those that
    say that a machine is on its way for a pod; ``buffers``: include CapacityBuffers and their PodTemplates.

    Raises:
        RebalancerError: the cluster could not be read, or the file could not be written.
    """
    if path.endswith(_TEXT):
        name = path.partition(".")[0] or "cluster"
        problem = (
            f"{path}: a snapshot is a zip archive, not {Path(path).suffix}: name it {name}.zip"
        )
        raise PolicyError([f"{problem}. For JSON: {KUBECTL_GET}"])
    if path == "-" and sys.stdout.isatty():
        raise PolicyError(
            [
                "a snapshot is a zip archive, and no text for a terminal: -o cluster.zip, or -o - > cluster.zip"
            ]
        )
    stop = environment.until_signal()
    client = access.client(environment, stop)
    target = sys.stdout.buffer if path == "-" else Path(path)
    source = None if usage is None else usage_source(usage, client, stop)
    captured = write_cluster_snapshot(
        client,
        target,
        clock=environment.clock.unix,
        usage=source,
        finished=FINISHED if finished else frozenset(),
        autoscalers=autoscalers,
        events=events,
        buffers=buffers,
        redactor=redactor,
    )
    for note in captured.notes:
        say(environment.err, f"rebalancer: {note}")
    say(environment.err, f"{path}: {sum(captured.counts.values())} objects")
    return ExitCode.DONE


@click.command(
    "snapshot",
    cls=PanelCommand,
    epilog=examples(
        "rebalancer snapshot -o cluster.zip",
        "rebalancer snapshot --usage -o - > cluster.zip",
    ),
)
@CLUSTER
@click.option(
    "-o",
    "--output",
    "path",
    type=WrittenFile(),
    required=True,
    help="File to write, a zip archive ('-': standard output).",
)
@click.option(
    "--usage",
    is_flag=True,
    help="Also what is really used: from the metrics API (metrics-server), or where the policy says.",
)
@click.option(
    "--finished", is_flag=True, help="Also pods that have ended, which failed-pods is about."
)
@click.option(
    "--autoscalers",
    is_flag=True,
    help="Also HorizontalPodAutoscalers, which protect.afterScaling is about.",
)
@click.option(
    "--events",
    is_flag=True,
    help="Also Events that say that a machine is on its way for a pod, which make-room waits for.",
)
@click.option(
    "--buffers",
    is_flag=True,
    help="Also CapacityBuffers and the PodTemplates that they name, which capacity.buffers is about.",
)
@click.option(
    "--policy",
    "policy_path",
    type=click.Path(),
    help="Policy whose usage.prometheus is asked with --usage.",
)
@REDACT
def command(
    path: str,
    policy_path: str | None,
    redact_key_file: str | None,
    *,
    usage: bool,
    finished: bool,
    autoscalers: bool,
    events: bool,
    buffers: bool,
    **cluster: Any,
) -> int:
    """Write the cluster's state to a file, for run --snapshot.

    The file is a zip archive: the lists as the API server sent them, without what may be secret (commands,
    environment variables, probes, hooks, annotations that are not read), and a manifest.json with time,
    source and version.
    """
    if policy_path is not None and not usage:
        raise PolicyError(["--policy says whom to ask with --usage: give both"])
    settings = None
    if usage:
        loaded = PolicyFlags(policy_path=policy_path).load(Registry.installed())
        settings = loaded.policy.usage
    access = ClusterFlags(**cluster)
    return int(
        save_snapshot(
            access,
            path,
            system_environment(),
            usage=settings,
            finished=finished,
            autoscalers=autoscalers,
            events=events,
            buffers=buffers,
            redactor=None if redact_key_file is None else Redactor.of_file(redact_key_file),
        )
    )
