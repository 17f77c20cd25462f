"""A plan in eight phases, each of which can be run by itself on one cluster.

decode (text to records), fold (records to columns), classes (columns to snapshot), terms, bound (scores and
lower bound), predict (the landings of 50 classes), plan (at most 50 moves), report (as JSON).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import msgspec
import numpy as np

from benchmarks.phases.shapes import Shape, as_json
from rebalancer.cost.bound import bounds_of
from rebalancer.plan.plan import Outcome, Plan, Status
from rebalancer.planner.draft import Draft
from rebalancer.planner.plan import plan
from rebalancer.planner.problem import Problem
from rebalancer.planner.rules import RunRules
from rebalancer.policy.load import LoadedPolicy, load_policy
from rebalancer.policy.values import Limit
from rebalancer.registry import Registry
from rebalancer.report.as_json import as_json as report_as_json
from rebalancer.report.model import RunReport
from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope
from rebalancer.snapshot.state import ClusterState
from rebalancer.wire.lists import decode_raw, item_decoder
from rebalancer.wire.pods import Pod, PodRecord
from rebalancer.wire.times import unix_seconds

MOVES = 50
"""So that the plan costs as much for each size but for the nodes that a replacement may land on."""
_PREDICTIONS = 50
_CAPTURED_AT = unix_seconds("2026-06-01T00:00:00Z")
_pods = msgspec.json.Decoder(Pod)

Objects = list[tuple[str, Any]]


@lru_cache(maxsize=1)
def _policy() -> tuple[LoadedPolicy, Registry]:
    registry = Registry.installed()
    loaded = load_policy(None, registry)
    few, all_of_them = Limit.parse(MOVES), Limit.parse("100%")
    budgets = loaded.policy.budgets.model_copy(
        update={"per_run": few, "per_hour": few, "in_flight": all_of_them}
    )
    return replace(loaded, policy=loaded.policy.model_copy(update={"budgets": budgets})), registry


class Course:
    """The phases on one cluster. What a phase needs of those before it is made once, or again if used up."""

    def __init__(self, shape: Shape) -> None:
        self.text = as_json(shape)

    # -- what each phase begins with -----------------------------------------------------------------

    @cached_property
    def decoded(self) -> tuple[list[PodRecord], Objects]:
        """Records and other objects."""
        return self.decode()

    def folded(self) -> Fold:
        """A fold that holds all of it."""
        return self.fold()

    @cached_property
    def snapshot(self) -> Snapshot:
        """The cluster."""
        return self.classes(self.folded())

    @cached_property
    def planned(self) -> Plan:
        """A plan."""
        return self.plan(self.problem())

    # -- the phases ----------------------------------------------------------------------------------

    def decode(self) -> tuple[list[PodRecord], Objects]:
        """Text to records, as a snapshot file of JSON is read."""
        records: list[PodRecord] = []
        others: Objects = []
        for item in decode_raw(self.text)[0]:
            kind = bytes(item).partition(b'"kind":"')[2].partition(b'"')[0].decode()
            if kind == "Pod":
                records.append(_pods.decode(item).record())
            else:
                others.append((kind, item_decoder(kind).decode(item)))
        return records, others

    def fold(self) -> Fold:
        """Records to columns."""
        records, others = self.decoded
        fold = Fold()
        fold.add_pods(records)
        for kind, one in others:
            fold.add(kind, (one,))
        return fold

    def classes(self, fold: Fold) -> Snapshot:
        """Columns to a snapshot: owners, replacements, requests, the index of labels."""
        return fold.finish(captured_at=_CAPTURED_AT, version=(1, 36))

    @property
    def _rules(self) -> RunRules:
        return RunRules(*_policy(), Scope())

    def problem(self) -> Problem:
        """The snapshot with its protections and costs, the scheduler model and the strategies."""
        return self._rules.problem(self.snapshot)

    def terms(self) -> Draft:
        """The problem, the strategies' terms, and budgets."""
        return Draft(self.problem(), self._rules.settings())

    def bound(self, draft: Draft) -> float:
        """All scores and the parts of the lower bound."""
        terms = [(weighted.term, weighted.weight) for weighted in draft.terms]
        total = sum(term.potential() * weight for term, weight in terms)
        return total + sum(bound.moves for _, bound in bounds_of(terms))

    def predict(self, problem: Problem) -> int:
        """Where replacements of some classes would land, with what the model has to look up first."""
        state, scheduler = ClusterState(self.snapshot), problem.scheduler
        classes = np.linspace(0, len(self.snapshot.classes) - 1, _PREDICTIONS).astype(int).tolist()
        return sum(len(scheduler.predict(state, cls).nodes) for cls in classes)

    def plan(self, problem: Problem) -> Plan:
        """The terms, at most 50 moves, and a reason for each pod that stays."""
        planned = plan(problem, self._rules.settings()).plan
        planned.explanation.make()
        return planned

    def report(self, plan: Plan) -> str:
        """The report as JSON."""
        outcomes = tuple(Outcome(move, Status.PLANNED, "") for move in plan.moves)
        report = RunReport(
            dry_run=True,
            source="benchmark",
            snapshot=self.snapshot,
            loaded=_policy()[0],
            plan=plan,
            outcomes=outcomes,
        )
        return "".join(report_as_json(report))


PHASES: dict[str, tuple[Callable[[Course], tuple[Any, ...]], Callable[..., Any]]] = {
    "decode": (lambda _: (), Course.decode),
    "fold": (lambda course: (course.decoded,)[:0], Course.fold),
    "classes": (lambda course: (course.folded(),), Course.classes),
    "terms": (lambda course: (course.snapshot,)[:0], Course.terms),
    "bound": (lambda course: (course.terms(),), Course.bound),
    "predict": (lambda course: (course.problem(),), Course.predict),
    "plan": (lambda course: (course.problem(),), Course.plan),
    "report": (lambda course: (course.planned,), Course.report),
}
"""Phase -> what makes its arguments (not to be timed), and what runs it."""
