"""``options``: the options that many commands take, in one place, as ``kubectl options`` does."""

from __future__ import annotations

import sys

import click

from rebalancer.base.output import write
from rebalancer.commands.panels import SHARED, PanelCommand, list_panels
from rebalancer.commands.run import command as run


@click.command("options", cls=PanelCommand)
@click.pass_context
def command(context: click.Context) -> None:
    """List the options that many commands take.

    Each command takes some of them: its --help-all says which.
    """
    formatter = context.make_formatter()
    for heading, records in list_panels(run, context).items():
        if heading in SHARED:
            with formatter.section(heading):
                formatter.write_dl(records)
    write(sys.stdout, [formatter.getvalue().lstrip("\n")])
