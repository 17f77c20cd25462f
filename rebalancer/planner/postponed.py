"""Candidates that wait for a later look: because they were refused before, or because they are a gamble."""

from __future__ import annotations

from collections.abc import Iterable

from rebalancer.planner.promises import Pair, Promise
from rebalancer.planner.verdict import GAMBLE, Verdict, is_gamble

# So many pairs that were refused before are looked at again in one wave.
_AGAIN = 300


class Postponed:
    """Which candidates a wave leaves out."""

    def __init__(self) -> None:
        self._refused: set[Pair] = set()
        self._short: set[Pair] = set()
        """Of the refused: pairs passed over since they would break a rule where they land."""
        self._freed: set[Pair] = set()
        self.begin()

    def begin(self) -> None:
        """Begin a wave."""
        self._again = self._spared = self._passed_over = 0
        self._retried: set[Pair] = set()
        """Pairs that a move of this wave concerns: these are looked at again."""

    def retry(self, pairs: Iterable[Pair]) -> None:
        """Look at pairs again in this wave, refused or not."""
        self._retried.update(pairs)

    def is_retried(self, pair: Pair) -> bool:
        """Return whether a move of this wave concerns a pair."""
        return pair in self._retried

    def refuse(self, pair: Pair) -> None:
        """Note that a closer look at a pair ended in a refusal."""
        self._refused.add(pair)

    def was_refused(self, pair: Pair) -> bool:
        """Return whether a closer look at a pair has ended in a refusal."""
        return pair in self._refused

    def is_spared(self, pair: Pair) -> bool:
        """Return whether a pair that was refused before need not be looked at in this wave.

        The most promising are, in every wave; all of them, thousands perhaps, only once nothing else is left.
        """
        if pair in self._retried or pair not in self._refused:
            return False
        self._again += 1
        if self._again <= _AGAIN:
            return False
        self._spared += 1
        return True

    def is_surely_spared(self, pair: Pair) -> bool:
        """Return whether :meth:`is_spared` is true whatever comes before the pair in the queue.

        Then what it promises need not be asked again.
        """
        return self._again >= _AGAIN and self.is_spared(pair)

    def free(self, pairs: Iterable[Pair]) -> None:
        """Let these pairs, for which pods of the wave before went first, go in the wave that follows, a gamble or not.

        Another move might take the room that was freed for them.
        """
        self._freed = set(pairs)

    def is_freed(self, pair: Pair) -> bool:
        """Return whether pods went first for a pair."""
        return pair in self._freed

    def passes_over(self, pair: Pair, promise: Promise | None, verdict: Verdict) -> bool:
        """Return whether a move waits until no other is left: it is a gamble, or falls short of its promise."""
        if pair in self._freed:
            return False
        if promise is not None and falls_short(promise, verdict):
            self._short.add(pair)
            self._refused.add(pair)
        elif not is_gamble(verdict):
            return False
        self._passed_over += 1
        return True

    def admit_spared(self) -> bool:
        """Let refused pairs be looked at again; return False if none was left out for that reason."""
        if not self._spared:
            return False
        self._refused.clear()
        return True

    def admit_passed_over(self) -> bool:
        """Let gambles go; return False if none was left out for that reason."""
        if not self._passed_over:
            return False
        self._refused -= self._short
        return True


def falls_short(promise: Promise, verdict: Verdict) -> bool:
    """Return whether the pod would break a rule where it lands as it fixes another where it was.

    It, or another of its class, would have to be moved again. Once others have moved, it may land better.
    """
    return any(
        most - mean > GAMBLE
        for most, mean in zip(promise.promised[:2], verdict.gain[:2], strict=True)
    )
