"""``explain pod``: what the scheduler would do with a pod's replacement now."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from rebalancer.environment import Environment
from rebalancer.errors import ExitCode, PolicyError
from rebalancer.planning import scheduler_profile
from rebalancer.policy.load import load_policy
from rebalancer.registry import Registry
from rebalancer.report.explained import explained_as_json, explained_as_table
from rebalancer.scheduler.explain import explain_pod
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.state import ClusterState


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """The flags of ``explain pod``."""

    pod: str
    """``NAMESPACE/NAME``, or a name in ``default``."""
    node: str | None = None
    policy_path: str | None = None
    kubeconfig: str | None = None
    context_name: str | None = None
    snapshot_path: str | None = None
    output: str = "table"


def explain(options: ExplainOptions, environment: Environment) -> ExitCode:
    """Print the explanation.

    Raises:
        PolicyError: there is no such pod or node.
        ClusterReadError: the cluster could not be read.
    """
    policy = load_policy(options.policy_path, Registry.installed()).policy
    snapshot = _snapshot(options, environment)
    row = _row(snapshot, options.pod)
    if options.node is not None and options.node not in snapshot.nodes.index:
        raise PolicyError([f"--node {options.node}: there is no such node"])
    model = SchedulerModel(snapshot, scheduler_profile(policy, snapshot))
    explanation = explain_pod(snapshot, model, ClusterState(snapshot), row)
    if options.output == "json":
        environment.out.write(explained_as_json(explanation))
    else:
        environment.out.write(explained_as_table(explanation, options.node))
    return ExitCode.DONE


def _snapshot(options: ExplainOptions, environment: Environment) -> Snapshot:
    if options.snapshot_path is not None:
        from rebalancer.snapshot.load import load_snapshot  # noqa: PLC0415

        return load_snapshot(options.snapshot_path, stdin=sys.stdin.buffer)
    from rebalancer.kube.client import connect  # noqa: PLC0415
    from rebalancer.kube.read import read_snapshot  # noqa: PLC0415

    client = connect(
        kubeconfig=options.kubeconfig, context=options.context_name, environ=environment.environ
    )
    return read_snapshot(client, clock=environment.clock.unix)


def _row(snapshot: Snapshot, ref: str) -> int:
    namespace, _, name = ref.rpartition("/")
    namespace = namespace or "default"
    for row, cls in enumerate(snapshot.pods.cls.tolist()):
        if snapshot.classes[cls].namespace == namespace and snapshot.pods.name[row] == name:
            return row
    raise PolicyError([f"pod {namespace}/{name}: there is no such pod, or it has finished"])
