"""The command line: the list of commands, and the exit codes of their errors."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from rebalancer import __version__
from rebalancer.base.plain_text import did_you_mean
from rebalancer.commands.call import call
from rebalancer.commands.panels import PanelGroup, shows_all
from rebalancer.core import INTERPRETED, is_compiled

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_EPILOG = """\b
Exit codes:
  0    done, nothing to do, standing still, or stopped by a PodDisruptionBudget, a budget or another run
  1    an error in the program itself
  2    the policy, a flag or a file is wrong, an eviction was not confirmed (--yes), or the output could not be written
  3    the cluster could not be read, or denied access before the first eviction
  4    partly executed: something planned failed or was cut off, or was done and could not be reported
  10   with --detailed-exitcode: a dry run plans moves
  11   with --fail-on: the run ended in a state that was named there
  130  stopped by Ctrl-C or SIGTERM before anything was changed
"""

_GROUPS = {
    "Look, and change nothing": {
        "plan": "Plan moves and carry none out.",
        "explain": "Explain a pod, a node or a workload.",
        "doctor": "Check what runs need, and what keeps them from moving anything.",
        "advise": "Say what to change in workloads, with patches for it.",
        "simulate": "Play run after run offline, with what-if changes.",
        "compare": "Play policies on snapshots, and say which is better on what.",
        "capacity": "Say which nodes can be removed, and which groups need more.",
        "history": "Print what earlier runs did, and what is remembered of them.",
    },
    "Move pods": {
        "run": "Plan moves and carry them out, once.",
        "apply": "Carry out a plan that was reviewed before.",
        "drain": "Cordon nodes and move their pods away.",
        "replace": "Replace old nodes, one after the other.",
        "uncordon": "Open nodes, and take back what drains have left on them.",
    },
    "Set up": {
        "policy": "Check, show and migrate policies.",
        "snapshot": "Write the cluster's state to a file, for run --snapshot.",
        "demo": "Tell the story in an embedded cluster.",
        "options": "List the options that many commands take.",
        "completion": "Print a script that completes commands in a shell.",
        "schema": "Print the JSON schema of reports or of policies.",
    },
    "In the cluster": {
        "serve": "Follow the cluster, and plan and act again and again.",
        "fleet": "Observe several clusters, and report on all of them.",
        "record": "Keep snapshots of the cluster in a directory, for compare.",
        "marks": "Show the marks that runs have set on nodes, or remove them.",
        "node-agent": "Announce on this node that its EC2 instance will go.",
    },
}
"""Heading -> command -> the first sentence of its help. Each is the object ``command`` of its module in
``rebalancer.commands``, with _ for -, which is imported when the command is called: ``--help`` needs none of them."""

_MODULES = {
    "plan": "run",
    "apply": "run",
    "options": "run",
    "schema": "policy",
    "uncordon": "marks",
}
"""Command -> the module of another one, in which it is, too: as ``plan_command``."""

_RARE = {
    "compare",
    "uncordon",
    "options",
    "completion",
    "schema",
    "fleet",
    "record",
    "marks",
    "node-agent",
}
"""Commands that ``--help`` leaves out; ``--help-all`` shows them."""

_COMMANDS = {name: text for group in _GROUPS.values() for name, text in group.items()}

_ALSO = {
    ("policy", "validate"): ("policy", "check"),
    ("policy", "schema"): ("schema", "policy"),
    ("report", "schema"): ("schema", "report"),
    ("strategies",): ("policy", "strategies"),
    ("version",): ("--version",),
}
"""What others call a command -> its name here."""


_NEAR = {"get": "explain", "describe": "explain", "status": "doctor", "diff": "plan"}
"""What others call a command -> ours that is suggested, since it answers in another way."""


def _with_our_names(args: list[str]) -> list[str]:
    """Return the arguments with our name of a command that other programs call in another way."""
    if args[0] == "help":
        return [*args[1:], "--help"]
    for other, name in _ALSO.items():
        if tuple(args[: len(other)]) == other:
            return [*name, *args[len(other) :]]
    return args


class _Commands(PanelGroup):
    """A command group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module = _MODULES.get(cmd_name, cmd_name.replace("-", "_"))
        name = f"{cmd_name}_command" if cmd_name in _MODULES else "command"
        loaded: click.Command = getattr(
            importlib.import_module(f"rebalancer.commands.{module}"), name
        )
        return loaded

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, with our names of commands."""
        return super().parse_args(ctx, _with_our_names(args) if args else args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command. Click's own method suggests only commands that are already imported."""
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-"):
            meant = did_you_mean(_NEAR.get(name, name), _COMMANDS, listed=0)
            ctx.fail(f"No such command {name!r}{meant}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that start with ``incomplete``; none is imported."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem  # noqa: PLC0415

        return [
            CompletionItem(name, help=text)
            for name, text in _COMMANDS.items()
            if name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = [name for name in _COMMANDS if shows_all(ctx) or name not in _RARE]
        widest = max(map(len, shown))
        for heading, commands in _GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(name.ljust(widest), text) for name, text in commands.items() if name in shown]
                )
        formatter.write_paragraph()
        if not shows_all(ctx):
            formatter.write_text(f"All commands: {ctx.command_path} --help-all")
        formatter.write_text(f"Options that many commands take: {ctx.command_path} options")


@click.group(
    cls=_Commands,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda context, _, asked: _print_version(context) if asked else None,
    help="Show the version and exit.",
)
def main() -> None:
    """Move running pods to where they should be.

    Begin with `rebalancer plan`, which changes nothing, or without a cluster with `rebalancer demo`.
    """


def _print_version(context: click.Context) -> None:
    """Print the version, and whether the planner is slower than it should be."""
    how = "" if is_compiled() else f" ({INTERPRETED})"
    click.echo(f"rebalancer, version {__version__}{how}")
    context.exit()


def command(argv: Sequence[str], program: str = "rebalancer") -> int:
    """Run the command line ``argv``; return the exit code. Errors are printed without a traceback.

    ``program``: the name of the started file; kubectl starts ``kubectl-rebalancer``.
    """
    plug_in = os.path.basename(program).startswith("kubectl-")  # noqa: PTH119  # pathlib is not needed here
    return call(main, argv, "kubectl rebalancer" if plug_in else "rebalancer")
