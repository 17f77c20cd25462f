"""``advise``: find what in the manifests of workloads makes evictions necessary, and print patches. Changes nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from rebalancer import API_VERSION
from rebalancer.base.environment import system_environment
from rebalancer.base.errors import ExitCode, PolicyError
from rebalancer.base.output import say, terminal_look, write
from rebalancer.base.plain_text import WIDE, Paint, count
from rebalancer.commands.flags import (
    ACCESS,
    POLICY,
    complete_namespaces,
    examples,
    output_flag,
    takes,
)
from rebalancer.commands.panels import PanelCommand
from rebalancer.doctor.advice import Adviser
from rebalancer.doctor.patches import (
    Advised,
    advice_data,
    find_declined,
    format_advice,
    write_folder,
)
from rebalancer.doctor.workloads import (
    RESOURCES,
    RolledWorkload,
    decode_workloads,
    read_workloads,
)
from rebalancer.planner.notices import describe_missing_namespace
from rebalancer.planner.pins import find_annotated
from rebalancer.planner.rules import NO_HISTORY
from rebalancer.planner.scheduler_profile import scheduler_profile
from rebalancer.report.document import FORMS, ReportDocument
from rebalancer.run.context import RunContext, run_context
from rebalancer.run.one_run import recall
from rebalancer.run.options import RunOptions
from rebalancer.run.source import find_state, open_source
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.snapshot.load import load_keeping
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.kinds import DEPLOYMENTS, KUBECTL_GET, STATEFUL_SETS


@click.command(
    "advise",
    cls=PanelCommand,
    epilog=examples(
        "rebalancer advise",
        "rebalancer advise --namespace shop --out advice",
        "rebalancer advise cluster.zip -o yaml",
    ),
)
@takes(
    RunOptions,
    f"{POLICY} {ACCESS} snapshot_path",
    snapshot_path={"help": "Look at a snapshot file ('-': standard input), without a cluster."},
)
@click.option(
    "-n",
    "--namespace",
    "of_namespace",
    metavar="NAME",
    shell_complete=complete_namespaces,
    help="Workloads of this namespace only.",
)
@click.option(
    "--out",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the patches into this new folder, as a Kustomize component.",
)
@click.option(
    "--fail-on-advice", "red", is_flag=True, help="Exit with code 11 if there is any advice."
)
@output_flag(*FORMS, of="advice")
@takes(RunOptions, "color")
def command(of_namespace: str | None, folder: Path | None, red: bool, **flags: Any) -> int:
    """Say what to change in workloads, with patches for it.

    For evictions that are not needed, or that are safe. Looks at Deployments and StatefulSets: rules that spread pods and are missing or only preferred, PodDisruptionBudgets that are missing
    or allow nothing, readiness probes and preStop hooks, rollouts without room; where the policy reads usage, also requests far from use.
    Each with its reason and a strategic merge patch. Nothing is changed: `kubectl patch` or Kustomize apply what you like.
    """
    options = RunOptions.of(dry_run=True, **flags)
    environment = system_environment()
    run = run_context(options, environment)
    source, snapshot, workloads = _read(run, options)
    _require_workloads(source, snapshot)
    model = SchedulerModel(snapshot, scheduler_profile(run.loaded.policy, snapshot))
    adviser = Adviser(snapshot, model, find_annotated(run.rules.problem(snapshot)))
    of_workloads = (one.metadata.namespace for one in workloads)
    if (missing := describe_missing_namespace(snapshot, of_namespace, of_workloads)) is not None:
        raise PolicyError([missing])
    looked_at = [one for one in workloads if of_namespace in (None, one.metadata.namespace)]
    declined = {one.ref: find_declined(one) for one in looked_at}
    for _, wrong in declined.values():
        if wrong:
            say(environment.err, f"rebalancer: {wrong}")
    of_each = (
        (one, [each for each in adviser.judge(one) if each.topic not in declined[one.ref][0]])
        for one in looked_at
    )
    advised = [Advised(one, tuple(advice)) for one, advice in of_each if advice]
    if not all(one.probes_known for one in looked_at):
        say(
            environment.err,
            "rebalancer: probes and hooks are not judged: the file has none of them",
        )
    form = options.ending.output
    head = {"apiVersion": API_VERSION, "kind": "Advice", "source": source}
    document = ReportDocument(
        format_advice(advised, len(looked_at)),
        {**head, "workloads": advice_data(advised)},
        title="Advice on workloads",
    )
    look = terminal_look(environment, options.ending.color)
    write(environment.out, [document.show(form, min(look.width, WIDE), Paint(look.color))])
    if folder is not None:
        files = write_folder(advised, folder)
        say(environment.err, f"rebalancer: {count(files, 'file')} written to {folder}")
    return int(ExitCode.ASKED_RED if red and advised else ExitCode.DONE)


def _require_workloads(source: str, snapshot: Snapshot) -> None:
    """Raise PolicyError if a file has pods without the workloads that they are of."""
    if len(snapshot.pods) and all(
        snapshot.lacks(kind.kind) for kind in (DEPLOYMENTS, STATEFUL_SETS)
    ):
        text = "has no Deployment and no StatefulSet, for which advice is"
        raise PolicyError([f"{source}: {text}: read them, too ({KUBECTL_GET})"])


def _read(run: RunContext, options: RunOptions) -> tuple[str, Snapshot, list[RolledWorkload]]:
    """Return the source, the snapshot and the workloads.

    Raises:
        PolicyError: the file is wrong.
        ClusterReadError: the cluster could not be read.
    """
    if (path := options.cluster.snapshot_path) is not None:
        loaded, kept = load_keeping(RESOURCES, path, stdin=sys.stdin.buffer)
        snapshot = run.rules.with_zones(loaded, NO_HISTORY)
        try:
            # A file that says which server it is of was made by us, without probes and hooks.
            return path, snapshot, decode_workloads(kept, probes_known=snapshot.server is None)
        except msgspec.DecodeError as error:
            raise PolicyError([f"{path}: {error}"]) from None
    with open_source(run, options.cluster) as source:
        if source.client is None:
            raise AssertionError("a source without a file has a client")
        reading = source.read()
        state, _ = find_state(reading.run.state, source.client)
        history = recall(reading.remembering(state.memory)).history
        snapshot = reading.run.rules.with_zones(reading.snapshot, history)
        return source.name, snapshot, read_workloads(source.client)
