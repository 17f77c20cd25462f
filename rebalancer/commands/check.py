"""``policy check --snapshot|--against-cluster``: what a policy comes to on a cluster."""

from __future__ import annotations

from rebalancer.base.environment import Environment
from rebalancer.base.output import say, write
from rebalancer.planner.findings import findings
from rebalancer.registry import Registry
from rebalancer.run.context import run_context
from rebalancer.run.options import RunOptions
from rebalancer.run.source import open_source


def check_on(options: RunOptions, environment: Environment) -> None:
    """Read the snapshot file or the cluster; print what the policy comes to there.

    Raises:
        ClusterReadError: the cluster could not be read.
        PolicyError: the policy or the file is wrong.
    """
    run = run_context(options, environment)
    with open_source(run, options.cluster) as source:
        snapshot = source.read().snapshot
    result = findings(run.loaded.policy, snapshot, Registry.installed())
    pods = len(snapshot.pods)
    lines = [
        f"{source.name}: {len(snapshot.nodes)} nodes, {pods} pods; the policy lets {result.movable} move\n",
        *(f"  {key} matches {count} of {pods} pods\n" for key, count in result.selects.items()),
    ]
    write(environment.out, lines)
    for warning in result.warnings:
        say(environment.err, f"warning: {warning}")
