"""The command ``rebalancer compare``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ExitCode
from rebalancer.base.output import say
from rebalancer.commands.flags import examples, takes
from rebalancer.commands.panels import PanelCommand
from rebalancer.registry import Registry
from rebalancer.report.document import FORMS
from rebalancer.report.progress import Progress, bars_on
from rebalancer.run.options import Grouped, PolicyFlags, flag

BUILT_IN = "default"
"""Names the built-in policy in the place of a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions(Grouped):
    """The flags of ``compare``."""

    policies: tuple[str, ...] = flag(
        "The policies; default is the built-in one.",
        default=(),
        required=True,
        metavar="FILE|DIRECTORY|default ...",
    )
    snapshots: tuple[str, ...] = flag(
        "Snapshot files, and directories of them.",
        default=(),
        required=True,
        metavar="FILE|DIRECTORY ...",
    )
    judge: str = flag(
        "Policy by whose rules all policies' ends are scored.",
        default=BUILT_IN,
        metavar="FILE|DIRECTORY|default",
    )
    cycles: int = flag("Runs to play at most, as simulate does.", default=20, least=1, metavar="N")
    draws: int = flag(
        "Times that each policy is played on each snapshot, with other landings.",
        default=5,
        least=1,
        metavar="M",
    )
    seed: int = flag("Of the landings: another one draws others.", default=0, least=0, metavar="N")
    lift_budgets: bool = flag("No limit per run and per hour.", default=False)
    no_memory: bool = flag("Every run is the first: no cool-downs.", default=False)
    jobs: int = flag(
        "Processes to play in. The result is the same.", default=1, least=1, metavar="N"
    )
    output: str = flag("Form of the comparison.", "-o", "--output", default="table", choices=FORMS)
    quiet: bool = flag("No progress on standard error.", "-q", "--quiet", default=False)


def run_compare(options: CompareOptions, environment: Environment) -> ExitCode:
    """Compare the policies and print the result.

    Raises:
        RebalancerError: a policy, a snapshot or a flag is wrong.
    """
    # The help needs no planner.
    from rebalancer.fleet import simulation  # noqa: PLC0415
    from rebalancer.fleet.comparison import Inputs, compare, list_snapshots  # noqa: PLC0415
    from rebalancer.fleet.comparison_report import document_of  # noqa: PLC0415

    registry = Registry.installed()

    def load(name: str) -> simulation.Rules:
        flags = PolicyFlags(policy_path=None if name == BUILT_IN else name)
        return simulation.as_rules(flags.load(registry), name)

    inputs = Inputs(
        policies=tuple(load(name) for name in options.policies),
        snapshots=tuple(list_snapshots(options.snapshots)),
        draws=options.draws,
        seed=options.seed,
        setting=simulation.TaskSetting(
            load(options.judge), options.cycles, options.lift_budgets, not options.no_memory
        ),
    )
    play = partial(simulation.play_all, jobs=options.jobs)
    with show_progress(environment, "comparing", quiet=options.quiet) as reached:
        comparison = compare(inputs, play, reached=reached)
    document = document_of(comparison, options.judge)
    document.print_to(environment, options.output)
    failed = len(comparison.failures)
    return report_failures(environment, failed, failed + len(comparison.rows))


def report_failures(environment: Environment, failed: int, of: int) -> ExitCode:
    """Say how many simulations failed, if any; return the exit code."""
    if not failed:
        return ExitCode.DONE
    say(environment.err, f"rebalancer: {failed} of {of} simulations failed")
    return ExitCode.PARTIAL


def show_progress(
    environment: Environment, what: str, *, quiet: bool
) -> AbstractContextManager[Any]:
    """Return a context with a function that shows how many simulations have ended."""
    bars = bars_on(environment, form="quiet" if quiet else "text")
    return Progress(environment.err, clock=environment.clock.now, bars=bars, form="quiet").course(
        what, "simulations"
    )


_LISTS = ("--policies", "--snapshots")


class TakesLists(PanelCommand):
    """A command whose flags in ``_LISTS`` take several words, up to the next flag: a shell's pattern expands to such words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        return super().parse_args(ctx, list(_repeat_flags(args)))


def _repeat_flags(args: Sequence[str]) -> Iterator[str]:
    """Yield the arguments with a flag of ``_LISTS`` before each of its words."""
    flag, words = "", 0
    for word in args:
        if word.startswith("-") and word != "-":
            name = word.partition("=")[0]
            flag, words = (name, int("=" in word)) if name in _LISTS else ("", 0)
        elif flag:
            if words:
                yield flag
            words += 1
        yield word


@click.command(
    "compare",
    cls=TakesLists,
    epilog=examples(
        "rebalancer compare --policies default careful.yaml --snapshots recorded/",
        "rebalancer compare --policies a.yaml b/ --snapshots *.zip --jobs 8 -o html > compared.html",
    ),
)
@takes(
    CompareOptions,
    "policies snapshots judge cycles draws seed lift_budgets no_memory jobs output quiet",
)
def command(**flags: Any) -> int:
    """Play policies on snapshots, and say which is better on what.

    Each policy is played on each snapshot as simulate does, with landings drawn several times. Differences are paired over the
    snapshots: a policy is called better only where it is surely so, and what is not shown is said. Ends with code 4 if a
    simulation failed.
    """
    return int(run_compare(CompareOptions.of(**flags), system_environment()))
