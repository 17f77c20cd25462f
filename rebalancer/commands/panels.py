"""The help of a command: the flags that most calls need, and all others in panels."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import click

from rebalancer.base.output import write

SHARED: Mapping[str, Sequence[str]] = {
    "Access to the cluster": (
        "kubeconfig",
        "context_name",
        "as_user",
        "as_groups",
        "as_uid",
        "request_timeout",
        "max_requests",
        "compress",
    ),
    "Progress, output and exit code": (
        "whole",
        "quiet",
        "log_format",
        "color",
        "detailed_exitcode",
        "fail_on",
    ),
    "Time, and what runs share": (
        "deadline",
        "lease",
        "memory",
    ),
    "Metrics and notices": (
        "metrics_push",
        "metrics_file",
        "notify",
        "notify_template",
    ),
}
"""Heading -> the flags that many commands take, by parameter; ``rebalancer options`` lists them."""
_PANELS: Mapping[str, Sequence[str]] = {
    "As kubectl drain": (
        "force",
        "ignore_daemonsets",
        "delete_emptydir_data",
        "grace_period",
        "skip_wait_for_delete_timeout",
        "reason",
    ),
    "As a simulation goes": ("seed",),
    "More of the policy": ("only", "mode", "select", "lift_budgets", "no_memory"),
    "In special cases": (
        "machine_state",
        "pod_selector",
        "evict_batch",
        "evict_gangs",
        "without_landing",
        "exclude_from_load_balancers",
        "node_conditions",
        "uncordon_on_failure",
        "page_hosts",
    ),
    **SHARED,
}
"""Heading in the help -> the flags below it; all others come first, below ``Options``."""
_PANEL_OF = {name: heading for heading, names in _PANELS.items() for name in names}
_AT_ONCE = ("Options", "As kubectl drain", "As a simulation goes")
"""What ``--help`` shows; ``--help-all`` shows the other panels, too."""
_ALL = "--help-all"


def shows_all(ctx: click.Context) -> bool:
    """Return whether the help with all commands and options is requested."""
    return _ALL in ctx.meta


def list_panels(command: click.Command, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
    """Return heading -> the options of a command, each with its help."""
    panels: dict[str, list[tuple[str, str]]] = {"Options": []}
    panels |= {heading: [] for heading in _PANELS}
    for flag in command.get_params(ctx):
        if isinstance(flag, click.Option) and (record := flag.get_help_record(ctx)) is not None:
            panels[_PANEL_OF.get(flag.name or "", "Options")].append(record)
    return {heading: records for heading, records in panels.items() if records}


def _show_help(ctx: click.Context, flag: click.Parameter, asked: bool) -> None:
    """Print the help and end: as any other output, so that a reader who has left is no error."""
    if not asked or ctx.resilient_parsing:
        return
    if _ALL in flag.opts:
        ctx.meta[_ALL] = True
    write(sys.stdout, [ctx.get_help(), "\n"])
    ctx.exit()


class _WithHelp(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Of a flag without its value click does not say which command it is of."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _show_help
        return option

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return all parameters, the two of the help last."""
        what = "all commands and options," if isinstance(self, click.Group) else "all options"
        every = click.Option(
            [_ALL],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_help,
            help=f"Show {what} and exit.",
        )
        return [*super().get_params(ctx), every]


class PanelCommand(_WithHelp):
    """A command whose help begins with the options that most calls need; ``--help-all`` shows the others in panels."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by panel."""
        for heading, records in list_panels(self, ctx).items():
            if heading in _AT_ONCE or shows_all(ctx):
                with formatter.section(heading):
                    formatter.write_dl(records)


class PanelGroup(_WithHelp, click.Group):
    """A group of such commands."""

    command_class = PanelCommand
