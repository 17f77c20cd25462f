"""The remaining budgets of a plan: the policy's and the PodDisruptionBudgets', wave by wave."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any

import numpy as np

from rebalancer.core import limits as core
from rebalancer.plan.plan import Pace
from rebalancer.planner.limit_table import (
    IN_FLIGHT,
    BudgetLimits,
    LimitTable,
    limit_disruptions,
    limit_quotas,
)
from rebalancer.planner.problem import Problem
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.settings import Settings
from rebalancer.snapshot.columns import Bools, Int32s, Ints
from rebalancer.snapshot.in_flight import pods_asked_for
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


def _serving_owners(snapshot: Snapshot) -> Int32s:
    """Return the owner of each pod (P,), see :func:`_serving_owner`."""
    owner = np.array([_serving_owner(snapshot, c) for c in snapshot.classes], np.int32)
    return owner[snapshot.pods.cls] if len(owner) else np.zeros(0, np.int32)


def find_starting(snapshot: Snapshot) -> Bools:
    """Return the pods (P,) that count as moves in flight because they are young and not Ready, except in rollouts."""
    pods, owner_of = snapshot.pods, _serving_owners(snapshot)
    young = snapshot.captured_at - pods.created < STARTING_SECONDS
    settling = (pods.flags & (PodFlag.TERMINATING | PodFlag.READY)) == 0
    starting: Bools = settling & young & (owner_of >= 0)
    of_rollout = np.array([of.rollout for of in snapshot.owners], bool)
    of_rollout[_perhaps_restarted(snapshot)] = False
    starting[starting] = ~of_rollout[owner_of[starting]]
    return starting


class Allowance:
    """Counts the limits that a plan uses. Pods in flight in the snapshot count as used in the first wave."""

    def __init__(self, problem: Problem, settings: Settings) -> None:
        self._snapshot = problem.snapshot
        self._planned = settings.planned
        self._makes_room = {of.strategy for of in problem.contributions if of.asks is not None}
        table = LimitTable(problem)
        # A strategy with the policy's budgets never reaches them before all strategies together.
        own = {name: of for name, of in settings.of_strategy.items() if of != settings.budgets}
        self._number = {name: number for number, name in enumerate(own, 1)}
        """Strategy -> its number, of those that have budgets of their own."""
        budgets = [settings.budgets, *own.values()]
        self._sets = [BudgetLimits(table, of, settings, n) for n, of in enumerate(budgets)]
        for one in self._sets:
            one.limit_run()
        self.first_of_wave = len(table)
        """The first limit that a move of a later wave may not exceed; those before it are of all moves of the run."""
        serving = _serving_replicas(problem)
        for one in self._sets:
            one.limit_waves(serving)
        limit_disruptions(table)
        self.first_quota = len(table)
        limit_quotas(table)
        self.limits = limits = table.lower(problem.disruptions.closed)
        self._used, self._most = np.asarray(limits.used), np.asarray(limits.most)
        self._spared = np.asarray(limits.spared)
        # A number of a view is one of Python at once.
        self._now, self._top = self._used.data, self._most.data
        self._words, self._table = table.words, table
        self._of_wave = np.ones(len(self._used), bool)
        self._of_wave[table.of_run] = False
        self._landed = self._used.copy()
        """The counters once all moves of this run have landed."""
        self._starting_in: Counter[str] = Counter()
        """Namespace -> replacements of earlier runs that are not Ready: in flight in every wave of this one."""
        self._waiting_in: Counter[str] = Counter()
        """Namespace -> its pods in flight that no node takes. Moves that make room do not count them."""
        self._seen: Counter[str] = Counter()
        """Namespace -> pods in flight that this run has not moved."""
        self._time = RunTime(
            settings.seconds,
            settings.pace,
            nodes=len(problem.snapshot.nodes),
            pods=len(problem.snapshot.pods),
        )
        self._moved = False
        self._stopped: str | None = None
        self.starting: Counter[tuple[int, int]] = Counter()
        """Class and node -> pods that are young and not Ready, and may have to be moved for that reason."""
        self._seen_in_flight()
        self._first = deepcopy(self._counted())
        self.begins_in_flight = bool(self._used[IN_FLIGHT])
        """Whether earlier runs have moves in flight, which use a part of the budgets."""

    def _counted(self) -> tuple[Any, ...]:
        changing = self._landed, self._time, self._starting_in, self.starting, self._seen
        return self._used, *changing

    def begin_again(self) -> None:
        """Take back all moves."""
        used, *changing = deepcopy(self._first)
        self._used[:] = used
        self._landed, self._time, self._starting_in, self.starting, self._seen = changing
        self._moved, self._stopped = False, None
        self._spare_namespaces()

    def _seen_in_flight(self) -> None:
        """Count the moves of earlier runs in flight: terminating pods, young pods that are not Ready, and open EvictionRequests.

        A pod whose deletion is overdue by more than the time that a pod may take to start is stuck, not in flight. A victim and its
        replacement are one move, unless the owner creates the replacement only after the victim is gone. Pods that start for a rollout are not counted, unless runs restart rollouts of such owners: no pod of
        an owner in a rollout is moved meanwhile. Pods that start because of a scale-up cannot be distinguished from
        replacements, and count as well. Moves that make room do not count pods that no node takes: with as many pods pending
        as may be in flight, no pod would ever be evicted for them.
        """
        snapshot, pods = self._snapshot, self._snapshot.pods
        owner_of = _serving_owners(snapshot)
        going = (pods.flags & PodFlag.TERMINATING) != 0
        stuck = pods.where(
            lambda state: 0 < state.gone_by < snapshot.captured_at - STARTING_SECONDS
        )
        starting = find_starting(snapshot)
        replaced = Counter(owner_of[starting].tolist())
        for of, count in replaced.items():
            self._starting_in[snapshot.owners[of].namespace] += count
            self._used[[IN_FLIGHT, 1 + of]] += count
        unschedulable = snapshot.unschedulable_pods()
        waiting = unschedulable[starting[unschedulable]]
        for of, count in Counter(owner_of[waiting].tolist()).items():
            self._waiting_in[snapshot.owners[of].namespace] += count
        self.starting.update(
            zip(pods.cls[starting].tolist(), pods.node[starting].tolist(), strict=True)
        )
        asked, of_nodes = pods_asked_for(snapshot), Counter[tuple[str, int]]()
        # Those that terminate already are so for the API server, too.
        asked = asked[~pods.where(lambda state: state.gone_by > 0)[asked]]
        going[asked] = False
        for pod in asked.tolist():
            of, node = int(owner_of[pod]), int(pods.node[pod])
            if of >= 0 and node >= 0:
                namespace = snapshot.owners[of].namespace
                self._starting_in[namespace] += 1
                self._used[[IN_FLIGHT, 1 + of]] += 1
                of_nodes.update((namespace, limit) for limit in self._sets[0].waves_of(node))
        for (_, limit), number in of_nodes.items():
            # As of inFlight: those of one namespace leave half of it to all others.
            share = -(-self._top[limit] // 2)
            self._used[self._table.counter[limit]] += min(number, share)
        self._seen = self._starting_in.copy()
        self._landed = self._used.copy()
        for pod in np.flatnonzero(going & ~stuck & (pods.node >= 0) & (owner_of >= 0)).tolist():
            if pods.uid[pod] in self._planned:
                continue
            of, node = int(owner_of[pod]), int(pods.node[pod])
            if replaced[of] and not snapshot.owners[of].waits:
                replaced[of] -= 1
            else:
                self._seen[snapshot.owners[of].namespace] += 1
                self._used[[IN_FLIGHT, 1 + of]] += 1
            self._use_node(node)
        self._spare_namespaces()

    def _use_node(self, node: int) -> None:
        """Count a move in flight in the limits of a node, and of its zone."""
        self._used[[self._table.counter[limit] for limit in self._sets[0].waves_of(node)]] += 1

    def _spare_namespaces(self) -> None:
        """Reduce what one namespace has in flight by earlier runs, so that it uses at most half of the limit of all others.

        It does not matter which client made these pods end or start.
        """
        of_all = self._sets[0]
        share = -(-of_all.in_flight // 2)
        above, of_waiting = Counter[str](), Counter[str]()
        for name, pods in self._seen.items():
            above[name] = max(0, pods - share)
            of_waiting[name] = above[name] - max(0, pods - self._waiting_in[name] - share)
        waiting, spared = self._waiting_in.total(), dict[str, int]()
        for namespace, limit in of_all.of_in_flight.items():
            self._most[limit] = of_all.in_flight + above.total() - above[namespace]
            # Those above the share are left out by the limit already.
            spared[namespace] = waiting - (of_waiting.total() - of_waiting[namespace])
        self._spared[:] = [spared[cls.namespace] for cls in self._snapshot.classes]
        limits = list(of_all.of_in_flight.values())
        self._most_in_flight = int(self._most[limits].max(initial=of_all.in_flight))

    def _sets_of(self, strategy: str) -> list[BudgetLimits]:
        number = self._number.get(strategy, 0)
        return [self._sets[0]] if number == 0 else [self._sets[0], self._sets[number]]

    @property
    def per_run(self) -> int:
        """The maximum number of moves per run, without the limit per hour."""
        return self._sets[0].per_run

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

    def full(self) -> bool:
        """Return whether the limit of moves in flight is reached, in every namespace."""
        return self._now[IN_FLIGHT] >= self._most_in_flight

    def filled_before(self) -> str | None:
        """Return a phrase if moves of earlier runs use up all of this wave; else None."""
        if self._moved or not self.full():
            return None
        return f"inFlight {self._sets[0].in_flight}: {self._now[IN_FLIGHT]} in flight already"

    def exhausted(self) -> str | None:
        """Return the limit that ends the run, not counting moves of earlier runs in flight; None if none does."""
        used_up = self._find_used_up(run) if (run := self._sets[0].run) >= 0 else None
        return self._stopped or used_up or self._time.over()

    # -- what a move is under ---------------------------------------------------------------------------

    def over(self, strategy: str, cls: int) -> str | None:
        """Return the exhausted per-run limit for a strategy's pods of ``cls``; None if none is exhausted."""
        return self.over_in(strategy, self._snapshot.classes[cls].namespace)

    def over_in(self, strategy: str, namespace: str, node: int = -1) -> str | None:
        """Return the exhausted per-run limit for a strategy's pods of ``namespace``, and on ``node`` if given; None if none is."""
        if (limit := self._stopped or self._time.over()) is not None:
            return limit
        limits = map(self._find_used_up, self._of_run(strategy, namespace, node))
        return next((limit for limit in limits if limit is not None), None)

    def _of_run(self, strategy: str, namespace: str, node: int = -1) -> Iterator[int]:
        """Yield the limits of the run on moves of a strategy's pods of ``namespace``, and on ``node`` if given."""
        sets = self._sets_of(strategy)
        of_all = chain.from_iterable((of.run, of.of_namespace.get(namespace, -1)) for of in sets)
        of_node = (of.of_node[node] for of in sets if of.of_node and node >= 0)
        return (number for number in chain(of_all, of_node) if number >= 0)

    def _find_used_up(self, number: int) -> str | None:
        """Return the sentence of a limit if it is reached; None if it is not."""
        return None if self._left_of(number) > 0 else self._say(number)

    def _say(self, number: int) -> str:
        return self.words_of(number, self._left_of(number))

    def words_of(self, number: int, left: int) -> str:
        """Return the sentence of a limit, when ``left`` of it was left."""
        words = self._words[number]
        return words if isinstance(words, str) else words.lack(left)

    def number_of(self, strategy: str) -> int:
        """Return the number of a strategy among those with budgets of their own; 0 if it has none."""
        return self._number.get(strategy, 0)

    def makes_room(self, strategy: str) -> bool:
        """Return whether a strategy makes room for pods that wait."""
        return strategy in self._makes_room

    def owner_limits(self) -> Ints:
        """Return of each class (C,) the limit on pods in flight of its owner; -1 if it has no owner."""
        limits = [*self._sets[0].of_owner, -1]
        return np.array([limits[cls.owner] for cls in self._snapshot.classes], np.int64)

    def remove(self, strategy: str, namespace: str, node: int) -> None:
        """Count a finished pod that is deleted."""
        self._time.evict()
        for number in self._of_run(strategy, namespace, node):
            self._used[self._table.counter[number]] += 1

    def left(self, strategy: str, namespace: str = "") -> int:
        """Return the number of moves of a strategy, and of pods of ``namespace`` if given, that this run may still make."""
        if self._stopped is not None or self._time.over() is not None:
            return 0
        left = map(self._left_of, self._of_run(strategy, namespace))
        return min(left, default=len(self._snapshot.pods))

    def _left_of(self, number: int) -> int:
        return self._top[number] - self._now[self._table.counter[number]]

    def has_room_for(self, moves: int, strategy: str, cls: int) -> bool:
        """Return whether the budgets of the run and of the namespace of ``cls`` allow this many more moves, of a chain or gang."""
        return self.left(strategy, self._snapshot.classes[cls].namespace) >= moves

    def waits(self, cls: int, node: int, strategy: str, *, ready: bool = True) -> str | None:
        """Return the limit that defers a move of a pod to a later wave; None if none does."""
        number = self._find(cls, node, strategy, self.first_of_wave, self.first_quota, ready=ready)
        return None if number < 0 else self._say(number)

    def lacks(self, cls: int) -> str | None:
        """Return the quota without room for a replacement beside its victim; None if all have room, or it comes after the victim."""
        number = self._find(cls, -1, "", self.first_quota, len(self._words))
        return None if number < 0 else self._say(number)

    def refuse(self, cls: int, node: int, strategy: str, *, ready: bool = True) -> Refusal | None:
        """Return which limit of this wave, or which quota, delays the move of a pod; None if none does."""
        if (limit := self.waits(cls, node, strategy, ready=ready)) is not None:
            return Refusal.of(Why.BUDGET, limit=limit)
        lack = self.lacks(cls)
        return None if lack is None else Refusal.of(Why.QUOTA, limit=lack)

    def lacks_for(self, classes: Sequence[int]) -> str | None:
        """Return the quota without room for replacements of all ``classes`` beside their victims; None if all have room."""
        used = self._used.copy()
        try:
            for cls in classes:
                if (lack := self.lacks(cls)) is not None:
                    return lack
                core.count(self.limits, cls, -1, 0, self.first_quota, True)
        finally:
            self._used[:] = used
        return None

    def _find(
        self, cls: int, node: int, strategy: str, first: int, last: int, *, ready: bool = True
    ) -> int:
        """Return the number of the first limit from ``first`` to below ``last`` that one more move would exceed; -1: none."""
        itself = not ready and self.starting[cls, node] > 0
        number, for_room = self.number_of(strategy), self.makes_room(strategy)
        return core.find_full(
            self.limits, cls, node, number, first, last, ready, int(itself), for_room
        )

    def spend(self, cls: int, node: int, strategy: str, *, ready: bool = True) -> None:
        """Count one move of a pod; ``ready``: whether the pod is Ready."""
        self._time.evict()
        self._moved = True
        if not ready and self.starting[cls, node] > 0:
            self.starting[cls, node] -= 1
            owner = self._snapshot.classes[cls].owner
            # It will be evicted: it does not start any more.
            for counters in (self._used, self._landed):
                counters[[IN_FLIGHT, 1 + owner]] -= 1
            for of in (self._seen, self._starting_in):
                of[self._snapshot.owners[owner].namespace] -= 1
            self._spare_namespaces()
        core.count(self.limits, cls, node, self._number.get(strategy, 0), 0, ready)

    def next_wave(self) -> None:
        """Start the next wave; all replacements of the last wave count as Ready."""
        if self._moved:
            self._time.next_wave()
            self._moved = False
        np.copyto(self._used, self._landed, where=self._of_wave)
        if self._seen != self._starting_in:
            self._seen = self._starting_in.copy()
            self._spare_namespaces()
