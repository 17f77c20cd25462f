"""The marks of one run: they stand while an eviction needs them, and none outlasts the run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from rebalancer.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.marks import remove_marks, set_mark
from rebalancer.stop import Stop
from rebalancer.wire.marks import STEER, Mark, parse_mark

LASTS = 60.0
"""Seconds until a mark expires: an eviction may be tried for 20, and its replacement is awaited for 40."""
_RENEWED = 40.0
"""A mark that is needed again, and has less left than so many seconds, is renewed."""
SEEN = 0.25
"""Seconds for the scheduler to have seen a change. On one busy API server it needs none: of 180 pods created right after
their nodes were marked, or up to half a second later, none landed as if they were not. Others may lag behind."""

_AT_ONCE = 8
"""Nodes that are changed at once: a run has seconds to remove its marks once it must end."""


class Marks(Protocol):
    """Has the nodes marked that the next eviction needs."""

    def stand_on(self, nodes: Collection[str]) -> str | None:
        """Have exactly ``nodes`` marked, and the scheduler know it; return why they cannot be, or None.

        Raises:
            ClusterReadError: a node could not be read or written.
        """


class Marker:
    """Marks on a cluster's nodes. Not thread-safe."""

    def __init__(
        self,
        client: Client,
        *,
        run: str,
        clock: Callable[[], float],
        stop: Stop,
        seen: float = SEEN,
    ) -> None:
        """``run`` is the name of this run, or of its Lease, in marks; ``clock`` the API server's time in Unix seconds."""
        self._client, self._run, self._clock, self._stop = client, run, clock, stop
        self._seen = seen
        self._last = client.last_words
        self._standing: dict[str, float] = {}
        """Node -> when its mark expires. A mark that may or may not have been set is in it, too."""

    def stand_on(self, nodes: Collection[str]) -> str | None:
        """See Marks."""
        excess = [node for node in self._standing if node not in nodes]
        _each(self._remove, excess)
        until = self._clock() + _RENEWED
        missing = [node for node in sorted(nodes) if self._standing.get(node, 0.0) < until]
        if refused := [why for why in _each(self._set, missing) if why is not None]:
            return refused[0]
        if excess or missing:
            self._stop.wait(self._seen)
        return None

    def _set(self, node: str) -> str | None:
        mark = Mark(STEER, self._clock() + LASTS, self._run)
        self._standing[node] = mark.expires
        why = set_mark(self._client, node, mark)
        if why is not None:
            del self._standing[node]
        return why

    def _remove(self, node: str) -> str | None:
        until = self._standing[node]

        def is_ours(value: str) -> bool:
            # What expires later was set by the run that has taken our Lease, and the name with it.
            mark = parse_mark(value)
            return mark is not None and mark.run == self._run and mark.expires <= until

        # Also after the run had to end: nothing of it is to stay.
        remove_marks(self._last, node, is_ours)
        del self._standing[node]
        return None

    # -- begin and end of a run ------------------------------------------------------------------------

    def is_stale(self, value: str) -> bool:
        """Return whether a mark that stood before this run is left over: expired, of a run that had our Lease, or unreadable.

        One that names no time would stay for ever.
        """
        mark = parse_mark(value)
        return mark is None or mark.run == self._run or mark.expires <= self._clock()

    def clear_stale(self, marks: Iterable[tuple[str, str]]) -> list[str]:
        """Remove the stale marks among (node, value), of any run; return a sentence for each node where that failed."""
        left: list[str] = []
        for node in sorted({node for node, value in marks if self.is_stale(value)}):
            try:
                remove_marks(self._client, node, self.is_stale)
            except ClusterReadError as error:
                left.append(f"the stale mark on node {node} could not be removed: {error}")
        return left

    def clear(self) -> list[str]:
        """Remove every mark of this run; return a sentence for each node where that failed."""

        def cleared(node: str) -> str | None:
            try:
                self._remove(node)
            except ClusterReadError as error:
                return (
                    f"the mark on node {node} could not be removed ({error}): the next run does it once it has expired,"
                    " or rebalancer marks --clear"
                )
            return None

        return [why for why in _each(cleared, list(self._standing)) if why is not None]


def _each(act: Callable[[str], str | None], nodes: Sequence[str]) -> list[str | None]:
    """Return what ``act`` returns for each node; a few are changed at once."""
    if not nodes:
        return []
    with ThreadPoolExecutor(min(_AT_ONCE, len(nodes)), "marks") as pool:
        return list(pool.map(act, nodes))
