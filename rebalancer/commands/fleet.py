"""``fleet run|report``: several clusters from one Indexed Job, and one page over all of them."""

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
from rebalancer.base.terminal import print_text
from rebalancer.commands.flags import (
    CLUSTER,
    COLOR,
    FAIL,
    LIFT_BUDGETS,
    METRICS_PUSH,
    NOTIFY,
    POLICY_FLAGS,
    PROGRESS,
    REQUESTS,
    SCOPE,
    YES,
    deadline_flag,
    examples,
    output_flag,
    parse_named,
    reference,
    with_flags,
)
from rebalancer.commands.work import index_of
from rebalancer.fleet.clusters import (
    FILE,
    STATUS,
    ClusterRecord,
    Fleet,
    FleetCluster,
    Halt,
    StatusMap,
    halt_of,
    load_fleet,
    read_fleet,
    record_of,
    shorten,
)
from rebalancer.kube.client import LAST_WORDS
from rebalancer.kube.config_map import ConfigMapStore
from rebalancer.policy.model import Mode
from rebalancer.registry import Registry
from rebalancer.run import one_run
from rebalancer.run.options import ClusterFlags, RunOptions, StateFlags
from rebalancer.run.publishing import EndedRun, publish_run, with_spans


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFlags:
    """The flags of ``fleet run`` beside those of a run."""

    clusters: str
    """The file with the list."""
    kubeconfigs: str
    """The directory with a kubeconfig for each cluster, under its name."""
    status: tuple[str, str]
    """The ConfigMap with the records, in the cluster of the pod."""


def run_member(flags: FleetFlags, options: RunOptions, environment: Environment) -> ExitCode:
    """Run once on the cluster of this pod's index, and write its record; return the exit code.

    ``options``: those of the run. Their access to a cluster is access to the cluster that holds the records.

    Raises:
        RebalancerError: nothing was evicted.
    """
    fleet = load_fleet(flags.clusters)
    cluster = _cluster_of(fleet, flags.clusters, environment.environ)
    say(environment.err, f"cluster {cluster.name}")
    publishing = replace(options.publishing, cluster=cluster.name)
    environment = with_spans(publishing, environment)
    run = _MemberRun(flags, fleet, cluster, options, environment)
    return publish_run(publishing, options.deadline, environment, run.run).code


def _cluster_of(fleet: Fleet, path: str, environ: Mapping[str, str]) -> FleetCluster:
    """Return the cluster that this pod of the indexed Job handles.

    Raises:
        PolicyError: the pod has no completion index, or the list has no cluster with that index.
    """
    index = index_of(environ)
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


class _MemberRun:
    """One run on one cluster of a fleet."""

    def __init__(
        self,
        flags: FleetFlags,
        fleet: Fleet,
        cluster: FleetCluster,
        options: RunOptions,
        environment: Environment,
    ) -> None:
        self._flags, self._fleet, self._cluster = flags, fleet, cluster
        self._options, self._environment = options, environment
        clock = environment.clock
        self._until = clock.now() + options.deadline
        # What the run says last in its own cluster comes first.
        stop = Stop(clock, self._until + LAST_WORDS, environment.stop)
        self._status = StatusMap(options.cluster.client(environment, stop), *flags.status)

    def run(self) -> EndedRun:
        """Run, and write the record.

        Raises:
            RebalancerError: nothing was evicted; that was written, too.
        """
        # Where it is not known whether all clusters have to stand still, none acts.
        records = self._status.read()
        halt = halt_of(self._fleet, records, self._now())
        try:
            ended = self._run(halt)
        except Exception as error:
            if not self._environment.stop.is_set():
                self._write(_failure(error, self._now()))
            raise
        if ended.report is None:
            record = ClusterRecord(self._now(), int(ended.code), held=True)
        else:
            why = "" if halt is None else str(halt)
            record = record_of(ended.report, int(ended.code), self._now(), why)
        if self._write(record):
            return ended
        code = ended.code if ended.code is not ExitCode.DONE else ExitCode.PARTIAL
        return replace(ended, code=code)

    def _run(self, halt: Halt | None) -> EndedRun:
        options = self._member_options()
        loaded = options.policy.load(Registry.installed())
        if halt is not None and loaded.policy.mode is Mode.ENFORCE:
            say(self._environment.err, f"rebalancer: {halt}")
            loaded = loaded.with_mode(Mode.OBSERVE)
        return one_run.run_unpublished(options, self._environment, loaded)

    def _member_options(self) -> RunOptions:
        """Return the options with the access, the state and the policy of the cluster."""
        name, options = self._cluster.name, self._options
        kubeconfig = Path(self._flags.kubeconfigs) / name
        if not kubeconfig.is_file():
            message = (
                f"{kubeconfig}: there is no kubeconfig of cluster {name}: its Secret has no such key, or the list has"
                " changed since this Job began"
            )
            raise PolicyError([message])
        namespace, _, lease = self._cluster.state.partition("/")
        settings = (*self._fleet.settings_of(self._cluster), *options.policy.settings)
        return replace(
            options,
            cluster=replace(options.cluster, kubeconfig=str(kubeconfig), context_name=None),
            policy=replace(options.policy, settings=settings),
            state=StateFlags(
                lease=(namespace, lease), memory=(namespace, f"{lease}-memory"), of_fleet=True
            ),
            deadline=max(1.0, self._until - self._environment.clock.now()),
        )

    def _write(self, record: ClusterRecord) -> bool:
        """Write the record of this cluster; return whether that was done."""
        name = self._cluster.name
        try:
            # Read again: since the run began, people may have taken the record away, or another run have written one.
            before = self._status.read(after_stop=True).get(name)
            self._status.write(name, record.keep(before))
        except ClusterReadError as error:
            say(self._environment.err, f"rebalancer: cluster {name} has not reported: {error}")
            return False
        return True

    def _now(self) -> float:
        return self._environment.clock.unix()


def show_report(
    access: ClusterFlags, where: tuple[str, str], output: str, environment: Environment
) -> ExitCode:
    """Print the page over all clusters of the list in the ConfigMap ``where``, (namespace, name).

    Raises:
        ClusterReadError: the list or the records could not be read.
        PolicyError: something is wrong in the list.
    """
    from rebalancer.fleet.clusters_report import render_report, report_on  # noqa: PLC0415

    client = access.client(environment, environment.until_signal())
    namespace, name = where
    data = ConfigMapStore(client, namespace, name).require().data
    fleet = read_fleet(data.get(FILE, "").encode(), f"ConfigMap {namespace}/{name}: {FILE}")
    records = StatusMap(client, namespace, f"{name}{STATUS}").read()
    report = report_on(fleet, records, environment.clock.unix())
    print_text(environment, render_report(report, output), output)
    return ExitCode.PARTIAL if report.is_incomplete else ExitCode.DONE


@click.group("fleet")
def command() -> None:
    """Rebalance several clusters, and report on all of them."""


@command.command(
    "run",
    epilog=examples(
        "rebalancer fleet run --clusters fleet.yaml --kubeconfigs /kubeconfigs --status fleet/status --yes"
    ),
)
@click.option(
    "--clusters",
    type=click.Path(dir_okay=False),
    required=True,
    metavar="FILE",
    help="List of the clusters, kind: Fleet. The pod's index chooses one.",
)
@click.option(
    "--kubeconfigs",
    type=click.Path(file_okay=False),
    required=True,
    metavar="DIRECTORY",
    help="A kubeconfig for each cluster, under its name; its current context counts.",
)
@click.option(
    "--status",
    callback=parse_named(reference),
    required=True,
    metavar="NS/NAME",
    help="ConfigMap in which the clusters report; in the cluster of --kubeconfig. It must exist.",
)
@with_flags([*POLICY_FLAGS, *CLUSTER, YES, *SCOPE])
@with_flags([output_flag("table", "wide", "json", "yaml", "html", "markdown", "csv", of="report")])
@with_flags(
    [
        LIFT_BUDGETS,
        deadline_flag(RunOptions().deadline),
        *REQUESTS,
        *PROGRESS,
        COLOR,
        FAIL,
        METRICS_PUSH,
        *NOTIFY,
    ]
)
def _run(**flags: Any) -> int:
    """Plan moves and carry them out on one cluster of the list, in a pod of an Indexed Job.

    As run, with the Lease, the memory and the policy of the cluster that JOB_COMPLETION_INDEX names.
    """
    of_fleet = FleetFlags(
        **{name: flags.pop(name) for name in ("clusters", "kubeconfigs", "status")}
    )
    return int(run_member(of_fleet, RunOptions.of(**flags), system_environment()))


@command.command("report", epilog=examples("rebalancer fleet report --fleet rebalancing/fleet"))
@with_flags(CLUSTER)
@click.option(
    "--fleet",
    callback=parse_named(reference),
    metavar="NS/NAME",
    required=True,
    help="ConfigMap with the list of clusters; the chart's. Their records are in NAME-status.",
)
@output_flag("table", "html", "json", "yaml", of="report")
def _report(fleet: tuple[str, str], output: str, **cluster: Any) -> int:
    """Print what the last run of each cluster came to, worst first."""
    return int(show_report(ClusterFlags(**cluster), fleet, output, system_environment()))
