"""The marks of one run: steering marks exist while an eviction needs them, and are removed before the run ends.

Nodes that consolidation empties, or would empty but for pods that pin them, are marked from run to run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.stop import Stop
from rebalancer.kube.client import LAST_WORDS, Client
from rebalancer.node_record.marks import remove_marks, set_mark
from rebalancer.wire.marks import STEER, Mark, parse_mark

LASTS = 60.0
"""Seconds until a mark expires: an eviction may be tried for 20, and its replacement is awaited for 40."""
_RENEWED = 40.0
"""A mark that is needed again, and has less left than so many seconds, is renewed."""
SEEN = 0.25
"""Seconds after which the scheduler has seen a change of a node. On one busy API server it needed no time: 180 pods were
created up to half a second after the marks, and all landed by them. Other API servers may be slower."""

_AT_ONCE = 8
"""Nodes that are changed at once: a run has seconds to remove its marks once it must end."""


class Marks(Protocol):
    """Marks the nodes that the next eviction needs."""

    def stand_on(self, nodes: Collection[str]) -> str | None:
        """Mark exactly ``nodes``, and wait until the scheduler knows; return None, or why that failed.

        Raises:
            ClusterReadError: a node could not be read or written.
        """


class Marker:
    """Sets and removes marks on a cluster's nodes. Not thread-safe."""

    def __init__(
        self,
        client: Client,
        *,
        run: str,
        clock: Callable[[], float],
        stop: Stop,
        seen: float = SEEN,
    ) -> None:
        """``run``: the name of this run, or of its Lease, in marks; ``clock``: the API server's time, Unix seconds."""
        self._client, self._run, self._clock, self._stop = client, run, clock, stop
        self._seen = seen
        # What was done is remembered, and the Lease given back, after that: the other half is left for it.
        self._last = client.beside(client.stop.later(LAST_WORDS / 2))
        self._standing: dict[str, float] = {}
        """Node -> when its mark expires. A mark that may or may not have been set is in it, too."""
        self._sure: set[str] = set()
        """The nodes whose mark was set for certain, and not yet removed."""

    def stand_on(self, nodes: Collection[str]) -> str | None:
        """Mark exactly ``nodes``, see :meth:`Marks.stand_on`."""
        excess = [node for node in self._standing if node not in nodes]
        _each(self._remove, excess)
        until = self._clock() + _RENEWED
        missing = [
            node
            for node in sorted(nodes)
            if node not in self._sure or self._standing.get(node, 0.0) < until
        ]
        if refused := [why for why in _each(self._set, missing) if why is not None]:
            return refused[0]
        if excess or missing:
            self._stop.wait(self._seen)
        return None

    def _set(self, node: str) -> str | None:
        mark = Mark(STEER, self._clock() + LASTS, self._run)
        self._standing[node] = mark.expires
        self._sure.discard(node)
        why = set_mark(self._client, node, mark)
        if why is not None:
            del self._standing[node]
        else:
            self._sure.add(node)
        return why

    def _remove(self, node: str) -> str | None:
        until = self._standing[node]
        self._sure.discard(node)

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
        """Return whether a mark from before this run is left over.

        It has expired, or was a steering mark of a run with our Lease. A mark without a time would never expire, so
        it is stale.
        """
        mark = parse_mark(value)
        if mark is None or mark.expires <= self._clock():
            return True
        # Those of consolidation outlast their run: the next one needs them.
        return mark.run == self._run and mark.reason == STEER

    def clear_stale(self, marks: Iterable[tuple[str, str]]) -> list[str]:
        """Remove the stale marks among (node, value), of any run; return a sentence for each failure."""
        left: list[str] = []
        for node in sorted({node for node, value in marks if self.is_stale(value)}):
            try:
                remove_marks(self._client, node, self.is_stale)
            except ClusterReadError as error:
                left.append(f"the stale mark on node {node} could not be removed: {error}")
        return left

    def keep_marked(
        self,
        reason: str,
        nodes: Collection[str],
        lasts: float,
        marks: Iterable[tuple[str, str]],
        name: str,
    ) -> bool:
        """Mark exactly ``nodes`` for ``reason`` (EMPTY or PINS), for ``lasts`` seconds; return whether a node was changed.

        These marks outlast the run.

        ``marks``: the existing marks as (node, value); our own contain ``name`` instead of the run. Marks of others
        are not changed, nor are marks with more than half of their time left. A node has one of the two.

        Raises:
            ClusterReadError: a node could not be read or written.
        """
        now = self._clock()
        wanted = Mark(reason, now + lasts, name)
        standing = {node: mark for node, value in marks if (mark := _of(value, reason)) is not None}
        live = {node: mark for node, mark in standing.items() if mark.expires > now}

        def is_ours(value: str) -> bool:
            mark = _of(value, reason)
            return mark is not None and mark.run == name

        def keep(node: str) -> str | None:
            return set_mark(self._client, node, wanted)

        def remove(node: str) -> str | None:
            remove_marks(self._client, node, is_ours)
            return None

        excess = sorted(n for n, mark in live.items() if mark.run == name and n not in nodes)
        half = now + lasts / 2
        fine = {n for n, mark in live.items() if mark.run != name or mark.expires >= half}
        _each(remove, excess)
        # What cannot be marked is gone, or marked by another run since: it stays empty either way.
        refused = _each(keep, missing := sorted(set(nodes) - fine))
        if excess or missing:
            self._stop.wait(self._seen)
        return bool(excess) or None in refused

    def clear(self) -> list[str]:
        """Remove every mark of this run; return a sentence for each failure."""

        def clear_one(node: str) -> str | None:
            try:
                self._remove(node)
            except ClusterReadError as error:
                return (
                    f"the mark on node {node} could not be removed ({error}): the next run does it once it has expired,"
                    " or rebalancer marks --clear"
                )
            return None

        return [why for why in _each(clear_one, list(self._standing)) if why is not None]


def _of(value: str, reason: str) -> Mark | None:
    mark = parse_mark(value)
    return mark if mark is not None and mark.reason == reason else None


def _each(act: Callable[[str], str | None], nodes: Sequence[str]) -> list[str | None]:
    """Return the results of ``act`` for each node; a few nodes are changed concurrently."""
    if not nodes:
        return []
    with ThreadPoolExecutor(min(_AT_ONCE, len(nodes)), "marks") as pool:
        return list(pool.map(act, nodes))
