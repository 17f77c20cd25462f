"""Run a command, and turn its errors into messages and exit codes, never tracebacks."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from rebalancer.base.early_signals import COMPLETE_VARIABLE
from rebalancer.base.errors import ExitCode, RebalancerError, StoppedError
from rebalancer.base.output import OutputError, say, say_error, stream_error
from rebalancer.base.plain_text import did_you_mean


def call(command: click.Command, argv: Sequence[str], name: str = "rebalancer") -> int:
    """Run ``command`` with the arguments ``argv``; return the exit code. ``name``: the program name in messages."""
    try:
        result = command.main(
            args=list(argv),
            prog_name=name,
            complete_var=COMPLETE_VARIABLE,
            standalone_mode=False,
        )
    except RebalancerError as error:
        if isinstance(error, OutputError) and error.reader_has_left:
            return int(ExitCode.DONE)
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
    """Return click's message about wrong usage in one line, with what may be meant and a pointer to the help."""
    # click's own hint is in the message that it formats, in other words than all errors of ours.
    has_hint = getattr(error, "possibilities", None)
    text = " ".join((error.message if has_hint else error.format_message()).split())
    text = text[:1].lower() + text[1:]
    if not isinstance(error, click.UsageError):
        return text
    text = f"{text.removesuffix('.')}{_hint(error)}"
    path = name if error.ctx is None else error.ctx.command_path
    return f"{text}{'' if text.endswith('?') else '.'} See {path} --help"


def _hint(error: click.UsageError) -> str:
    """Return what may be meant, as the end of a message."""
    if similar := getattr(error, "possibilities", None):
        return f"; did you mean {similar[0]}?"
    kind = error.param.type if isinstance(error, click.BadParameter) and error.param else None
    if isinstance(kind, click.Choice):
        typed = error.message.partition("'")[2].partition("'")[0]
        return did_you_mean(typed, kind.choices, listed=0)
    given = {} if error.ctx is None else error.ctx.params
    if "unexpected extra argument" in error.message and given.get("snapshot_path", "") is None:
        return "; a snapshot is named by --snapshot FILE"
    return ""


def say_stopped() -> int:
    """Print that a signal ended the command before anything was done; return the exit code."""
    stopped = StoppedError()
    say(sys.stderr, f"rebalancer: {stopped}")
    return int(stopped.exit_code)
