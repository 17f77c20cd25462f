"""``policy check|show|schema|migrate``."""

from __future__ import annotations

import json
import sys

import click

from rebalancer.commands.flags import POLICY
from rebalancer.commands.migrate import migrate
from rebalancer.environment import system_environment
from rebalancer.output import say, write
from rebalancer.policy.forms import effective, schema
from rebalancer.policy.load import load_policy
from rebalancer.registry import Registry


@click.group("policy")
def command() -> None:
    """Check, show and migrate policies."""


@command.command("check")
@POLICY
def _check(policy_path: str | None) -> None:
    """Say whether a policy is right, or all that is wrong with it."""
    loaded = load_policy(policy_path, Registry.installed())
    for warning in loaded.warnings:
        say(sys.stderr, f"warning: {warning}")
    names = ", ".join(sorted(loaded.policy.strategies)) or "no strategies"
    write(sys.stdout, [f"{loaded.source}: fine ({names}; {loaded.policy.mode.value})\n"])


@command.command("show")
@POLICY
def _show(policy_path: str | None) -> None:
    """Print the policy in force, with all defaults spelled out."""
    write(sys.stdout, [effective(load_policy(policy_path, Registry.installed()).policy)])


@command.command("schema")
def _schema() -> None:
    """Print the JSON schema of policy files.

    With the options of the installed strategies.
    """
    write(sys.stdout, [json.dumps(schema(Registry.installed()), indent=2, sort_keys=True), "\n"])


@command.command("migrate")
@click.argument("file", metavar="FILE", type=click.Path())
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE|DIRECTORY",
    help="Where to write it; into a directory, one file per strategy. Default: standard output.",
)
def _migrate(file: str, output: str | None) -> int:
    """Turn a policy of the descheduler into one of ours.

    FILE ('-': standard input) holds a DeschedulerPolicy, v1alpha1 or v1alpha2, or the ConfigMap with one.
    What has no equal here is listed on standard error, and in comments of what is written.
    """
    return int(migrate(file, output, sys.stdin.buffer, system_environment()))
