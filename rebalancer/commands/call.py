"""Runs a command: its errors become messages and exit codes, never tracebacks."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from rebalancer.errors import ExitCode, RebalancerError


def call(command: click.Command, argv: Sequence[str]) -> int:
    """Run ``command`` with the arguments ``argv``; return the exit code."""
    try:
        result = command.main(args=list(argv), prog_name="rebalancer", standalone_mode=False)
    except RebalancerError as error:
        click.echo(f"rebalancer: {error}", err=True)
        return int(error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return int(ExitCode.USAGE)
    except click.ClickException as error:
        error.show()
        return int(ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        click.echo("rebalancer: stopped by a signal, before anything was moved", err=True)
        return int(ExitCode.PARTIAL)
    except BrokenPipeError:
        # The reader of a pipe (head, say) has gone; there is nobody left to tell.
        sys.stderr.close()
        return int(ExitCode.DONE)
    return int(result) if isinstance(result, int) else int(ExitCode.DONE)
