"""How many runs in a row a strategy has measured the same on a node: some act only after several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Streaks:
    """The nodes on which one strategy has measured something (over-use, say), and in how many runs in a row."""

    at: float = 0.0
    """Unix seconds: later measurements count as another run, this one counts no more, those before it say nothing."""
    runs: Mapping[str, int] = field(default_factory=dict)
    """Node -> runs in a row, up to the last one."""

    def after(self, nodes: Iterable[str], at: float, most: int) -> Streaks:
        """Return the streaks after a run that has seen it on ``nodes``, as measured ``at`` (Unix seconds).

        All other nodes are dropped; no count exceeds ``most``. A second run with the same measurement does not
        count again; a measurement from before the last moves is ignored.
        """
        if at < self.at:
            return self
        more = int(at > self.at)
        return Streaks(
            at, {name: min(most, max(1, self.runs.get(name, 0) + more)) for name in nodes}
        )

    def joined(self, other: Streaks) -> Streaks:
        """Return the streaks of two terms of one strategy as one."""
        names = sorted({*self.runs, *other.runs})
        runs = {name: max(self.runs.get(name, 0), other.runs.get(name, 0)) for name in names}
        return Streaks(max(self.at, other.at), runs)
