"""``run --dry-run --watch``: refresh the report on one screen, with marks at changed lines."""

from __future__ import annotations

import re
from dataclasses import replace

from rebalancer.base.environment import Environment
from rebalancer.base.errors import ClusterReadError, ExitCode, PolicyError, StoppedError
from rebalancer.base.output import write
from rebalancer.base.plain_text import printable_lines
from rebalancer.report.render import TABLES, render
from rebalancer.run.context import Look, run_context, terminal_look
from rebalancer.run.ending import run_report
from rebalancer.run.one_run import plan_run, recall
from rebalancer.run.options import ProgressFlags, RunOptions
from rebalancer.run.source import open_source

_CLEAR = "\x1b[H\x1b[2J\x1b[3J"
_COLORS = re.compile(r"\x1b\[[\d;]*m")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_GUTTER = 2


def watch(options: RunOptions, environment: Environment, seconds: float) -> ExitCode:
    """Show the report of a dry run every ``seconds`` seconds, until a signal comes.

    Raises:
        PolicyError: there is no terminal, or the form of the report or another flag is not for terminals.
        ClusterReadError: the first reading failed; later failures are shown and retried.
    """
    if not environment.out.isatty() or options.ending.output not in TABLES:
        raise PolicyError([f"--watch needs a terminal, and -o {' or '.join(TABLES)}"])
    ending = options.ending
    of_one_run = {
        "--out": ending.plan_out,
        "--fail-on": ending.fail_on,
        "--detailed-exitcode": ending.detailed_exitcode,
        "--metrics-file": options.publishing.metrics_file,
    }
    if given := [flag for flag, value in of_one_run.items() if value]:
        raise PolicyError([f"{given[0]} is of one run: leave it out with --watch"])
    previous: str | None = None
    while not environment.stop.is_set():
        try:
            text = _report(options, environment)
        except StoppedError:
            break
        except ClusterReadError as error:
            if previous is None:
                raise
            text = f"{printable_lines(str(error))}\nIt is tried again in {seconds:g} s.\n"
        _show(environment, options, text, previous)
        previous = text
        environment.stop.wait(seconds)
    return ExitCode.DONE


def _report(options: RunOptions, environment: Environment) -> str:
    look = terminal_look(environment, options.ending.color)
    # The screen is the report's: no progress beside it.
    run = run_context(replace(options, progress=ProgressFlags(quiet=True)), environment)
    with open_source(run, options.cluster) as source:
        reading = source.read()
        run, memory = recall(reading.run, source, reading)
        planned = plan_run(run, reading, memory)
        report = run_report(run, source, planned)
    width = look.width - _GUTTER
    return "".join(render(report, options.ending.output, color=look.color, width=width))


def _show(environment: Environment, options: RunOptions, text: str, previous: str | None) -> None:
    look = terminal_look(environment, options.ending.color)
    lines = mark_changes(text, previous)
    shown = _cut(lines, look)
    clear = "\n" if environment.environ.get("TERM") == "dumb" else _CLEAR
    write(environment.out, [clear, "\n".join(shown), "\n"])


def mark_changes(text: str, previous: str | None) -> list[str]:
    """Return the lines of ``text``, with a star before each line that ``previous`` did not have.

    Colours and times are ignored, because the time of the report always differs.
    """
    known = None if previous is None else {_plain(line) for line in previous.splitlines()}
    return [
        f"{'*' if known is not None and _plain(line) not in known else ' '} {line}".rstrip()
        for line in text.splitlines()
    ]


def _plain(line: str) -> str:
    return _TIME.sub("", _COLORS.sub("", line)).strip()


def _cut(lines: list[str], look: Look) -> list[str]:
    """Return as many lines as fit on the screen; the last one counts the omitted lines."""
    room = look.height - 1
    if len(lines) <= room:
        return lines
    return [*lines[: room - 1], f"  ... and {len(lines) - room + 1} more lines"]
