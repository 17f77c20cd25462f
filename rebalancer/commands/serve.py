"""``serve``: a process that follows the cluster and performs run after run."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any

import click

from rebalancer.base.environment import Environment, system_environment
from rebalancer.commands.flags import (
    ACCESS,
    ALL_NAMESPACES,
    POLICY,
    PUBLISHING,
    REQUESTS,
    SCOPE,
    STATE,
    examples,
    parse_with,
    takes,
)
from rebalancer.commands.panels import PanelCommand
from rebalancer.run.context import own_pod
from rebalancer.run.options import RunOptions
from rebalancer.serve.health import Health, answer_requests, parse_address

PATIENCE = 5.0
"""Seconds for what is under way when a signal comes to end by itself; the chart's pod has 10."""


@click.command(
    "serve",
    cls=PanelCommand,
    epilog=examples(
        "rebalancer serve --yes --policy policy.yaml --listen :8080",
        "rebalancer serve --set mode=observe --every '*/5 * * * *'",
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
@click.option(
    "--show-report",
    is_flag=True,
    help="With --listen: answer /report, the last report in JSON, to everybody who may connect.",
)
@click.option(
    "--show-page",
    is_flag=True,
    help="With --listen: answer / with the last report as a page, with the runs before it and what goes on now, to "
    "everybody who may connect.",
)
@click.option(
    "--page-host",
    "page_hosts",
    multiple=True,
    metavar="NAME",
    help="Also answer under this name, such as that of an Ingress. Repeatable; addresses, localhost and names of Services are "
    "answered anyway; under others only health is.",
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
    show_report: bool,
    show_page: bool,
    page_hosts: tuple[str, ...],
    **flags: Any,
) -> int:
    """Follow the cluster, and plan and act again and again.

    It reads the cluster once and follows it from there. Each run is one of `rebalancer run`, with the same policy,
    Lease, memory and report; a run that has nothing to do prints one line. The policy is read again before each run.
    It asks nothing: in mode enforce it starts with --yes only. It ends cleanly at SIGTERM. Without --lease it leads alone: start no second one beside it.
    """
    from rebalancer.serve.loop import ServeLoop  # noqa: PLC0415
    from rebalancer.serve.page import LivePage  # noqa: PLC0415
    from rebalancer.serve.triggers import TimeZoneError, parse_schedule  # noqa: PLC0415

    try:
        schedule = parse_schedule(every, time_zone)
    except ValueError as error:
        flag = "--time-zone" if isinstance(error, TimeZoneError) else "--every"
        raise click.BadParameter(str(error), param_hint=flag) from None
    environment, options = system_environment(patience=PATIENCE), RunOptions.of(**flags)
    page = LivePage(stop_command=_stop_command(environment)) if show_page else None
    health = Health(environment.clock, options.deadline, keeps_report=show_report, page=page)
    loop = ServeLoop(options, environment, schedule, health)
    with nullcontext() if address is None else answer_requests(address, health.paths(), page_hosts):
        return int(loop.run())


def _stop_command(environment: Environment) -> str:
    """Return what stops this process: for a pod, the command on its Deployment, whose name begins the pod's."""
    pod = own_pod(environment)
    if pod is None:
        return f"kill {os.getpid()}"
    namespace, name = pod
    deployment = name.rsplit("-", 2)[0]
    return f"kubectl --namespace {namespace} scale deployment/{deployment} --replicas=0"
