"""What is planned on: a snapshot, its rules as terms yet to be made, and what protects its pods. Data only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from rebalancer.cost.signals import Signals
from rebalancer.cost.term import Term, View
from rebalancer.planner.disruption import DisruptionBudgets
from rebalancer.planner.eviction_cost import eviction_cost
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.snapshot.columns import Bools, Floats, Int32s
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import COOL_DOWN


@dataclass(frozen=True, slots=True)
class WeightedTerm:
    """A term with its strategy and the strategy's weight."""

    strategy: str
    term: Term
    weight: float
    observed: bool = False
    """The strategy only observes, or its window is closed: its moves are shown, not carried out."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """One strategy's share in a problem: makes its terms over a view."""

    strategy: str
    weight: float
    observed: bool
    terms: Callable[[View], Sequence[Term]]
    signals: Signals | None = None
    """What it has seen in earlier runs, see ``View.signals``."""


@dataclass(frozen=True)
class Problem:
    """What is planned on. Nothing in it changes while a plan is made."""

    snapshot: Snapshot
    scheduler: SchedulerModel
    contributions: Sequence[Contribution]
    protected: Int32s
    """(P,) bits of the protections of each pod, see :mod:`rebalancer.snapshot.protect`."""
    disruptions: DisruptionBudgets = field(init=False)
    """The PodDisruptionBudgets of the snapshot."""
    costs: Floats = field(init=False)
    """(P,) what it costs to evict each pod."""
    movable: Bools = field(init=False)
    """(P,) pods that neither a protection nor a PodDisruptionBudget keeps in place; a cool-down may."""

    def __post_init__(self) -> None:
        disruptions = DisruptionBudgets(self.snapshot)
        movable = ((self.protected & ~COOL_DOWN) == 0) & ~disruptions.forbidden_pods()
        object.__setattr__(self, "disruptions", disruptions)
        object.__setattr__(self, "costs", eviction_cost(self.snapshot))
        object.__setattr__(self, "movable", movable)

    @property
    def unprotected(self) -> int:
        """How many pods no protection keeps in place: what shares of the policy's budgets refer to."""
        return int(np.count_nonzero(self.protected == 0))

    def rows_by_uid(self, uids: Sequence[str]) -> dict[str, int]:
        """Return the index of each pod that the snapshot has among ``uids``."""
        column = self.snapshot.pods.uid
        return {column[pod]: pod for pod in column.rows_of(set(uids)).tolist()}

    def is_observed(self, strategy: str) -> bool:
        """Return whether the moves of a strategy are shown only, and not carried out."""
        return any(c.observed for c in self.contributions if c.strategy == strategy)
