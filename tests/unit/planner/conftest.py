from functools import partial

import pytest

from rebalancer.planner.draft import Draft
from rebalancer.planner.plan import Callbacks, plan
from rebalancer.planner.problem import Contribution, Problem
from rebalancer.planner.recheck import recheck
from rebalancer.planner.settings import Settings
from rebalancer.policy.protect import Protect
from rebalancer.registry import Registry
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope, protect
from rebalancer.testing.snapshots import snapshot_of

FOUR = ("anti-affinity", "duplicates", "low-utilisation", "topology-spread")


def _terms(strategy, params, view):
    return strategy.terms(view, params)


def _asks(strategy, params, view):
    return strategy.asks(view, params)


def problem_of(
    objects,
    *,
    strategies=FOUR,
    protections=None,
    params=None,
    streaks=None,
    profile=None,
    observed=(),
):
    """A problem over objects or their snapshot, with the strategies as installed and their default parameters.

    ``streaks`` are what all of them remember.
    """
    registry = Registry.installed()
    snapshot = objects if isinstance(objects, Snapshot) else snapshot_of(objects)
    contributions = []
    for name in strategies:
        strategy = registry.strategy(name)
        of_strategy = (params or {}).get(name) or strategy.Params()
        terms = partial(_terms, strategy, of_strategy)
        asks = partial(_asks, strategy, of_strategy) if strategy.makes_room else None
        contributions.append(Contribution(name, 1.0, name in observed, terms, streaks, asks=asks))
    return Problem(
        snapshot,
        SchedulerModel(snapshot, profile or SchedulerProfile.for_version(snapshot.version)),
        contributions,
        protect(snapshot, protections or Protect(), Scope()),
    )


def plan_of(objects, *, settings=None, stop=None, **options):
    """The plan on objects."""
    callbacks = Callbacks() if stop is None else Callbacks(stop=stop)
    return plan(problem_of(objects, **options), settings or Settings(), callbacks).plan


def draft_of(objects, *, settings=None, **options):
    """A draft of a plan, with no move yet."""
    return Draft(problem_of(objects, **options), settings or Settings())


def said(refusal, snapshot):
    """(code, sentence) of a refusal; None if there is none."""
    return None if refusal is None else tuple(refusal.shown(snapshot))[:2]


class Last:
    """An observer that keeps the draft, whose state holds the moves once the plan is made."""

    def before(self, draft):
        self.draft = draft

    def after(self, draft, chosen):
        assert draft is self.draft
        self.chosen = chosen


def planned_draft(objects, *, settings=None, **options):
    """The draft with the moves of the plan in its state."""
    last = Last()
    plan(problem_of(objects, **options), settings or Settings(), Callbacks(observe=lambda: last))
    return last.draft


def rechecked(objects, moves, *, settings=None, **options):
    """What is left of ``moves`` on objects as they are now."""
    return recheck(problem_of(objects, **options), settings or Settings(), moves)


@pytest.fixture(scope="session", name="plan")
def plan_fixture():
    """Objects in, plan out."""
    return plan_of
