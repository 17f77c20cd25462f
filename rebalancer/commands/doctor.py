"""``doctor``: what a cluster and a policy need before the first run, and why nothing moves. It changes nothing."""

from __future__ import annotations

from dataclasses import replace
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
from rebalancer.doctor.report import (
    Check,
    Grade,
    doctor_data,
    finding_of,
    format_checks,
    not_judged,
)
from rebalancer.registry import Registry
from rebalancer.report.document import FORMS, ReportDocument
from rebalancer.run.context import run_context
from rebalancer.run.options import RunOptions
from rebalancer.run.source import Source, open_source

if TYPE_CHECKING:
    from rebalancer.doctor.release import Known
    from rebalancer.wire.objects import ObjectMeta

_FAIL_ON = (Grade.WARNING.value, Grade.PROBLEM.value)


@click.command(
    "doctor",
    cls=PanelCommand,
    epilog=examples(
        "rebalancer doctor",
        "rebalancer doctor --policy policy.yaml",
        "rebalancer doctor cluster.zip --fail-on warning",
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
    run, known, own = run_context(options, environment), None, None
    if options.cluster.snapshot_path is None:
        from rebalancer.doctor.release import read_known  # noqa: PLC0415  # only a cluster needs it

        client = options.cluster.client(environment, run.stop)
        known = read_known(run, client)
        if options.policy.policy_path is None and known.release is not None:
            own = known.release.load(options.policy, run.rules.registry)
            run = run if own is None else run_context(options, environment, loaded=own)
    connected = None if known is None else lambda: client
    with open_source(run, options.cluster, connected) as source:
        if own is not None and own.policy.usage.prometheus is not None:
            # Any tenant may have made what looks like a release: its policy is judged, not carried out.
            source = replace(source, usage=None)  # noqa: PLW2901
        checks, readable = _checks(source, known)
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


def _checks(source: Source, known: Known | None) -> tuple[tuple[Check, ...], bool]:
    """Return all checks, and whether the cluster could be read. ``known``: what is known of the release; None for a file."""
    run, client = source.run, source.client
    cron_jobs = memory = None
    of_server: tuple[Check, ...] = (
        not_judged("rights", "a snapshot file does not say what a user may do"),
    )
    if client is not None and known is not None:
        from rebalancer.doctor.server import check_server, list_cron_jobs  # noqa: PLC0415  # only a cluster needs it

        of_server, memory = check_server(run, client, source.usage, known)
        cron_jobs = list_cron_jobs(client)
    jobs: list[ObjectMeta] | None = None if client is None else []
    try:
        reading = source.read(jobs)
    except ClusterReadError as error:
        failed = Check("reading", (finding_of(Grade.PROBLEM, str(error)),))
        return (*of_server, failed), False
    skew = None if client is None else reading.clock_skew
    loaded = reading.run.loaded
    checks = check_cluster(
        reading.snapshot, loaded, Registry.installed(), skew, Seen(jobs, cron_jobs), memory
    )
    if known is not None:
        checks = known.without_policy(checks, built_in=loaded.is_built_in)
    return (*of_server, *checks), True
