"""``report``: the format of a report."""

from __future__ import annotations

import json

import click

from rebalancer.base.environment import system_environment
from rebalancer.base.output import write
from rebalancer.report.schema import report_schema


@click.group("report")
def command() -> None:
    """Print the JSON schema of reports."""


@command.command("schema")
def _schema() -> None:
    """Print the JSON schema of what `rebalancer run -o json` prints."""
    text = json.dumps(report_schema(), indent=2)
    write(system_environment().out, [f"{text}\n"])
