"""``plan``: ``run --dry-run`` under its own name, with a file for ``apply``."""

from __future__ import annotations

from typing import Any

import click

from rebalancer.base.environment import system_environment
from rebalancer.base.errors import PolicyError
from rebalancer.commands.flags import (
    ACCESS,
    ALL_NAMESPACES,
    POLICY,
    RUN,
    KubectlFlags,
    examples,
    takes,
)
from rebalancer.commands.run import run_once
from rebalancer.run.options import RunOptions


@click.command(
    "plan",
    cls=KubectlFlags,
    epilog=examples(
        "rebalancer plan",
        "rebalancer plan cluster.zip",
        "rebalancer plan -n shop --set protect.minPodAge=0s",
        "rebalancer plan --out plan.json",
    ),
)
@click.argument("file", metavar="[FILE]", type=click.Path(), required=False)
@takes(
    RunOptions,
    f"{POLICY} {ACCESS} dry_run plan_out {RUN} whole",
    dry_run={"hidden": True},
    snapshot_path={"help": "Plan on a snapshot file ('-': standard input), without a cluster."},
)
@ALL_NAMESPACES
def command(file: str | None, **flags: Any) -> int:
    """Plan moves and carry none out.

    The same as run --dry-run. FILE is a snapshot file, the same as --snapshot FILE: no cluster is needed then.
    """
    if file is not None:
        if flags["snapshot_path"] not in (None, file):
            raise PolicyError([f"{file} and --snapshot {flags['snapshot_path']}: name one file"])
        flags["snapshot_path"] = file
    return int(run_once(RunOptions.of(**flags | {"dry_run": True}), system_environment()))
