"""``serve``: a process that follows the cluster and performs run after run."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import click

from rebalancer.base.environment import system_environment
from rebalancer.commands.flags import (
    ACCESS,
    ALL_NAMESPACES,
    POLICY,
    PUBLISHING,
    REQUESTS,
    SCOPE,
    STATE,
    PanelCommand,
    examples,
    parse_with,
    takes,
)
from rebalancer.run.options import RunOptions
from rebalancer.serve.health import Health, answer_requests, parse_address

PATIENCE = 5.0
"""Seconds for what is under way when a signal comes to end by itself; the chart's pod has 10."""


@click.command(
    "serve",
    cls=PanelCommand,
    epilog=examples(
        "rebalancer serve --yes --lease default/rebalancer --memory default/memory --listen :8080",
        "rebalancer serve --mode observe --every '*/5 * * * *'",
    ),
)
@takes(
    RunOptions,
    f"{POLICY} {ACCESS} yes",
    yes={"help": "Evict, which is never asked here. Needed in mode enforce."},
)
@click.option(
    "--every",
    default="2m",
    show_default=True,
    metavar="DURATION|CRON",
    help="When to plan: 90s, 5m, from the beginning of one run to that of the next, or five fields of cron. "
    "Changes of nodes call for a plan at once.",
)
@click.option(
    "--time-zone",
    default="UTC",
    show_default=True,
    metavar="ZONE",
    help="IANA time zone of the cron expression, such as Asia/Tokyo.",
)
@click.option(
    "--listen",
    "address",
    callback=parse_with(parse_address),
    metavar="HOST:PORT",
    help="Answer /healthz, /readyz and /metrics over HTTP; :8080 on all addresses. Default: nowhere.",
)
@takes(
    RunOptions,
    f"{SCOPE} output deadline machine_state {STATE} {REQUESTS} quiet log_format color {PUBLISHING}",
    output={"choices": ("table", "wide", "json", "yaml")},
    deadline={"default": "2m"},
)
@ALL_NAMESPACES
def command(
    every: str,
    time_zone: str,
    address: tuple[str, int] | None,
    **flags: Any,
) -> int:
    """Follow the cluster, and plan and act again and again.

    It reads the cluster once and follows it from there. Each run is one of `rebalancer run`, with the same policy,
    Lease, memory and report; a run that has nothing to do prints one line. The policy is read again before each run.
    It asks nothing: in mode enforce it starts with --yes only. It ends cleanly at SIGTERM. Without --lease it leads alone: start no second one beside it.
    """
    from rebalancer.serve.loop import ServeLoop  # noqa: PLC0415
    from rebalancer.serve.triggers import parse_schedule  # noqa: PLC0415

    try:
        schedule = parse_schedule(every, time_zone)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--every") from None
    environment, options = system_environment(patience=PATIENCE), RunOptions.of(**flags)
    health = Health(environment.clock, options.deadline)
    loop = ServeLoop(options, environment, schedule, health)
    with nullcontext() if address is None else answer_requests(address, health.paths()):
        return int(loop.run())
