"""From what was read to a plan, knowing what earlier runs left: the same for runs, dry runs and explanations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from rebalancer.planner.plan import PlanObserver
from rebalancer.planner.planning import Planned
from rebalancer.policy.model import Mode
from rebalancer.run.context import RunContext
from rebalancer.run.source import Reading, Source
from rebalancer.snapshot.marks import describe_expired

if TYPE_CHECKING:
    from rebalancer.run.memory.keeper import Keeper

_PLANNING_SHARE = 0.5
"""Share of the time after reading the cluster that planning may take; acting takes what remains."""


def recall(run: RunContext, source: Source, reading: Reading) -> Keeper | None:
    """Return the memory of earlier runs, with what it knows given to the planning; None without one.

    Raises:
        ClusterReadError: there is no such memory.
    """
    if source.client is None or run.memory is None:
        return None
    from rebalancer.kube.config_map import ConfigMapStore  # noqa: PLC0415
    from rebalancer.run.memory.keeper import Keeper  # noqa: PLC0415

    store = ConfigMapStore(source.client, *run.memory)
    keeper = Keeper(store, "/".join(run.memory), run.notes.append)
    keeper.load(reading.snapshot)
    streaks = keeper.streaks()
    if not streaks and run.loaded.policy.mode is not Mode.ENFORCE:
        # Runs that only observe write nothing, so there is no next run to wait for.
        streaks = None
    unknown = keeper.hour_unknown
    if unknown is not None and not run.planning.counts_the_hour:
        run.notes.append(f"nothing is remembered: {unknown}")
    run.planning.remember(
        keeper.cooling(),
        keeper.moved_last_hour(),
        streaks,
        hour_unknown=unknown,
        pace=keeper.pace(),
    )
    return keeper


def make_plan(
    run: RunContext,
    reading: Reading,
    memory: Keeper | None,
    observe: Callable[[], PlanObserver] | None = None,
) -> Planned:
    """Return the plan; ``observe`` returns what is called before and after its moves, and changes nothing."""
    planned = run.planning.plan(
        reading.snapshot, reading.clock_skew, run.timings, observe, _planning_ends(run)
    )
    if not (run.acts and run.steers) and (left := describe_expired(reading.snapshot)) is not None:
        run.notes.append(left)
    if memory is not None:
        memory.saw(planned.streaks)
    evicts = run.acts and not planned.standstill
    if not (evicts and any(not move.observed for move in planned.left)):
        # Only evictions come before the explanation; a run without any may still be ended at once here.
        with run.timings.phase("plan"):
            planned.plan.explanation.make()
    return planned


def _planning_ends(run: RunContext) -> Callable[[], str | None]:
    """Return what ends planning early: a part of the run's time is kept for acting."""
    clock, until = run.environment.clock, math.inf
    if run.planning.seconds < math.inf:
        until = clock.now() + _PLANNING_SHARE * run.stop.left()
    slow = f"planning took {_PLANNING_SHARE:.0%} of the time that the run had left"
    return lambda: run.stop.reason() or (slow if clock.now() >= until else None)
