"""Results of examinations of candidates, and which candidates need not be examined again yet.

An examination is the most expensive part of a plan. Its result is valid until something it depends on has changed: a
move concerns the rules of the class, or pods have left or entered the candidate's node, or nodes with so much of its
landing probability that the result may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rebalancer.planner.book import Promise
from rebalancer.planner.effort import Effort
from rebalancer.planner.problem import Pair
from rebalancer.planner.verdict import Verdict, gains_less, is_gamble
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.state import ClusterState

# Share of the landings on nodes that have changed from which on what a look has come to is doubted.
DOUBTFUL = 0.25
# The same for pairs that move for balance alone. Nodes that receive pods pay less for the next one, so what was refused
# seldom pays afterwards; with a quarter, most of the judgements of a plan without budgets were such second looks.
_DOUBTFUL_FOR_BALANCE = 0.75
_Alike = tuple[float, float, int]
"""What a pair promises in hard and soft rules, and its zone: such pairs of a class land alike."""


@dataclass(frozen=True, slots=True)
class _Look:
    """The inputs on which the examination of a pair depended."""

    since: int
    """The newest change of any node at that time."""
    touched: int
    """The length of the state's journal of touched nodes at that time."""
    prediction: Prediction | None
    """None: nothing was predicted."""


class Looks:
    """The examinations of one search."""

    def __init__(
        self, state: ClusterState, zone: Int32s, fits: Callable[[int], Bools], effort: Effort
    ) -> None:
        """``zone``: the zone of each node (N,). ``fits``: where requests of a class's replacement fit now (N,)."""
        self._state, self._zone, self._fits, self._effort = state, zone, fits, effort
        self._refused: dict[int, dict[int, _Look]] = {}
        """Class -> node -> the newest look at the pair, if it was refused."""
        self._refused_with_marks: dict[int, dict[int, _Look]] = {}
        self._gambles: dict[int, dict[int, _Look]] = {}
        """Pairs that wait until few others are left."""
        self._gambles_alike: dict[int, dict[_Alike, _Look]] = {}
        """Class -> pairs of it that land alike -> the newest look at one of them, if it waits so."""
        self._freed: set[Pair] = set()
        self._in_a_row: dict[int, int] = {}
        """Class -> pairs of it that were refused, or passed over, since a move has last concerned it."""
        self._again = 0

    def begin_rung(self, *, again: bool) -> None:
        """Start a rung of a wave; ``again``: the most promising pairs are examined even if unchanged."""
        self._again = self._effort.again if again else 0
        self._in_a_row.clear()

    def retry(self, classes: Iterable[int]) -> None:
        """Examine all pairs of ``classes`` again, because a move concerns their rules."""
        for cls in classes:
            self._in_a_row.pop(cls, None)
            for looks in (self._refused, self._refused_with_marks, self._gambles):
                looks.pop(cls, None)
            self._gambles_alike.pop(cls, None)

    def refuse(self, pair: Pair, prediction: Prediction | None, *, steered: bool = False) -> None:
        """Record that the examination of a pair ended in a refusal; ``steered``: even with marks."""
        cls, node = pair
        self._gambles.get(cls, {}).pop(node, None)
        looks = self._refused_with_marks if steered else self._refused
        self._note(looks, pair, prediction)

    def _note(
        self, looks: dict[int, dict[int, _Look]], pair: Pair, prediction: Prediction | None
    ) -> _Look:
        cls, node = pair
        self._in_a_row[cls] = self._in_a_row.get(cls, 0) + 1
        state = self._state
        look = _Look(state.newest_node_change, len(state.touched), prediction)
        looks.setdefault(cls, {})[node] = look
        return look

    def was_refused(self, pair: Pair) -> bool:
        """Return whether the latest examination of a pair ended in a refusal."""
        return pair[1] in self._refused.get(pair[0], ())

    def spares_class(self, cls: int) -> bool:
        """Return whether further pairs of a class, without hard rules, would be refused like earlier ones."""
        alike = self._in_a_row.get(cls, 0) >= self._effort.in_a_row
        return alike and not self._again and all(cls != freed for freed, _ in self._freed)

    def is_spared(self, pair: Pair, promise: Promise, *, only_certain: bool, steered: bool) -> bool:
        """Return whether another examination of a pair would have the same result as the latest one.

        If a hard rule is at stake, results of other pairs of the class are not used, except that a pair waits like
        one that promises the same from the same zone: it would land alike.
        """
        cls, node = pair
        hard = promise.gains[0] > 0
        look = (self._refused_with_marks if steered else self._refused).get(cls, {}).get(node)
        freed = pair in self._freed
        if look is None and only_certain and not steered and not freed:
            look = self._gambles.get(cls, {}).get(node)
            if look is None and self._waits_alike(pair, promise):
                return True
        if look is not None and not freed and self._still_lacks_room(pair, look):
            return True
        alike = self._in_a_row.get(cls, 0) >= self._effort.in_a_row and not hard and not freed
        if not alike and (look is None or self._is_outdated(pair, promise, look)):
            return False
        if self._again:
            self._again -= 1
            return False
        return True

    def _still_lacks_room(self, pair: Pair, look: _Look) -> bool:
        """Return whether no node took the replacement, and none whose requests have changed since has room for it.

        Nodes that have not changed would refuse it again; where a move concerns a rule of the class, the look is gone.
        """
        if look.prediction is None or len(look.prediction.nodes):
            return False
        changed = self._state.touched[look.touched :]
        fits = self._fits(pair[0])
        if len(changed) >= len(fits):
            return not fits.any()
        return pair[1] not in changed and not fits[changed].any()

    def _waits_alike(self, pair: Pair, promise: Promise) -> bool:
        """Return whether a pair of the class waits that promises the same and whose replacement lands alike."""
        look = self._gambles_alike.get(pair[0], {}).get(self._alike(pair, promise))
        if look is None or look.prediction is None:
            return False
        # A pod that leaves one of the landings might land there again.
        nodes = look.prediction.nodes
        return not (nodes == pair[1]).any() and not is_doubtful(
            self._state, look.prediction, look.since
        )

    def _alike(self, pair: Pair, promise: Promise) -> _Alike:
        hard, soft, _ = promise.promised
        return hard, soft, int(self._zone[pair[1]])

    def _is_outdated(self, pair: Pair, promise: Promise, look: _Look) -> bool:
        """Return whether an input of an examination has changed."""
        state, since = self._state, look.since
        if since == state.newest_node_change:
            return False
        if look.prediction is None or not len(look.prediction.nodes):
            return True
        if any(promise.gains[:2]):
            moved = state.node_stamp(pair[1]) > since
            return moved or is_doubtful(state, look.prediction, since)
        return is_doubtful(state, look.prediction, since, _DOUBTFUL_FOR_BALANCE)

    def free(self, pairs: Iterable[Pair]) -> None:
        """Admit these pairs in the next wave even if their landing is uncertain: this wave made room for them.

        Another move might otherwise take that room.
        """
        self._freed = set(pairs)

    def is_freed(self, pair: Pair) -> bool:
        """Return whether a chain's first move was made for the pair."""
        return pair in self._freed

    def passes_over(self, pair: Pair, promise: Promise, verdict: Verdict) -> bool:
        """Return whether a move is deferred until few others are left.

        It is deferred if its landing is uncertain, or if it gains less than promised.
        """
        if self.is_freed(pair) or not (falls_short(promise, verdict) or is_gamble(verdict)):
            return False
        look = self._note(self._gambles, pair, verdict.prediction)
        self._gambles_alike.setdefault(pair[0], {})[self._alike(pair, promise)] = look
        return True


def is_doubtful(
    state: ClusterState, prediction: Prediction, since: int, share: float = DOUBTFUL
) -> bool:
    """Return whether ``share`` of the landings is on nodes changed ``since``, so that landings may differ."""
    changed = state.changed_since(prediction.nodes, since)
    return bool(prediction.probability[changed].sum() >= share)


def falls_short(promise: Promise, verdict: Verdict) -> bool:
    """Return whether the pod would violate one rule by its landing while fixing another rule.

    It, or another pod of its class, would have to move again. After other moves it may land better.
    """
    return gains_less(verdict, promise.promised)
