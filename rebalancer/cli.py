"""Commands and options, nothing else: each command hands over to a module imported when it is called."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from rebalancer import __version__
from rebalancer.errors import ExitCode, RebalancerError, StoppedError
from rebalancer.output import OutputError, say, write

_EPILOG = """\b
Exit codes:
  0   done, nothing to do, standing still, or held back by a PodDisruptionBudget, a budget or another run
  1   our fault
  2   the policy, a flag or a file is wrong, or the output could not be written
  3   the cluster could not be read, or refused us before the first eviction
  4   partly executed: something planned failed or was cut off, or was done and could not be reported
  10  with --detailed-exitcode: a dry run found moves
"""

_PATIENCE = 5.0
"""Seconds for a run that is stopped while it reads a file or plans to report all the same; the chart's pod has 10."""


def command(argv: Sequence[str]) -> int:
    """Run the command line ``argv``; return the exit code. Errors are shown without a traceback."""
    try:
        result = main.main(args=list(argv), prog_name="rebalancer", standalone_mode=False)
    except OutputError as error:
        if error.reader_has_left:
            return int(ExitCode.DONE)
        say(sys.stderr, f"rebalancer: {error}")
        return int(error.exit_code)
    except RebalancerError as error:
        say(sys.stderr, f"rebalancer: {error}")
        return int(error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        say(sys.stdout, error.format_message())
        return int(ExitCode.USAGE)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        say(sys.stderr, shown.getvalue().rstrip("\n"))
        return int(ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        stopped = StoppedError()
        say(sys.stderr, f"rebalancer: {stopped}")
        return int(stopped.exit_code)
    return int(result) if isinstance(result, int) else int(ExitCode.DONE)


@click.group(
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="rebalancer")
def main() -> None:
    """Move running pods to where they should be."""


_cluster = [
    click.option("--kubeconfig", type=click.Path(), help="Path to the kubeconfig file."),
    click.option("--context", "context_name", help="Context of the kubeconfig."),
]
_policy = click.option(
    "--policy",
    "policy_path",
    type=click.Path(),
    help="Policy file, or directory with one file per strategy. Default: the built-in policy.",
)


_acting = [
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
        "-o",
        "--output",
        type=click.Choice(["table", "json", "yaml", "html"]),
        default="table",
        show_default=True,
        help="Form of the report.",
    ),
    click.option(
        "--lift-budgets", is_flag=True, help="No limit per run and per hour; all others hold."
    ),
    click.option(
        "--detailed-exitcode", is_flag=True, help="A dry run that finds moves exits with code 10."
    ),
    click.option(
        "--deadline",
        type=click.FloatRange(min=1),
        default=600,
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
        default=8,
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
        default="text",
        show_default=True,
        help="Form of the progress lines.",
    ),
    click.option(
        "--color", is_flag=True, default=None, help="Colour the table. Default: on a terminal."
    ),
]
"""What ``run`` and ``apply`` have in common besides."""


def _with(
    options: Sequence[Callable[..., Any]],
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command these options, in this order."""

    def decorated(function: Callable[..., int]) -> Callable[..., int]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorated


def _acts(dry_run: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command the flags of whatever may evict; ``dry_run`` says what it does instead."""
    option = click.option("--dry-run", is_flag=True, help=dry_run)
    return _with([_policy, *_cluster, option, *_acting])


@main.command()
@_acts("Report only. The plan is the same as a real run's.")
def run(**options: object) -> int:
    """Plan moves and carry them out, once."""
    return _run(options)


@main.command()
@click.argument("plan_path", metavar="PLAN")
@_acts("Report only: what is left of the plan now.")
@click.option(
    "--max-age",
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="Refuse a plan that was made on an older picture of the cluster: 90s, 5m, 1h30m.",
)
def apply(**options: object) -> int:
    """Carry out a plan that was reviewed before.

    PLAN is what `rebalancer run --dry-run -o json` (or yaml) printed, '-' for standard input. Moves may have
    been deleted from it; none is added. Each is judged again on the cluster as it is now, as between the waves
    of a run, and dropped if its pod is gone or has changed, is protected now, no longer gains anything or would
    break something. Budgets, windows, Lease, memory, report and exit codes are those of run. The policy must be
    the one that the plan was made under.
    """
    return _run(options)


def _run(options: dict[str, object]) -> int:
    from rebalancer.app import run_once  # noqa: PLC0415
    from rebalancer.environment import system_environment  # noqa: PLC0415
    from rebalancer.options import RunOptions  # noqa: PLC0415

    environment = system_environment(patience=_PATIENCE)
    return int(run_once(RunOptions(**options), environment))  # type: ignore[arg-type]


@main.command()
@_with(_cluster)
@click.option(
    "-o", "--output", "path", type=click.Path(), required=True, help="File; .gz compresses it."
)
@click.option(
    "--usage", is_flag=True, help="Also what is really used, from the metrics API (metrics-server)."
)
def snapshot(kubeconfig: str | None, context_name: str | None, path: str, usage: bool) -> int:
    """Write the cluster's state to a file, for run --snapshot."""
    from rebalancer.environment import system_environment  # noqa: PLC0415
    from rebalancer.saving import save_snapshot  # noqa: PLC0415

    environment = system_environment()
    return int(save_snapshot(kubeconfig, context_name, path, environment, usage=usage))


@main.command()
@_with(_cluster)
@click.option("--memory", metavar="NS/NAME", required=True, help="ConfigMap of run --memory.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Form of the history.",
)
def history(kubeconfig: str | None, context_name: str | None, memory: str, output: str) -> int:
    """Print what is remembered of earlier runs.

    Their moves, which workloads rest until when, and which nodes were over-used.
    """
    from rebalancer.environment import system_environment  # noqa: PLC0415
    from rebalancer.memory.show import show_history  # noqa: PLC0415
    from rebalancer.options import reference  # noqa: PLC0415

    where = reference("--memory", memory)
    environment = system_environment()
    return int(show_history(kubeconfig, context_name, where, output, environment))


@main.command()
@_policy
@click.option(
    "--snapshot",
    "snapshot_path",
    type=click.Path(),
    required=True,
    help="Snapshot file to begin with ('-': standard input).",
)
@click.option(
    "--cycles",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Runs to play, two minutes apart or when there is something to do again; it ends earlier when "
    "nothing more will be done.",
)
@click.option(
    "--add-node",
    multiple=True,
    metavar="NAME[:zone=Z,...]",
    help="A node joins; more keys: like=NODE, cpu, memory, pods, or labels.",
)
@click.option("--remove-node", multiple=True, metavar="NAME", help="A node is gone.")
@click.option(
    "--scale", multiple=True, metavar="KIND/NS/NAME=N", help="A workload gets N replicas."
)
@click.option("--lift-budgets", is_flag=True, help="No limit per run and per hour.")
@click.option("--no-memory", is_flag=True, help="Every run is the first: no cool-downs.")
@click.option(
    "--ready-after",
    default="10",
    show_default=True,
    metavar="SECONDS|FROM-TO",
    help="Time until a replacement is Ready. --seed draws from a span, else it is the middle; so for the next two.",
)
@click.option(
    "--gone-after",
    default="0-20",
    show_default=True,
    metavar="SECONDS|FROM-TO",
    help="Time until an evicted pod is gone; it holds its place until then.",
)
@click.option(
    "--apart",
    default="0.08",
    show_default=True,
    metavar="SECONDS|FROM-TO",
    help="Time from one eviction to the next in a wave.",
)
@click.option(
    "--seed", type=int, help="Draw landings from their distribution. Default: the most probable."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Form of the report.",
)
def simulate(**options: object) -> int:
    """Play run after run offline, with what-if changes.

    On a snapshot file, with the scheduler model in the place of kube-scheduler.
    """
    from rebalancer.environment import system_environment  # noqa: PLC0415
    from rebalancer.simulation.command import SimulateOptions  # noqa: PLC0415
    from rebalancer.simulation.command import simulate as play  # noqa: PLC0415

    chosen = SimulateOptions(**options)  # type: ignore[arg-type]
    return int(play(chosen, system_environment(), sys.stdin.buffer))


@main.group()
def explain() -> None:
    """Explain a pod, a node or a workload.

    What is seen in it, and what the plan of a dry run does with it.
    """


_explained = [
    _policy,
    *_cluster,
    click.option(
        "--snapshot",
        "snapshot_path",
        type=click.Path(),
        help="Explain on a snapshot file ('-': standard input), without a cluster.",
    ),
    click.option(
        "--memory",
        metavar="NS/NAME",
        help="ConfigMap of run --memory: who rests, and what is used up.",
    ),
    click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="Form of the explanation.",
    ),
]


@explain.command("pod")
@click.argument("pod", metavar="[NAMESPACE/]NAME")
@click.option(
    "--node", help="Only this node: why it would not take the replacement, or its scores."
)
@_with(_explained)
def explain_pod(pod: str, node: str | None, **options: Any) -> int:
    """Where its replacement would land, and its plan.

    Prints each node's filter or scores for the replacement, where it would land, which rules the pod breaks
    where it is, and what the plan of a dry run does with it.
    """
    from rebalancer.environment import system_environment  # noqa: PLC0415
    from rebalancer.explaining import command as explaining  # noqa: PLC0415

    chosen = explaining.ExplainOptions(**options)
    return int(explaining.explain_pod(pod, node, chosen, system_environment()))


@explain.command("node")
@click.argument("node", metavar="NAME")
@_with(_explained)
def explain_node(node: str, **options: Any) -> int:
    """How it stands, its pods, what leaves and lands.

    Prints whether replacements land on the node, how full it is beside the thresholds, each of its pods with
    what it breaks there and why it moves or stays, and the planned moves that may land on it.
    """
    from rebalancer.environment import system_environment  # noqa: PLC0415
    from rebalancer.explaining import command as explaining  # noqa: PLC0415

    chosen = explaining.ExplainOptions(**options)
    return int(explaining.explain_node(node, chosen, system_environment()))


@explain.command("workload")
@click.argument("workload", metavar="[[KIND/]NAMESPACE/]NAME")
@_with(_explained)
def explain_workload(workload: str, **options: Any) -> int:
    """Where its pods stand, its rules, its plan.

    Prints how many of its pods stand where, what its rules ask for and the fewest moves that mend them, its
    PodDisruptionBudgets, which pods move where, which stay and why, and what cannot hold.
    """
    from rebalancer.environment import system_environment  # noqa: PLC0415
    from rebalancer.explaining import command as explaining  # noqa: PLC0415

    chosen = explaining.ExplainOptions(**options)
    return int(explaining.explain_workload(workload, chosen, system_environment()))


@main.group()
def policy() -> None:
    """Check, show and migrate policies."""


@policy.command("check")
@_policy
def policy_check(policy_path: str | None) -> None:
    """Say whether a policy is right, or all that is wrong with it."""
    from rebalancer.policy.load import load_policy  # noqa: PLC0415
    from rebalancer.registry import Registry  # noqa: PLC0415

    loaded = load_policy(policy_path, Registry.installed())
    for warning in loaded.warnings:
        say(sys.stderr, f"warning: {warning}")
    names = ", ".join(sorted(loaded.policy.strategies)) or "no strategies"
    write(sys.stdout, [f"{loaded.source}: fine ({names}; {loaded.policy.mode.value})\n"])


@policy.command("show")
@_policy
def policy_show(policy_path: str | None) -> None:
    """Print the policy in force, with all defaults spelled out."""
    from rebalancer.policy.forms import effective  # noqa: PLC0415
    from rebalancer.policy.load import load_policy  # noqa: PLC0415
    from rebalancer.registry import Registry  # noqa: PLC0415

    write(sys.stdout, [effective(load_policy(policy_path, Registry.installed()).policy)])


@policy.command("schema")
def policy_schema() -> None:
    """Print the JSON schema of policy files.

    With the options of the installed strategies.
    """
    import json  # noqa: PLC0415

    from rebalancer.policy.forms import schema  # noqa: PLC0415
    from rebalancer.registry import Registry  # noqa: PLC0415

    write(sys.stdout, [json.dumps(schema(Registry.installed()), indent=2, sort_keys=True), "\n"])


@policy.command("migrate")
@click.argument("file", metavar="FILE", type=click.Path())
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE|DIRECTORY",
    help="Where to write it; into a directory, one file per strategy. Default: standard output.",
)
def policy_migrate(file: str, output: str | None) -> int:
    """Turn a policy of the descheduler into one of ours.

    FILE ('-': standard input) holds a DeschedulerPolicy, v1alpha1 or v1alpha2, or the ConfigMap with one.
    What has no equal here is told on standard error, and in comments of what is written.
    """
    from rebalancer.environment import system_environment  # noqa: PLC0415
    from rebalancer.migration.command import migrate  # noqa: PLC0415

    return int(migrate(file, output, sys.stdin.buffer, system_environment()))


@main.command()
def strategies() -> None:
    """List the installed strategies."""
    from rebalancer.registry import Registry  # noqa: PLC0415

    registry = Registry.installed()
    for listed in registry.listed():
        text = (type(registry.strategy(listed.name)).__doc__ or "").strip().splitlines()
        line = f"{listed.name:<18} {text[0] if text else ''}  [{listed.distribution}]"
        write(sys.stdout, [f"{line}\n"])


@main.command()
@click.option("--speed", type=click.FloatRange(min=0.1), default=1.0, show_default=True)
def demo(speed: float) -> int:
    """Tell the story in an embedded cluster.

    Drift, plan, evictions, landings, silence.
    """
    from rebalancer.simulator.demo import run_demo  # noqa: PLC0415

    return int(run_demo(speed=speed, run=command))
