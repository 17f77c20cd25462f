"""Candidates that wait for a later look: because they were refused before, or because they are a gamble.

A closer look is the costliest part of a plan. What it has come to holds until something that it rests on has
changed: a move concerns the rules of the class, or pods have left or come to the node that the pod stands on,
or to nodes where so much of its landings was that the answer may be another one now.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rebalancer.planner.promises import Pair, Promise
from rebalancer.planner.verdict import GAMBLE, Verdict, is_gamble
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.state import ClusterState

# Share of the landings on nodes that have changed from which on a refusal is doubted.
_DOUBTFUL = 0.25
# Pairs of a class come in the order of what they promise, and their landings are much alike: after so many refusals in
# a row the others wait until a move concerns the class.
_IN_A_ROW = 4
# So many refused pairs, the most promising, are looked at again though nothing has changed, once nothing else is left.
_AGAIN = 300


@dataclass(frozen=True, slots=True)
class _Look:
    """What a closer look at a pair has rested on."""

    since: int
    """The newest change of any node at that time."""
    prediction: Prediction | None
    """None: nothing was predicted."""


class Postponed:
    """Which candidates a wave leaves out."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._refused: dict[Pair, _Look] = {}
        self._refused_with_marks: dict[Pair, _Look] = {}
        self._gambles: dict[Pair, _Look] = {}
        """Pairs that wait until few others are left."""
        self._freed: set[Pair] = set()
        self._in_a_row: dict[int, int] = {}
        """Class -> pairs of it that were refused, or passed over, since a move has last concerned it."""
        self._again = 0
        self._retried: set[Pair] = set()
        """Pairs that a move of this wave concerns: these are looked at again."""

    def begin(self) -> None:
        """Begin a wave."""
        self._retried.clear()

    def begin_rung(self, *, again: bool) -> None:
        """Begin a rung within a wave; ``again``: the most promising pairs are looked at, changed or not."""
        self._again = _AGAIN if again else 0
        self._in_a_row.clear()

    def retry(self, pairs: Iterable[Pair]) -> None:
        """Look at pairs again, refused or not: a move concerns their rules."""
        for pair in pairs:
            self._retried.add(pair)
            self._in_a_row.pop(pair[0], None)
            for looks in (self._refused, self._refused_with_marks, self._gambles):
                looks.pop(pair, None)

    def is_retried(self, pair: Pair) -> bool:
        """Return whether a move of this wave concerns a pair."""
        return pair in self._retried

    def refuse(self, pair: Pair, prediction: Prediction | None, *, steered: bool = False) -> None:
        """Note that a closer look at a pair ended in a refusal; ``steered``: even with marks."""
        self._gambles.pop(pair, None)
        self._in_a_row[pair[0]] = self._in_a_row.get(pair[0], 0) + 1
        looks = self._refused_with_marks if steered else self._refused
        looks[pair] = _Look(self._state.newest_node_change, prediction)

    def was_refused(self, pair: Pair) -> bool:
        """Return whether the newest look at a pair has ended in a refusal."""
        return pair in self._refused

    def is_spared(
        self, pair: Pair, *, only_certain: bool, steered: bool = False, hard: bool = False
    ) -> bool:
        """Return whether another look at a pair would come to what the newest one has come to.

        ``hard``: a hard rule is at stake, so that what others of the class have come to says nothing.
        """
        look = (self._refused_with_marks if steered else self._refused).get(pair)
        if look is None and only_certain and not steered and pair not in self._freed:
            look = self._gambles.get(pair)
        alike = self._in_a_row.get(pair[0], 0) >= _IN_A_ROW and not hard
        alike = alike and pair not in self._freed
        if not alike and (look is None or self._is_outdated(pair, look)):
            return False
        if self._again:
            self._again -= 1
            return False
        return True

    def _is_outdated(self, pair: Pair, look: _Look) -> bool:
        """Return whether something that a look rested on has changed."""
        state, since = self._state, look.since
        if since == state.newest_node_change:
            return False
        if look.prediction is None or not len(look.prediction.nodes):
            return True
        if state.node_stamp(pair[1]) > since:
            return True
        changed = state.changed_since(look.prediction.nodes, since)
        return bool(look.prediction.probability[changed].sum() >= _DOUBTFUL)

    def free(self, pairs: Iterable[Pair]) -> None:
        """Let these pairs, for which pods of the wave before went first, go in the wave that follows, a gamble or not.

        Another move might take the room that was freed for them.
        """
        self._freed = set(pairs)

    def is_freed(self, pair: Pair) -> bool:
        """Return whether pods went first for a pair."""
        return pair in self._freed

    def passes_over(self, pair: Pair, promise: Promise | None, verdict: Verdict) -> bool:
        """Return whether a move waits until few others are left: it is a gamble, or falls short of its promise."""
        if pair in self._freed:
            return False
        short = promise is not None and falls_short(promise, verdict)
        if not (short or is_gamble(verdict)):
            return False
        self._in_a_row[pair[0]] = self._in_a_row.get(pair[0], 0) + 1
        self._gambles[pair] = _Look(self._state.newest_node_change, verdict.prediction)
        return True


def falls_short(promise: Promise, verdict: Verdict) -> bool:
    """Return whether the pod would break a rule where it lands as it fixes another where it was.

    It, or another of its class, would have to be moved again. Once others have moved, it may land better.
    """
    return any(
        most - mean > GAMBLE
        for most, mean in zip(promise.promised[:2], verdict.gain[:2], strict=True)
    )
