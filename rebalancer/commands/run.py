"""``run``: read the cluster, plan, act, report.

``apply`` and dry runs differ only in where a plan comes from and ends.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

import click

from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ExitCode
from rebalancer.commands.ask import asks, run_asking, terminal_at_hand
from rebalancer.commands.flags import (
    CLUSTER,
    POLICY_FLAGS,
    RUN,
    WATCH,
    WHOLE,
    YES,
    examples,
    with_flags,
)
from rebalancer.machines.capacity import scaling_of
from rebalancer.policy.load import LoadedPolicy
from rebalancer.registry import Registry
from rebalancer.run import one_run
from rebalancer.run.ending import print_report
from rebalancer.run.options import RunOptions

if TYPE_CHECKING:
    from rebalancer.report.model import RunReport


def run_once(
    options: RunOptions, environment: Environment, loaded: LoadedPolicy | None = None
) -> ExitCode:
    """Run once, see :func:`rebalancer.run.one_run.run_once`; machines are scaled if the policy says so."""
    return one_run.run_once(options, environment, loaded, scale=scaling_of)


@click.command(
    "run",
    epilog=examples(
        "rebalancer run --dry-run",
        "rebalancer run",
        "rebalancer run --yes --lease default/rebalancer --memory default/memory",
        "rebalancer run --snapshot cluster.zip -o html > report.html",
    ),
)
@with_flags([*POLICY_FLAGS, *CLUSTER])
@click.option("--dry-run", is_flag=True, help="Report only. The plan is the same as a real run's.")
@with_flags([YES, *RUN, WHOLE, WATCH])
def command(every: float | None, **flags: Any) -> int:
    """Plan moves and carry them out, once.

    The plan is shown on the terminal first, and carried out once you agree; without a terminal --yes is needed.
    """
    options = RunOptions.of(**flags)
    if every is not None:
        return watched(options, every)
    return run_or_ask(options)


def run_or_ask(options: RunOptions) -> int:
    """Run once; without ``--yes`` show the plan on the terminal first, and execute it after a yes.

    Raises:
        RebalancerError: nothing was evicted, for example because consent is missing.
    """
    with terminal_at_hand() if asks(options) else nullcontext() as terminal:
        if terminal is None:
            return int(run_once(options, system_environment()))
        environment = system_environment()
        # Once: it may come from standard input.
        loaded = options.policy.load(Registry.installed())
        return int(run_asking(options, terminal, _Steps(options, loaded, environment)))


class _Steps:
    """The parts of a run with consent: see ``rebalancer.commands.ask.Steps``."""

    def __init__(self, options: RunOptions, loaded: LoadedPolicy, environment: Environment) -> None:
        self._options, self._loaded, self._environment = options, loaded, environment

    def look(self, options: RunOptions, out: TextIO) -> tuple[ExitCode, RunReport | None]:
        """Make a dry run, and write its report to ``out``."""
        environment = replace(self._environment, out=out)
        ended = one_run.run_unpublished(options, environment, self._loaded, scaling_of)
        return ended.code, ended.report

    def print_plan(self, report: RunReport) -> ExitCode:
        """Print the report of the dry run in the requested form."""
        return print_report(self._environment, self._options.ending, report)

    def act(self, plan: bytes) -> ExitCode:
        """Execute the plan, and print the report."""
        options = replace(self._options, confirmed_plan=plan)
        return run_once(options, self._environment, self._loaded)


def watched(options: RunOptions, every: float) -> int:
    """Show the report again every ``every`` seconds."""
    from rebalancer.commands.watching import watch  # noqa: PLC0415

    return int(watch(options, system_environment(), every))
