"""What must be seen in several runs in a row before a strategy acts on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Signals:
    """On which nodes one strategy has seen what must last, and for how many runs in a row."""

    at: float = 0.0
    """Unix seconds: later measurements count as another run, this one counts no more, those before it say nothing."""
    runs: Mapping[str, int] = field(default_factory=dict)
    """Node -> runs in a row, up to the last one."""

    def after(self, nodes: Iterable[str], at: float, most: int) -> Signals:
        """Return the signals after a run that has seen it on ``nodes``, as measured ``at`` (Unix seconds).

        It is forgotten of all other nodes, and counted up to ``most``. The same measurement seen by a second
        run is still one; what was measured before the last moves were made counts for nothing.
        """
        if at < self.at:
            return self
        more = int(at > self.at)
        return Signals(
            at, {name: min(most, max(1, self.runs.get(name, 0) + more)) for name in nodes}
        )

    def joined(self, other: Signals) -> Signals:
        """Return the signals of two terms of one strategy as one."""
        names = sorted({*self.runs, *other.runs})
        runs = {name: max(self.runs.get(name, 0), other.runs.get(name, 0)) for name in names}
        return Signals(max(self.at, other.at), runs)
