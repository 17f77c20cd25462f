"""Assesses the machines of a cluster once: its groups, which nodes can go, which groups have to grow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rebalancer.capacity.groups import Groups, known_nodes
from rebalancer.capacity.growth import Growth, Outlook, growth_of
from rebalancer.capacity.removal import removals
from rebalancer.capacity.report import CapacityReport
from rebalancer.capacity.waiting import waiting_pods
from rebalancer.planner.planning import Planning
from rebalancer.policy.capacity import CapacitySettings
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
    outlook: Callable[[Snapshot, Groups], Outlook],
) -> CapacityReport:
    """Return what is to be said of the machines; ``provider`` is the name of ``machines`` in the policy.

    A node that scale-in has taken out is judged as if it were open: whether it still can go. Where it cannot, it is room for
    the pods that wait.

    Raises:
        ProviderError: it cannot be asked.
    """
    groups = Groups(snapshot, machines.groups(known_nodes(snapshot)))
    reckoned = outlook(snapshot, groups)
    profile = planning.scheduler_profile(snapshot)

    def grown(of: Snapshot) -> Growth:
        planned = planning.problem(of).snapshot
        return growth_of(planned, profile, groups, machines.template, settings, reckoned)

    growth, begun = grown(snapshot), _at(snapshot, Phase.LEAVING)
    back = with_scale_ins(snapshot, dict.fromkeys(np.flatnonzero(begun).tolist()))
    problem = planning.problem(back)
    nodes = removals(
        problem,
        planning.settings(),
        groups,
        settings.under,
        asked=provider != NONE,
        needed={**growth.needed, **_needed_again(problem.snapshot, profile, growth, begun)},
        begun=begun,
        noted=_at(snapshot, Phase.UNNEEDED),
    )
    returning = [one.node for one in nodes if begun[one.node] and not one.goes]
    if returning:
        growth = grown(with_scale_ins(snapshot, dict.fromkeys(returning)))
    return CapacityReport(
        snapshot=snapshot,
        provider=provider,
        groups=groups,
        autoscalers=tuple(autoscalers(snapshot)),
        nodes=tuple(nodes),
        growth=growth,
        outlook=reckoned,
    )


def _at(snapshot: Snapshot, phase: Phase) -> Bools:
    """Return the nodes (N,) that scale-in has brought to a phase."""
    at = np.zeros(len(snapshot.nodes), bool)
    at[[node for node, state in scale_ins(snapshot.nodes).items() if state.phase is phase]] = True
    return at


def _needed_again(
    snapshot: Snapshot, profile: SchedulerProfile, growth: Growth, begun: Bools
) -> dict[str, int]:
    """Return name of a node that was taken out -> a pod that waits and that no node takes but such a one.

    ``snapshot`` has them as if they were open.
    """
    stuck = {one.pod for one in growth.pods if one.node is None or one.group is not None}
    if not stuck or not begun.any():
        return {}
    return {
        one.node: one.pod
        for one in waiting_pods(snapshot, profile)
        if one.pod in stuck and one.node is not None and begun[snapshot.nodes.index[one.node]]
    }
