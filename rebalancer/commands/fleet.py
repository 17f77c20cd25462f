"""``fleet observe|report``: dry runs on several clusters from one Indexed Job, and one page over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ClusterReadError, ExitCode, PolicyError, RebalancerError
from rebalancer.base.output import say
from rebalancer.base.stop import Stop
from rebalancer.commands.flags import (
    ACCESS,
    ALL_NAMESPACES,
    CLUSTER,
    NOTIFY,
    POLICY,
    REQUESTS,
    SCOPE,
    examples,
    output_flag,
    parse_named,
    reference,
    takes,
)
from rebalancer.commands.panels import PanelGroup
from rebalancer.fleet.clusters import (
    FILE,
    STATUS,
    ClusterRecord,
    Fleet,
    FleetCluster,
    StatusMap,
    load_fleet,
    read_fleet,
    record_of,
    shorten,
)
from rebalancer.kube.client import LAST_WORDS
from rebalancer.kube.config_map import ConfigMapStore
from rebalancer.report.document import FORMS
from rebalancer.run import one_run
from rebalancer.run.ending import EndedRun, publish_run
from rebalancer.run.options import ClusterFlags, RunOptions, flag

_INDEX = "JOB_COMPLETION_INDEX"
"""Set by the Job controller in the pods of an Indexed Job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFlags:
    """The flags of ``fleet observe`` beside those of a dry run."""

    clusters: str = flag(
        "List of the clusters, kind: Fleet. The pod's index chooses one.",
        path="file",
        metavar="FILE",
    )
    kubeconfigs: str = flag(
        "A kubeconfig for each cluster, under its name; its current context counts.",
        path="directory",
        metavar="DIRECTORY",
    )
    status: tuple[str, str] = flag(
        "ConfigMap in which the clusters report; in the cluster of --kubeconfig. It must exist.",
        parse="reference",
        metavar="NS/NAME",
    )


def observe_member(flags: FleetFlags, options: RunOptions, environment: Environment) -> ExitCode:
    """Make a dry run on the cluster of this pod's index, and write its record; return the exit code.

    ``options``: those of the run. Their access to a cluster is access to the cluster with the records.

    Raises:
        RebalancerError: the cluster could not be observed; that was written, too.
    """
    fleet = load_fleet(flags.clusters)
    cluster = _cluster_of(fleet, flags.clusters, environment.environ)
    say(environment.err, f"cluster {cluster.name}")
    publishing = replace(options.publishing, cluster=cluster.name)
    clock = environment.clock
    until = clock.now() + options.deadline
    # What the observation says last comes in the time of the last words.
    stop = Stop(clock, until + LAST_WORDS, environment.stop)
    status = StatusMap(options.cluster.client(environment, stop), *flags.status)

    def observe() -> EndedRun:
        try:
            member = _member_options(flags, fleet, cluster, options)
            member = replace(member, deadline=max(1.0, until - clock.now()))
            ended = one_run.run_unpublished(member, environment, None)
        except Exception as error:
            if not environment.stop.is_set():
                _write(status, cluster.name, _failure(error, clock.unix()), environment)
            raise
        if ended.report is None:
            raise TypeError("a dry run has a report")
        record = record_of(ended.report, int(ended.code), clock.unix())
        if _write(status, cluster.name, record, environment) or ended.code is not ExitCode.DONE:
            return ended
        return replace(ended, code=ExitCode.PARTIAL)

    return publish_run(publishing, options.deadline, environment, observe).code


def _cluster_of(fleet: Fleet, path: str, environ: Mapping[str, str]) -> FleetCluster:
    """Return the cluster that this pod of the indexed Job handles.

    Raises:
        PolicyError: the pod has no completion index, or the list has no cluster with that index.
    """
    text = environ.get(_INDEX, "")
    if not text.isdecimal():
        raise PolicyError([f"{_INDEX} is not set: only the pod of an Indexed Job has a cluster"])
    index = int(text)
    if index >= len(fleet.clusters):
        raise PolicyError(
            [f"{path}: has no cluster {index}: the list has changed since this Job began"]
        )
    return fleet.clusters[index]


def _failure(error: Exception, at: float) -> ClusterRecord:
    """Return the record of a run that failed before it had a report. ``at``: Unix seconds."""
    if isinstance(error, RebalancerError):
        return ClusterRecord(at, int(error.exit_code), shorten(str(error)))
    return ClusterRecord(at, int(ExitCode.BUG), f"{type(error).__name__}: an error of the program")


def _member_options(
    flags: FleetFlags, fleet: Fleet, cluster: FleetCluster, options: RunOptions
) -> RunOptions:
    """Return the options of a dry run with the access and the policy of the cluster.

    Raises:
        PolicyError: there is no kubeconfig of the cluster.
    """
    kubeconfig = Path(flags.kubeconfigs) / cluster.name
    if not kubeconfig.is_file():
        message = (
            f"{kubeconfig}: there is no kubeconfig of cluster {cluster.name}: its Secret has no such key, or the list has"
            " changed since this Job began"
        )
        raise PolicyError([message])
    settings = (*fleet.settings_of(cluster), *options.policy.settings)
    access = replace(options.cluster, kubeconfig=str(kubeconfig), context_name=None)
    return replace(
        options,
        cluster=replace(access, as_user=None, as_groups=(), as_uid=None),
        policy=replace(options.policy, settings=settings),
        dry_run=True,
    )


def _write(
    status: StatusMap, cluster: str, record: ClusterRecord, environment: Environment
) -> bool:
    """Write the record of a cluster; return whether that was done."""
    try:
        status.write(cluster, record)
    except ClusterReadError as error:
        say(environment.err, f"rebalancer: cluster {cluster} has not reported: {error}")
        return False
    return True


def show_report(
    access: ClusterFlags, where: tuple[str, str], output: str, environment: Environment
) -> ExitCode:
    """Print the page over all clusters of the list in the ConfigMap ``where``, (namespace, name).

    Raises:
        ClusterReadError: the list or the records could not be read.
        PolicyError: something is wrong in the list.
    """
    from rebalancer.fleet.clusters import document_of, report_on  # noqa: PLC0415

    client = access.client(environment, environment.until_signal())
    namespace, name = where
    data = ConfigMapStore(client, namespace, name).require().data
    fleet = read_fleet(data.get(FILE, "").encode(), f"ConfigMap {namespace}/{name}: {FILE}")
    records = StatusMap(client, namespace, f"{name}{STATUS}").read()
    report = report_on(fleet, records, environment.clock.unix())
    document_of(report).print_to(environment, output)
    return ExitCode.PARTIAL if report.is_incomplete else ExitCode.DONE


@click.group("fleet", cls=PanelGroup)
def command() -> None:
    """Observe several clusters, and report on all of them."""


@command.command(
    "observe",
    epilog=examples(
        "rebalancer fleet observe --clusters fleet.yaml --kubeconfigs /kubeconfigs --status fleet/status"
    ),
)
@takes(FleetFlags)
@takes(
    RunOptions,
    f"{POLICY} {ACCESS} {SCOPE} output deadline {REQUESTS} quiet log_format color metrics_push {NOTIFY}",
)
@ALL_NAMESPACES
def _observe(**flags: Any) -> int:
    """Plan moves on one cluster of the list, and carry none out, in a pod of an Indexed Job.

    As plan, with the kubeconfig and the policy of the cluster that JOB_COMPLETION_INDEX names.
    """
    of_fleet = FleetFlags(
        **{name: flags.pop(name) for name in ("clusters", "kubeconfigs", "status")}
    )
    return int(observe_member(of_fleet, RunOptions.of(**flags), system_environment()))


@command.command("report", epilog=examples("rebalancer fleet report --fleet rebalancing/fleet"))
@CLUSTER
@click.option(
    "--fleet",
    callback=parse_named(reference),
    metavar="NS/NAME",
    required=True,
    help="ConfigMap with the list of clusters; the chart's. Their records are in NAME-status.",
)
@output_flag(*FORMS, of="report")
def _report(fleet: tuple[str, str], output: str, **cluster: Any) -> int:
    """Print what was last observed in each cluster, worst first."""
    return int(show_report(ClusterFlags(**cluster), fleet, output, system_environment()))
