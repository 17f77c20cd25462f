"""A loop over objects or their snapshot, under a policy given in a line."""

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.planner.methods import with_methods
from rebalancer.planner.rules import RunRules
from rebalancer.planner.scheduler_profile import scheduler_profile
from rebalancer.policy.load import load_policy
from rebalancer.registry import Registry
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import snapshot_of
from rebalancer.whatif.cycles import Loop, LoopPace
from rebalancer.whatif.world import GONE_AFTER, SimulatedCluster

REGISTRY = Registry.installed()


def play(
    objects, *, random=None, lifted=False, windows=False, path=None, gone_after=GONE_AFTER, **pace
):
    loaded = load_policy(path, REGISTRY)
    snapshot = objects if isinstance(objects, Snapshot) else snapshot_of(objects)
    world = SimulatedCluster(
        with_methods(loaded.policy, snapshot),
        lambda of: scheduler_profile(loaded.policy, of),
        random,
        gone_after=gone_after,
    )
    loop = Loop(
        world,
        RunRules(loaded, REGISTRY, Scope(), lifted=lifted),
        LoopPace(**{"cycles": 20, **pace}),
        Timings(SystemClock()),
        windows=windows,
    )
    return world, loop.run()


def evictions(course):
    return [cycle.evictions for cycle in course.cycles]
