"""Streaks: in how many consecutive runs a strategy has measured a condition on a node.

Some strategies act only after several runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Streaks:
    """The nodes on which a strategy has measured a condition (over-use, say), with the number of consecutive runs."""

    at: float = 0.0
    """Unix seconds: later measurements count as another run, this one counts no more, those before it say nothing."""
    runs: Mapping[str, int] = field(default_factory=dict)
    """Node -> runs in a row, up to the last one."""

    def after(self, nodes: Iterable[str], at: float, most: int) -> Streaks:
        """Return the streaks after a run that measured the condition on ``nodes`` at ``at`` (Unix seconds).

        All other nodes are dropped; no count exceeds ``most``. A second run with the same measurement does not count
        again; a measurement from before the last moves is ignored.
        """
        if at < self.at:
            return self
        more = int(at > self.at)
        return Streaks(
            at, {name: min(most, max(1, self.runs.get(name, 0) + more)) for name in nodes}
        )

    def joined(self, other: Streaks) -> Streaks:
        """Return the combined streaks of two terms of one strategy."""
        names = sorted({*self.runs, *other.runs})
        runs = {name: max(self.runs.get(name, 0), other.runs.get(name, 0)) for name in names}
        return Streaks(max(self.at, other.at), runs)
