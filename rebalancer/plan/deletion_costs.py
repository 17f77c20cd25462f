"""Deletion costs as data: which pods of ReplicaSets are to be deleted first when these are scaled in, and what was written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from rebalancer.base.durations import format_duration
from rebalancer.base.plain_text import and_more, count


@dataclass(frozen=True, slots=True)
class CostChange:
    """One pod whose deletion cost is set, or taken back."""

    namespace: str
    pod: str
    uid: str
    workload: str
    """Kind/namespace/name of its owner."""
    node: str
    value: int | None
    """The cost to write; None: our annotation is removed."""
    why: str
    outcome: str = ""
    """The result: empty while it is only planned, ``written``, or why it was not."""

    @property
    def ref(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.pod}"


WRITTEN = "written"
"""The outcome of a change that was made."""
GONE = "gone"
"""The outcome of a change of a pod that is gone, or another one now: nothing is wrong."""


@dataclass(frozen=True, slots=True)
class RepairedByScaleIn:
    """A workload whose unmet rule the next scale-in repairs."""

    workload: str
    moves: int
    """Moves that its rules need now."""
    pods: int
    """Number of pods to be deleted before the rules are met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionCosts:
    """The changes of one run in the order in which pods are deleted."""

    strategy: str
    """The strategy's name in the policy."""
    changes: tuple[CostChange, ...]
    waiting: int = 0
    """Changes that are left to further runs."""
    repaired: tuple[RepairedByScaleIn, ...] = ()
    within: timedelta | None = None
    """The longest time for which the policy lets moves wait for a scale-in (``protect.afterScaling``)."""
    held: str = ""
    """Why nothing is written; empty if it is, or would be in a real run."""

    @property
    def failed(self) -> tuple[CostChange, ...]:
        """The changes that could not be made, although the pods are there."""
        return tuple(one for one in self.changes if one.outcome not in ("", WRITTEN, GONE))

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of a report about it."""
        return tuple(line for line in (self._changes, self._fewer) if line)

    @property
    def _changes(self) -> str:
        if not self.changes:
            return ""
        put = [one for one in self.changes if one.value is not None]
        parts = [
            f"{count(len(put), 'pod')} of {count(len({one.workload for one in put}), 'workload')}"
            if put
            else "",
            f"taken back from {count(len(self.changes) - len(put), 'pod')}"
            if len(put) < len(self.changes)
            else "",
        ]
        verb = "written to" if any(one.outcome for one in self.changes) else "to be written to"
        text = "; ".join(part for part in parts if part)
        text = f"{self.strategy}: {verb if put else 'annotations'} {text}"
        text += f"; {self.waiting:,} more in further runs" if self.waiting else ""
        if self.failed:
            text += f"; {len(self.failed):,} failed: {self.failed[0].ref}: {self.failed[0].outcome}"
        return f"{text}{f'; not now: {self.held}' if self.held else ''}."

    @property
    def _fewer(self) -> str:
        if not self.repaired:
            return ""
        moves = sum(one.moves for one in self.repaired)
        names = and_more([f"{one.workload} by {count(one.pods, 'pod')}" for one in self.repaired])
        when = (
            "comes first (protect.afterScaling lets moves wait for it)"
            if self.within is None
            else f"comes within {format_duration(self.within)}"
        )
        return (
            f"{self.strategy}: {count(moves, 'move')} fewer if the next scale-in {when}: {names}."
        )
