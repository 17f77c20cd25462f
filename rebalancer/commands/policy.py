"""``policy check|show|strategies|migrate``, and ``schema``: the formats of policies and reports."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import click

from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ExitCode, PolicyError
from rebalancer.base.output import create_file, say, write
from rebalancer.commands.flags import ACCESS, POLICY, WrittenFile, examples, takes
from rebalancer.commands.panels import PanelGroup
from rebalancer.migrate.merge import as_file, convert_policy
from rebalancer.planner.findings import findings
from rebalancer.policy.document import YamlDocument
from rebalancer.policy.forms import MODELINE, effective, schema
from rebalancer.policy.load import LoadedPolicy, load_text
from rebalancer.policy.namespace import describe_sum, may_narrow, read_namespace_policy
from rebalancer.registry import Registry
from rebalancer.report.schema import report_schema
from rebalancer.run.context import run_context
from rebalancer.run.options import RunOptions
from rebalancer.run.source import open_source

if TYPE_CHECKING:
    from rebalancer.kube.client import Client

_STDIN = "standard input"


def migrate(file: str, output: str | None, stdin: BinaryIO, environment: Environment) -> ExitCode:
    """Convert the policy in ``file`` ('-': standard input); write it to ``output`` or standard output.

    Raises:
        PolicyError: see ``convert_policy``; or a file cannot be read or written.
    """
    known = Registry.installed()
    policy = convert_policy(_read(file, stdin), _STDIN if file == "-" else file, known)
    values = _chart_values(as_file(policy.data, "", known), environment)
    text = as_file(policy.data, policy.head + "".join(f"# - {one}\n" for one in values), known)
    if output is None:
        write(environment.out, [text])
        if _are_one(environment.out, environment.err):
            return ExitCode.DONE
    else:
        _write(Path(output), text)
    for note in (*policy.notes, *values):
        say(environment.err, str(note))
    if output is not None:
        how = f"`rebalancer plan --policy {output}` shows what it would move"
        say(environment.err, f"rebalancer: {output} is written; {how}")
    return ExitCode.DONE


def _chart_values(text: str, environment: Environment) -> list[str]:
    """Return a line with the values of our chart that grant what a policy needs; empty if it needs none."""
    from rebalancer.doctor.server import list_chart_values  # noqa: PLC0415

    loaded = load_text(text.encode(), "the migrated policy", Registry.installed())
    run = run_context(RunOptions.of(dry_run=True), environment, loaded=loaded)
    flags = " ".join(f"--set {value}" for value in list_chart_values(run))
    return [f"as existingPolicy of the chart it needs {flags}"] if flags else []


def _read(file: str, stdin: BinaryIO) -> bytes:
    if file == "-":
        return stdin.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise PolicyError([f"{file}: cannot be read ({error.strerror})"]) from None


def _write(path: Path, text: str) -> None:
    try:
        if path.is_file() and path.stat().st_size:
            # It may have been edited since: what people go on to write is never replaced.
            raise PolicyError([f"{path}: exists already: name a new file, or remove this one"])
        with create_file(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise PolicyError([f"{path}: cannot be written ({error.strerror})"]) from None


def _are_one(out: TextIO, err: TextIO) -> bool:
    """Return whether two streams write to the same terminal, pipe or file: the notes are above the policy there."""
    try:
        return os.path.sameopenfile(out.fileno(), err.fileno())
    except (OSError, ValueError):
        return False


@click.group("policy", cls=PanelGroup)
def command() -> None:
    """Check, show and migrate policies."""


@command.command(
    "check",
    epilog=examples(
        "rebalancer policy check policy.yaml",
        "rebalancer policy check policy.yaml --against-cluster",
    ),
)
@takes(RunOptions, f"{POLICY} {ACCESS}", policy_path={"argument": True})
@click.option(
    "--snapshot",
    "snapshot_path",
    type=click.Path(),
    help="Also check the policy on a snapshot file ('-': standard input).",
)
@click.option(
    "--against-cluster",
    is_flag=True,
    help="Also check the policy on the cluster of the kubeconfig.",
)
def _check(snapshot_path: str | None, *, against_cluster: bool, **flags: Any) -> None:
    """Check a policy, and name all that is wrong with it.

    With a snapshot or a cluster it also says how many pods each select matches, which budgets, windows and
    PodDisruptionBudgets never allow anything, and which strategies work against each other or an autoscaler.
    """
    if against_cluster and snapshot_path is not None:
        raise PolicyError(["--against-cluster and --snapshot: name one of them"])
    options = RunOptions.of(dry_run=True, snapshot_path=snapshot_path, **flags)
    loaded = options.policy.load(Registry.installed())
    for warning in (*loaded.warnings, *loaded.of_strategies):
        say(sys.stderr, f"warning: {warning}")
    names = ", ".join(sorted(loaded.policy.strategies)) or "no strategies"
    write(sys.stdout, [f"{loaded.source}: valid ({names}; {loaded.policy.mode.value})\n"])
    if against_cluster or snapshot_path is not None:
        check_on(options, system_environment())


@command.command(
    "show",
    epilog=examples(
        "rebalancer policy show > policy.yaml",
        "rebalancer policy show --policy policy.yaml -n shop",
    ),
)
@takes(RunOptions, f"{POLICY} {ACCESS}")
@click.option(
    "-n",
    "--namespace",
    metavar="NAMESPACE",
    help="For pods of this namespace, with its own policy in the cluster, and where each value comes from.",
)
def _show(namespace: str | None, **flags: Any) -> None:
    """Print the policy in force, with all defaults spelled out."""
    options = RunOptions.of(**flags)
    loaded, environment = options.policy.load(Registry.installed()), system_environment()
    text = effective(loaded.policy)
    if namespace is not None:
        client = options.cluster.client(environment, environment.until_signal())
        text = describe_narrowed(client, loaded, namespace)
    write(environment.out, [MODELINE, text])


def describe_narrowed(client: Client, loaded: LoadedPolicy, namespace: str) -> str:
    """Return the policy for pods of a namespace as YAML with comments.

    Raises:
        ClusterReadError: its own policy could not be read.
        PolicyError: its own policy has problems, and does not apply.
    """
    from rebalancer.kube.seldom_read import list_namespace_policies  # noqa: PLC0415

    document = YamlDocument("", {}, {})
    if may_narrow(loaded.policy, namespace):
        for listed in list_namespace_policies(client, namespace):
            known = Registry.installed()
            read = read_namespace_policy(listed.text, namespace, loaded.policy, known)
            if read.policy is None:
                raise PolicyError(list(map(str, read.problems)))
            for problem in read.problems:
                say(sys.stderr, f"warning: {problem}")
            document = read.document
    return describe_sum(loaded, document)


@command.command("strategies")
def _strategies() -> None:
    """List the installed strategies.

    With the distribution that each comes from.
    """
    registry = Registry.installed()
    for listed in registry.list_metadata():
        text = (type(registry.strategy(listed.name)).__doc__ or "").strip().splitlines()
        line = f"{listed.name:<18} {text[0] if text else ''}  [{listed.distribution}]"
        write(sys.stdout, [f"{line}\n"])


@command.command(
    "migrate",
    epilog=examples(
        "rebalancer policy migrate descheduler.yaml -o policy.yaml",
        "kubectl get configmap descheduler -n kube-system -o yaml | rebalancer policy migrate -",
    ),
)
@click.argument("file", metavar="FILE", type=click.Path())
@click.option(
    "-o",
    "--output",
    type=WrittenFile(),
    metavar="FILE",
    help="Where to write it. Default: standard output.",
)
def _migrate(file: str, output: str | None) -> int:
    """Turn a policy of the descheduler into one of ours.

    FILE ('-': standard input) holds a DeschedulerPolicy (v1alpha2 or v1alpha1), the ConfigMap with one, or
    the values of the descheduler's chart (also in a HelmRelease or an Application). Other manifests may
    stand beside it.
    What has no equal here is listed in comments of what is written, and on standard error if that is elsewhere.
    """
    return int(migrate(file, output, sys.stdin.buffer, system_environment()))


def check_on(options: RunOptions, environment: Environment) -> None:
    """Read the snapshot file or the cluster; print the effects of the policy there.

    Raises:
        ClusterReadError: the cluster could not be read.
        PolicyError: the policy or the file is invalid.
    """
    run = run_context(options, environment)
    with open_source(run, options.cluster) as source:
        reading = source.read()
    snapshot = reading.snapshot
    result = findings(reading.run.loaded.policy, snapshot, Registry.installed())
    pods = len(snapshot.pods)
    lines = [
        f"{source.name}: {len(snapshot.nodes)} nodes, {pods} pods; the policy lets {result.movable} move\n",
        *(f"  {key} matches {number} of {pods} pods\n" for key, number in result.selects.items()),
    ]
    write(environment.out, lines)
    for warning in result.warnings:
        say(environment.err, f"warning: {warning}")


@click.group("schema", cls=PanelGroup)
def schema_command() -> None:
    """Print the JSON schema of reports or of policies."""


@schema_command.command("report")
def _report_schema() -> None:
    """Print the JSON schema of what `rebalancer run -o json` prints."""
    _print_schema(report_schema())


@schema_command.command("policy")
def _policy_schema() -> None:
    """Print the JSON schema of policy files.

    With the options of the installed strategies.
    """
    known = Registry.installed()
    _print_schema(schema(known, known.signals, known.steps), sort_keys=True)


def _print_schema(document: Any, *, sort_keys: bool = False) -> None:
    text = json.dumps(document, indent=2, sort_keys=sort_keys)
    write(system_environment().out, [f"{text}\n"])
