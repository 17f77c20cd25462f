"""The input of planning: a snapshot, its strategies, and the protections of its pods. Data only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rebalancer.cost.room_term import Ask
from rebalancer.cost.strategy import Emptiable, Ended
from rebalancer.cost.streaks import Streaks
from rebalancer.cost.term import Candidates, Term
from rebalancer.cost.view import View
from rebalancer.planner.disruption import DisruptionBudgets
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.snapshot.columns import Bools, Floats, Int32s
from rebalancer.snapshot.model import PodFlag, Snapshot
from rebalancer.snapshot.protect import COOL_DOWN, UNSETTLED, lasting_of
from rebalancer.snapshot.selected import Selected, union
from rebalancer.snapshot.zones import owners_to_refill

# Karpenter's weights of deletion cost and priority (designs/balanced-consolidation.md).
_DELETION_COST_SCALE = 2.0**27
_PRIORITY_SCALE = 2.0**25
_LEAST, _MOST = 0.1, 10.0
# A pod that just started is as reluctant as one that costs twice as much; that halves every hour.
_YOUTH = 1.0
_YOUTH_HALF_LIFE = 3600.0
# So much less reluctant is a pod of an owner that is most at risk: it goes first of what gains the same.
_AT_RISK = 1e-6
_VOLUME = 0.5
_LONG_GRACE_SECONDS = 120
_LONG_GRACE = 0.25


def eviction_cost(snapshot: Snapshot) -> Floats:
    """Return the eviction cost (P,) from deletion cost, priority, volumes and grace period.

    ``clamp(1 + deletion cost / 2^27 + priority / 2^25, 0.1, 10)``, plus 0.5 for persistent volumes and 0.25 for
    grace periods above two minutes. The gain of a move is compared with it, so it does not change with time: without a
    change of the cluster, a later run finds no new moves.
    """
    pods = snapshot.pods
    if not len(pods):
        return np.zeros(0)
    priority = np.array([c.priority for c in snapshot.classes], float)
    extra = np.zeros(len(snapshot.classes))
    for index, cls in enumerate(snapshot.classes):
        if any(v.persistent_volume_claim is not None for v in cls.spec.volumes or ()):
            extra[index] += _VOLUME
        if (cls.spec.termination_grace_period_seconds or 30) > _LONG_GRACE_SECONDS:
            extra[index] += _LONG_GRACE
    # What we wrote says which pod goes first at a scale-in, not what its eviction costs.
    theirs = np.where(pods.flags & PodFlag.COST_OURS, 0, pods.deletion_cost)
    base = 1.0 + theirs / _DELETION_COST_SCALE + priority[pods.cls] / _PRIORITY_SCALE
    cost: Floats = np.clip(base, _LEAST, _MOST) + extra[pods.cls]
    return cost


def reluctance(snapshot: Snapshot) -> Floats:
    """Return the factor (P,) by which pods are ranked later among equal candidates.

    From 1 to 2, larger for younger pods. All pods of a StatefulSet have the age of the youngest, so that
    :meth:`View.rank_equals` decides between them. Pods of owners that are most at risk have less than 1: while a zone is
    refilled they are moved first, regardless of their age.
    """
    pods = snapshot.pods
    if not len(pods):
        return np.zeros(0)
    youngest = np.zeros(len(snapshot.classes))
    np.maximum.at(youngest, snapshot.siblings[pods.cls], pods.created)
    numbered = np.isfinite(snapshot.ordinals)
    created = np.where(numbered, youngest[snapshot.siblings[pods.cls]], pods.created)
    age = np.maximum(0.0, snapshot.captured_at - created)
    later: Floats = 1.0 + _YOUTH * 2.0 ** (-age / _YOUTH_HALF_LIFE)
    at_risk = owners_to_refill(snapshot)
    if not at_risk.any():
        return later
    of_class = [cls.owner >= 0 and bool(at_risk[cls.owner]) for cls in snapshot.classes]
    return np.where(np.array(of_class)[pods.cls], 1.0 - _AT_RISK / later, later)


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
    held: bool = False
    """Whether the term moves no pods now, see ``Problem.held``; its score counts all the same."""
    resting: Mapping[int, str] = field(default_factory=dict)
    """Class -> why the strategy does not move its pods again yet."""

    def selected_rows(self, rows: Candidates) -> Candidates:
        """Return the candidates among ``rows`` that the strategy may move."""
        if self.held:
            return Candidates.none()
        if not (self.selected or self.resting) or not len(rows.cls):
            return rows
        mine = np.isin(rows.cls, list(self.resting), invert=True)
        if self.selected is not None:
            mine &= self.selected.pairs(rows.cls, rows.node)
        return Candidates(rows.cls[mine], rows.node[mine], rows.gain[mine])

    def may_move(self, cls: int, node: int) -> bool:
        """Return whether the strategy may move pods of ``cls`` off ``node``."""
        if self.held or cls in self.resting:
            return False
        return self.selected is None or self.selected.has(cls, node)

    def names(self, cls: int, node: int) -> bool:
        """Return whether the term gains from moving a pod of ``cls`` off ``node``."""
        return bool((self.term.candidates(np.array([cls], np.int32)).node == node).any())


@dataclass(frozen=True, slots=True)
class Contribution:
    """One strategy of a problem; creates its terms over a view."""

    strategy: str
    weight: float
    observed: bool
    terms: Callable[[View], Sequence[Term]]
    streaks: Streaks | None = None
    """The strategy's measurements in earlier runs, see ``View.streaks``."""
    selected: Selected | None = None
    """The pods that it may move; None: all."""
    emptiable: Callable[[View], Emptiable] | None = None
    """The nodes that the strategy may empty; None for other strategies."""
    asks: Callable[[View], Sequence[Ask]] | None = None
    """The requests for room of a strategy that makes room."""
    ended: Ended | None = None
    """Of a strategy that removes pods that have ended: which ones, of those that it may move."""
    resting: Mapping[int, str] = field(default_factory=dict)
    """Class -> why the strategy does not move its pods again yet."""
    not_judged: str = ""
    """Why the strategy cannot judge the snapshot; empty if it can."""


@dataclass(frozen=True)
class Scoped:
    """The scope of a plan: the pods that are left if flags of the command (-n, -l, --select) leave others out."""

    words: str
    """The flags: ``-n shop and -l``."""
    snapshot: Snapshot
    pods: Bools
    """(P,) the pods that flags select."""

    @property
    def others(self) -> str:
        """What the flags exclude: ``namespaces``, or ``pods``."""
        return "namespaces" if self.words.startswith("-n") and " and " not in self.words else "pods"

    @cached_property
    def classes(self) -> Bools:
        """(C,) classes of these pods and of their replacements."""
        found = np.zeros(len(self.snapshot.classes), bool)
        found[self.snapshot.pods.cls[self.pods]] = True
        for cls in np.flatnonzero(found).tolist():
            found[self.snapshot.classes[cls].replacement] = True
        return found


@dataclass(frozen=True)
class Problem:
    """The input of planning. Immutable while a plan is made."""

    snapshot: Snapshot
    scheduler: SchedulerModel
    contributions: Sequence[Contribution]
    protected: Int32s
    """(P,) bits of the protections of each pod, see :mod:`rebalancer.snapshot.protect`."""
    ended_protected: Int32s = field(default_factory=lambda: np.zeros(0, np.int32))
    """The protections of each pod of ``snapshot.finished``."""
    held: str = ""
    """Why only hard rules move pods, and nothing else; empty if all may."""
    scoped: Scoped | None = None
    """The pods that flags select; None: no flag excludes pods."""
    left_out: Sequence[str] = ()
    """The strategies that flags remove or turn off."""
    disruptions: DisruptionBudgets = field(init=False)
    """The PodDisruptionBudgets of the snapshot."""
    costs: Floats = field(init=False)
    """(P,) the cost of evicting each pod."""
    selected: Bools = field(init=False)
    """(P,) pods that at least one strategy may move by its ``select``."""
    movable: Bools = field(init=False)
    """(P,) selected pods that neither a protection nor a PodDisruptionBudget keeps in place; a cool-down may."""
    waiting: Bools = field(init=False)
    """(P,) other selected pods that only what ends by itself keeps in place, see ``View.waiting``."""

    def __post_init__(self) -> None:
        disruptions = DisruptionBudgets(self.snapshot)
        selected = union([of.selected for of in self.contributions] or [None], self.snapshot)
        kept = ((self.protected & ~COOL_DOWN) != 0) | disruptions.forbidden_pods()
        object.__setattr__(self, "disruptions", disruptions)
        object.__setattr__(self, "costs", eviction_cost(self.snapshot))
        object.__setattr__(self, "selected", selected)
        object.__setattr__(self, "movable", selected & ~kept)
        for_good = lasting_of(self.snapshot, self.protected) != 0
        for_good |= disruptions.unevictable_pods()
        object.__setattr__(self, "waiting", selected & kept & ~for_good)

    @cached_property
    def reluctance(self) -> Floats:
        """(P,) see :func:`reluctance`; each search of a plan ranks by it."""
        return reluctance(self.snapshot)

    @cached_property
    def unready(self) -> Bools:
        """(P,) selected pods that are not Ready, without another protection, whose owners lack only Ready pods."""
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
        """(P,) selected pods without a protection."""
        return self.selected & (self.protected == 0)

    @property
    def unprotected(self) -> int:
        """The number of unprotected pods, the total for shares in the policy's budgets."""
        return int(np.count_nonzero(self.is_unprotected))

    def may_move(self, strategy: str, cls: int, node: int) -> bool:
        """Return whether the strategy ``strategy`` may move pods of ``cls`` off ``node``."""
        return any(
            of.selected is None or of.selected.has(cls, node)
            for of in self.contributions
            if of.strategy == strategy
        )

    def may_move_both(self, one: tuple[int, int], other: tuple[int, int]) -> bool:
        """Return whether one enforced strategy may move pods of both (class, node) pairs."""
        return any(
            of.selected is None or (of.selected.has(*one) and of.selected.has(*other))
            for of in self.contributions
            if not of.observed
        )

    def rows_by_uid(self, uids: Sequence[str]) -> dict[str, int]:
        """Return uid -> row, for the ``uids`` that the snapshot contains."""
        column = self.snapshot.pods.uid
        return {column[pod]: pod for pod in column.rows_of(set(uids)).tolist()}

    def is_observed(self, strategy: str) -> bool:
        """Return whether the moves of a strategy are only shown, not executed."""
        return any(c.observed for c in self.contributions if c.strategy == strategy)
