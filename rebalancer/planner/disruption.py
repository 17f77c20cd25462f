"""The disruptions that PodDisruptionBudgets allow in the snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from rebalancer.base.plain_text import count
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.snapshot.columns import Bools
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.zones import closed_nodes


class DisruptionBudgets:
    """The PodDisruptionBudgets of a snapshot, indexed by class. Immutable."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.closed: Bools = closed_nodes(snapshot)
        """(N,) nodes of closed zones: what the API server counts as healthy there does not serve."""
        zone_of, names = snapshot.nodes.labels.zones()
        self.closed_zones = sorted(names[zone] for zone in np.unique(zone_of[self.closed]).tolist())
        """The names of the closed zones."""
        self._of_class: dict[int, list[int]] = {}
        for index, budget in enumerate(snapshot.budgets):
            for cls in budget.classes.tolist():
                if snapshot.classes[cls].restarts:
                    # Each pod stays Ready until another is: nothing is taken from what a budget keeps.
                    continue
                self._of_class.setdefault(cls, []).append(index)
        self._idle = self._count_idle() if self.closed.any() else {}
        """Index of a budget -> the Ready pods that it counts in closed zones."""

    def _count_idle(self) -> dict[int, int]:
        pods = self._snapshot.pods
        idle = pods.cls[self.in_closed_zone() & pods.living & pods.ready]
        of_class = np.bincount(idle, minlength=len(self._snapshot.classes))
        numbers = {
            index: int(of_class[budget.classes].sum())
            for index, budget in enumerate(self._snapshot.budgets)
        }
        return {index: number for index, number in numbers.items() if number}

    def in_closed_zone(self) -> Bools:
        """Return the pods (P,) on nodes of closed zones."""
        node = self._snapshot.pods.node
        inside = np.zeros(len(node), bool)
        inside[node >= 0] = self.closed[node[node >= 0]]
        return inside

    def allowed(self, index: int, node: int = -1) -> int:
        """Return how many disruptions a budget allows of pods on ``node``; -1: of pods in an open zone.

        There no more than leaves enough pods that serve; in a closed zone what the API server allows.
        """
        budget, idle = self._snapshot.budgets[index], self.idle(index, node)
        if not idle:
            return budget.allowed
        return max(0, min(budget.allowed, budget.healthy - idle - budget.desired))

    def idle(self, index: int, node: int = -1) -> int:
        """Return how many of the healthy pods of a budget do not count for one on ``node``: those in closed zones."""
        return 0 if self.is_closed(node) else self._idle.get(index, 0)

    def is_closed(self, node: int) -> bool:
        """Return whether a node is in a closed zone."""
        return node >= 0 and bool(self.closed[node])

    def of(self, cls: int) -> list[int]:
        """Return the indices of the budgets that select a class."""
        return self._of_class.get(cls, [])

    def refs(self, pod: int) -> tuple[str, ...]:
        """Return ``namespace/name`` of the budgets that count the eviction of ``pod`` as a disruption."""
        pods = self._snapshot.pods
        spent = self.spent_by(int(pods.cls[pod]), ready=pods.is_ready(pod))
        return tuple(self._snapshot.budgets[index].ref for index in spent)

    def forbidden(self, cls: int, node: int = -1, *, ready: bool = True) -> Refusal | None:
        """Return why no pod of ``cls`` on ``node`` can be evicted now, given its readiness; None if one can.

        Without a node a pod in an open zone is meant.
        The API server refuses every eviction of a pod that two budgets select (``pods/eviction``: "does not support
        specifying more than one PodDisruptionBudget").
        """
        budgets = [self._snapshot.budgets[index] for index in self.of(cls)]
        if len(budgets) > 1:
            return Refusal.of(Why.PDB_CONFLICT, budgets=[budget.ref for budget in budgets])
        if budgets and budgets[0].allowed <= 0 and (ready or not budgets[0].spares_unready):
            only = budgets[0]
            if only.stale:
                return Refusal.of(Why.PDB_STALE, budget=only.ref, stale=only.stale)
            facts = {"budget": only.ref, "desired": only.desired}
            if only.never_allows:
                why = self._snapshot.classes[cls].cannot_surge
                restart = f"; not by a restart either: {why}" if why else ""
                return Refusal.of(Why.PDB_NEVER, expected=only.expected, restart=restart, **facts)
            return Refusal.of(Why.PDB, healthy=only.healthy, **facts)
        if budgets and ready and self.allowed(self.of(cls)[0], node) <= 0:
            only, idle = budgets[0], self.idle(self.of(cls)[0], node)
            facts = {"healthy": only.healthy, "desired": only.desired, "idle": idle}
            zones = self.closed_zones
            return Refusal.of(Why.PDB_SERVING, budget=only.ref, zones=zones, **facts)
        return None

    def at_once(self, pods: Sequence[int]) -> Refusal | None:
        """Return why not all of ``pods`` can be evicted at once; None if they can.

        Of those outside of closed zones no more than leaves enough pods that serve.
        """
        snapshot, spent, serving = self._snapshot, Counter[int](), Counter[int]()
        for pod in pods:
            cls, ready = int(snapshot.pods.cls[pod]), snapshot.pods.is_ready(pod)
            if len(self.of(cls)) > 1 and (why := self.forbidden(cls)) is not None:
                return Refusal.of(Why.OF_POD, pod=pod, why=why)
            spent.update(of := self.spent_by(cls, ready=ready))
            serving.update(of if not self.is_closed(int(snapshot.pods.node[pod])) else ())
        for index, number in sorted(spent.items()):
            budget = snapshot.budgets[index]
            if number > budget.allowed or serving[index] > self.allowed(index):
                most = max(0, budget.expected - budget.desired)
                is_never = bool(budget.expected) and most < number
                allows = f"allows {count(max(0, budget.allowed), 'disruption')} now"
                allows += f", and never more than {most}" if is_never else ""
                facts = {"budget": budget.ref, "allows": allows, "pods": number, "never": is_never}
                return Refusal.of(Why.PDB_AT_ONCE, **facts)
        return None

    def unevictable(self) -> frozenset[int]:
        """Return the classes whose pods can never be evicted: a budget never allows it, or more than one budget selects them.

        This is decided by the pods that a budget counts, not by what it allows now: during a rollout it may allow some evictions.
        """
        budgets = self._snapshot.budgets
        return frozenset(
            cls for cls, of in self._of_class.items() if len(of) > 1 or budgets[of[0]].never_allows
        )

    def unevictable_pods(self) -> Bools:
        """Return which pods (P,) are of these classes."""
        return np.isin(self._snapshot.pods.cls, list(self.unevictable()))

    def conflicts(self) -> Iterator[tuple[int, str]]:
        """Yield (class, sentence) for each class that two budgets select."""
        for cls in sorted(self._of_class):
            forbidden = self.forbidden(cls)
            if forbidden is not None and forbidden.why is Why.PDB_CONFLICT:
                yield cls, forbidden.text(self._snapshot)

    def spent_by(self, cls: int, *, ready: bool) -> list[int]:
        """Return the indices of the budgets that count the eviction of a pod of ``cls`` as a disruption."""
        budgets = self._snapshot.budgets
        return [of for of in self.of(cls) if ready or not budgets[of].spares_unready]

    def forbidden_pods(self, *, ready: bool = True) -> Bools:
        """Return which pods (P,) cannot be evicted now, treating all of them as ``ready`` or not."""
        blocked = self._forbidden_classes(-1, ready=ready)[self._snapshot.pods.cls]
        if self._idle:
            inside, node = self.in_closed_zone(), int(np.argmax(self.closed))
            of_class = self._forbidden_classes(node, ready=ready)
            blocked[inside] = of_class[self._snapshot.pods.cls[inside]]
        return blocked

    def _forbidden_classes(self, node: int, *, ready: bool) -> Bools:
        of_class = np.zeros(len(self._snapshot.classes), bool)
        forbidden = [c for c in self._of_class if self.forbidden(c, node, ready=ready) is not None]
        of_class[forbidden] = True
        return of_class
