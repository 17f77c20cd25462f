"""``run`` on a terminal: the plan is shown, and carried out once it was agreed to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from rebalancer.base.errors import ExitCode
from rebalancer.base.plain_text import count
from rebalancer.commands.options import RunOptions
from rebalancer.plan.outcome import Status
from rebalancer.policy.model import Mode
from rebalancer.report.render import TABLES

if TYPE_CHECKING:
    from rebalancer.report.model import RunReport


def asks(options: RunOptions, stdin: TextIO, stdout: TextIO) -> bool:
    """Return whether the run is to ask before it evicts: only where a person sees it, and can answer."""
    acts = not (options.dry_run or options.whole or options.snapshot_path is not None)
    return acts and not options.yes and stdin.isatty() and stdout.isatty()


def shown(options: RunOptions) -> RunOptions:
    """Return the flags of the dry run that is shown before the question."""
    output = options.output if options.output in TABLES else "table"
    return replace(options, dry_run=True, output=output, detailed_exitcode=False, fail_on=())


def agreed(report: RunReport, ask: Callable[[str], bool]) -> bytes | None:
    """Ask whether the plan is to be carried out; return it as ``apply`` reads it, or None.

    Marks of nodes that are to stay empty expire unless runs renew them, also where no pod moves.
    """
    if report.standstill or report.loaded.policy.mode is not Mode.ENFORCE:
        return None
    moves = sum(one.status is Status.PLANNED for one in report.outcomes)
    question = _question(moves, len(report.plan.emptied or ()))
    if question is None:
        return None
    from rebalancer.report.as_json import as_json  # noqa: PLC0415

    if not ask(question):
        return None
    return "".join(as_json(report)).encode()


def _question(moves: int, marked: int) -> str | None:
    if moves:
        return "Evict this pod?" if moves == 1 else f"Evict these {moves:,} pods?"
    return f"Mark {count(marked, 'node')} as to be empty, or renew these marks?" if marked else None


def run_asking(
    options: RunOptions,
    dry_run: Callable[[RunOptions], tuple[ExitCode, RunReport | None]],
    run: Callable[[RunOptions], ExitCode],
    ask: Callable[[str], bool],
) -> ExitCode:
    """Show the plan of a dry run, and carry it out if that is agreed to.

    Moves are judged again on the cluster as it is after the answer, as those of any reviewed plan.
    """
    code, report = dry_run(shown(options))
    plan = None if report is None else agreed(report, ask)
    return code if plan is None else run(replace(options, confirmed_plan=plan))
