"""Run a command, and turn its errors into messages and exit codes, never tracebacks."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from rebalancer.base.early_signals import COMPLETE_VARIABLE
from rebalancer.base.errors import ExitCode, RebalancerError, StoppedError
from rebalancer.base.output import OutputError, say, say_error, stream_error


def call(command: click.Command, argv: Sequence[str], name: str = "rebalancer") -> int:
    """Run ``command`` with the arguments ``argv``; return the exit code. ``name``: the program name in messages."""
    try:
        result = command.main(
            args=list(argv),
            prog_name=name,
            complete_var=COMPLETE_VARIABLE,
            standalone_mode=False,
        )
    except OutputError as error:
        if error.reader_has_left:
            return int(ExitCode.DONE)
        say_error(sys.stderr, error)
        return int(error.exit_code)
    except RebalancerError as error:
        say_error(sys.stderr, error)
        return int(error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        say(sys.stdout, *error.format_message().split("\n"))
        return int(ExitCode.USAGE)
    except click.ClickException as error:
        say(sys.stderr, f"rebalancer: {_usage_line(error, name)}")
        return int(ExitCode.USAGE)
    except OSError as error:
        # click prints help and versions itself.
        said = stream_error(sys.stdout, error)
        if said is None:
            raise
        say(sys.stderr, f"rebalancer: {said}")
        return int(said.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return say_stopped()
    return int(result) if isinstance(result, int) else int(ExitCode.DONE)


def _usage_line(error: click.ClickException, name: str) -> str:
    """Return click's message about wrong usage in one line, with a pointer to the help."""
    text = " ".join(error.format_message().split())
    text = text[:1].lower() + text[1:]
    if not isinstance(error, click.UsageError):
        return text
    end = "" if text.endswith((".", "?")) else "."
    # Of a flag without its value click does not say which command it is of.
    path = name if error.ctx is None else error.ctx.command_path
    return f"{text}{end} See {path} --help"


def say_stopped() -> int:
    """Print that a signal ended the command before anything was done; return the exit code."""
    stopped = StoppedError()
    say(sys.stderr, f"rebalancer: {stopped}")
    return int(stopped.exit_code)
