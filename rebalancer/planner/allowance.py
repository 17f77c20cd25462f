"""The remaining budgets of a plan: the policy's and the PodDisruptionBudgets', wave by wave."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

import numpy as np

from rebalancer.plan.plan import Pace
from rebalancer.planner.problem import Problem
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.snapshot.model import PodClass, PodFlag, Snapshot

# What comes before the evictions is in the time of a run, too: lists of 150,000 pods take 7 to 10 s, and a move
# among 5,000 nodes takes 4 to 7 ms to plan, in proportion to the nodes or less.
_READING = 5e-5
"""Seconds per pod."""
_PLANNING = 1e-6
"""Seconds per move and node."""


class RunTime:
    """The time of one run, reduced by its lists and by the moves and waves of its plan."""

    def __init__(
        self,
        seconds: float = math.inf,
        pace: Pace | None = None,
        *,
        nodes: int = 0,
        pods: int = 0,
    ) -> None:
        """``nodes`` and ``pods``: the size of the cluster."""
        self._seconds, self._pace = seconds, pace or Pace()
        self._reading, self._of_move = pods * _READING, nodes * _PLANNING + self._pace.eviction
        self._used = 0.0

    def over(self) -> str | None:
        """Return a phrase if no further move fits into the run's time; else None."""
        # The first move always fits: a run whose time is too short for its pace would never do anything.
        if self._used == 0 or self._reading + self._used + self._of_move <= self._seconds:
            return None
        return f"what a run can carry out in its {self._seconds:g} s is planned"

    def evict(self) -> None:
        """Count the time of planning and evicting one move."""
        self._used += self._of_move

    def next_wave(self) -> None:
        """Count the time of waiting for the replacements of a wave."""
        self._used += self._pace.wave


class Places:
    """The use of one set of budgets, by namespace, by node and by zone."""

    def __init__(self, problem: Problem, budgets: Budgets) -> None:
        self._budgets = budgets
        self._snapshot = problem.snapshot
        self._movable = _unprotected_of(problem) if budgets.per_namespace is not None else {}
        self._zone_of, self._zones = np.zeros(0, np.int32), list[str]()
        if budgets.per_zone is not None:
            self._zone_of, self._zones = problem.snapshot.nodes.labels.zones()
        nodes = problem.snapshot.pods.node
        zones = self._zone_of[nodes[nodes >= 0]] if self._zones else self._zone_of
        self._pods_in = np.bincount(zones[zones >= 0], minlength=len(self._zones))
        self._pods_on = np.bincount(nodes[nodes >= 0], minlength=len(problem.snapshot.nodes))
        self._moved_from: Counter[int] = Counter()
        self._moved: Counter[str] = Counter()
        self._left: Counter[int] = Counter()

    def over_in(self, namespace: str) -> str | None:
        """Return the per-run limit that a pod of ``namespace`` would exceed; None if it exceeds none."""
        if self._left_in(namespace) > 0:
            return None
        return f"perNamespace {self._most(namespace)} in {namespace}"

    def left(self, cls: int) -> float:
        """Return how many pods of the namespace of ``cls`` this run may still move."""
        return self._left_in(self._snapshot.classes[cls].namespace)

    def _left_in(self, namespace: str) -> float:
        most = self._most(namespace)
        return np.inf if most is None else most - self._moved[namespace]

    def _most(self, namespace: str) -> int | None:
        return self._budgets.per_namespace_of(self._movable.get(namespace, 0))

    def waits(self, node: int) -> str | None:
        """Return the limit that a pod leaving ``node`` would exceed, in flight or in this run; None if it exceeds none."""
        if (limit := self.over_from(node)) is not None:
            return limit
        zone = int(self._zone_of[node]) if self._zones else -1
        if zone < 0:
            return None
        most = self._budgets.per_zone_of(int(self._pods_in[zone]))
        if most is None or self._left[zone] < most:
            return None
        return f"perZone {most} from {self._zones[zone]}"

    def leave(self, node: int) -> None:
        """Count a pod in flight that has left ``node``."""
        if self._zones:
            self._left[int(self._zone_of[node])] += 1

    def over_from(self, node: int) -> str | None:
        """Return the per-run limit that a pod leaving ``node`` would exceed; None if it exceeds none."""
        if self._budgets.per_node_in_run is None or node < 0:
            return None
        most = self._budgets.per_node_in_run_of(int(self._pods_on[node]))
        if most is None or self._moved_from[node] < most:
            return None
        return f"perNodeInRun {most} from {self._snapshot.nodes.names[node]}"

    def count(self, cls: int, node: int) -> None:
        """Count a move of a pod of ``cls`` from ``node`` in this run."""
        self.count_in(self._snapshot.classes[cls].namespace, node)

    def count_in(self, namespace: str, node: int) -> None:
        """Count a pod of ``namespace`` that leaves ``node`` in this run; -1: a node that is not known."""
        self._moved[namespace] += 1
        self._moved_from[node] += 1

    def land(self) -> None:
        """Reset the counts in flight: all replacements have landed."""
        self._left.clear()


def _unprotected_of(problem: Problem) -> dict[str, int]:
    """Return namespace -> number of its movable pods."""
    of_class = np.bincount(
        problem.snapshot.pods.cls[problem.is_unprotected], minlength=len(problem.snapshot.classes)
    )
    counts: Counter[str] = Counter()
    for cls, count in zip(problem.snapshot.classes, of_class.tolist(), strict=True):
        counts[cls.namespace] += count
    return counts


def _serving_replicas(problem: Problem) -> list[int]:
    """Return the replicas of each owner without those in closed zones, which may not serve, and at least one."""
    snapshot = problem.snapshot
    replicas = [owner.replicas for owner in snapshot.owners]
    if not problem.disruptions.closed.any():
        return replicas
    idle = snapshot.pods.cls[problem.disruptions.in_closed_zone() & snapshot.pods.living]
    for cls, number in Counter(idle.tolist()).items():
        if (owner := snapshot.classes[cls].owner) >= 0:
            replicas[owner] = max(1, replicas[owner] - number)
    return replicas


# Pods on their way out that no budget of the policy is about.
_NOT_SERVING = ("Job", "CronJob", "DaemonSet", "Node")
# A replacement that is not Ready after so long is taken to be stuck, as by a Deployment's progressDeadlineSeconds:
# one that never gets Ready must not keep a budget used up for ever.
STARTING_SECONDS = 600.0


class _Tally:
    """The use of one set of budgets."""

    def __init__(
        self, problem: Problem, budgets: Budgets, settings: Settings, movable: int
    ) -> None:
        snapshot = problem.snapshot
        self._snapshot, self._lifted = snapshot, settings.lifted
        self.places = Places(problem, budgets)
        self._in_flight_most = budgets.in_flight_of(movable)
        self._per_run = budgets.per_run_of(movable)
        self._hour_left = max(0, budgets.per_hour_of(movable) - settings.moved_last_hour)
        self._pods_on = np.bincount(
            snapshot.pods.node[snapshot.pods.node >= 0], minlength=len(snapshot.nodes)
        )
        self._serving = _serving_replicas(problem)
        # Shares are exact fractions, and few sizes are asked for again and again.
        self._most_of_node = cache(budgets.per_node_of)
        self._most_of_owner = cache(budgets.per_owner_of)
        self._run = self._of_wave = 0
        self._in_flight = 0
        self._nodes: Counter[int] = Counter()
        self._owners: Counter[int] = Counter()
        self._starting: Counter[int] = Counter()
        """Owner -> replacements of earlier runs that are not Ready: in flight in every wave of this one."""
        self._seen: Counter[str] = Counter()
        """Namespace -> pods in flight that this run has not moved."""
        self._namespaces = sorted({cls.namespace for cls in snapshot.classes})

    @property
    def per_run(self) -> int:
        """The maximum number of moves per run, without the limit per hour."""
        return self._per_run

    def over(self) -> str | None:
        """Return the exhausted per-run limit; None if none is exhausted."""
        if self._lifted or self._run < min(self._per_run, self._hour_left):
            return None
        if self._run >= self._per_run:
            return f"perRun {self._per_run:,}"
        return f"perHour: {self._hour_left:,} were left of it"

    def left(self) -> int:
        """Return the number of moves that this run may still make."""
        if self._lifted:
            return len(self._snapshot.pods)
        return min(self._per_run, self._hour_left) - self._run

    def waits(self, cls: int, node: int, *, itself: bool = False, without: int = 0) -> str | None:
        """Return the in-flight limit that a move of a pod of ``cls`` would exceed.

        ``itself``: the pod is already counted in flight; ``without``: so many of those in flight do not count.
        """
        spared = self._spare(self._snapshot.classes[cls].namespace) + itself + without
        if self._in_flight - spared >= self._in_flight_most:
            return f"inFlight {self._in_flight_most}"
        most = self._most_of_node(int(self._pods_on[node]))
        if self._nodes[node] >= most:
            return f"perNode {most}"
        owner = self._snapshot.classes[cls].owner
        most = self._most_of_owner(self._serving[owner])
        if self._owners[owner] - itself >= most:
            return f"perOwner {most}"
        return self.places.waits(node)

    def _spare(self, namespace: str) -> int:
        """Return how many pods in flight do not count for a move in ``namespace``.

        Pods that end or start in one namespace, whoever made them do so, hold up at most half of the limit in all others.
        """
        if not self._seen:
            return 0
        share = -(-self._in_flight_most // 2)
        return sum(max(0, pods - share) for other, pods in self._seen.items() if other != namespace)

    def is_owner_full(self, owner: int) -> bool:
        """Return whether an owner has the maximum number of pods in flight."""
        return self._owners[owner] >= self._most_of_owner(self._serving[owner])

    def see(self, owner: int, node: int) -> None:
        """Count one pod in flight that this run has not moved."""
        self._seen[self._snapshot.owners[owner].namespace] += 1
        self.fly(owner, node)

    def fly(self, owner: int, node: int) -> None:
        """Count one pod in flight."""
        self._in_flight += 1
        self._owners[owner] += 1
        self.leave(node)

    def leave(self, node: int) -> None:
        """Count a pod that leaves ``node``; its replacement is counted as starting."""
        self._nodes[node] += 1
        self.places.leave(node)

    def start(self, owner: int, pods: int) -> None:
        """Count ``pods`` replacements that are not Ready yet."""
        self._starting[owner] = pods
        self._seen[self._snapshot.owners[owner].namespace] += pods
        self._in_flight += pods
        self._owners[owner] += pods

    def give_up(self, owner: int) -> None:
        """Subtract one replacement that is not Ready: it will be evicted."""
        self._starting[owner] -= 1
        self._seen[self._snapshot.owners[owner].namespace] -= 1
        self._in_flight -= 1
        self._owners[owner] -= 1

    def count(self, cls: int, node: int) -> None:
        """Count a move of a pod of ``cls`` from ``node`` in this run."""
        self._run += 1
        self._of_wave += 1
        self.places.count(cls, node)

    def remove(self, namespace: str, node: int) -> None:
        """Count a finished pod that is deleted; it is not in flight."""
        self._run += 1
        self.places.count_in(namespace, node)

    @property
    def in_flight(self) -> int:
        """The number of moves in flight."""
        return self._in_flight

    def full(self) -> bool:
        """Return whether the limit of moves in flight is reached, in every namespace."""
        if self._in_flight < self._in_flight_most:
            return False
        spared = max(map(self._spare, self._namespaces), default=0) if self._seen else 0
        return self._in_flight - spared >= self._in_flight_most

    def filled_before(self) -> str | None:
        """Return a phrase if moves of earlier runs use up all of this wave; else None."""
        if self._of_wave or not self.full():
            return None
        return f"inFlight {self._in_flight_most}: {self._in_flight} in flight already"

    def land(self) -> None:
        """Reset the counts in flight, except those of earlier runs, for which no wave of this run waits."""
        self._of_wave = 0
        self._in_flight = self._starting.total()
        self._seen.clear()
        for owner, pods in self._starting.items():
            self._seen[self._snapshot.owners[owner].namespace] += pods
        self._nodes.clear()
        self._owners = self._starting.copy()
        self.places.land()


def _serving_owner(snapshot: Snapshot, cls: PodClass) -> int:
    """Return the owner of the pods of ``cls``; -1 if budgets per owner do not apply (batch, bare pods)."""
    batch = cls.spec.restart_policy != "Always"
    if cls.owner < 0 or batch or snapshot.owners[cls.owner].kind in _NOT_SERVING:
        return -1
    return cls.owner


def _perhaps_restarted(snapshot: Snapshot) -> list[int]:
    """Return the owners in a rollout that a restart of ours may have started.

    Empty if single replicas are evicted.
    """
    return sorted(
        {
            cls.owner
            for cls in snapshot.classes
            if cls.cannot_surge and snapshot.owners[cls.owner].kind == "Deployment"
        }
    )


class Allowance:
    """Counts the budgets that a plan uses. Pods in flight in the snapshot count as used in the first wave."""

    def __init__(self, problem: Problem, settings: Settings) -> None:
        self._snapshot = problem.snapshot
        self._disruptions = problem.disruptions
        self._planned = settings.planned
        self._makes_room = {of.strategy for of in problem.contributions if of.asks is not None}
        self._waiting = 0
        """Pods that no node takes, of those that count in flight."""
        movable = problem.unprotected if settings.movable is None else settings.movable
        self._all = _Tally(problem, settings.budgets, settings, movable)
        self._of_strategy = {
            name: _Tally(problem, budgets, settings, movable)
            for name, budgets in settings.of_strategy.items()
        }
        self._time = RunTime(
            settings.seconds,
            settings.pace,
            nodes=len(problem.snapshot.nodes),
            pods=len(problem.snapshot.pods),
        )
        self._moved = False
        self._stopped: str | None = None
        self._disrupted: Counter[int] = Counter()
        self._disrupted_serving: Counter[int] = Counter()
        """Of these, the pods outside closed zones."""
        self._starting: Counter[tuple[int, int]] = Counter()
        """Class and node -> pods that are young and not Ready, and may have to go for that themselves."""
        self._seen_in_flight()
        self.begins_in_flight = self._all.in_flight > 0
        """Whether earlier runs have moves in flight, which use a part of the budgets."""

    def _seen_in_flight(self) -> None:
        """Count the moves of earlier runs in flight: terminating pods, and young pods that are not Ready.

        A pod that should have been gone for so long as a pod may start is stuck, and not in flight. A victim and its
        replacement are one move, unless the owner creates the replacement only after the victim is gone. Pods that start for a rollout are not counted, unless runs restart rollouts of such owners: no pod of
        an owner in a rollout is moved meanwhile. Pods that start because of a scale-up cannot be distinguished from
        replacements, and count as well. For moves that make room those that no node takes do not: with as many pods pending as
        may be in flight, none would ever leave for them.
        """
        snapshot, pods = self._snapshot, self._snapshot.pods
        owner = np.array([_serving_owner(snapshot, c) for c in snapshot.classes], np.int32)
        owner_of = owner[pods.cls] if len(owner) else np.zeros(0, np.int32)
        going = (pods.flags & PodFlag.TERMINATING) != 0
        stuck = pods.where(
            lambda state: 0 < state.gone_by < snapshot.captured_at - STARTING_SECONDS
        )
        young = snapshot.captured_at - pods.created < STARTING_SECONDS
        starting = ~going & young & ((pods.flags & PodFlag.READY) == 0) & (owner_of >= 0)
        of_rollout = np.array([of.rollout for of in snapshot.owners], bool)
        of_rollout[_perhaps_restarted(snapshot)] = False
        starting[starting] = ~of_rollout[owner_of[starting]]
        replaced = Counter(owner_of[starting].tolist())
        for of, count in replaced.items():
            self._all.start(of, count)
        self._waiting = int(starting[snapshot.unschedulable_pods()].sum())
        self._starting.update(
            zip(pods.cls[starting].tolist(), pods.node[starting].tolist(), strict=True)
        )
        for pod in np.flatnonzero(going & ~stuck & (pods.node >= 0) & (owner_of >= 0)).tolist():
            if pods.uid[pod] in self._planned:
                continue
            of, node = int(owner_of[pod]), int(pods.node[pod])
            if replaced[of] and not snapshot.owners[of].waits:
                replaced[of] -= 1
                self._all.leave(node)
            else:
                self._all.see(of, node)

    @property
    def per_run(self) -> int:
        """The maximum number of moves per run, without the limit per hour."""
        return self._all.per_run

    def stop(self, why: str) -> None:
        """Forbid all further moves, for the reason ``why``."""
        self._stopped = why

    @property
    def short_of_time(self) -> bool:
        """Whether the plan ends because the run's time is used up."""
        return self._time.over() is not None

    @property
    def stopped(self) -> str | None:
        """The reason given to :meth:`stop`; None if it was not called."""
        return self._stopped

    def _tallies(self, strategy: str) -> list[_Tally]:
        own = self._of_strategy.get(strategy)
        return [self._all] if own is None else [self._all, own]

    def filled_before(self) -> str | None:
        """Return a phrase if moves of earlier runs use up all of this wave; else None."""
        return self._all.filled_before()

    def exhausted(self) -> str | None:
        """Return the limit that ends the run, not counting moves of earlier runs in flight; None if none does."""
        return self._stopped or self._all.over() or self._time.over()

    def over(self, strategy: str, cls: int) -> str | None:
        """Return the exhausted per-run limit for a strategy's pods of ``cls``; None if none is exhausted."""
        return self.over_in(strategy, self._snapshot.classes[cls].namespace)

    def over_in(self, strategy: str, namespace: str) -> str | None:
        """Return the exhausted per-run limit for a strategy's pods of ``namespace``; None if none is exhausted."""
        if (limit := self._stopped or self._time.over()) is not None:
            return limit
        for tally in self._tallies(strategy):
            if (limit := tally.over() or tally.places.over_in(namespace)) is not None:
                return limit
        return None

    def over_ended(self, strategy: str, namespace: str, node: int) -> str | None:
        """Return the exhausted per-run limit for a finished pod that a strategy deletes; None if none is exhausted."""
        if (limit := self.over_in(strategy, namespace)) is not None:
            return limit
        limits = (tally.places.over_from(node) for tally in self._tallies(strategy))
        return next((limit for limit in limits if limit is not None), None)

    def remove(self, strategy: str, namespace: str, node: int) -> None:
        """Count a finished pod that is deleted."""
        self._time.evict()
        for tally in self._tallies(strategy):
            tally.remove(namespace, node)

    def left(self, strategy: str) -> int:
        """Return the number of moves of a strategy that this run may still make."""
        if self._stopped is not None or self._time.over() is not None:
            return 0
        return min(tally.left() for tally in self._tallies(strategy))

    def has_room_for(self, moves: int, strategy: str, cls: int) -> bool:
        """Return whether the budgets of the run and of the namespace of ``cls`` allow this many more moves, of a chain or gang."""
        of_namespace = (tally.places.left(cls) for tally in self._tallies(strategy))
        return min(self.left(strategy), *of_namespace) >= moves

    def waits(self, cls: int, node: int, strategy: str, *, ready: bool = True) -> str | None:
        """Return the limit that defers a move of a pod to a later wave; None if none does."""
        itself = not ready and self._starting[cls, node] > 0
        without = self._waiting if strategy in self._makes_room else 0
        for tally in self._tallies(strategy):
            of_all = tally is self._all
            if (
                limit := tally.waits(
                    cls, node, itself=itself and of_all, without=without if of_all else 0
                )
            ) is not None:
                return limit
        for index in self._disruptions.spent_by(cls, ready=ready):
            budget = self._snapshot.budgets[index]
            if self._disrupted[index] >= budget.allowed:
                return f"PodDisruptionBudget {budget.ref} allows {budget.allowed} at once"
            if not self._disruptions.is_closed(node) and (
                self._disrupted_serving[index] >= (allowed := self._disruptions.allowed(index))
            ):
                zones = " and ".join(self._disruptions.closed_zones())
                return f"PodDisruptionBudget {budget.ref} allows {allowed} at once outside of closed zone {zones}"
        return None

    def holds_owner(self, cls: int) -> bool:
        """Return whether no pod of the owner of ``cls`` may move in this wave, on any node."""
        return not self._starting and self._all.is_owner_full(self._snapshot.classes[cls].owner)

    def full(self) -> bool:
        """Return whether no further move fits into this wave."""
        return self._all.full()

    def spend(self, cls: int, node: int, strategy: str, *, ready: bool = True) -> None:
        """Count one move of a pod; ``ready``: whether the pod is Ready."""
        self._time.evict()
        self._moved = True
        if not ready and self._starting[cls, node] > 0:
            self._starting[cls, node] -= 1
            self._all.give_up(self._snapshot.classes[cls].owner)
        for tally in self._tallies(strategy):
            tally.count(cls, node)
            tally.fly(self._snapshot.classes[cls].owner, node)
        for budget in self._disruptions.spent_by(cls, ready=ready):
            self._disrupted[budget] += 1
            self._disrupted_serving[budget] += not self._disruptions.is_closed(node)

    def next_wave(self) -> None:
        """Start the next wave; all replacements of the last wave count as Ready."""
        if self._moved:
            self._time.next_wave()
            self._moved = False
        for tally in (self._all, *self._of_strategy.values()):
            tally.land()
        self._disrupted.clear()
        self._disrupted_serving.clear()
