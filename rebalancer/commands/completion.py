"""``completion``: print the script by which a shell completes commands, flags and names in the cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import click
from click.shell_completion import ShellComplete, get_completion_class

from rebalancer.base.early_signals import COMPLETE_VARIABLE
from rebalancer.base.output import write
from rebalancer.commands.panels import PanelCommand


@click.command("completion", cls=PanelCommand)
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


_FILES, _NO_FILES, _NO_SPACE = 0, 4, 2
"""Bits that kubectl (by cobra) reads after the words: complete files, too; complete no files; add no space. They are added up."""


def complete_for_kubectl(root: click.Command, words: Sequence[str]) -> None:
    """Print what may follow ``kubectl rebalancer``, in the form that kubectl expects of plug-ins (``kubectl_complete-rebalancer``).

    ``words``: what was typed behind the plug-in's name; the last one is unfinished, and may be empty.
    """
    *before, begun = words or [""]
    write(sys.stdout, [f"{line}\n" for line in _answer(root, before, begun)])


def _answer(root: click.Command, before: Sequence[str], begun: str) -> Iterator[str]:
    items = ShellComplete(root, {}, "rebalancer", COMPLETE_VARIABLE).get_completions(
        list(before), begun
    )
    names = [item for item in items if item.type == "plain"]
    for item in names:
        yield f"{item.value}\t{item.help}" if item.help else item.value
    goes_on = any(item.value.endswith(("/", "=")) for item in names)
    directive = _NO_FILES if len(names) == len(items) else _FILES
    yield f":{directive + _NO_SPACE * goes_on}"
