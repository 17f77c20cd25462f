"""The cluster's clock: it stands still until it is set, or it runs with another clock."""

from __future__ import annotations

from collections.abc import Callable


class EmbeddedClock:
    """Unix seconds of the cluster.

    Without a ``source``, time stands still until :meth:`set`. With one (``time.time``), it runs at the
    source's pace from ``start``: a cluster can begin an hour in the past and catch up.
    """

    def __init__(self, start: float, source: Callable[[], float] | None = None) -> None:
        self._source = source
        self._base = start - (source() if source else 0.0)

    @property
    def runs(self) -> bool:
        """Whether time passes without :meth:`set`."""
        return self._source is not None

    def now(self) -> float:
        """Return the cluster's time."""
        return self._base + (self._source() if self._source else 0.0)

    def set(self, to: float) -> None:
        """Advance the time to ``to``; it never goes back."""
        self._base += max(0.0, to - self.now())

    def lag(self) -> float:
        """Return by how many seconds the cluster is behind its source, 0 without one."""
        return -self._base if self._source else 0.0
