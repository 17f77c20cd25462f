from functools import partial

import pytest

from rebalancer.planner.planner import Contribution, Planner
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


def make_planner(
    objects,
    *,
    strategies=FOUR,
    settings=None,
    protections=None,
    params=None,
    signals=None,
    profile=None,
):
    """A planner over objects or their snapshot, with the strategies as installed and their default parameters.

    ``signals`` are what all of them remember.
    """
    registry = Registry.installed()
    snapshot = objects if isinstance(objects, Snapshot) else snapshot_of(objects)
    contributions = []
    for name in strategies:
        strategy = registry.strategy(name)
        of_strategy = (params or {}).get(name) or strategy.Params()
        terms = partial(_terms, strategy, of_strategy)
        contributions.append(Contribution(name, 1.0, False, terms, signals))
    return Planner(
        snapshot,
        SchedulerModel(snapshot, profile or SchedulerProfile.for_version(snapshot.version)),
        contributions,
        settings or Settings(),
        protect(snapshot, protections or Protect(), Scope()),
    )


@pytest.fixture(scope="session")
def plan():
    """Objects in, plan out."""
    return lambda objects, **options: make_planner(objects, **options).plan()


@pytest.fixture(scope="session")
def make():
    """Objects in, a planner out."""
    return make_planner
