"""What closer looks at candidates have come to, and which need not be looked at again yet.

A closer look is the costliest part of a plan. What it has come to holds until something that it rests on has
changed: a move concerns the rules of the class, or pods have left or come to the node that the pod stands on,
or to nodes where so much of its landings was that the answer may be another one now.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rebalancer.planner.book import Promise
from rebalancer.planner.effort import Effort
from rebalancer.planner.problem import Pair
from rebalancer.planner.verdict import GAMBLE, Verdict, is_gamble
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.state import ClusterState

# Share of the landings on nodes that have changed from which on what a look has come to is doubted.
DOUBTFUL = 0.25


@dataclass(frozen=True, slots=True)
class _Look:
    """What a closer look at a pair has rested on."""

    since: int
    """The newest change of any node at that time."""
    prediction: Prediction | None
    """None: nothing was predicted."""


class Looks:
    """The looks of one search."""

    def __init__(self, state: ClusterState, effort: Effort) -> None:
        self._state, self._effort = state, effort
        self._refused: dict[int, dict[int, _Look]] = {}
        """Class -> node -> the newest look at the pair, if it was refused."""
        self._refused_with_marks: dict[int, dict[int, _Look]] = {}
        self._gambles: dict[int, dict[int, _Look]] = {}
        """Pairs that wait until few others are left."""
        self._freed: set[Pair] = set()
        self._in_a_row: dict[int, int] = {}
        """Class -> pairs of it that were refused, or passed over, since a move has last concerned it."""
        self._again = 0

    def begin_rung(self, *, again: bool) -> None:
        """Begin a rung within a wave; ``again``: the most promising pairs are looked at, changed or not."""
        self._again = self._effort.again if again else 0
        self._in_a_row.clear()

    def retry(self, classes: Iterable[int]) -> None:
        """Look at the pairs of classes again, refused or not: a move concerns their rules."""
        for cls in classes:
            self._in_a_row.pop(cls, None)
            for looks in (self._refused, self._refused_with_marks, self._gambles):
                looks.pop(cls, None)

    def refuse(self, pair: Pair, prediction: Prediction | None, *, steered: bool = False) -> None:
        """Note that a closer look at a pair ended in a refusal; ``steered``: even with marks."""
        cls, node = pair
        self._gambles.get(cls, {}).pop(node, None)
        looks = self._refused_with_marks if steered else self._refused
        self._note(looks, pair, prediction)

    def _note(
        self, looks: dict[int, dict[int, _Look]], pair: Pair, prediction: Prediction | None
    ) -> None:
        cls, node = pair
        self._in_a_row[cls] = self._in_a_row.get(cls, 0) + 1
        looks.setdefault(cls, {})[node] = _Look(self._state.newest_node_change, prediction)

    def was_refused(self, pair: Pair) -> bool:
        """Return whether the newest look at a pair has ended in a refusal."""
        return pair[1] in self._refused.get(pair[0], ())

    def spares_class(self, cls: int) -> bool:
        """Return whether looks at pairs of a class, for no hard rule, would come to what those before have come to."""
        alike = self._in_a_row.get(cls, 0) >= self._effort.in_a_row
        return alike and not self._again and all(cls != freed for freed, _ in self._freed)

    def is_spared(self, pair: Pair, *, only_certain: bool, steered: bool, hard: bool) -> bool:
        """Return whether another look at a pair would come to what the newest one has come to.

        ``hard``: a hard rule is at stake, so that what others of the class have come to says nothing.
        """
        cls, node = pair
        look = (self._refused_with_marks if steered else self._refused).get(cls, {}).get(node)
        freed = pair in self._freed
        if look is None and only_certain and not steered and not freed:
            look = self._gambles.get(cls, {}).get(node)
        alike = self._in_a_row.get(cls, 0) >= self._effort.in_a_row and not hard and not freed
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
        return state.node_stamp(pair[1]) > since or is_doubtful(state, look.prediction, since)

    def free(self, pairs: Iterable[Pair]) -> None:
        """Let these pairs, for which pods of the wave before went first, go in the wave that follows, a gamble or not.

        Another move might take the room that was freed for them.
        """
        self._freed = set(pairs)

    def is_freed(self, pair: Pair) -> bool:
        """Return whether pods went first for a pair."""
        return pair in self._freed

    def passes_over(self, pair: Pair, promise: Promise, verdict: Verdict) -> bool:
        """Return whether a move waits until few others are left: it is a gamble, or falls short of its promise."""
        if pair in self._freed or not (falls_short(promise, verdict) or is_gamble(verdict)):
            return False
        self._note(self._gambles, pair, verdict.prediction)
        return True


def is_doubtful(state: ClusterState, prediction: Prediction, since: int) -> bool:
    """Return whether so many of the landings are on nodes that have changed ``since`` that they may be others now."""
    changed = state.changed_since(prediction.nodes, since)
    return bool(prediction.probability[changed].sum() >= DOUBTFUL)


def falls_short(promise: Promise, verdict: Verdict) -> bool:
    """Return whether the pod would break a rule where it lands as it fixes another where it was.

    It, or another of its class, would have to be moved again. Once others have moved, it may land better.
    """
    return any(
        most - mean > GAMBLE
        for most, mean in zip(promise.promised[:2], verdict.gain[:2], strict=True)
    )
