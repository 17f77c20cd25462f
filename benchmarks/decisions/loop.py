"""The planner in a closed loop with the scheduler model: no cluster, every landing drawn from the prediction."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.decisions.reading import Objects
from rebalancer.base.environment import SystemClock, Timings
from rebalancer.plan.plan import Move, Skip
from rebalancer.planner.planning import Planned, make_plan
from rebalancer.planner.rules import RunRules
from rebalancer.planner.scheduler_profile import scheduler_profile
from rebalancer.policy.load import LoadedPolicy
from rebalancer.registry import Registry
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope
from rebalancer.snapshot.state import ClusterState
from rebalancer.testing.snapshots import snapshot_of

Object = dict[str, Any]
_WORKLOADS = ("Deployment", "ReplicaSet", "StatefulSet")
_RUNS = 12


@dataclass(frozen=True)
class Played:
    """What the loop did."""

    moves: tuple[str, ...]
    """``pod from -> to (reason)``, in order."""
    silent: bool
    """The last run planned nothing."""
    end: list[Object]
    bound: int
    """Lower bound printed by the first run."""
    skips: tuple[Skip, ...]
    """Of the last run."""


class Loop:
    """Plays runs on objects; the same for the same seed."""

    def __init__(self, loaded: LoadedPolicy, registry: Registry, seed: int) -> None:
        self._rules = RunRules(loaded, registry, Scope(), lifted=True)
        self._policy = loaded.policy
        self._rng = random.Random(seed)

    def play(self, objects: Sequence[Object]) -> Played:
        """Run until nothing is planned, twelve times at most."""
        world = copy.deepcopy(list(objects))
        story: list[str] = []
        bound = -1
        for _ in range(_RUNS):
            planned = make_plan(self._rules, snapshot_of(world), Timings(SystemClock()))
            if bound < 0:
                bound = planned.plan.lower_bound or 0
            if not planned.plan.moves:
                return Played(tuple(story), True, world, bound, planned.plan.skips)
            self._carry_out(world, planned, story)
        return Played(tuple(story), False, world, bound, ())

    def _carry_out(self, world: list[Object], planned: Planned, story: list[str]) -> None:
        left = list(planned.plan.moves)
        wave = left[0].wave
        while left:
            if left[0].wave != wave:
                wave = left[0].wave
                verdicts = planned.revalidate(snapshot_of(world), left)
                left = [move for move, why in verdicts if why is None]
                continue
            unit = [move for move in left if move.gang and move.gang == left[0].gang] or left[:1]
            left = [move for move in left if move not in unit]
            story.extend(self._move(world, unit))

    def _move(self, world: list[Object], unit: Sequence[Move]) -> list[str]:
        """Evict what leaves together, and put each replacement where the scheduler would: drawn by its probabilities."""
        snapshot = snapshot_of(world)
        state, uids = ClusterState(snapshot), list(snapshot.pods.uid)
        pods = [uids.index(move.uid) for move in unit]
        for pod in pods:
            state.evict(pod)
        if len(pods) > 1:
            # Each leaves once the one before is gone, and the first replacement waits for the room of the last.
            state.reap()
        said = []
        for move, pod in zip(unit, pods, strict=True):
            landed = self._land(snapshot, state, pod)
            moved = next(o for o in world if o["metadata"].get("uid") == move.uid)
            moved["metadata"]["uid"] += "'"
            moved["metadata"]["name"] += "r"
            moved["spec"]["nodeName"] = landed
            said.append(f"{move.pod} {move.node} -> {landed} ({move.reason})")
        return said

    def _land(self, snapshot: Snapshot, state: ClusterState, pod: int) -> str:
        replacement = snapshot.classes[int(snapshot.pods.cls[pod])].replacement
        model = SchedulerModel(snapshot, scheduler_profile(self._policy, snapshot))
        prediction = model.predict(state, replacement)
        if not len(prediction.nodes):
            raise RuntimeError(f"{snapshot.pod_ref(pod)} was evicted, and no node takes it")
        weights = prediction.probability.tolist()
        [node] = self._rng.choices(prediction.nodes.tolist(), weights)
        state.place(pod, replacement, node)
        return snapshot.nodes.names[node]


def as_objects(world: Sequence[Object]) -> Objects:
    """Sort API objects into the lists that the ruler reads."""
    return Objects(
        nodes=[o for o in world if o["kind"] == "Node"],
        pods=[o for o in world if o["kind"] == "Pod"],
        workloads=[o for o in world if o["kind"] in _WORKLOADS],
        budgets=[o for o in world if o["kind"] == "PodDisruptionBudget"],
        namespaces=[o for o in world if o["kind"] == "Namespace"],
    )
