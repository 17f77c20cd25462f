"""Plans that empty nodes: choose the nodes, mark them in the snapshot, then plan as usual."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np

from rebalancer.base.plain_text import count
from rebalancer.cost.strategy import Emptiable
from rebalancer.plan.plan import Move, NodeCode, NodeVerdict, Plan
from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.emptying import Emptier, EmptyingChoice, half_emptied
from rebalancer.planner.pins import Pins, stand_together
from rebalancer.planner.plan import Decision
from rebalancer.planner.problem import Contribution, Problem
from rebalancer.planner.settings import Settings
from rebalancer.planner.trial import Trial
from rebalancer.snapshot.columns import Bools
from rebalancer.snapshot.marks import find_marked_by_others, to_be_empty

MakeProblem = Callable[[Bools | None], Problem]
"""Returns the problem with exactly these nodes (N,) marked as to be empty; None leaves marks as they are."""


Decide = Callable[[Problem], Decision]
Made = tuple[Problem, Decision]
"""A decision, and the draft on which it was made."""
Phase = Callable[[str], AbstractContextManager[None]]
"""Returns a context for a phase of a name, see ``Callbacks.phase``."""


def with_empty_nodes(
    strategy: str, make: MakeProblem, decide: Decide, settings: Settings, phase: Phase
) -> Made:
    """Return the decision for a policy in which ``strategy`` empties nodes.

    Nodes that earlier runs began to empty are finished first, if that is still possible. New nodes are begun only by
    a run that has nothing else to do; they are chosen for the state after all moves for rules.
    """
    return _Planned(strategy, make, decide, settings, phase).result()


def with_reviewed_nodes(
    strategy: str,
    make: MakeProblem,
    decide: Decide,
    settings: Settings,
    phase: Phase,
    reviewed: Sequence[Move],
    empty: Collection[str],
) -> Made:
    """Return the valid part of a reviewed plan: pods leave only nodes that can still be emptied.

    ``empty``: the names of the nodes that had no pods.
    """
    return _Planned(strategy, make, decide, settings, phase).left_of(reviewed, empty)


def find_freed(draft: Draft, strategy: str, pins: Pins) -> list[int]:
    """Return which nodes the strategy would empty if the pods that pin them were placed together, beside those that it empties now."""
    of = _contribution(draft.problem, strategy)
    closed = to_be_empty(draft.snapshot) | find_marked_by_others(draft.snapshot)
    with Trial(draft.state) as trial:
        surplus = sorted(set(pins.nodes) - set(pins.together))
        left = stand_together(draft, trial, pins.placing, surplus)
        return sorted(Emptier(draft, of, _emptiable(draft, of), closed).able(left))


class _Planned:
    def __init__(
        self, strategy: str, make: MakeProblem, decide: Decide, settings: Settings, phase: Phase
    ) -> None:
        self._strategy, self._make, self._decide, self._phase = strategy, make, decide, phase
        self._as_it_is = make(None)
        self._of = _contribution(self._as_it_is, strategy)
        marked = to_be_empty(self._as_it_is.snapshot)
        # What the select leaves out was marked for another policy, and stays marked for this plan.
        select = self._of.selected
        self._others = np.zeros_like(marked) if select is None else marked & ~select.nodes
        self._marked = marked & ~self._others
        bare = make(self._others) if self._marked.any() else self._as_it_is
        of = _contribution(bare, strategy)
        with phase("terms"):
            draft = Draft(bare, settings)
            closed = self._others | find_marked_by_others(bare.snapshot)
            self._emptier = Emptier(draft, of, _emptiable(draft, of), closed)

    def result(self) -> Made:
        begun = EmptyingChoice(self._marked)
        problem = self._as_it_is
        if self._marked.any() and not self._of.observed:
            with self._phase("plan"):
                begun = self._emptier.still(self._marked)
            problem = self._make(begun.nodes | self._others)
        made = self._decide(problem)
        if not _is_quiet(made.plan):
            choice = self._emptier.waiting(begun.nodes)
            waits = sum(of.code is NodeCode.WAITS for of in choice.verdicts.values())
            if waits and not self._of.observed:
                note = f"{self._strategy}: whether {count(waits, 'more node')} can be emptied is judged once no other move is left"
                warnings = (*made.plan.warnings, note)
                made = replace(made, plan=replace(made.plan, warnings=warnings))
            return self._with(problem, made, choice)
        return self._more(problem, made, begun)

    def left_of(self, reviewed: Sequence[Move], empty: Collection[str]) -> Made:
        if self._of.observed:
            return self._as_it_is, self._decide(self._as_it_is)
        left = {move.node for move in reviewed if move.strategy == self._strategy}
        names = self._as_it_is.snapshot.nodes.names
        begun = self._marked | np.array([name in left for name in names], bool)
        # A pod that has come since is not in the plan: its node is left.
        begun |= np.array([name in empty for name in names], bool) & self._emptier.empty
        with self._phase("plan"):
            choice = self._emptier.still(begun)
        problem = self._make(choice.nodes | self._others)
        return self._with(problem, self._decide(problem), choice)

    def _more(self, problem: Problem, made: Decision, begun: EmptyingChoice) -> Made:
        with self._phase("plan"):
            choice = self._emptier.more(begun.nodes)
        for _ in range(Effort().left_out):
            new = choice.nodes & ~begun.nodes
            if not new.any():
                break
            further = self._make(choice.nodes | self._others)
            then = self._decide(further)
            names = further.snapshot.nodes.names
            if not (left := half_emptied(then.plan, self._strategy, names, new)):
                if self._of.observed and not _is_quiet(then.plan):
                    break  # the others would act on marks that no run sets
                return self._with(further, then, choice)
            choice = _without(choice, left)
        return self._with(
            problem, made, _without(choice, np.flatnonzero(choice.nodes & ~begun.nodes).tolist())
        )

    def _with(self, problem: Problem, made: Decision, choice: EmptyingChoice) -> Made:
        names = problem.snapshot.nodes.names
        emptied = tuple(names[node] for node in np.flatnonzero(choice.nodes).tolist())
        plan = replace(
            made.plan,
            emptied=None if self._of.observed else emptied,
            nodes={names[node]: why for node, why in sorted(choice.verdicts.items())},
        )
        return problem, replace(made, plan=plan)


def _contribution(problem: Problem, strategy: str) -> Contribution:
    return next(of for of in problem.contributions if of.strategy == strategy)


def _emptiable(draft: Draft, of: Contribution) -> Emptiable:
    if of.emptiable is None:
        raise ValueError(f"{of.strategy} empties no nodes")
    return of.emptiable(draft.view_of(of))


def _is_quiet(plan: Plan) -> bool:
    """Return whether no pod is to be moved now, and none waits for a later run.

    Deletions of finished pods do not count: otherwise a cluster with constant deletions would never empty nodes.
    """
    moved = [move for move in plan.moves if move.has_replacement and not move.observed]
    return not moved and not plan.backlog.moves


def _without(choice: EmptyingChoice, nodes: list[int]) -> EmptyingChoice:
    left = choice.nodes.copy()
    left[nodes] = False
    why = NodeVerdict(NodeCode.NO_PLACE, "by the plan itself a pod would stay on it")
    return EmptyingChoice(left, {**choice.verdicts, **dict.fromkeys(nodes, why)})
