"""``run``: read the cluster, plan, act, report; ``plan`` and ``apply``, where the plan goes to a file or comes from one.

``options`` lists the options of ``run``, of which other commands have some.

The question before execution is shown on the controlling terminal, also if standard output is redirected, as in ``run >
report`` and ``run | less``.
"""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

import click

from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ExitCode, PolicyError, RebalancerError
from rebalancer.base.output import write
from rebalancer.base.plain_text import count
from rebalancer.commands.flags import (
    ACCESS,
    ALL_NAMESPACES,
    POLICY,
    RUN,
    KubectlFlags,
    examples,
    takes,
)
from rebalancer.commands.panels import SHARED, PanelCommand, list_panels
from rebalancer.machines.capacity import MachineScaler
from rebalancer.plan.plan import Status
from rebalancer.policy.load import LoadedPolicy
from rebalancer.policy.model import Mode
from rebalancer.registry import Registry
from rebalancer.report.render import TABLES
from rebalancer.run import one_run
from rebalancer.run.ending import print_report
from rebalancer.run.options import RunOptions
from rebalancer.run.source import Source, find_state

if TYPE_CHECKING:
    from rebalancer.report.model import RunReport


_TERMINAL = "/dev/tty"
"""The terminal that controls the process."""


class Terminal:
    """The terminal on which a person sees a plan and answers."""

    def __init__(self, number: int, out: TextIO) -> None:
        """``number``: file descriptor of the open terminal, for reading; ``out``: writes to it."""
        self._number, self.out = number, out

    def ask(self, question: str) -> bool:
        """Return whether the answer is yes. No answer, or the end of input, counts as no."""
        with self._line_by_line():
            while True:
                write(self.out, [f"\n{question} [y/N]: "])
                answer = self._line().strip().lower()
                if answer in {"y", "yes"}:
                    return True
                if answer in {"", "n", "no"}:
                    return False
                write(self.out, ["Answer y or n.\n"])

    def _line(self) -> str:
        try:
            return os.read(self._number, 1024).decode(errors="replace")
        except OSError:
            # The terminal has gone.
            return ""

    @contextmanager
    def _line_by_line(self) -> Iterator[None]:
        """Switch the terminal to echo and line mode, even under a pager; discard earlier input."""
        before = termios.tcgetattr(self._number)
        asking = termios.tcgetattr(self._number)
        asking[0] |= termios.ICRNL
        asking[3] |= termios.ICANON | termios.ECHO | termios.ISIG
        termios.tcsetattr(self._number, termios.TCSAFLUSH, asking)
        try:
            yield
        finally:
            termios.tcsetattr(self._number, termios.TCSADRAIN, before)


@contextmanager
def terminal_at_hand() -> Iterator[Terminal | None]:
    """Yield the terminal; None if the process has none, or runs in the background with all streams redirected."""
    number = _open() if any(each.isatty() for each in (sys.stdin, sys.stdout, sys.stderr)) else None
    if number is None:
        yield None
        return
    with open(number, "w", encoding="utf-8", errors="replace") as out:  # noqa: PTH123  # no path
        yield Terminal(number, out)


def _open() -> int | None:
    try:
        return os.open(_TERMINAL, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None


def asks(options: RunOptions) -> bool:
    """Return whether a run with these flags needs consent."""
    only_looks = options.dry_run or options.whole or options.cluster.snapshot_path is not None
    return not (only_looks or options.yes)


class _Steps:
    def __init__(self, options: RunOptions, loaded: LoadedPolicy, environment: Environment) -> None:
        self._options, self._loaded, self._environment = options, loaded, environment

    def look(self, options: RunOptions, out: TextIO) -> tuple[ExitCode, RunReport | None]:
        """Make a dry run, and write its report to ``out``."""
        environment = replace(self._environment, out=out)
        ended = one_run.run_unpublished(options, environment, self._loaded, MachineScaler())
        return ended.code, ended.report

    def print_plan(self, report: RunReport) -> ExitCode:
        """Print the report of the dry run in the requested form."""
        return print_report(self._environment, self._options.ending, report)

    def act(self, plan: bytes) -> ExitCode:
        """Execute the plan, given in the format that ``apply`` reads, and print the report."""
        options = replace(self._options, confirmed_plan=plan)
        return run_once(options, self._environment, self._loaded)


def run_asking(options: RunOptions, terminal: Terminal, steps: _Steps) -> ExitCode:
    """Show the plan of a dry run on the terminal, and execute it after a yes.

    After the answer, moves are judged again on the current cluster, as for any reviewed plan. If there are no moves,
    the plan is printed in the requested form, unless the terminal has shown just that.
    """
    in_sight = sys.stdout.isatty()
    ending = options.ending
    is_table = ending.output in TABLES
    form = ending.output if is_table else "table"
    shown = replace(
        options,
        dry_run=True,
        ending=replace(ending, output=form, detailed_exitcode=False, asks=True),
    )
    code, report = steps.look(shown, sys.stdout if in_sight else terminal.out)
    if report is None:
        return code
    if (question := question_of(report)) is not None:
        if terminal.ask(question):
            from rebalancer.report.as_json import as_json  # noqa: PLC0415

            return steps.act("".join(as_json(report)).encode())
        write(terminal.out, ["Declined: no pod was moved, and no node was marked.\n"])
        code = ExitCode.DONE
    return (
        code
        if in_sight and is_table
        else steps.print_plan(replace(report, exit_code=int(code), asks=False))
    )


def question_of(report: RunReport) -> str | None:
    """Return the question to ask before the plan is executed; None if the plan changes nothing.

    Marks that keep nodes empty expire unless runs renew them, so a plan without moves may change something.
    """
    if report.standstill or report.loaded.policy.mode is not Mode.ENFORCE:
        return None
    if moves := sum(one.status is Status.PLANNED for one in report.outcomes):
        return "Evict this pod?" if moves == 1 else f"Evict these {moves:,} pods?"
    marked = len(report.plan.emptied or ()) + len(report.plan.pinned_nodes or ())
    return f"Mark {count(marked, 'node')} as to be empty, or renew these marks?" if marked else None


def run_once(
    options: RunOptions,
    environment: Environment,
    loaded: LoadedPolicy | None = None,
    after: Callable[[Source], None] | None = None,
) -> ExitCode:
    """Run once, see :func:`rebalancer.run.one_run.run_once`; a dry run also reports what would be done to machines."""
    return one_run.run_once(options, environment, loaded, scale=MachineScaler(), after=after)


@click.command(
    "run",
    cls=KubectlFlags,
    epilog=examples(
        "rebalancer run --dry-run",
        "rebalancer run",
        "rebalancer run --yes --policy policy.yaml",
        "rebalancer run cluster.zip -o html > report.html",
    ),
)
@takes(RunOptions, f"{POLICY} {ACCESS} dry_run yes {RUN} whole")
@ALL_NAMESPACES
def command(**flags: Any) -> int:
    """Plan moves and carry them out, once.

    The plan is shown on the terminal first, and carried out once you agree; without a terminal --yes is needed.
    """
    return run_or_ask(RunOptions.of(**flags))


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
        if loaded.served:
            raise PolicyError(loaded.served)
        return int(run_asking(options, terminal, _Steps(options, loaded, environment)))


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
@takes(
    RunOptions,
    f"{POLICY} {ACCESS} dry_run plan_out {RUN} whole",
    dry_run={"hidden": True},
    snapshot_path={"help": "Plan on a snapshot file ('-': standard input), without a cluster."},
)
@ALL_NAMESPACES
def plan_command(**flags: Any) -> int:
    """Plan moves and carry none out.

    The same as run --dry-run.
    """
    options = RunOptions.of(**flags | {"dry_run": True})
    return int(run_once(options, system_environment(), after=_name_other_policy))


def _name_other_policy(source: Source) -> None:
    """Say that the release in the cluster has another policy than the built-in one that was used."""
    run, client = source.run, source.client
    if client is None or not run.loaded.is_built_in:
        return
    from rebalancer.doctor.release import name_other_policy  # noqa: PLC0415

    with suppress(RebalancerError):  # The report is written, and the note is not worth an error.
        state, _ = find_state(run.state, client)
        name_other_policy(run.loaded, client, state.memory, run.environment.err)


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
    snapshot_path={"argument": False},
)
@ALL_NAMESPACES
def apply_command(**flags: Any) -> int:
    """Carry out a plan that was reviewed before.

    PLAN is what `rebalancer plan --out FILE` wrote, or -o json printed; '-' is standard input. Moves may have
    been deleted from it; none is added. Each is judged again on the cluster as it is now, as between the waves
    of a run, and dropped if its pod is gone or has changed, is protected now, no longer gains anything or would
    break something. What is left is shown on the terminal first, and carried out once you agree; without a terminal
    --yes is needed. Budgets, windows, Lease, memory, report and exit codes are those of run. The policy must be the
    one that the plan was made under.
    """
    return run_or_ask(RunOptions.of(**flags))


@click.command("options", cls=PanelCommand)
@click.pass_context
def options_command(context: click.Context) -> None:
    """List the options that many commands take.

    Each command takes some of them: its --help-all says which.
    """
    formatter = context.make_formatter()
    for heading, records in list_panels(command, context).items():
        if heading in SHARED:
            with formatter.section(heading):
                formatter.write_dl(records)
    write(sys.stdout, [formatter.getvalue().lstrip("\n")])
