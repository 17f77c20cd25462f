"""``demo``: a story in an embedded cluster, played by the command ``run`` itself; or that cluster to try out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from rebalancer.base.environment import system_environment
from rebalancer.base.errors import ExitCode
from rebalancer.base.output import say
from rebalancer.commands import run
from rebalancer.commands.call import call
from rebalancer.commands.flags import CLUSTER, WrittenFile, examples
from rebalancer.commands.panels import PanelGroup
from rebalancer.embedded.apiserver.discovery import BUILD
from rebalancer.embedded.demo import DRIFTS_PATH, LIVE, KeptError, keep_cluster, run_demo
from rebalancer.kube.client import Client
from rebalancer.run.options import ClusterFlags

_KUBECONFIG = Path("demo.kubeconfig")


@click.group(
    "demo",
    cls=PanelGroup,
    invoke_without_command=True,
    epilog=examples(
        "rebalancer demo --report demo-report.html",
        "rebalancer demo --keep",
        "rebalancer demo drift zone-back --kubeconfig demo.kubeconfig",
    ),
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Pace of the story: 2 is twice as fast.",
)
@click.option(
    "--report",
    type=WrittenFile(Path),
    metavar="FILE",
    help="Write the plan of the second part to FILE, as HTML.",
)
@click.option(
    "--keep",
    is_flag=True,
    help="No story: keep the cluster of the second part, drifted, until Ctrl-C, to play with.",
)
@click.option(
    "--kubeconfig",
    type=WrittenFile(Path),
    default=_KUBECONFIG,
    show_default=True,
    metavar="FILE",
    help="With --keep: the kubeconfig to write, for kubectl and for us.",
)
@click.pass_context
def command(
    context: click.Context, speed: float, report: Path | None, keep: bool, kubeconfig: Path
) -> int:
    """Tell the story in an embedded cluster.

    Drift, plan, evictions, landings, silence: half a minute, and nothing is needed or left.
    """
    if (subcommand := context.invoked_subcommand) is not None:
        given = {name for name in context.params if _is_given(context, name)}
        if of_story := given - {"kubeconfig"}:
            flags = ", ".join(f"--{name}" for name in sorted(of_story))
            raise click.UsageError(f"{subcommand} takes no {flags}")
        # Of ``demo --keep`` it is a file to write, of what it keeps drifting the same file to read.
        context.obj = str(kubeconfig) if "kubeconfig" in given else None
        return int(ExitCode.DONE)
    if keep:
        return int(_keep(kubeconfig.absolute()))
    return int(run_demo(speed=speed, run=_run, report=report))


@command.command("drift")
@CLUSTER
@click.argument("name", type=click.Choice(list(LIVE)))
@click.pass_obj
def drift_command(of_demo: str | None, /, kubeconfig: str | None, name: str, **cluster: Any) -> int:
    """Let the cluster of `demo --keep` drift.

    A zone is lost, or was lost and is back; a node joins in each zone; a node of each zone was emptied and is back.
    """
    environment = system_environment()
    access = ClusterFlags(kubeconfig=kubeconfig or of_demo, **cluster)
    client = access.client(environment, environment.until_signal())
    say(environment.out, f"{drift(client, name)}.")
    return int(ExitCode.DONE)


def drift(client: Client, name: str) -> str:
    """Make a kept cluster drift, wait until it has settled, and return what has happened.

    Raises:
        KeptError: the server of ``client`` is not a kept cluster.
        ClusterReadError: the server does not answer.
    """
    version = client.get("/version")
    if not version.ok or BUILD.encode() not in version.body:
        raise KeptError(
            f"{client.server} is no cluster of `rebalancer demo --keep`: nothing was done;"
            " name its kubeconfig with --kubeconfig or in $KUBECONFIG"
        )
    answer = client.post(DRIFTS_PATH + name, b"{}")
    if not answer.ok:
        raise KeptError(f"{client.server} is an embedded cluster that does not drift on request")
    return str(msgspec.json.decode(answer.body)["message"])


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _keep(kubeconfig: Path) -> ExitCode:
    environment = system_environment()
    # A signal is how this ends: nothing is cut off.
    environment.committed.set()
    with keep_cluster(environment.clock.unix, kubeconfig) as cluster:
        say(
            environment.out,
            _INVITATION.format(url=cluster.url, file=kubeconfig, drifts=", ".join(LIVE)),
        )
        environment.stop.wait()
    say(environment.out, "The cluster is gone.")
    return ExitCode.DONE


_INVITATION = """\
An embedded cluster is at {url}, on this machine only, until Ctrl-C. In another terminal:

    export KUBECONFIG={file}
    kubectl get nodes,pods -o wide
    rebalancer plan                         # look
    rebalancer explain workload default/api # ask why
    rebalancer run                          # move
    rebalancer demo drift zone-back         # undo: drift again

It drifts on request: {drifts}.
Pods that have just moved are protected for five minutes; this lifts that:

    rebalancer plan --set protect.minPodAge=0s"""


def _run(argv: Sequence[str]) -> int:
    """Call ``run`` with these arguments; the first one is the name of the command."""
    return call(run.command, argv[1:])
