"""``schema``: the formats of reports and of policy files."""

from __future__ import annotations

import json
from typing import Any

import click

from rebalancer.base.environment import system_environment
from rebalancer.base.output import write
from rebalancer.commands.panels import PanelGroup
from rebalancer.policy.forms import schema
from rebalancer.registry import Registry
from rebalancer.report.schema import report_schema


@click.group("schema", cls=PanelGroup)
def command() -> None:
    """Print the JSON schema of reports or of policies."""


@command.command("report")
def _report() -> None:
    """Print the JSON schema of what `rebalancer run -o json` prints."""
    _print(report_schema())


@command.command("policy")
def _policy() -> None:
    """Print the JSON schema of policy files.

    With the options of the installed strategies.
    """
    known = Registry.installed()
    _print(schema(known, known.signals, known.steps), sort_keys=True)


def _print(document: Any, *, sort_keys: bool = False) -> None:
    text = json.dumps(document, indent=2, sort_keys=sort_keys)
    write(system_environment().out, [f"{text}\n"])
