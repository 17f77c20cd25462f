"""Make the plan: scores, moves, reasons why pods are not moved, lower bound. Equal input gives an equal plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from rebalancer.base.environment import collector_paused
from rebalancer.cost.bound import EntryBounds, lower_bound
from rebalancer.cost.streaks import Streaks
from rebalancer.plan.plan import Backlog, Code, Explanation, Later, Move, Outcome, Plan, Score, Skip
from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.ended import Removals
from rebalancer.planner.notices import landing_risks, notices
from rebalancer.planner.problem import Problem
from rebalancer.planner.reasons import PlanEnd, skips_of, stopped
from rebalancer.planner.rendering import SHOWN_LANDINGS, Chosen, Rendering
from rebalancer.planner.safety import lost_pods
from rebalancer.planner.scenarios import with_scenarios
from rebalancer.planner.search import SearchResult, search
from rebalancer.planner.settings import Settings
from rebalancer.planner.unmet import CUT, explained, pods_of_rules, rules_elsewhere, scores_of
from rebalancer.snapshot.columns import Bools


class PlanObserver(Protocol):
    """Reads a draft before and after the moves of its plan, without changing it."""

    def before(self, draft: Draft) -> None:
        """Read the terms while the state is the snapshot's."""

    def after(self, draft: Draft, chosen: Sequence[Chosen]) -> None:
        """Read the terms while the state includes the plan's moves, also those of observing strategies."""


def never() -> None:
    """Return None: planning is never stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """Functions that are called while a plan is made. Only ``stop`` affects decisions."""

    stop: Callable[[], str | None] = never
    """Returns why planning must end now, or None; called before every candidate."""
    observe: Callable[[], PlanObserver] | None = None
    """Returns the observer of one draft; several drafts may be planned, of which one becomes the plan."""
    phase: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()
    """Returns a context for a phase of this name: ``terms``, then ``plan``."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan, and its by-products for later stages of the run."""

    plan: Plan
    streaks: Mapping[str, Streaks] = field(default_factory=dict)
    """Strategy -> its measurements, each with the number of consecutive runs, this one included, in which it was seen."""
    ended: Mapping[str, Outcome] = field(default_factory=dict)
    """Of a reviewed plan: uid of the pod -> why its move is not to be tried any more."""
    observer: PlanObserver | None = None
    """The object that has observed the draft of this plan."""


def plan(problem: Problem, settings: Settings, callbacks: Callbacks | None = None) -> Decision:
    """Return the plan for ``problem``; an observer does not change it."""
    callbacks = callbacks or Callbacks()
    with callbacks.phase("terms"):
        draft = Draft(problem, settings)
    with callbacks.phase("plan"):
        observer = callbacks.observe() if callbacks.observe is not None else None
        made = _plan(draft, callbacks.stop, observer)
        return Decision(made, draft.streaks(), observer=observer)


def _plan(draft: Draft, stop: Callable[[], str | None], observer: PlanObserver | None) -> Plan:
    if observer is not None:
        observer.before(draft)
    before = _Before(scores_of(draft), draft.bounds(), pods_of_rules(draft), rules_elsewhere(draft))
    most = SHOWN_LANDINGS if observer is None else None
    effort = Effort.of(len(draft.snapshot.nodes))
    result = search(draft, effort, stop, most)
    chosen = with_scenarios(draft, result.chosen, effort)
    if observer is not None:
        observer.after(draft, chosen)
    render = Rendering(draft.problem)
    moves = tuple(render.move(one) for one in chosen)
    # What has ended goes last: nothing waits for it, and it waits for nothing.
    removals = result.removals.in_wave(last_wave(moves) + 1)

    def whole() -> Explanation:
        with collector_paused():
            return _explain(draft, result, moves, removals, before)

    def brief() -> Explanation:
        return Explanation(
            skips=(),
            before=before.scores,
            after=scores_of(draft),
            lower_bound=None,
            stopped="Not explained: the run had to end while it acted.",
            funnel={**size_of(draft.problem), "moves": len(moves) + len(removals.moves)},
            unmet=explained(draft, (), CUT),
            elsewhere=before.elsewhere,
        )

    return Plan(
        (*moves, *removals.moves),
        Later(whole, brief),
        warnings=(
            *notices(draft),
            *landing_risks(draft.snapshot, moves),
            *result.rooms.notes,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Before:
    """What is read of a draft before its moves."""

    scores: Mapping[str, Score]
    bounds: Sequence[EntryBounds]
    concerned: Bools
    """(P,) see :func:`rebalancer.planner.unmet.pods_of_rules`."""
    elsewhere: str


def _explain(
    draft: Draft,
    result: SearchResult,
    moved: Sequence[Move],
    removals: Removals,
    before: _Before,
) -> Explanation:
    """Return the explanation of the plan. The state includes its moves."""
    remaining = result.left()
    skips = [*skips_of(draft, remaining.refused, remaining.pairs), *removals.skips]
    skips += _scoped_rooms(draft, result.rooms.skips)
    unmet = explained(draft, skips, CUT if draft.allowance.exhausted() is not None else None)
    bounds_left, waiting = draft.bounds(), remaining.waiting_classes
    backlog = _backlog(draft, result, waiting, bounds_left, removals.waiting)
    end = PlanEnd(
        cut=draft.allowance.stopped,
        in_flight=remaining.in_flight,
        eagerness=draft.settings.eagerness,
        rest=draft.settings.threshold.rest if result.rests else None,
        lost=lost_pods(draft.snapshot),
        narrowed=any(of.selected is not None for of in draft.problem.contributions),
        left_out=draft.problem.left_out,
    )
    made = Explanation(
        skips=tuple(skips),
        before=before.scores,
        after=scores_of(draft),
        lower_bound=max(
            _bound(before.bounds, bounds_left, waiting, len(moved), backlog), result.rooms.fewest
        )
        + len(removals.moves),
        stopped="",
        backlog=backlog,
        funnel=_funnel(draft, before, result, skips, removals),
        unmet=unmet,
        elsewhere=before.elsewhere,
    )
    why = _unmatched(draft) or stopped(made, end, moves=bool(moved or removals.moves))
    return replace(made, stopped=why)


def _unmatched(draft: Draft) -> str | None:
    """Return the end of a plan where no pod matches the flags; None if one does, or no flag leaves pods out."""
    scoped = draft.problem.scoped
    if scoped is None or scoped.pods.any():
        return None
    return f"Nothing to do: no pod matches {scoped.words}."


def _scoped_rooms(draft: Draft, skips: Sequence[Skip]) -> Sequence[Skip]:
    """Return the skips of pending pods in the scope of the plan."""
    if (scoped := draft.problem.scoped) is None:
        return skips
    snapshot = draft.snapshot
    waiting = np.flatnonzero(scoped.pods & (snapshot.pods.node < 0)).tolist()
    refs = {snapshot.pod_ref(pod) for pod in waiting}
    return [skip for skip in skips if f"{skip.namespace}/{skip.pod}" in refs]


def _bound(
    before: Sequence[EntryBounds],
    left: Sequence[EntryBounds],
    waiting: frozenset[int],
    moves: int,
    backlog: Backlog,
) -> int:
    """Return a lower bound on the moves to a state as good as after the plan and its backlog."""
    # What waits for a further run is still to be fixed; the others have been tried.
    tried = [bound for bound in left if waiting.isdisjoint(bound[1].classes.tolist())]
    # The plan itself reaches that state: no fewest is above its own moves, whatever the groups' minima add up to.
    return min(lower_bound(before, tried), moves + backlog.moves)


def last_wave(moves: Sequence[Move]) -> int:
    """Return the number of the last wave in ``moves``; 0 if there are none."""
    return max((move.wave for move in moves), default=0)


def _backlog(
    draft: Draft,
    result: SearchResult,
    waiting: frozenset[int],
    left: Sequence[EntryBounds],
    removals: int,
) -> Backlog:
    """Return a lower bound on the work for later runs, for the classes that limits of this run defer.

    ``removals``: the number of deferred deletions of finished pods, which is added.
    """
    if not (waiting or removals) or draft.allowance.per_run == 0:
        return Backlog()
    kept_back = [b for b in left if not waiting.isdisjoint(b[1].classes.tolist())]
    moves = removals + (max(1, lower_bound(kept_back, ())) if waiting else 0)
    allowance = draft.allowance
    # A further run makes what budgets allow, or what fits into its time.
    planned = len(result.chosen) + len(result.removals.moves)
    in_time = planned if allowance.short_of_time else len(draft.snapshot.pods) + removals
    of_a_run = max(1, min(allowance.per_run, in_time))
    return Backlog(moves, -(-moves // of_a_run), more=True)


def size_of(problem: Problem) -> dict[str, int]:
    """Return the number of pods in the scope of the plan, and of movable pods."""
    movable, scoped = int(np.count_nonzero(problem.movable)), problem.scoped
    pods = len(problem.snapshot.pods) if scoped is None else int(np.count_nonzero(scoped.pods))
    return {"pods": pods, "movable": movable}


def _funnel(
    draft: Draft, before: _Before, result: SearchResult, skips: Sequence[Skip], removals: Removals
) -> dict[str, int]:
    """Return stage -> number of pods, see ``Explanation.funnel``.

    Pods with unmet rules, and those of them that may move, are counted before the moves of the plan.
    """
    codes = Counter(skip.code.value for skip in skips)
    ended = len(removals.moves) + len(removals.skips)
    moved = np.zeros(len(draft.snapshot.pods), bool)
    moved[[one.pod for one in result.chosen]] = True
    concerned, free = before.concerned, draft.problem.is_unprotected | draft.lifted | moved
    moves = len(removals.moves) + len(result.chosen)
    return {
        **size_of(draft.problem),
        "candidates": int(np.count_nonzero(concerned)) + ended,
        "free": int(np.count_nonzero(concerned & free)) + len(removals.moves),
        **{code.value: codes[code.value] for code in Code if codes[code.value]},
        "others": int(np.count_nonzero(moved & ~concerned)),
        "moves": moves,
    }
