"""``apply``: execute a reviewed plan; a run whose plan comes from a file."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from rebalancer.base.durations import format_duration
from rebalancer.commands.flags import (
    CLUSTER,
    DEFAULTS,
    POLICY_FLAGS,
    RUN,
    YES,
    KubectlFlags,
    duration,
    examples,
    parse_named,
    with_flags,
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
@with_flags([*POLICY_FLAGS, *CLUSTER])
@click.option("--dry-run", is_flag=True, help="Report only: what is left of the plan now.")
@with_flags([YES, *RUN])
@click.option(
    "--max-age",
    callback=parse_named(duration),
    default=format_duration(timedelta(seconds=DEFAULTS.max_age)),
    show_default=True,
    metavar="DURATION",
    help="Refuse a plan that was made on an older picture of the cluster: 90s, 5m, 1h30m.",
)
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
