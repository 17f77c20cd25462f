"""Make the moves of a wave in rounds: choose candidates, judge, move; then update what the moves affect."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rebalancer.cost.term import Term
from rebalancer.planner.book import Book, Key, Promise
from rebalancer.planner.commit import Commit, Wave
from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.examination import Examination
from rebalancer.planner.looks import Looks, is_doubtful
from rebalancer.planner.problem import Pair
from rebalancer.planner.rendering import Chosen
from rebalancer.planner.verdict import TOLERANCE, Verdict

# A promise is looked at before what is known only if it is larger by more than this share of it.
_CLEARLY = 0.05
# Where others of a round land on the most probable node of a move, it lands on one that is at least so probable, compared with that.
_AS_PROBABLE = 0.5


@dataclass(frozen=True, slots=True)
class Rung:
    """One way to find the moves of a wave. The next rung is tried if this one finds none, or too few."""

    only_certain: bool = True
    only_rules: bool = False
    """Nothing moves for balance alone."""
    steered: bool = False
    """Marks may choose landings."""
    again: bool = False
    """The most promising are looked at, even if nothing has changed since they were refused."""
    joins: bool = False
    """It may add to the moves of the rung before."""


@dataclass(frozen=True, slots=True)
class _Pick:
    """A candidate of a round."""

    pair: Pair
    key: Key
    promise: Promise
    behind: Key | None
    """The key of what comes after it in its class."""


@dataclass(frozen=True, slots=True)
class _Paying:
    """A candidate whose move pays."""

    exact: Key
    pick: _Pick
    verdict: Verdict
    since: int
    """The newest change of any node when it was judged."""


class Rounds:
    """Makes moves in the draft, best first."""

    def __init__(
        self,
        draft: Draft,
        guard: Term,
        book: Book,
        looks: Looks,
        examination: Examination,
        commit: Commit,
        effort: Effort,
        goes_on: Callable[[], bool],
    ) -> None:
        """``goes_on`` returns whether another move may be made in this wave."""
        self._state, self._costs, self._guard = draft.state, draft.problem.costs, guard
        self._book, self._looks, self._examination = book, looks, examination
        self._commit, self._effort, self._goes_on = commit, effort, goes_on
        self._in_vain = 0
        """Pairs of this rung for balance alone that were judged in a row, and none of them paid."""
        self._judged: dict[Pair, tuple[int, Verdict]] = {}
        """Pair -> its pod and the verdict on it in the present state: the next rung asks again where nothing has moved."""
        self._wave: Wave | None = None
        self._known: dict[Pair, _Paying] = {}
        """Candidates of this rung that pay and have not moved yet: they are judged again only once a move touches them."""

    def climb(self, rung: Rung, wave: Wave) -> list[Chosen]:
        """Return the moves of one rung of a wave.

        Moves with an uncertain landing, or that violate one rule while fixing another, wait until few others are
        left: each landed replacement makes nodes differ more, and later landings more certain.
        """
        chosen: list[Chosen] = []
        self._examination.steer.standing = ()
        self._looks.begin_rung(again=rung.again)
        self._book.open()
        most = self._effort.steered if rung.steered else math.inf
        size = together = self._together(rung)
        self._known.clear()
        if wave is not self._wave:
            self._wave = wave
            self._judged.clear()
        self._in_vain = 0
        while len(chosen) < most and len(self._book.heads()) and self._goes_on():
            picks, after = self._choose(rung, wave, size)
            if not picks:
                break
            if self._in_vain >= self._effort.in_vain and not any(map(_for_rules, picks)):
                break
            made = self._make(self._paying(picks, rung), after, wave, rung)
            chosen += made
            if together == 1:
                # Few nodes: one move changes most of what is known.
                self._known.clear()
            if together > 1 or rung.again:
                size = self._next_size(size, len(made))
        return chosen

    def _together(self, rung: Rung) -> int:
        """Return how many moves a round makes at most. Marks stand while one pod lands."""
        return 1 if rung.steered else self._effort.together

    def _next_size(self, size: int, made: int) -> int:
        """Return how many candidates the next round judges, given the ``size`` of the last round and its moves.

        If nothing has moved, the state is the same, and judging many at once takes less time. If much has moved,
        most of what is judged beyond that would have to be judged again.
        """
        together, effort = self._effort.together, self._effort
        if not made:
            return min(2 * size, effort.most_at_once * together)
        if together == 1:
            return 1
        return max(
            min(together, effort.fewest_at_once),
            min(made + made // 4 + 1, effort.looked * together),
        )

    # -- choose -------------------------------------------------------------------------------------

    def _choose(self, rung: Rung, wave: Wave, size: int) -> tuple[list[_Pick], Key | None]:
        """Return the best candidates, about ``size``, and the key of what comes after the best of each class.

        Where few classes are left, there are several of each: where one pays less than it promises, the next ones are known.
        """
        fit: dict[int, Promise] = {}
        while True:
            heads = self._book.heads()
            outdated = self._book.outdated(heads[: 2 * size])
            if len(outdated):
                self._book.renew(outdated)
                fit.clear()
                continue
            heads = heads[: self._effort.walked * size]
            heads_picked, after = self._walk(heads.tolist(), rung, wave, size, fit)
            if heads_picked is not None:
                most = math.ceil(size / max(1, len(heads_picked)))
                picks = [
                    pick for head in heads_picked for pick in self._of_class(head, rung, wave, most)
                ]
                return picks, after

    def _walk(
        self, heads: Sequence[int], rung: Rung, wave: Wave, size: int, fit: dict[int, Promise]
    ) -> tuple[list[tuple[int, Promise]] | None, Key | None]:
        """Return the rows picked among ``heads``; None if some were left out, so that others are to be compared.

        ``fit`` holds the promises that need not be updated.
        """
        book = self._book
        picks: list[tuple[int, Promise]] = []
        after: Key | None = None
        left_out = False
        for row in heads:
            key = book.key_of(row)
            if rung.only_rules and not any(key[:2]):
                break
            if len(picks) == size:
                after = key
                break
            promise = fit.get(row)
            if promise is None:
                promise = book.promise_of(row)
                if self._leaves_out(row, promise, rung, wave):
                    left_out = True
                    continue
                fit[row] = promise
            picks.append((row, promise))
        return (None if left_out else picks), after

    def _of_class(
        self, head: tuple[int, Promise], rung: Rung, wave: Wave, most: int
    ) -> Iterator[_Pick]:
        """Yield the best candidate of a class, and up to ``most`` in all that may go and are worth as good a look."""
        book, examination = self._book, self._examination
        row, promise = head
        rows = book.rows_left(book.pair_of(row)[0], most + 1)
        picked = [head]
        for other in rows[1:most]:
            pair, of_other = book.pair_of(other), book.promise_of(other)
            spared = self._looks.is_spared(
                pair, of_other, only_certain=rung.only_certain, steered=rung.steered
            )
            same = any(of_other.gains[:2]) == any(promise.gains[:2])
            if spared or not same or book.is_little(other):
                break
            if examination.is_limited(pair, of_other, wave):
                break
            picked.append((other, of_other))
        behind = book.key_of(rows[len(picked)]) if len(picked) < len(rows) else None
        for row, promise in picked:
            yield _Pick(book.pair_of(row), book.key_of(row), promise, behind)

    def _leaves_out(self, row: int, promise: Promise, rung: Rung, wave: Wave) -> bool:
        """Return whether a row is skipped; further rows of its class are skipped, too, if possible."""
        cls = self._book.pair_of(row)[0]
        leaves_out = partial(
            self._examination.leaves_out,
            wave=wave,
            only_certain=rung.only_certain,
            steered=rung.steered,
        )
        if not leaves_out(row, promise):
            return False
        while (after := self._book.left_of(cls)) >= 0:
            promise = self._book.promise_of(after)
            if self._book.is_outdated(cls) and not any(promise.gains[:2]):
                break
            if not leaves_out(after, promise):
                break
        return True

    def _touching(self, cls: int) -> set[int]:
        """Return the classes whose rules a move of ``cls`` may affect."""
        return {*self._book.related(cls).tolist(), *self._guard.related(cls).tolist()}

    # -- judge --------------------------------------------------------------------------------------

    def _paying(self, picks: Sequence[_Pick], rung: Rung) -> list[_Paying]:
        """Return the picks that pay, largest gain first; skip the others in the book."""
        known = [one for pick in picks if (one := self._still_paying(pick)) is not None]
        paying = known + self._judge([one for one in picks if one.pair not in self._known], rung)
        self._known.update((one.pick.pair, one) for one in paying)
        return sorted(paying, key=lambda one: (one.exact, self._book.rank(one.pick.promise.pod)))

    def _still_paying(self, pick: _Pick) -> _Paying | None:
        """Return the earlier result for a candidate if it is still valid."""
        known = self._known.get(pick.pair)
        if known is None:
            return None
        since = known.since
        if (
            known.pick.promise.pod == pick.promise.pod
            and self._state.node_stamp(pick.pair[1]) <= since
            and not is_doubtful(self._state, known.verdict.prediction, since)
        ):
            return replace(known, pick=pick)
        del self._known[pick.pair]
        return None

    def _judge(self, picks: Sequence[_Pick], rung: Rung) -> list[_Paying]:
        """Judge candidates in one pass; return those that pay, and skip the others in the book."""
        paying: list[_Paying] = []
        if not picks:
            return paying
        for pick, of_pick in zip(picks, self._verdicts(picks), strict=True):
            pair, promise = pick.pair, pick.promise
            verdict = self._examination.verdict(pair, promise, of_pick, steered=rung.steered)
            if verdict is None:
                self._book.pass_over(promise.row, refused=True)
            elif rung.only_certain and self._looks.passes_over(pair, promise, verdict):
                self._book.pass_over(promise.row)
            else:
                exact = self._book.key(verdict.gain, promise.pod)
                since = self._state.newest_node_change
                paying.append(_Paying(exact, pick, verdict, since))
        for_balance = len(picks) - sum(map(_for_rules, picks))
        pays = any(not _for_rules(one.pick) for one in paying)
        self._in_vain = 0 if pays else self._in_vain + for_balance
        return paying

    def _verdicts(self, picks: Sequence[_Pick]) -> list[Verdict]:
        """Return the verdict on each of ``picks``, without marks."""
        asked = [(pick.pair, pick.promise.pod) for pick in picks]
        new = [
            (pair, pod)
            for pair, pod in asked
            if (known := self._judged.get(pair)) is None or known[0] != pod
        ]
        if new:
            pods = np.array([pod for _, pod in new], np.int32)
            judged = self._examination.judge.judge_many(pods, self._costs[pods])
            for (pair, pod), verdict in zip(new, judged, strict=True):
                self._judged[pair] = pod, verdict
        return [self._judged[pair][1] for pair, _ in asked]

    # -- make ---------------------------------------------------------------------------------------

    def _make(
        self,
        paying: Sequence[_Paying],
        after: Key | None,
        wave: Wave,
        rung: Rung,
    ) -> list[Chosen]:
        """Make the moves that gain at least what ``after`` promises and that do not affect each other.

        A round has few moves; the others keep their result for a later round. Moves with an uncertain landing
        are not compared with promises, which are known to be too high by then: all would be judged for each move.
        So it is with moves for balance where many go at once: the best of those that were judged go.
        """
        chosen: list[Chosen] = []
        together = self._together(rung)
        touched: set[int] = set()
        nodes: set[int] = set()
        for one in paying:
            pair, promise, verdict = one.pick.pair, one.pick.promise, one.verdict
            compared = rung.only_certain if any(one.exact[:2]) else together == 1
            keys = (after, one.pick.behind) if compared else ()
            others = [key for key in keys if key is not None]
            if one.exact != one.pick.key and any(_is_behind(one.exact, key) for key in others):
                self._book.lower(promise.row, verdict.gain)
                continue
            if chosen and (len(chosen) == together or not self._goes_on()):
                break
            related = self._touching(pair[0]) if together > 1 else set()
            if pair[1] in nodes or not touched.isdisjoint(related):
                continue
            lands = self._lands(one)
            if lands is None:
                del self._known[pair]
                continue  # others of the round have changed where it would land: it is looked at again
            if chosen and self._examination.is_limited(pair, promise, wave):
                self._book.pass_over(promise.row, refused=True)
                continue
            touched |= related
            nodes.add(pair[1])
            chosen.append(self._commit.move(pair, promise, verdict, wave, lands))
            self._examination.steer.standing = verdict.marks
            self._examination.refusals.pop(pair, None)
        if chosen:
            self._judged.clear()
            self._forget(touched)
            concerned = self._book.moved([move.cls for move in chosen], wave.retried).tolist()
            self._looks.retry(concerned)
            wave.retried.update(concerned)
            self._forget(concerned)
        return chosen

    def _forget(self, classes: Collection[int]) -> None:
        """Drop the results for candidates of ``classes``, because moves have affected their rules."""
        gone = set(classes)
        self._known = {pair: one for pair, one in self._known.items() if pair[0] not in gone}

    def _lands(self, one: _Paying) -> int | None:
        """Return the index of the landing on which the state continues; None to predict again.

        Other replacements may have taken the most probable node since.
        """
        prediction = one.verdict.prediction
        changed = self._state.changed_since(prediction.nodes, one.since)
        if not changed.any():
            return 0
        if prediction.takers or is_doubtful(self._state, prediction, one.since):
            return None
        free = int(np.argmin(changed))
        probable = prediction.probability[free] >= _AS_PROBABLE * prediction.probability[0]
        return free if probable else None


def _for_rules(pick: _Pick) -> bool:
    """Return whether the terms promise that a move fixes a rule; else it is for balance alone."""
    return any(pick.promise.promised[:2])


def _is_behind(key: Key, other: Key) -> bool:
    """Return whether ``other`` promises more than ``key``.

    Imbalance is compared only if nothing else is at stake: its promises are optimistic, and judging every candidate
    again for a thousandth of a squared share would take most of a plan's time.
    """
    for mine, theirs in zip(key[:2], other[:2], strict=True):
        if abs(mine - theirs) > TOLERANCE:
            return mine - theirs > _CLEARLY * abs(mine)
    return not any(key[:2]) and key[2] * (1 + _CLEARLY) > other[2]
