"""``apply``: execute a reviewed plan; a run whose plan comes from a file."""

from __future__ import annotations

from typing import Any

import click

from rebalancer.commands.flags import (
    ACCESS,
    ALL_NAMESPACES,
    POLICY,
    RUN,
    KubectlFlags,
    examples,
    takes,
)
from rebalancer.commands.run import run_or_ask
from rebalancer.run.options import RunOptions


@click.command(
    "apply",
    cls=KubectlFlags,
    epilog=examples(
        "rebalancer apply plan.json --dry-run",
        "rebalancer apply plan.json",
        "rebalancer apply plan.json --yes -o json > report.json",
    ),
)
@click.argument("plan_path", metavar="PLAN")
@takes(
    RunOptions,
    f"{POLICY} {ACCESS} dry_run yes {RUN} max_age",
    dry_run={"help": "Report only: what is left of the plan now."},
)
@ALL_NAMESPACES
def command(**flags: Any) -> int:
    """Carry out a plan that was reviewed before.

    PLAN is what `rebalancer plan --out FILE` wrote, or -o json or yaml printed; '-' is standard input. Moves may have
    been deleted from it; none is added. Each is judged again on the cluster as it is now, as between the waves
    of a run, and dropped if its pod is gone or has changed, is protected now, no longer gains anything or would
    break something. What is left is shown on the terminal first, and carried out once you agree; without a terminal
    --yes is needed. Budgets, windows, Lease, memory, report and exit codes are those of run. The policy must be the
    one that the plan was made under.
    """
    return run_or_ask(RunOptions.of(**flags))
