"""Run one simulation of a policy on a snapshot to its end, for ``simulate`` and ``compare``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.base.environment import Timings
from rebalancer.planner.methods import with_methods
from rebalancer.planner.rules import RunRules
from rebalancer.planner.scheduler_profile import scheduler_profile
from rebalancer.policy.load import LoadedPolicy
from rebalancer.policy.model import Policy
from rebalancer.registry import Registry
from rebalancer.run.execution.executor import WavePace
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope
from rebalancer.whatif.cycles import READY_AFTER, Loop, LoopPace, Simulation
from rebalancer.whatif.world import APART, GONE_AFTER, SimulatedCluster, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The settings of a simulation that do not depend on the policy."""

    cycles: int = 20
    ready_after: Span = READY_AFTER
    """From an eviction until the replacement is Ready."""
    gone_after: Span = GONE_AFTER
    """From an eviction until the victim is gone; it holds its place until then."""
    apart: Span = APART
    """From one eviction to the next in a wave."""
    memory: bool = True
    """Remember from run to run."""
    lifted: bool = False
    """No limit per run and per hour."""


@dataclass(frozen=True, slots=True)
class Played:
    """A simulation, and the cluster before and after it."""

    simulation: Simulation
    first: Snapshot
    settled: Snapshot
    """As the first run sees it, see ``Loop.settled``."""
    last: Snapshot


def play(
    snapshot: Snapshot,
    loaded: LoadedPolicy,
    registry: Registry,
    conditions: Conditions,
    timings: Timings,
    *,
    seed: int | Sequence[int] | None,
) -> Played:
    """Simulate run after run of a policy on a snapshot.

    ``seed``: draw landings at random with this seed; None: take the most probable ones. Same arguments, same result.
    """
    first = with_methods(loaded.policy, snapshot)
    world = SimulatedCluster(
        first,
        lambda of: scheduler_profile(loaded.policy, of),
        None if seed is None else np.random.default_rng(seed),
        gone_after=conditions.gone_after,
        apart=conditions.apart,
    )
    loop = Loop(
        world,
        RunRules(loaded, registry, Scope(), lifted=conditions.lifted),
        LoopPace(
            cycles=conditions.cycles,
            ready_after=conditions.ready_after,
            waves=WavePace.of(loaded.policy.safety),
            memory=conditions.memory,
        ),
        timings,
        windows=_has_windows(loaded.policy),
    )
    simulation = loop.run()
    return Played(simulation, first, loop.settled, world.snapshot)


def _has_windows(policy: Policy) -> bool:
    return bool(policy.windows) or any(of.windows for of in policy.strategies.values())
