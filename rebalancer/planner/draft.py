"""A plan under construction: the state changed by its moves, the terms over the state, and the remaining budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from rebalancer.cost.bound import EntryBounds, bounds_of
from rebalancer.cost.streaks import Streaks
from rebalancer.cost.term import Entry, Term, complete
from rebalancer.cost.view import View
from rebalancer.plan.plan import (
    Cause,
)
from rebalancer.planner.allowance import Allowance
from rebalancer.planner.ended import EndedPods
from rebalancer.planner.problem import Contribution, Problem, WeightedTerm
from rebalancer.planner.refusal import Refusal, Why, protection_code
from rebalancer.planner.settings import Settings
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.columns import Bools, Int32s, Ints
from rebalancer.snapshot.model import GangKey
from rebalancer.snapshot.protect import (
    ALONE,
    BY_UNIT,
    GANG,
    ROLLOUT,
    UNSETTLED,
    names_of,
    text_of,
)
from rebalancer.snapshot.state import ClusterState


class Draft:
    """A plan under construction. It starts with the snapshot's state and unused budgets."""

    def __init__(self, problem: Problem, settings: Settings) -> None:
        self.problem, self.settings = problem, settings
        self.snapshot, self.scheduler = problem.snapshot, problem.scheduler
        self.state = ClusterState(problem.snapshot)
        unready = problem.unready & ~problem.disruptions.forbidden_pods(ready=False)
        protected = problem.protected
        by_unit = problem.selected & ((protected & BY_UNIT) != 0) & ((protected & ~ALONE) == 0)
        self.view = View(
            problem.snapshot,
            self.state,
            problem.scheduler,
            problem.movable,
            unready=unready,
            by_unit=by_unit,
            waiting=problem.waiting if problem.waiting.any() else None,
        )
        self.allowance = Allowance(problem, settings)
        self.terms: tuple[WeightedTerm, ...] = tuple(
            self._weigh(of, complete(term, Term))
            for of in problem.contributions
            for term in of.terms(self.view_of(of))
        )
        self._expected: set[int] = set()
        """The classes of which the terms know the rules, see :meth:`expect`."""
        self.gangs_that_stay: dict[GangKey, Refusal] = {}
        """Gang that rules ask to move -> why none of it is moved."""
        self.ended = EndedPods(problem)
        self.judging_terms = tuple(one for one in self.terms if one.term.cause is not Cause.PLACE)
        """The terms that judge single pods, in their order."""
        self.lifted = self._find_exempt()
        """(P,) judged pods that are not Ready, and that no other protection keeps in place."""
        self.movable = problem.movable | (self.lifted & unready)
        """(P,) see :attr:`Problem.movable`."""

    def _weigh(self, of: Contribution, term: Term) -> WeightedTerm:
        held = bool(self.problem.held) and term.entry is not Entry.HARD
        return WeightedTerm(
            of.strategy, term, of.weight, of.observed, of.selected, held, of.resting
        )

    def begin_again(self) -> None:
        """Take back all moves: the draft is as it was made, without the cost of its terms.

        Its state keeps the inverses since then, see :meth:`ClusterState.keep_inverses`.
        """
        self.state.rewind()
        self.allowance.begin_again()
        self.gangs_that_stay.clear()
        self.ended = EndedPods(self.problem)

    def view_of(self, of: Contribution) -> View:
        """Return the view of a strategy: it counts all pods and may move those that its ``select`` matches."""
        movable, unready, by_unit = self.view.movable, self.view.unready, self.view.by_unit
        waiting = self.view.waiting
        if of.selected is not None:
            mine = of.selected.pods(self.snapshot)
            waiting = None if waiting is None else waiting & mine
            movable, unready = movable & mine, None if unready is None else unready & mine
            by_unit = None if by_unit is None else by_unit & mine
        return replace(
            self.view,
            streaks=of.streaks,
            movable=movable,
            selected=of.selected,
            unready=unready,
            by_unit=by_unit,
            waiting=waiting,
            kept_by=partial(self._count_kept, of),
        )

    def _find_exempt(self) -> Bools:
        """Return the pods (P,) exempt from the rule on unsettled owners.

        Such a pod is judged by its state, and it alone keeps its owner unsettled. Evicting it removes no Ready pod.
        Other protections still apply.
        """
        lifted = np.zeros(len(self.snapshot.pods), bool)
        for weighted in self.judging_terms:
            if weighted.term.cause is Cause.STATE:
                lifted[weighted.term.judged()] = True
        return lifted & self.problem.unready

    def protections(self, pod: int) -> list[str]:
        """Return the names of a pod's protections."""
        return names_of(int(self._bits_of(np.array([pod], np.int32))[0]))

    def _bits_of(self, pods: Int32s) -> Ints:
        """Return the protections of ``pods`` (K,), without that from which a judged pod is exempt."""
        bits = self.problem.protected[pods]
        return np.where(self.lifted[pods], bits & ~UNSETTLED, bits)

    def protection_texts(self, pod: int) -> dict[str, str]:
        """Return name -> text for each protection of a pod."""
        texts = {name: text_of(self.snapshot, pod, name) for name in self.protections(pod)}
        if "coolDown" in texts:
            owner = self.snapshot.owners[self.snapshot.classes[self.snapshot.pods.cls[pod]].owner]
            texts["coolDown"] = self.settings.cooling.get(owner.ref, texts["coolDown"])
        of_class = self.snapshot.classes[self.snapshot.pods.cls[pod]]
        unit = next((name for name in (GANG, ROLLOUT) if name in texts), None)
        if unit and (why := self.gangs_that_stay.get((of_class.namespace, of_class.gang))):
            texts[unit] += f", and the whole stays: {why.text(self.snapshot)}"
        return texts

    def _count_kept(self, of: Contribution, pods: Int32s) -> Counter[str]:
        """Return reason -> number of ``pods`` that may not move for the strategy of ``of``, see ``View.kept_by``.

        Equal pods are judged once.
        """
        mine = self.problem.selected if of.selected is None else of.selected.pods(self.snapshot)
        columns = (self.snapshot.pods.cls, self.problem.protected, self.lifted, mine)
        alike = np.stack([column[pods] for column in columns])
        _, first, times = np.unique(alike, axis=1, return_index=True, return_counts=True)
        kept: Counter[str] = Counter()
        for pod, number in zip(pods[first].tolist(), times.tolist(), strict=True):
            keeps = self.keeps(pod)
            if keeps is None and not mine[pod]:
                keeps = Refusal.of(Why.NOT_SELECTED, strategy=of.strategy)
            if keeps is not None:
                kept[keeps.text(self.snapshot)] += number
        return kept

    def keeps(self, pod: int) -> Refusal | None:
        """Return why no strategy may move a pod: protections, or PodDisruptionBudgets; None if it may be moved."""
        if texts := self.protection_texts(pod):
            return Refusal.of(Why.PROTECTED, texts=texts, code=protection_code(texts))
        return self.forbidden(pod)

    def forbidden(self, pod: int) -> Refusal | None:
        """Return a refusal if PodDisruptionBudgets forbid evicting a pod; else None."""
        cls, node = int(self.snapshot.pods.cls[pod]), int(self.snapshot.pods.node[pod])
        return self.problem.disruptions.forbidden(cls, node, ready=not self.lifted[pod])

    def judging(self, pod: int, strategy: str) -> Term | None:
        """Return the first term of a strategy that judges this single pod; None if there is none."""
        for weighted in self.judging_terms:
            if weighted.strategy == strategy and weighted.term.judges(pod):
                return weighted.term
        return None

    def cause(
        self,
        pod: int,
        shares: Mapping[str, float],
        prediction: Prediction,
        terms: Collection[WeightedTerm],
    ) -> Cause:
        """Return why an unmoved pod is to be moved, according to the ``terms`` that gain by its move (``shares``).

        If a pod may be moved only because of its bad state, that state is the cause, even if a rule of an earlier
        entry gains, too.
        """
        causes = {
            weighted.term.cause
            for weighted in self.judging_terms
            if any(weighted is one for one in terms)
            and weighted.term.judges(pod)
            and (
                shares.get(weighted.strategy, 0.0) > 0
                or (self.lifted[pod] and weighted.term.delta_of(pod, prediction.nodes).min() < 0)
            )
        }
        return next((one for one in (Cause.STATE, Cause.AGE) if one in causes), Cause.PLACE)

    @property
    def enforced(self) -> list[WeightedTerm]:
        """The terms of the strategies whose moves are executed."""
        return [weighted for weighted in self.terms if not weighted.observed]

    def move(self, pod: int, cls: int, prediction: Prediction, lands: int = 0) -> None:
        """Move ``pod`` in the state: it terminates (or is gone, if its owner waits), then its replacement lands.

        ``lands``: the index of the landing to use. Pending pods that take freed room are placed, too.
        """
        self.expect(cls, self.snapshot.classes[cls].replacement)
        for taker in prediction.takers:
            self.expect(int(self.state.cls_of[taker.pod]))
        make_move(self.state, pod, cls, prediction, lands)

    def expect(self, *classes: int) -> None:
        """Tell all terms, including those that only observe, the rules of ``classes``, whose pods are about to be moved or placed.

        A term does not know a satisfied rule until a move concerns it, see :class:`DomainTerm`.
        """
        for cls in classes:
            if cls in self._expected:
                continue
            self._expected.add(cls)
            for weighted in self.terms:
                weighted.term.concerns(cls, cls)

    def names_pair(self, cls: int, node: int) -> bool:
        """Return whether a term of an enforced strategy has pods of ``cls`` on ``node`` as candidates."""
        return any(w.may_move(cls, node) and w.names(cls, node) for w in self.enforced)

    def bounds(self) -> list[EntryBounds]:
        """Return the inputs of the lower bound for the current state."""
        return bounds_of((weighted.term, weighted.weight) for weighted in self.terms)

    def streaks(self) -> dict[str, Streaks]:
        """Return strategy -> streaks after this run."""
        streaks: dict[str, Streaks] = {}
        for weighted in self.terms:
            name = weighted.strategy
            if (seen := weighted.term.streaks()) is not None:
                streaks[name] = streaks[name].joined(seen) if name in streaks else seen
        return streaks


def make_move(
    state: ClusterState, pod: int, cls: int, prediction: Prediction, lands: int = 0
) -> None:
    """Move ``pod`` in a state, see :meth:`Draft.move`."""
    state.evict(pod)
    if state.snapshot.waits(cls):
        state.reap(state.terminating_pods[-1])
    replacement = state.snapshot.classes[cls].replacement
    state.place(pod, replacement, int(prediction.nodes[lands]))
    for taker in prediction.takers:
        state.place(taker.pod, int(state.cls_of[taker.pod]), taker.node)
