"""``plan``: ``run --dry-run`` under its own name, with a file for ``apply``."""

from __future__ import annotations

from typing import Any

import click

from rebalancer.base.environment import system_environment
from rebalancer.base.errors import PolicyError
from rebalancer.commands.flags import (
    CLUSTER,
    POLICY_FLAGS,
    RUN,
    WATCH,
    WHOLE,
    KubectlFlags,
    examples,
    with_flags,
)
from rebalancer.commands.run import run_once, watch
from rebalancer.run.options import RunOptions


@click.command(
    "plan",
    cls=KubectlFlags,
    rare=("deadline", "lease", "notify", "notify_template", "traces"),
    epilog=examples(
        "rebalancer plan",
        "rebalancer plan cluster.zip",
        "rebalancer plan --strategy topology-spread --set protect.minPodAge=0s",
        "rebalancer plan --out plan.json",
    ),
)
@click.argument("file", metavar="[FILE]", type=click.Path(), required=False)
@with_flags([*POLICY_FLAGS, *CLUSTER])
@click.option("--dry-run", is_flag=True, hidden=True, help="A plan is a dry run.")
@click.option(
    "--out",
    "plan_out",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Also write the plan to FILE, as JSON: for review, and for `rebalancer apply FILE`.",
)
@with_flags([*RUN, WHOLE, WATCH])
def command(every_report: float | None, file: str | None, **flags: Any) -> int:
    """Plan moves and carry none out.

    The same as run --dry-run. With FILE on that snapshot, as with --snapshot.
    """
    if file is not None:
        if flags["snapshot_path"] not in (None, file):
            raise PolicyError([f"{file} and --snapshot {flags['snapshot_path']}: name one file"])
        flags["snapshot_path"] = file
    options = RunOptions.of(**flags | {"dry_run": True})
    if every_report is not None:
        return int(watch(options, system_environment(), every_report))
    return int(run_once(options, system_environment()))
