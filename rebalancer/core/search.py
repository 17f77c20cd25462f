"""The loop over candidates: from row to row, best first, until the move of one is good.

It ends early where marks may choose another landing, or a pod is exempt from a protection. Then Python answers by
:func:`go_on`, and calls :func:`find_move` again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rebalancer.core.effects import gains_less, is_gamble
from rebalancer.core.limits import LimitArrays, count_left, find_full
from rebalancer.core.moves import Bench, Mover, RefusedRow, ask, judge_pod, note
from rebalancer.core.rows import (
    Book,
    close,
    close_class,
    first_row,
    is_outdated,
    lower,
    promises_rules,
    refuse,
)
from rebalancer.core.views import flags, ints, minus_ones

ENDS = ("none is left", "good", "to be reviewed", "go on")
"""Why the loop ends, by numbers: no row is left; the move of the row is good; it was judged, and Python decides;
or Python may want to stop."""
_NONE, _GOOD, _REVIEW, _GO_ON = 0, 1, 2, 3
_NEXT = 4
"""The loop continues."""
_AT_ONCE = 64
"""The stop condition is checked after this number of rows, and after each row whose landing Python has predicted."""
_GOOD_MOVE, _LIMITED = 0, 12
# A promise is compared with the threshold as it is rounded when it is judged.
_ROUNDING = 2e-9


@dataclass(eq=False, repr=False)
class CandidateArrays:
    """The pods and the T terms of a search, before any is judged."""

    cost: memoryview[float]
    """(P,) the cost of evicting each pod."""
    ready: memoryview
    """(P,) whether each is Ready."""
    reviewed: memoryview
    """(P,) whether Python decides on each."""
    in_place: memoryview
    """(P,) whether a replacement on the same node will do for each."""
    limits_of: memoryview
    """(T,) the number of the strategy of each term among those with limits of their own; 0: it has none."""
    for_room: memoryview
    """(T,) whether its strategy makes room for pods that wait."""
    of_owner: memoryview
    """(C,) the limit on pods in flight of the owner of each class; -1: there is none."""


class Search:
    """One search: its rules, its results, and its present row. R rows of C classes."""

    def __init__(
        self,
        book: Book,
        bench: Bench,
        limits: LimitArrays,
        candidates: CandidateArrays,
        moved: memoryview,
        first_of_wave: int,
        first_quota: int,
        least: float,
    ) -> None:
        size, classes = len(book.closed), len(book.best)
        self.book, self.bench, self.limits, self.candidates = book, bench, limits, candidates
        self.moved = moved
        """(P,) 1: it has moved."""
        self.first_of_wave = first_of_wave
        """The first limit that ends with the wave; those before it are of the whole run."""
        self.first_quota = first_quota
        self.least = least
        """The least gain per cost in balance."""
        self.row = -1
        """The row that the loop has come to."""
        self.code = _GOOD_MOVE
        """Why the newest move is refused, as a number of ``REFUSALS``."""
        # -- what a rung asks
        self.only_certain = self.only_rules = self.again = False
        """See ``planner.search.Rung``."""
        self.steered = False
        """Whether Python decides on each row, since marks may choose another landing."""
        self.most_alike = self.most_in_vain = self.most_lowered = 0
        """See ``planner.effort.Effort``: ``in_a_row``, ``in_vain`` and ``looks``."""
        self.freed = flags(size)
        """(R,) 1: another pod was moved first for it. It is moved even if its landing is uncertain."""
        self.starting = flags(size)
        """(R,) 1: a pod of it that is not Ready counts as in flight itself."""
        self.any_starting = False
        # -- what was found
        self.refused_alike = ints(classes)
        """(C,) rows that were refused, or passed over, since a move has last concerned the class."""
        self.in_vain = 0
        """Rows for balance alone that were judged in a row, and none of them paid."""
        self.closely = 0
        """So many that promise too little anyway are judged all the same, to show where they would land."""
        self.looks: list[Any] = [None] * size
        """(R,) why each row is not moved; Python may write its own results."""
        self.alike: list[Any] = [None] * classes
        """(C,) the newest look of a class that was judged."""
        self.waits = minus_ones(size)
        """(R,) the limit for which each waits in this wave; -1: it does not."""
        self.held = minus_ones(classes)
        """(C,) the same of classes no pod of which may move in this wave."""
        self.kept_back = flags(classes)
        """(C,) 1: a limit of the whole run has kept rows back, and nothing else so far."""


def find_move(search: Search) -> int:
    """Judge row after row until the move of one is good; return why the loop ends, see ``ENDS``."""
    for _ in range(_AT_ONCE):
        search.bench.feeding = False
        search.row = first_row(search.book)
        if search.row < 0:
            return _NONE
        found = _look_at(search, search.row, search.book.rows.cls[search.row])
        if found != _NEXT:
            return found
        if search.bench.feeding:
            break
    return _GO_ON


def _look_at(search: Search, row: int, cls: int) -> int:
    """Look at the first row, of this class; return how it ends."""
    book, bench = search.book, search.bench
    if is_outdated(book, row):
        ask(book, bench.terms, _find_mover(bench, cls), search.moved, search.most_lowered)
        return _NEXT
    vain = search.only_rules or search.in_vain >= search.most_in_vain
    if vain and not promises_rules(book, row):
        return _NONE
    if _is_passed_over(search, row, cls) or _is_limited(search, row, cls):
        return _NEXT
    return _judge_row(search, row, _find_mover(bench, cls))


def _find_mover(bench: Bench, cls: int) -> Mover:
    mover: Mover | None = bench.movers[cls]
    return bench.python.mover(cls) if mover is None else mover


def _judge_row(search: Search, row: int, mover: Mover) -> int:
    """Judge the next pod of a row; return how it ends."""
    book, bench, candidates = search.book, search.bench, search.candidates
    if mover.pod is None:
        mover = bench.python.lower(mover.cls)
    pod, node = book.rows.pods[book.rows.next_pod[row]], book.rows.node[row]
    cost, in_place = candidates.cost[pod], candidates.in_place[pod] != 0
    search.code = judge_pod(bench, mover, pod, node, cost, True, in_place, True)
    if search.steered or candidates.reviewed[pod]:
        return _REVIEW
    code = search.code
    if code != _GOOD_MOVE:
        look = note(bench, mover, code, book.leading[row], cost)
        search.looks[row] = search.alike[mover.cls] = look
    landings = mover.cluster.landings
    landing = landings.nodes[0] if landings.count else -1
    return go_on(search, row, code == _GOOD_MOVE, bench.effect.gain, bench.effect.best, landing)


def go_on(
    search: Search,
    row: int,
    good: bool,
    gain: memoryview[float],
    best: memoryview[float],
    landing: int,
) -> int:
    """Continue after a judged row, given its gains (3,) and its most probable landing; return how the loop ends."""
    book = search.book
    cls = book.rows.cls[row]
    if is_little(search, row):
        search.closely -= 1
    if not good:
        refuse(book, row, landing)
    elif search.only_certain and not search.freed[row] and _is_uncertain(book, row, gain, best):
        close(book, row)
        good = False
    if not good:
        search.refused_alike[cls] += 1
    if good:
        search.in_vain = 0
    elif not promises_rules(book, row):
        search.in_vain += 1
    if not good or lower(book, row, gain, search.only_certain and not book.marked):
        return _NEXT
    return _GOOD


def _is_uncertain(book: Book, row: int, gain: memoryview[float], best: memoryview[float]) -> bool:
    """Return whether a move waits until few others are left: its landing is uncertain, or gains less than promised.

    The pod would violate one rule by its landing while fixing another. After other moves it may land better.
    """
    promised = book.promised
    return gains_less(gain[0], gain[1], promised[0, row], promised[1, row]) or is_gamble(gain, best)


def is_little(search: Search, row: int) -> bool:
    """Return whether a row improves only balance, and promises less than the policy requires, on any landing.

    It would be refused anyway, with another reason: landings are worse than promised, never better.
    """
    book = search.book
    if promises_rules(book, row):
        return False
    cost = search.candidates.cost[book.rows.pods[book.rows.next_pod[row]]]
    return book.promised[2, row] / cost + _ROUNDING < search.least


def _is_passed_over(search: Search, row: int, cls: int) -> bool:
    """Return whether a row is closed without a judgement: others of its class were refused, or it promises too little."""
    book = search.book
    alike = search.refused_alike[cls] >= search.most_alike
    if alike and not (book.promised[0, row] > 0.0 or search.again or search.freed[row]):
        close_class(book, cls)
        return True
    if search.closely <= 0 and is_little(search, row):
        close(book, row)
        return True
    return False


def _is_limited(search: Search, row: int, cls: int) -> bool:
    """Return whether a limit forbids the move of a row now; note which, and close the row."""
    book, limits, candidates = search.book, search.limits, search.candidates
    term, pod = book.leading[row], book.rows.pods[book.rows.next_pod[row]]
    ready = candidates.ready[pod] != 0
    limit = find_full(
        limits,
        cls,
        book.rows.node[row],
        candidates.limits_of[term],
        0,
        len(limits.most),
        ready,
        search.starting[row] and not ready,
        candidates.for_room[term],
    )
    if limit < 0:
        return False
    look = RefusedRow(_LIMITED, term)
    look.limit, look.left = limit, count_left(limits, limit)
    search.looks[row] = look
    if limit < search.first_of_wave:
        keep_back(search, row)
    elif limit < search.first_quota:
        search.waits[row] = limit
        owner = candidates.of_owner[cls]
        if owner >= 0 and not search.any_starting and count_left(limits, owner) <= 0:
            search.held[cls] = limit
            close_class(book, cls)
    close(book, row)
    return True


def keep_back(search: Search, row: int) -> None:
    """Note that a limit of the whole run keeps a row back, if that is all that does."""
    if search.book.looked[0, row] < 0 and not is_little(search, row):
        search.kept_back[search.book.rows.cls[row]] = 1
