"""One look at the machines of a cluster: its groups, which nodes can go, which groups have to grow."""

from __future__ import annotations

from collections.abc import Callable

from rebalancer.capacity.autoscalers import autoscalers
from rebalancer.capacity.groups import Groups, known_nodes
from rebalancer.capacity.growth import Outlook, growth_of
from rebalancer.capacity.removal import standings
from rebalancer.capacity.report import CapacityReport
from rebalancer.planner.planning import Planning
from rebalancer.policy.capacity import CapacitySettings
from rebalancer.providers.contract import Machines
from rebalancer.snapshot.model import Snapshot

NONE = "none"
"""The provider of policies that name none."""


def look(
    planning: Planning,
    settings: CapacitySettings,
    snapshot: Snapshot,
    provider: str,
    machines: Machines,
    outlook: Callable[[Snapshot, Groups], Outlook],
) -> CapacityReport:
    """Return what is to be said of the machines; ``provider`` is the name of ``machines`` in the policy.

    Raises:
        ProviderError: it cannot be asked.
    """
    groups = Groups(snapshot, machines.groups(known_nodes(snapshot)))
    reckoned = outlook(snapshot, groups)
    problem = planning.problem(snapshot)
    growth = growth_of(
        problem.snapshot,
        planning.scheduler_profile(snapshot),
        groups,
        machines.template,
        settings,
        reckoned,
    )
    standing = standings(
        problem,
        planning.settings(),
        groups,
        settings.under,
        asked=provider != NONE,
        needed=growth.needed,
    )
    return CapacityReport(
        snapshot=snapshot,
        provider=provider,
        groups=groups,
        autoscalers=tuple(autoscalers(snapshot)),
        nodes=tuple(standing),
        growth=growth,
        outlook=reckoned,
    )
