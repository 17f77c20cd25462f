"""The limits on moves as the core has them: of budgets, PodDisruptionBudgets and quotas, in the order in which they are named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, partial

import numpy as np

from rebalancer.core import limits as core
from rebalancer.core.views import view_of
from rebalancer.planner.problem import Problem
from rebalancer.planner.quota import Claim, QuotaClaims
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.policy.values import Limit
from rebalancer.snapshot.columns import Bools, Ints

IN_FLIGHT = 0
"""The counter of all moves in flight; then comes one for each owner."""
_MAX_COUNT = 2**61
"""No object of a cluster needs more; a file may contain any number."""


class LimitTable:
    """Limits while they are collected."""

    def __init__(self, problem: Problem) -> None:
        snapshot = problem.snapshot
        self.problem = problem
        self._owners = len(snapshot.owners)
        self.counters = 1 + self._owners
        self.of_run = list[int]()
        """The counters to which the end of a wave gives nothing back."""
        self.words, self.most, self.counter = list[str | Claim](), list[int](), list[int]()
        """Of each limit: its sentence, the largest number that it allows, and its counter."""
        self._strategy, self._of_ready, self._of_open = list[int](), list[bool](), list[bool]()
        self.of_class = [list[tuple[int, int]]() for _ in snapshot.classes]
        """Of each class its limits, each with what one move adds to the counter."""
        self.of_node = [list[tuple[int, int]]() for _ in range(len(snapshot.nodes))]

    def __len__(self) -> int:
        return len(self.most)

    def open_counter(self, *, of_run: bool = False) -> int:
        """Return a new counter."""
        self.of_run += [self.counters] if of_run else []
        self.counters += 1
        return self.counters - 1

    def add(
        self,
        most: int,
        words: str | Claim,
        counter: int,
        strategy: int = 0,
        *,
        of_ready: bool = False,
        of_open: bool = False,
    ) -> int:
        """Add a limit, and return its number; ``strategy``: the number of the one whose moves it is about; 0: all."""
        self.words.append(words)
        self.most.append(max(-_MAX_COUNT, min(most, _MAX_COUNT)))
        self.counter.append(counter)
        self._strategy.append(strategy)
        self._of_ready.append(of_ready)
        self._of_open.append(of_open)
        return len(self.most) - 1

    def put_under(self, lists: Sequence[list[tuple[int, int]]], limits: Sequence[int]) -> None:
        """Put each class, or node, under its limit; -1: it has none."""
        for of, limit in zip(lists, limits, strict=True):
            if limit >= 0:
                of.append((limit, 1))

    def lower(self, closed: Bools) -> core.LimitArrays:
        """Return the limits as the core has them, with nothing used, and forget the lists; ``closed`` (N,): the nodes of closed zones."""
        of_class, of_node = _lower_lists(self.of_class), _lower_lists(self.of_node)
        self.of_class.clear()
        self.of_node.clear()
        counter, most, strategy = (
            view_of(np.array(of, np.int64)) for of in (self.counter, self.most, self._strategy)
        )
        return core.LimitArrays(
            view_of(np.zeros(self.counters, np.int64)),
            self._owners,
            counter,
            most,
            strategy,
            view_of(np.array(self._of_ready, bool)),
            view_of(np.array(self._of_open, bool)),
            view_of(np.ascontiguousarray(closed)),
            of_class,
            of_node,
            view_of(np.zeros(len(self.problem.snapshot.classes), np.int64)),
        )


def _lower_lists(lists: Sequence[Sequence[tuple[int, int]]]) -> core.LimitLists:
    start = np.cumsum([0, *map(len, lists)])
    pairs = np.array([pair for of in lists for pair in of], np.int64).reshape(-1, 2)
    limit, amount = map(np.ascontiguousarray, pairs.T)
    return core.LimitLists(view_of(start), view_of(limit), view_of(amount))


class BudgetLimits:
    """One set of budgets in a table: the policy's, or that of one strategy."""

    def __init__(
        self, table: LimitTable, budgets: Budgets, settings: Settings, strategy: int
    ) -> None:
        """``strategy``: the number of the one whose moves they are about; 0: all."""
        self._table, self._budgets, self._strategy = table, budgets, strategy
        self._settings = settings
        self._problem, self._snapshot = table.problem, table.problem.snapshot
        movable = self._problem.unprotected if settings.movable is None else settings.movable
        self.per_run, self.in_flight = budgets.per_run_of(movable), budgets.in_flight_of(movable)
        self._hour_left = max(0, budgets.per_hour_of(movable) - settings.moved_last_hour)
        self._lifted = settings.lifted
        self.run = -1
        """The limit per run and hour; -1: they are lifted."""
        self.of_namespace: dict[str, int] = {}
        """Namespace -> its limit in a run."""
        self.of_in_flight: dict[str, int] = {}
        """Namespace -> the limit of all moves in flight, for the moves of its pods."""
        self.of_node = list[int]()
        """The limit of each node in a run; empty: nodes have none."""
        self.of_owner = list[int]()
        """The limit of each owner in flight."""
        self._waves_of_nodes = list[Sequence[int]]()

    def limit_run(self) -> None:
        """Add the limits on all moves of a run."""
        table, budgets = self._table, self._budgets
        if not self._lifted:
            words = f"perRun {self.per_run:,}"
            if self._hour_left < self.per_run:
                words = f"perHour: {self._hour_left:,} were left of it"
            self.run = self._add(min(self.per_run, self._hour_left), words, of_run=True)
            table.put_under(table.of_class, [self.run] * len(table.of_class))
        if budgets.per_namespace is not None or self._settings.of_namespace:
            for namespace, number in _count_unprotected(self._problem).items():
                most = self._settings.per_namespace_of(budgets, namespace, number)
                if most is not None:
                    words = f"perNamespace {most} in {namespace}"
                    self.of_namespace[namespace] = self._add(most, words, of_run=True)
            self._put_classes(self.of_namespace)

    def limit_waves(self, serving: Sequence[int]) -> None:
        """Add the limits on moves in flight, and those of nodes; ``serving``: the pods of each owner that serve."""
        table, snapshot, budgets = self._table, self._snapshot, self._budgets
        counter = IN_FLIGHT if self._strategy == 0 else table.open_counter()
        for namespace in dict.fromkeys(cls.namespace for cls in snapshot.classes):
            words = f"inFlight {self.in_flight}"
            self.of_in_flight[namespace] = table.add(self.in_flight, words, counter, self._strategy)
        self._put_classes(self.of_in_flight)
        pods_on = np.bincount(
            snapshot.pods.node[snapshot.pods.node >= 0], minlength=len(snapshot.nodes)
        )
        # Shares are exact fractions, and few sizes are asked for again and again.
        most_of, words_of = cache(budgets.per_node_of), cache("perNode {}".format)
        of_node = [self._add(most := most_of(pods), words_of(most)) for pods in pods_on.tolist()]
        self._put_nodes(of_node)
        self._limit_owners(serving)
        if budgets.per_node_in_run is not None:
            for pods, name in zip(pods_on.tolist(), snapshot.nodes.names, strict=True):
                most = budgets.per_node_in_run.of(pods)
                self.of_node.append(
                    self._add(most, f"perNodeInRun {most} from {name}", of_run=True)
                )
            table.put_under(table.of_node, self.of_node)
        if budgets.per_zone is not None:
            self._limit_zones(budgets.per_zone, pods_on)

    def _limit_owners(self, serving: Sequence[int]) -> None:
        most_of = cache(partial(self._settings.per_owner_of, self._budgets))
        words_of = cache("perOwner {}".format)
        shared = self._strategy == 0
        for owner, pods in enumerate(serving):
            most = most_of(self._snapshot.owners[owner].namespace, pods)
            counter = 1 + owner if shared else self._table.open_counter()
            self.of_owner.append(self._table.add(most, words_of(most), counter, self._strategy))
        owners = (cls.owner for cls in self._snapshot.classes)
        of_class = [self.of_owner[owner] if owner >= 0 else -1 for owner in owners]
        self._table.put_under(self._table.of_class, of_class)

    def _limit_zones(self, per_zone: Limit, pods_on: Ints) -> None:
        zone_of, zones = self._snapshot.nodes.labels.zones()
        of_zone = list[int]()
        for zone, name in enumerate(zones):
            most = per_zone.of(int(pods_on[zone_of == zone].sum()))
            of_zone.append(self._add(most, f"perZone {most} from {name}"))
        of_node = [of_zone[zone] if zone >= 0 else -1 for zone in zone_of.tolist()]
        self._put_nodes(of_node)

    def _put_nodes(self, of_node: Sequence[int]) -> None:
        self._table.put_under(self._table.of_node, of_node)
        self._waves_of_nodes.append(of_node)

    def waves_of(self, node: int) -> list[int]:
        """Return the limits in flight of a node, and of its zone."""
        return [limit for of_node in self._waves_of_nodes if (limit := of_node[node]) >= 0]

    def _add(self, most: int, words: str, *, of_run: bool = False) -> int:
        counter = self._table.open_counter(of_run=of_run)
        return self._table.add(most, words, counter, self._strategy)

    def _put_classes(self, of_namespace: Mapping[str, int]) -> None:
        of_class = [of_namespace.get(cls.namespace, -1) for cls in self._snapshot.classes]
        self._table.put_under(self._table.of_class, of_class)


def limit_disruptions(table: LimitTable) -> None:
    """Add the numbers of disruptions that PodDisruptionBudgets allow at once, also outside of closed zones."""
    disruptions, limits = table.problem.disruptions, list[list[int]]()
    for index, budget in enumerate(table.problem.snapshot.budgets):
        words, spares = f"PodDisruptionBudget {budget.ref} allows", budget.spares_unready
        at_once = f"{words} {budget.allowed} at once"
        counter = table.open_counter()
        limits.append([table.add(budget.allowed, at_once, counter, of_ready=spares)])
        if disruptions.idle(index):
            serving = disruptions.allowed(index)
            zones = " and ".join(disruptions.closed_zones)
            outside = f"{words} {serving} at once outside of closed zone {zones}"
            counter = table.open_counter()
            limit = table.add(serving, outside, counter, of_ready=spares, of_open=True)
            limits[-1].append(limit)
    for cls, of in enumerate(table.of_class):
        of += [(limit, 1) for index in disruptions.of(cls) for limit in limits[index]]


def limit_quotas(table: LimitTable) -> None:
    """Add the room in ResourceQuotas for replacements that come beside their victims."""
    snapshot = table.problem.snapshot
    if not snapshot.quotas:
        return
    quotas, counters = QuotaClaims(snapshot), dict[object, int]()
    for cls, of in enumerate(table.of_class):
        for claim in () if snapshot.waits(cls) else quotas.claims(cls):
            key = claim.quota.namespace, claim.quota.name, claim.name
            if key not in counters:
                counters[key] = table.open_counter()
            limit = table.add(claim.most, claim, counters[key])
            of.append((limit, min(claim.need, _MAX_COUNT)))


def _count_unprotected(problem: Problem) -> dict[str, int]:
    """Return namespace -> number of its movable pods, of finished pods' namespaces, too."""
    snapshot, counts = problem.snapshot, Counter[str]()
    of_class = np.bincount(
        snapshot.pods.cls[problem.is_unprotected], minlength=len(snapshot.classes)
    )
    for cls, count in zip(snapshot.classes, of_class.tolist(), strict=True):
        counts[cls.namespace] += count
    for cls in snapshot.finished.classes if snapshot.finished is not None else ():
        counts[cls.namespace] += 0
    return counts
