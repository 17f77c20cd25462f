"""``policy check|show|strategies|migrate``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ExitCode, PolicyError
from rebalancer.base.output import create_file, say, write
from rebalancer.base.plain_text import count
from rebalancer.commands.flags import ACCESS, POLICY, examples, takes
from rebalancer.commands.panels import PanelGroup
from rebalancer.migrate.merge import as_directory, as_file, merge_profiles
from rebalancer.migrate.source import read_source
from rebalancer.migrate.uses import (
    V1ALPHA2,
    KeyFate,
    as_comments,
    read_policy,
)
from rebalancer.planner.findings import findings
from rebalancer.policy.document import FileProblem, YamlDocument
from rebalancer.policy.forms import MODELINE, effective
from rebalancer.policy.load import LoadedPolicy
from rebalancer.policy.namespace import describe_sum, may_narrow, read_namespace_policy
from rebalancer.policy.values import Params
from rebalancer.registry import Registry
from rebalancer.run.context import run_context
from rebalancer.run.options import RunOptions
from rebalancer.run.source import open_source

if TYPE_CHECKING:
    from rebalancer.kube.client import Client

_STDIN = "standard input"


@dataclass(frozen=True, slots=True)
class Migrated:
    """Our policy, converted from a policy of the descheduler."""

    data: dict[str, Any]
    """The policy as plain data."""
    head: str
    """Comments: the source, and the notes."""
    notes: tuple[FileProblem, ...]


def convert_policy(raw: bytes, file: str, known: Mapping[str, type[Params]]) -> Migrated:
    """Convert the descheduler's policy in ``raw``; messages name it ``file``.

    Raises:
        PolicyError: it is not a policy of the descheduler, or has keys unknown to the descheduler.
    """
    source = read_source(raw, file)
    document, notes = source.document, source.notes
    data = merge_profiles(read_policy(document, notes), known, notes, dry_run=source.dry_run)
    if not data["strategies"]:
        notes.add((), KeyFate.LOST, "nothing is left to do: the policy has no strategy")
    comments = f"{as_comments(notes)}{notes.list_defaults()}"
    head = f"{MODELINE}# Migrated from a policy of the descheduler ({V1ALPHA2}).\n{comments}"
    return Migrated(data, head, tuple(notes))


def migrate(file: str, output: str | None, stdin: BinaryIO, environment: Environment) -> ExitCode:
    """Convert the policy in ``file`` ('-': standard input); write it to ``output`` or standard output.

    Raises:
        PolicyError: see ``convert_policy``; or a file cannot be read or written.
    """
    known = Registry.installed()
    policy = convert_policy(_read(file, stdin), _STDIN if file == "-" else file, known)
    text = as_file(policy.data, policy.head, known)
    written = None
    if output is None:
        write(environment.out, [text])
    else:
        into = output.endswith("/") or Path(output).is_dir()
        written = _write(Path(output), text, policy, into=into)
    for note in policy.notes:
        say(environment.err, str(note))
    if written is not None:
        say(environment.err, f"rebalancer: {written}")
    return ExitCode.DONE


def _read(file: str, stdin: BinaryIO) -> bytes:
    if file == "-":
        return stdin.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise PolicyError([f"{file}: cannot be read ({error.strerror})"]) from None


def _write(path: Path, text: str, policy: Migrated, *, into: bool) -> str:
    """Write the policy; return what was written, and how it is checked."""
    files = as_directory(policy.data, policy.head) if into else {}
    try:
        if into:
            path.mkdir(parents=True, exist_ok=True)
            _refuse_files(path)
        elif path.is_file() and path.stat().st_size:
            # It may have been edited since: what people go on to write is never replaced.
            raise PolicyError([f"{path}: exists already: name a new file, or remove this one"])
        targets = (
            {path / name: content for name, content in files.items()} if into else {path: text}
        )
        for target, content in targets.items():
            with create_file(target) as file:
                file.write(content.encode())
    except OSError as error:
        raise PolicyError([f"{path}: cannot be written ({error.strerror})"]) from None
    what = f"{count(len(files), 'file')} written to {path}" if into else f"{path} is written"
    return f"{what}; `rebalancer plan --policy {path}` shows what it would move"


def _refuse_files(directory: Path) -> None:
    """Reject a directory with policy files: they would be replaced, or read as parts of this policy."""
    files = sorted(p.name for p in directory.iterdir() if p.suffix in (".yaml", ".yml", ".json"))
    if files:
        raise PolicyError([f"{directory}: holds {files[0]} already: name a new or an empty folder"])


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
@click.argument("file", metavar="[FILE]", type=click.Path(), required=False)
@takes(RunOptions, f"{POLICY} {ACCESS}")
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
def _check(
    file: str | None, snapshot_path: str | None, *, against_cluster: bool, **flags: Any
) -> None:
    """Check a policy, and name all that is wrong with it.

    With a snapshot or a cluster it also says how many pods each select matches, which budgets, windows and
    PodDisruptionBudgets never allow anything, and which strategies work against each other or an autoscaler.
    FILE is the same as --policy FILE.
    """
    if file is not None:
        if flags["policy_path"] is not None:
            raise click.UsageError(f"{file} and --policy {flags['policy_path']}: give one of them")
        flags["policy_path"] = file
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
        PolicyError: its own policy has problems, and holds nothing back.
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
    type=click.Path(),
    metavar="FILE|DIRECTORY",
    help="Where to write it; into a directory, one file per strategy. Default: standard output.",
)
def _migrate(file: str, output: str | None) -> int:
    """Turn a policy of the descheduler into one of ours.

    FILE ('-': standard input) holds a DeschedulerPolicy (v1alpha2), the ConfigMap with one, or
    the values of the descheduler's chart (also in a HelmRelease or an Application). Other manifests may
    stand beside it.
    What has no equal here is listed on standard error, and in comments of what is written.
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
