"""``strategies``: list the installed strategies and their distributions."""

from __future__ import annotations

import sys

import click

from rebalancer.base.output import write
from rebalancer.registry import Registry


@click.command("strategies")
def command() -> None:
    """List the installed strategies."""
    registry = Registry.installed()
    for listed in registry.list_metadata():
        text = (type(registry.strategy(listed.name)).__doc__ or "").strip().splitlines()
        line = f"{listed.name:<18} {text[0] if text else ''}  [{listed.distribution}]"
        write(sys.stdout, [f"{line}\n"])
