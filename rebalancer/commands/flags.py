"""Flags that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from rebalancer.commands.options import RunOptions

Decorated = TypeVar("Decorated", bound=Callable[..., object])


def with_flags(
    flags: Sequence[Callable[[Decorated], Decorated]],
) -> Callable[[Decorated], Decorated]:
    """Give a command these flags, in this order."""

    def decorate(function: Decorated) -> Decorated:
        for flag in reversed(flags):
            function = flag(function)
        return function

    return decorate


DEFAULTS = RunOptions()

CLUSTER = [
    click.option("--kubeconfig", type=click.Path(), help="Path to the kubeconfig file."),
    click.option("--context", "context_name", help="Context of the kubeconfig."),
]

POLICY = click.option(
    "--policy",
    "policy_path",
    type=click.Path(),
    help="Policy file, or directory with one file per strategy. Default: the built-in policy.",
)


def output_flag(*forms: str, of: str) -> Callable[[Decorated], Decorated]:
    """Return ``-o`` with these forms; the first is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(forms),
        default=forms[0],
        show_default=True,
        help=f"Form of the {of}.",
    )


RUN = [
    click.option(
        "--snapshot",
        "snapshot_path",
        type=click.Path(),
        help="Plan on a snapshot file ('-': standard input), without a cluster. Implies --dry-run.",
    ),
    click.option("-n", "--namespace", help="Move pods of this namespace only."),
    click.option(
        "-l", "--selector", help="Move pods with these labels only, as kubectl takes them."
    ),
    click.option(
        "--select",
        metavar="YAML",
        help="Move these pods only, in the words of a policy's select: '{namespaces: [shop-*], minReplicas: 3}'.",
    ),
    output_flag("table", "wide", "json", "yaml", "html", "markdown", "csv", of="report"),
    click.option(
        "--lift-budgets", is_flag=True, help="No limit per run and per hour; all others hold."
    ),
    click.option(
        "--detailed-exitcode", is_flag=True, help="A dry run that finds moves exits with code 10."
    ),
    click.option(
        "--deadline",
        type=click.FloatRange(min=1),
        default=DEFAULTS.deadline,
        show_default=True,
        metavar="SECONDS",
        help="End the run in good order after so long.",
    ),
    click.option(
        "--lease", metavar="NS/NAME", help="Lease that keeps two runs apart. It must exist."
    ),
    click.option(
        "--memory",
        metavar="NS/NAME",
        help="ConfigMap that remembers what earlier runs moved and measured. It must exist.",
    ),
    click.option(
        "--max-requests",
        type=click.IntRange(min=1),
        default=DEFAULTS.max_requests,
        show_default=True,
        metavar="N",
        help="Most requests to the API server at once; watches do not count.",
    ),
    click.option(
        "--compress",
        is_flag=True,
        help="Have lists sent compressed: for slow or metered lines. Costs the API server more CPU.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="No progress on standard error."),
    click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default=DEFAULTS.log_format,
        show_default=True,
        help="Form of the progress lines.",
    ),
    click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        is_flag=False,
        flag_value="always",
        default=DEFAULTS.color,
        show_default=True,
        help="Colour the table; auto: on a terminal, unless NO_COLOR or TERM=dumb is set.",
    ),
]
"""Flags of ``run`` and ``apply``, besides those of the cluster and the policy."""
