"""Assess the machines of a cluster: its groups, removable nodes, and groups to scale up."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rebalancer.machines.capacity.groups import Groups, known_nodes
from rebalancer.machines.capacity.pending_pods import pending_pods
from rebalancer.machines.capacity.removal import removals
from rebalancer.machines.capacity.report import CapacityReport
from rebalancer.machines.capacity.scale_out_plan import ScaleOutInputs, ScaleOutPlan
from rebalancer.machines.capacity.scale_out_planner import plan_scale_out
from rebalancer.machines.capacity.scaling import scaling_strategies
from rebalancer.planner.planning import Planning
from rebalancer.policy.cluster import CapacitySettings
from rebalancer.policy.model import Policy
from rebalancer.providers.contract import Machines
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.autoscalers import autoscalers
from rebalancer.snapshot.columns import Bools
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.scale_in import scale_ins, with_scale_ins
from rebalancer.wire.scale_in import Phase

NONE = "none"
"""The provider of policies that name none."""


def assess(
    planning: Planning,
    settings: CapacitySettings,
    snapshot: Snapshot,
    provider: str,
    machines: Machines,
    inputs: Callable[[Snapshot, Groups, Machines], ScaleOutInputs],
) -> CapacityReport:
    """Return the report on the machines; ``provider`` is the name of ``machines`` in the policy.

    A node that scale-in drains is judged as if it were schedulable. If it can no longer be removed, it is room for
    the pending pods.

    Raises:
        ProviderError: the provider cannot be asked.
    """
    read = machines.groups(known_nodes(snapshot))
    groups = Groups(snapshot, read, settings.startup_taints)
    known = inputs(snapshot, groups, machines)
    profile = planning.scheduler_profile(snapshot)

    def scale_out(of: Snapshot) -> ScaleOutPlan:
        planned = planning.problem(of).snapshot
        return plan_scale_out(planned, profile, groups, machines.template, settings, known)

    plan, draining = scale_out(snapshot), _at(snapshot, Phase.LEAVING)
    back = with_scale_ins(snapshot, dict.fromkeys(np.flatnonzero(draining).tolist()))
    problem = planning.problem(back)
    nodes = removals(
        problem,
        planning.settings(),
        groups,
        settings.under,
        has_provider=provider != NONE,
        needed={**plan.needed, **_needed_again(problem.snapshot, profile, plan, draining)},
        draining=draining,
        unneeded=_at(snapshot, Phase.UNNEEDED),
        candidates=_selected(planning.loaded.policy, snapshot),
    )
    returning = [one.node for one in nodes if draining[one.node] and not one.removable]
    if returning:
        plan = scale_out(with_scale_ins(snapshot, dict.fromkeys(returning)))
    return CapacityReport(
        snapshot=snapshot,
        provider=provider,
        groups=groups,
        autoscalers=tuple(autoscalers(snapshot)),
        nodes=tuple(nodes),
        scale_out=plan,
        inputs=known,
    )


def _selected(policy: Policy, snapshot: Snapshot) -> Bools | None:
    """Return the nodes (N,) that the policy's scale-in strategy selects; None for all."""
    for name, scales in scaling_strategies(policy):
        nodes = policy.strategies[name].select.nodes
        if scales == "in" and nodes is not None:
            return snapshot.nodes_matching(nodes)
    return None


def _at(snapshot: Snapshot, phase: Phase) -> Bools:
    """Return the nodes (N,) whose scale-in is in this phase."""
    at = np.zeros(len(snapshot.nodes), bool)
    at[[node for node, state in scale_ins(snapshot.nodes).items() if state.phase is phase]] = True
    return at


def _needed_again(
    snapshot: Snapshot, profile: SchedulerProfile, plan: ScaleOutPlan, draining: Bools
) -> dict[str, int]:
    """Return name of a draining node -> a pending pod that fits on no other node.

    In ``snapshot`` these nodes are schedulable.
    """
    stuck = {one.pod for one in plan.pods if one.node is None or one.group is not None}
    if not stuck or not draining.any():
        return {}
    return {
        one.node: one.pod
        for one in pending_pods(snapshot, profile)
        if one.pod in stuck and one.node is not None and draining[snapshot.nodes.index[one.node]]
    }
