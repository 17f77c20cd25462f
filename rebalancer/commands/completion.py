"""``completion``: print the script by which a shell completes commands, flags and names in the cluster."""

from __future__ import annotations

import sys

import click
from click.shell_completion import get_completion_class

from rebalancer.base.early_signals import COMPLETE_VARIABLE
from rebalancer.base.output import write


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print a script that completes commands in a shell.

    \b
    bash:  source <(rebalancer completion bash)
    zsh:   source <(rebalancer completion zsh)
    fish:  rebalancer completion fish | source
    """  # noqa: D301  # \b is click's mark for lines that stay as they are
    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"click knows no completion of {shell}")
    root = context.find_root().command
    write(sys.stdout, [made(root, {}, "rebalancer", COMPLETE_VARIABLE).source(), "\n"])
