"""Gangs that leave for what waits: which of their pods have to."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from rebalancer.planner.draft import Draft
from rebalancer.planner.gangs import going, unit_of, units_of
from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.model import GangKey


class RoomGangs:
    """The gangs that may leave as a whole for what waits."""

    def __init__(self, draft: Draft, mine: Bools) -> None:
        """``mine`` (P,): the pods that the strategy may move. Why other gangs stay is recorded in the draft."""
        self._snapshot = draft.snapshot
        self._units = units_of(draft, mine)

    @property
    def pods(self) -> list[int]:
        """The pods of these gangs."""
        return list(self._units)

    def unit_of(self, pod: int) -> str:
        """Return the name of the gang of ``pod``; empty for a pod that leaves by itself."""
        return unit_of(self._gang(pod)) if pod in self._units else ""

    def are_whole(self, pods: Int32s) -> Bools:
        """Return which of ``pods`` (K,) may still leave: those of a gang only if all of it are among them."""
        here = frozenset(pods.tolist())
        broken = {pod for pod, unit in self._units.items() if not here.issuperset(unit.tolist())}
        return np.array([pod not in broken for pod in pods.tolist()], bool)

    def others(self, victims: Sequence[int], gone: Collection[int], limit: int) -> list[int] | None:
        """Return the pods that have to leave with ``victims``, where those ``gone`` have left already.

        None if one of them has a higher priority than ``limit``.
        """
        others: list[int] = []
        if not (gangs := {self._gang(pod) for pod in victims if pod in self._units}):
            return others
        for gang in sorted(gangs):
            members = self._snapshot.gangs[gang].tolist()
            named = [pod for pod in members if pod in gone or pod in victims]
            others += going(self._snapshot, gang, named)[len(named) :]
        classes = self._snapshot.pods.cls[others].tolist()
        too_high = any(self._snapshot.classes[cls].priority > limit for cls in classes)
        return None if too_high else others

    def _gang(self, pod: int) -> GangKey:
        of = self._snapshot.classes[int(self._snapshot.pods.cls[pod])]
        return of.namespace, of.gang
