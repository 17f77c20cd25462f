"""The disruptions that PodDisruptionBudgets allow in the snapshot."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rebalancer.planner.refusal import Refusal, Why
from rebalancer.snapshot.columns import Bools
from rebalancer.snapshot.model import Snapshot


class DisruptionBudgets:
    """The PodDisruptionBudgets of a snapshot, indexed by class. Immutable."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._of_class: dict[int, list[int]] = {}
        for index, budget in enumerate(snapshot.budgets):
            for cls in budget.classes.tolist():
                if snapshot.classes[cls].restarts:
                    # Each pod stays Ready until another is: nothing is taken from what a budget keeps.
                    continue
                self._of_class.setdefault(cls, []).append(index)

    def of(self, cls: int) -> list[int]:
        """Return the indices of the budgets that select a class."""
        return self._of_class.get(cls, [])

    def refs(self, pod: int) -> tuple[str, ...]:
        """Return ``namespace/name`` of the budgets that count the eviction of ``pod`` as a disruption."""
        pods = self._snapshot.pods
        spent = self.spent_by(int(pods.cls[pod]), ready=pods.is_ready(pod))
        return tuple(self._snapshot.budgets[index].ref for index in spent)

    def forbidden(self, cls: int, *, ready: bool = True) -> Refusal | None:
        """Return why no pod of ``cls`` can be evicted now, given its readiness; None if one can.

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
        return None

    def unevictable(self) -> frozenset[int]:
        """Return the classes whose pods no eviction ever takes: a budget never allows one, or more than one select them.

        A budget counts as such by the pods that it counts, not by what it allows: during a rollout it may allow some.
        """
        budgets = self._snapshot.budgets
        return frozenset(
            cls for cls, of in self._of_class.items() if len(of) > 1 or budgets[of[0]].never_allows
        )

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
        of_class = np.zeros(len(self._snapshot.classes), bool)
        forbidden = [c for c in self._of_class if self.forbidden(c, ready=ready) is not None]
        of_class[forbidden] = True
        blocked: Bools = of_class[self._snapshot.pods.cls]
        return blocked
