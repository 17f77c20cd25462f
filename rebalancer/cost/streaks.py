"""Streaks: in how many runs a strategy has measured a condition on a node, in a row or among the last ones.

Some strategies act only after several runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Streaks:
    """The nodes on which a strategy has measured a condition (over-use, say), with the number of consecutive runs."""

    MAX_WINDOW: ClassVar = 20
    """The largest number of past runs that a strategy may require."""

    at: float = 0.0
    """Unix seconds of the last counted measurement: only later measurements count as another run."""
    runs: Mapping[str, int] = field(default_factory=dict)
    """Node -> runs in a row, up to the last one."""
    recent: Mapping[str, int] = field(default_factory=dict)
    """Node -> the last runs as bits, the newest lowest; only nodes for which ``runs`` does not suffice."""

    def after(self, nodes: Iterable[str], at: float, most: int, window: int = 0) -> Streaks:
        """Return the streaks after a run that measured the condition on ``nodes`` at ``at`` (Unix seconds).

        ``runs`` has these nodes only, and no count above ``most``; the last ``window`` runs of all nodes are kept. A
        second run with the same measurement does not count again; a measurement from before the last moves is ignored.
        """
        if at < self.at:
            return self
        more = int(at > self.at)
        now = sorted(set(nodes))
        runs = {name: min(most, max(1, self.runs.get(name, 0) + more)) for name in now}
        last = (1 << window) - 1
        bits = {
            name: (self._bits(name) << more | (name in runs)) & last
            for name in sorted({*now, *self.runs, *self.recent})
        }
        in_a_row = Streaks(at, runs)
        return Streaks(
            at, runs, {name: of for name, of in bits.items() if of != in_a_row._bits(name) & last}
        )

    def among_last(self, name: str, window: int) -> int:
        """Return in how many of the last ``window`` runs the condition held on a node."""
        return (self._bits(name) & (1 << window) - 1).bit_count()

    def _bits(self, name: str) -> int:
        return self.recent.get(name, (1 << min(self.MAX_WINDOW, self.runs.get(name, 0))) - 1)

    def joined(self, other: Streaks) -> Streaks:
        """Return the combined streaks of two terms of one strategy."""
        names = sorted({*self.runs, *other.runs})
        runs = {name: max(self.runs.get(name, 0), other.runs.get(name, 0)) for name in names}
        both = sorted({*self.recent, *other.recent})
        recent = {name: self._bits(name) | other._bits(name) for name in both}
        return Streaks(max(self.at, other.at), runs, recent)
