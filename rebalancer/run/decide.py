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
    from rebalancer.run.memory.store import MemoryStore

_PLANNING_SHARE = 0.5
"""Share of the time after reading the cluster that planning may take; acting takes what remains."""


def recall(run: RunContext, source: Source, reading: Reading) -> MemoryStore | None:
    """Return the memory of earlier runs, with what it knows given to the planning; None without one.

    Raises:
        ClusterReadError: there is no such memory.
    """
    if source.client is None or run.memory is None:
        return None
    from rebalancer.run.memory.cooling import cooling  # noqa: PLC0415
    from rebalancer.run.memory.hour import moved_last_hour  # noqa: PLC0415
    from rebalancer.run.memory.pace import pace_of  # noqa: PLC0415
    from rebalancer.run.memory.store import MemoryStore, open_config_map  # noqa: PLC0415
    from rebalancer.run.memory.streaks import remembered  # noqa: PLC0415

    memory = MemoryStore(
        open_config_map(source.client, run.memory),
        reading.snapshot,
        run.environment.random(8).hex(),
        run.notes.append,
    )
    memory.begin()
    document, at = memory.document, reading.snapshot.captured_at
    unknown = memory.hour_unknown
    streaks = None if unknown is not None else remembered(document)
    if not streaks and run.loaded.policy.mode is not Mode.ENFORCE:
        # Runs that only observe write nothing, so there is no next run to wait for.
        streaks = None
    if unknown is not None and not run.planning.counts_the_hour:
        run.notes.append(f"nothing is remembered: {unknown}")
    run.planning.remember(
        cooling(document, at),
        moved_last_hour(document, at),
        streaks,
        hour_unknown=unknown,
        pace=pace_of(document.pace),
    )
    return memory


def make_plan(
    run: RunContext,
    reading: Reading,
    memory: MemoryStore | None,
    observe: Callable[[], PlanObserver] | None = None,
) -> Planned:
    """Return the plan; ``observe`` returns what is called before and after its moves, and changes nothing."""
    planned = run.planning.plan(
        reading.snapshot, reading.clock_skew, run.timings, observe, _planning_ends(run)
    )
    if not (run.acts and run.steers) and (left := describe_expired(reading.snapshot)) is not None:
        run.notes.append(left)
    if memory is not None:
        memory.add_streaks(planned.streaks)
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
