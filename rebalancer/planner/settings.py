"""The policy's settings for a plan: thresholds, budgets, and their use by earlier runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from rebalancer.plan.plan import Pace
from rebalancer.policy.cluster import STARTUP_TAINTS
from rebalancer.policy.model import Budgets, Eagerness
from rebalancer.policy.namespace import NamespaceBudgets


@dataclass(frozen=True, slots=True)
class Threshold:
    """The minimum gain of a move."""

    pods: float
    """Least expected gain in pods that still have to move, per unit of eviction cost."""
    imbalance: float
    """Least expected gain in squared deviation, per unit of eviction cost."""
    better: float
    """Least probability of the landings that improve the cost."""
    worse: float
    """Most probability of the landings that make it worse; the others leave it as it is."""
    harmless: float
    """Least probability of the landings that improve the cost, where none makes it worse: such a move costs an eviction at most."""
    rest: float
    """A wave that gains less than this share of the plan's gain so far, and fixes no hard rule, is the last one."""


# One eviction of an ordinary pod costs 1. A preferred rule of weight 100 is worth 1, one of weight 10 is
# worth 0.1; careful still fixes that, and what a system-critical pod (cost 10) violates as a whole. A node at 60 % above a threshold of 50 % gains 0.02 when a pod of 1 % leaves.
# A move that can do no harm and helps in 60 % of its landings takes 1.7 evictions for one fix on average. Even odds, with
# two, doubled the evictions of a drift in which pods repel each other; asking for 67 % leaves a rule unmet for good where
# the nodes of a zone are tied.
THRESHOLDS: Mapping[Eagerness, Threshold] = {
    Eagerness.TIMID: Threshold(0.25, 0.02, better=0.9, worse=0.05, harmless=0.75, rest=0.005),
    Eagerness.CAREFUL: Threshold(0.05, 0.002, better=0.75, worse=0.1, harmless=0.6, rest=0.001),
    Eagerness.STEADY: Threshold(0.02, 0.001, better=0.6, worse=0.15, harmless=0.5, rest=0.0005),
    Eagerness.EAGER: Threshold(0.01, 0.0005, better=0.5, worse=0.25, harmless=0.4, rest=0.0002),
    Eagerness.RELENTLESS: Threshold(0.0, 0.0, better=0.34, worse=0.34, harmless=0.3, rest=0.0),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """All inputs of a plan except the snapshot and the terms."""

    eagerness: Eagerness = Eagerness.CAREFUL
    budgets: Budgets = field(default_factory=Budgets)
    of_strategy: Mapping[str, Budgets] = field(default_factory=dict)
    """Strategy -> its own budgets, which its moves must keep besides."""
    of_namespace: Mapping[str, NamespaceBudgets] = field(default_factory=dict)
    """Namespace -> the budgets of its own policy, which moves of its pods must keep besides."""
    lifted: bool = False
    """Limits per run and per hour are lifted (--lift-budgets); the others apply."""
    moved_last_hour: int = 0
    """Evictions by earlier runs in the rolling hour."""
    cooling: Mapping[str, str] = field(default_factory=dict)
    """Owner in a cool-down -> until when and why, for the reasons that the plan gives."""

    seconds: float = math.inf
    """Seconds of the run: the plan contains no more than can be executed in that time. Infinite: everything is planned."""
    pace: Pace = field(default_factory=Pace)
    """The pace of earlier runs."""
    steer: bool = False
    """Marks may choose landings where the scheduler's choice fixes nothing."""

    startup_taints: frozenset[str] = frozenset(STARTUP_TAINTS)
    """Keys of taints that a new node has until its agents are ready (``capacity.startupTaints``): it is a machine on its way."""

    planned: frozenset[str] = frozenset()
    """Between waves: the uids of the plan's pods. The run itself awaits their replacements, so that pods which still terminate are no longer in flight."""
    movable: int | None = None
    """Between waves: the number of pods that were movable when the plan was made, so that limits which are shares do not change."""

    def per_namespace_of(self, budgets: Budgets, namespace: str, movable: int) -> int | None:
        """Return the most evictions in a run of pods of a namespace, of which ``movable`` may move; None: any number."""
        own = self.of_namespace.get(namespace)
        most = [budgets.per_namespace_of(movable)]
        most += [own.per_run.of(movable)] if own is not None and own.per_run is not None else []
        return min((one for one in most if one is not None), default=None)

    def per_owner_of(self, budgets: Budgets, namespace: str, replicas: int) -> int:
        """Return the most pods in flight of an owner in a namespace."""
        own, most = self.of_namespace.get(namespace), budgets.per_owner_of(replicas)
        return (
            most if own is None or own.per_owner is None else min(most, own.per_owner.of(replicas))
        )

    @property
    def threshold(self) -> Threshold:
        """The threshold for the policy's eagerness."""
        return THRESHOLDS[self.eagerness]
