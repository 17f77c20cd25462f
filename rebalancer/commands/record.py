"""The command ``rebalancer record``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rebalancer.base.durations import at_least_a_second
from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ClusterReadError, ExitCode, PolicyError
from rebalancer.base.output import say, say_error, write
from rebalancer.commands.flags import CLUSTER, REDACT, examples, parse_with
from rebalancer.commands.panels import PanelCommand
from rebalancer.fleet.record import Recorded, Retention, hold, record
from rebalancer.run.options import ClusterFlags
from rebalancer.snapshot.redact import Redactor
from rebalancer.wire.quantity import parse


def run_record(
    access: ClusterFlags,
    folder: Path,
    retention: Retention,
    every: float | None,
    environment: Environment,
    redactor: Redactor | None = None,
) -> ExitCode:
    """Record once, or at a fixed interval until a signal comes; return 4 if one of several snapshots failed.

    Raises:
        RebalancerError: the folder cannot be used, or the only snapshot could not be taken.
    """
    stop = environment.until_signal()
    client = access.client(environment, stop)
    failed = False
    with hold(folder):
        while True:
            started = environment.clock.now()
            try:
                clock = environment.clock.unix
                done = record(client, folder, retention, clock=clock, redactor=redactor)
                for line in _describe(done):
                    say(environment.err, line)
                write(environment.out, [f"{done.path}\n"])
            except ClusterReadError as error:
                if every is None:
                    raise
                failed = True
                say_error(environment.err, error)
            if every is None:
                return ExitCode.DONE
            # Written to: from here on a signal ends the loop, and cuts nothing off.
            environment.committed.set()
            if environment.stop.wait(max(0.0, started + every - environment.clock.now())):
                return ExitCode.PARTIAL if failed else ExitCode.DONE


def _describe(done: Recorded) -> list[str]:
    objects = sum(done.captured.counts.values())
    notes = (*done.captured.notes, *([done.note] if done.note else ()))
    lines = [f"rebalancer: {note}" for note in notes]
    removed = f", {done.removed:,} old ones removed" if done.removed else ""
    return [*lines, f"{done.path.name}: {objects:,} objects in {done.bytes:,} bytes{removed}"]


def _bytes(text: str) -> int:
    """Parse a size such as 5Gi.

    Raises:
        ValueError: it is no quantity, or not positive.
    """
    size = parse(text.removesuffix("B"))
    if size <= 0:
        raise ValueError(f"{text!r} is no size; write for example 5Gi")
    return size


@click.command(
    "record",
    cls=PanelCommand,
    epilog=examples(
        "rebalancer record --to recorded/ --keep 7d --max-size 5Gi",
        "rebalancer record --to recorded/ --every 10m",
        "rebalancer record --to recorded/ --redact-key-file key",
    ),
)
@CLUSTER
@click.option(
    "--to",
    required=True,
    metavar="DIRECTORY",
    help="Where the snapshots are kept; one directory for each cluster.",
)
@click.option(
    "--every",
    callback=parse_with(at_least_a_second),
    metavar="DURATION",
    help="Go on, and take one every so often, until a signal. Default: take one.",
)
@click.option(
    "--keep",
    callback=parse_with(at_least_a_second),
    metavar="DURATION",
    help="Remove snapshots that are older than this: 7d. Default: none.",
)
@click.option(
    "--max-size",
    callback=parse_with(_bytes),
    metavar="SIZE",
    help="Remove the oldest ones beyond this size of all: 5Gi. Default: none.",
)
@REDACT
def command(
    to: str,
    every: float | None,
    keep: float | None,
    max_size: int | None,
    redact_key_file: str | None,
    **cluster: Any,
) -> int:
    """Keep snapshots of the cluster in a directory, for compare.

    It reads what snapshot reads, and writes there only. Without --redact-key-file the names of pods, nodes and workloads
    are in it as they are: protect it as you protect the cluster's own lists.
    """
    if "://" in to:
        raise PolicyError(
            [f"--to: {to} is no directory; give one, and let another program copy it"]
        )
    retention = Retention(keep, max_size)
    access = ClusterFlags(**cluster)
    redactor = None if redact_key_file is None else Redactor.of_file(redact_key_file)
    return int(run_record(access, Path(to), retention, every, system_environment(), redactor))
