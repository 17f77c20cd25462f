"""The queue of candidates: what promises most per eviction cost comes first, as far as is known."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from rebalancer.planner.candidates import CandidateList, Key, Ranked
from rebalancer.planner.promises import Pair
from rebalancer.planner.verdict import TOLERANCE

# A promise is looked at before what is known only if it is larger by more than this share of it.
_CLEARLY = 0.05


class Queue:
    """Entries of one wave. What promises less when its turn comes goes back to its place."""

    def __init__(self, candidates: CandidateList, is_spared: Callable[[Pair], bool]) -> None:
        """``is_spared`` returns whether a pair need not be looked at, asked when its turn comes."""
        self._candidates, self._is_spared = candidates, is_spared
        self._heap = candidates.entries()
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        """Return how many entries are left."""
        return len(self._heap)

    def pairs(self) -> list[Pair]:
        """Return the pairs that are left, in no order."""
        return [pair for _, pair in self._heap]

    def push(self, pairs: Iterable[Pair]) -> None:
        """Queue pairs by what they promise now."""
        for pair in pairs:
            if (entry := self._candidates.entry(pair)) is not None:
                heapq.heappush(self._heap, entry)

    def push_back(self, key: Key, pair: Pair) -> None:
        """Queue a pair by the gain that a closer look has shown."""
        heapq.heappush(self._heap, (key, pair))

    def goes_before(self, key: Key) -> bool:
        """Return whether what comes next promises clearly more than ``key``."""
        return bool(self._heap) and _is_behind(key, self._heap[0][0])

    def pop(self) -> Ranked | None:
        """Return the best entry that still stands, None when nothing is left."""
        while self._heap:
            key, pair = heapq.heappop(self._heap)
            if (named := self._candidates.refresh_stale(pair)) is not None:
                self.push(named)
                continue
            if self._is_spared(pair):
                continue
            renewed = self._candidates.renew(pair)
            current = self._candidates.entry(pair)
            if current is not None and current[0] == key:
                return current
            if current is not None and (renewed or current[0] > key):
                # It promises less than when it was queued; what promises more was queued again by the
                # move that made it so, unless that was seen just now.
                heapq.heappush(self._heap, current)
        return None


def _is_behind(key: Key, other: Key) -> bool:
    """Return whether ``other`` promises more than ``key``.

    Imbalance is compared only where nothing else is at stake: its promises are optimistic by nature, and
    judging every candidate again for a thousandth of a squared share would cost most of a plan's time.
    """
    for mine, theirs in zip(key[:2], other[:2], strict=True):
        if abs(mine - theirs) > TOLERANCE:
            return mine - theirs > _CLEARLY * abs(mine)
    return not any(key[:2]) and key[2] * (1 + _CLEARLY) > other[2]
