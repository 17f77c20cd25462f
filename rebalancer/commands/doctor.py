"""``doctor``: what a cluster and a policy need before the first run, and why nothing moves. It changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rebalancer import API_VERSION
from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ClusterReadError, ExitCode
from rebalancer.base.output import terminal_look, write
from rebalancer.base.plain_text import WIDE, Paint
from rebalancer.commands.flags import ACCESS, POLICY, examples, output_flag, takes
from rebalancer.commands.panels import PanelCommand
from rebalancer.doctor.cluster import Seen, check_cluster
from rebalancer.doctor.report import Check, Finding, Grade, doctor_data, format_checks, not_judged
from rebalancer.registry import Registry
from rebalancer.report.document import FORMS, ReportDocument
from rebalancer.run.context import run_context
from rebalancer.run.options import RunOptions
from rebalancer.run.source import Source, open_source

if TYPE_CHECKING:
    from rebalancer.wire.objects import ObjectMeta

_FAIL_ON = (Grade.WARNING.value, Grade.PROBLEM.value)


@click.command(
    "doctor",
    cls=PanelCommand,
    epilog=examples(
        "rebalancer doctor",
        "rebalancer doctor --policy policy.yaml",
        "rebalancer doctor --snapshot cluster.zip --fail-on warning",
    ),
)
@takes(
    RunOptions,
    f"{POLICY} {ACCESS} snapshot_path lease memory",
    snapshot_path={
        "help": "Look at a snapshot file ('-': standard input), without a cluster: rights are not judged then."
    },
    lease={"help": "Lease of the release. Default: the one with the chart's label."},
    memory={
        "help": "ConfigMap with the memory of the release. Default: the one with the chart's label."
    },
)
@click.option(
    "--fail-on",
    "red",
    type=click.Choice(_FAIL_ON),
    help="Exit with code 11 if there is a finding of this grade or a worse one.",
)
@output_flag(*FORMS, of="findings")
@takes(RunOptions, "color quiet")
def command(red: str | None, **flags: Any) -> int:
    """Check what runs need, and what keeps them from moving anything.

    It looks at the rights that the policy needs, metrics if the policy judges by usage, the version and the scheduler, nodes and
    clocks, protections, PodDisruptionBudgets and quotas that never let a pod go, other programs that move pods, Lease and
    memory. Each finding says what to do. Nothing is changed.
    """
    options = RunOptions.of(dry_run=True, **flags)
    return int(doctor(options, None if red is None else Grade(red), system_environment()))


def doctor(options: RunOptions, red: Grade | None, environment: Environment) -> ExitCode:
    """Write the findings. If the cluster cannot be read, write those that do not need it.

    Raises:
        PolicyError: the policy, a flag or the file is wrong.
        ClusterReadError: there is no cluster to talk to.
    """
    run = run_context(options, environment)
    with open_source(run, options.cluster) as source:
        checks, readable = _checks(source)
    form = options.ending.output
    head = {"apiVersion": API_VERSION, "kind": "Doctor", "source": source.name}
    document = ReportDocument(
        format_checks(checks), {**head, "checks": doctor_data(checks)}, title="What doctor finds"
    )
    look = terminal_look(environment, options.ending.color)
    write(environment.out, [document.show(form, min(look.width, WIDE), Paint(look.color))])
    if not readable:
        return ExitCode.UNREADABLE
    worst = [of.grade for of in checks]
    return (
        ExitCode.ASKED_RED
        if red is not None and any(grade.is_at_least(red) for grade in worst)
        else ExitCode.DONE
    )


def _checks(source: Source) -> tuple[tuple[Check, ...], bool]:
    """Return all checks, and whether the cluster could be read."""
    run, client = source.run, source.client
    cron_jobs = None
    of_server: tuple[Check, ...] = (
        not_judged("rights", "a snapshot file does not say what a user may do"),
    )
    if client is not None:
        from rebalancer.doctor.server import check_server, list_cron_jobs  # noqa: PLC0415  # only a cluster needs it

        of_server = check_server(run, client, source.usage)
        cron_jobs = list_cron_jobs(client)
    jobs: list[ObjectMeta] | None = None if client is None else []
    try:
        reading = source.read(jobs)
    except ClusterReadError as error:
        return (*of_server, Check("reading", (Finding(Grade.PROBLEM, str(error)),))), False
    skew = None if client is None else reading.clock_skew
    loaded = reading.run.loaded
    checks = check_cluster(
        reading.snapshot, loaded, Registry.installed(), skew, Seen(jobs, cron_jobs)
    )
    return (*of_server, *checks), True
