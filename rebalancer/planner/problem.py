"""What is planned on: a snapshot, its rules as terms yet to be made, and what protects its pods. Data only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rebalancer.cost.streaks import Streaks
from rebalancer.cost.term import Candidates, Concerned, Emptiable, Ended, Term, View
from rebalancer.planner.disruption import DisruptionBudgets
from rebalancer.planner.eviction_cost import eviction_cost
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.snapshot.columns import Bools, Floats, Int32s
from rebalancer.snapshot.model import PodFlag, Snapshot
from rebalancer.snapshot.protect import COOL_DOWN, UNSETTLED
from rebalancer.snapshot.selected import Selected, union

Pair = tuple[int, int]
"""A class and a node."""


@dataclass(frozen=True, slots=True)
class WeightedTerm:
    """A term with its strategy and the strategy's weight."""

    strategy: str
    term: Term
    weight: float
    observed: bool = False
    """The strategy only observes, or its window is closed: its moves are shown, not carried out."""
    selected: Selected | None = None
    """The pods that the strategy may move; None: all."""

    def selected_rows(self, rows: Candidates) -> Candidates:
        """Return the candidates among ``rows`` that the strategy may move."""
        if self.selected is None or not len(rows.cls):
            return rows
        mine = self.selected.pairs(rows.cls, rows.node)
        return Candidates(rows.cls[mine], rows.node[mine], rows.gain[mine])

    def may_move(self, cls: int, node: int) -> bool:
        """Return whether the strategy may move pods of ``cls`` off ``node``."""
        return self.selected is None or self.selected.has(cls, node)


def concern_of(term: Term) -> Callable[[int, int], bool]:
    """Return a test whether moving (class, replacement) could change a term.

    Most could not, and need not be asked of every landing.
    """
    return term.concerns if isinstance(term, Concerned) else lambda *_: True


@dataclass(frozen=True, slots=True)
class Contribution:
    """One strategy's share in a problem: makes its terms over a view."""

    strategy: str
    weight: float
    observed: bool
    terms: Callable[[View], Sequence[Term]]
    streaks: Streaks | None = None
    """What it has seen in earlier runs, see ``View.streaks``."""
    selected: Selected | None = None
    """The pods that it may move; None: all."""
    emptiable: Callable[[View], Emptiable] | None = None
    """Of a strategy that empties nodes: which ones it may."""
    ended: Ended | None = None
    """Of a strategy that removes pods that have ended: which ones, of those that it may move."""


@dataclass(frozen=True)
class Problem:
    """What is planned on. Nothing in it changes while a plan is made."""

    snapshot: Snapshot
    scheduler: SchedulerModel
    contributions: Sequence[Contribution]
    protected: Int32s
    """(P,) bits of the protections of each pod, see :mod:`rebalancer.snapshot.protect`."""
    ended_protected: Int32s = field(default_factory=lambda: np.zeros(0, np.int32))
    """The same of each pod of ``snapshot.finished``."""
    disruptions: DisruptionBudgets = field(init=False)
    """The PodDisruptionBudgets of the snapshot."""
    costs: Floats = field(init=False)
    """(P,) what it costs to evict each pod."""
    selected: Bools = field(init=False)
    """(P,) pods that at least one strategy may move by its ``select``."""
    movable: Bools = field(init=False)
    """(P,) selected pods that neither a protection nor a PodDisruptionBudget keeps in place; a cool-down may."""

    def __post_init__(self) -> None:
        disruptions = DisruptionBudgets(self.snapshot)
        selected = union([of.selected for of in self.contributions] or [None], self.snapshot)
        kept = ((self.protected & ~COOL_DOWN) != 0) | disruptions.forbidden_pods()
        object.__setattr__(self, "disruptions", disruptions)
        object.__setattr__(self, "costs", eviction_cost(self.snapshot))
        object.__setattr__(self, "selected", selected)
        object.__setattr__(self, "movable", selected & ~kept)

    @cached_property
    def unready(self) -> Bools:
        """(P,) selected pods that are not Ready, of owners of which at most too few are; no other protection holds."""
        snapshot, pods = self.snapshot, self.snapshot.pods
        only_unready = np.array(
            [owner.unsettled is None or owner.lacks_ready_only for owner in snapshot.owners], bool
        )
        of_class = np.array([cls.owner for cls in snapshot.classes], np.int64)
        owner = of_class[pods.cls] if len(pods) else np.zeros(0, np.int64)
        unready = (owner >= 0) & ((pods.flags & PodFlag.READY) == 0)
        unready[unready] = only_unready[owner[unready]]
        others = self.protected & ~(COOL_DOWN | UNSETTLED)
        lifted: Bools = unready & self.selected & (others == 0)
        return lifted

    @property
    def is_unprotected(self) -> Bools:
        """(P,) selected pods that no protection keeps in place."""
        return self.selected & (self.protected == 0)

    @property
    def unprotected(self) -> int:
        """How many they are: what shares of the policy's budgets refer to."""
        return int(np.count_nonzero(self.is_unprotected))

    def may_move(self, strategy: str, cls: int, node: int) -> bool:
        """Return whether a strategy of this name may move pods of ``cls`` off ``node``."""
        return any(
            of.selected is None or of.selected.has(cls, node)
            for of in self.contributions
            if of.strategy == strategy
        )

    def may_move_both(self, one: tuple[int, int], other: tuple[int, int]) -> bool:
        """Return whether some strategy that does not only observe may move pods of both pairs of a class and a node."""
        return any(
            of.selected is None or (of.selected.has(*one) and of.selected.has(*other))
            for of in self.contributions
            if not of.observed
        )

    def rows_by_uid(self, uids: Sequence[str]) -> dict[str, int]:
        """Return the index of each pod that the snapshot has among ``uids``."""
        column = self.snapshot.pods.uid
        return {column[pod]: pod for pod in column.rows_of(set(uids)).tolist()}

    def is_observed(self, strategy: str) -> bool:
        """Return whether the moves of a strategy are shown only, and not carried out."""
        return any(c.observed for c in self.contributions if c.strategy == strategy)
