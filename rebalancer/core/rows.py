"""The candidates of a plan as rows of one table, and which row is next.

A row is a class and a node with pods of that class. Its key is the gain of its next pod per eviction cost, entry by entry,
negated: the smallest key is first. A binary heap contains the best open row of each class.
"""

from __future__ import annotations

from dataclasses import dataclass

from rebalancer.core.numbers import truncate
from rebalancer.core.views import flags, ints, minus_ones, reals

# Gains that differ by less are equal: what is left of them are roundings.
_STEPS = 1e9
# A promise counts as larger than what is known only if it is so by more than this share of it; one of balance, which is
# optimistic, if it is several times as large.
_CLEARLY = 0.05
_MANY_TIMES = 5.0


@dataclass(eq=False, repr=False)
class Rows:
    """R rows of C classes; the rows of a class are consecutive."""

    start: memoryview
    """(C + 1,) where the rows of each class begin."""
    cls: memoryview
    """(R,) the class of each row."""
    node: memoryview
    """(R,) the node of each row."""
    pods: memoryview
    """(M,) the pods that may move, row by row, in the order in which they are moved."""
    next_pod: memoryview
    """(R,) the place of the next one in ``pods``."""
    end: memoryview
    """(R,) where the pods of each row end."""
    cost: memoryview
    """(P,) the cost of evicting each pod, for comparing candidates."""
    rank: memoryview
    """(P,) the order of pods whose keys are equal."""


class Book:
    """The promises of the rows, and other results about them. All arrays are (R,) unless another shape is named."""

    def __init__(self, rows: Rows, nodes: int) -> None:
        """``nodes``: N."""
        size, classes = len(rows.cls), len(rows.start) - 1
        self.rows = rows
        self.promised = reals(3, size)
        """(3, R) per entry of the cost, the most that one pod leaving can gain."""
        self.key = reals(3, size)
        """(3, R) the key, by what is promised or, after a closer look, by what is known."""
        self.closed = flags(size)
        """1: it is not looked at any more in this rung."""
        self.lowered = flags(size)
        """1: a closer look has shown that it gains less than promised."""
        self.moves = self.marked = self.size = 0
        """The number of moves made, and of waves that have landed: each may change earlier results. 1 while marks may choose
        landings: refusals are noted separately then. The number of classes in the heap."""
        self.looked = minus_ones(2, size)
        """(2, R) the number of moves made when it was refused, without marks and with them; -1: it was not."""
        self.landing = minus_ones(2, size)
        """(2, R) the most probable landing then; -1: there was none."""
        self.best = minus_ones(classes)
        """(C,) the open row with the smallest key; -1: there is none."""
        self.turns = ints(classes)
        """(C,) moves of each class in this rung: among equal rows, classes with fewer moves are first."""
        self.heap = ints(classes)
        """(C,) the classes with an open row, the one with the best row first."""
        self.place = ints(classes)
        """(C,) the place of each class in the heap, counted from 1; 0: it is not there."""
        self.touched = minus_ones(nodes)
        """(N,) the number of moves made when a pod last left or came."""
        self.concerned = minus_ones(classes)
        """(C,) the number of moves made when one last concerned a rule of the class."""
        self.leading = minus_ones(size)
        """The term with the largest share in the entry that decides; -1: nothing is promised."""
        self.named = flags(size)
        """1: it has promised something at some time."""
        self.asked = ints(classes)
        """(C,) the number of moves made when the terms last computed the class."""
        self.stale = flags(classes)
        """(C,) 1: moves have concerned it since."""
        longest = 1
        for cls in range(classes):
            longest = max(longest, rows.start[cls + 1] - rows.start[cls])
        self.gains, self.shares, self.of_rule = reals(3, longest), reals(longest), reals(longest)
        """Room for what the rows of one class promise."""


def promise(book: Book, cls: int, gains: memoryview, most_lowered: int) -> None:
    """Write the present promises of a class's rows, ``gains`` (3, K), into the book.

    What a closer look has shown is forgotten, unless more than ``most_lowered`` rows were looked at and the rules promise
    the same: all pods of a large owner land alike, and all would be looked at again after each move.
    """
    rows = book.rows
    first = rows.start[cls]
    lowered = 0
    for row in range(first, rows.start[cls + 1]):
        lowered += book.lowered[row]
    for row in range(first, rows.start[cls + 1]):
        same = lowered > most_lowered and book.lowered[row] == 1 and has_pods(rows, row)
        for entry in range(3):
            gain = gains[entry, row - first]
            if entry < 2 and gain != book.promised[entry, row]:
                same = False
            book.promised[entry, row] = gain
        if same and (book.promised[0, row] != 0.0 or book.promised[1, row] != 0.0):
            continue
        book.lowered[row] = 0
        for entry in range(3):
            set_key(book, row, entry, book.promised[entry, row])
    find_best(book, cls)


def set_key(book: Book, row: int, entry: int, gain: float) -> None:
    """Set one entry of a row's key, given the gain."""
    rows = book.rows
    if has_pods(rows, row):
        key = _STEPS * gain / rows.cost[rows.pods[rows.next_pod[row]]]
        book.key[entry, row] = -truncate(key + 0.5 if key >= 0.0 else key - 0.5) / _STEPS
    else:
        book.key[entry, row] = 0.0


def has_pods(rows: Rows, row: int) -> bool:
    """Return whether a row has a pod left to move."""
    return rows.next_pod[row] < rows.end[row]


def find_best(book: Book, cls: int) -> int:
    """Find the best open row of a class that promises anything, and put the class in its place in the heap; return the row, or -1."""
    rows = book.rows
    best = -1
    for row in range(rows.start[cls], rows.start[cls + 1]):
        if book.closed[row] or not is_worth(book, row):
            continue
        if best < 0 or is_before(book, row, best):
            best = row
    book.best[cls] = best
    settle(book, cls)
    return best


def is_worth(book: Book, row: int) -> bool:
    """Return whether a row has a pod to move, and promises anything."""
    for entry in range(3):
        if book.key[entry, row] != 0.0:
            return True
    return False


def is_before(book: Book, one: int, other: int) -> bool:
    """Return whether the key of a row is smaller than that of another; of equal keys the rank of the pods decides."""
    for entry in range(3):
        if book.key[entry, one] != book.key[entry, other]:
            return book.key[entry, one] < book.key[entry, other]
    rows = book.rows
    return rows.rank[rows.pods[rows.next_pod[one]]] < rows.rank[rows.pods[rows.next_pod[other]]]


def skip_moved(rows: Rows, cls: int, moved: memoryview) -> None:
    """Advance each row of a class to its first pod that has not moved, given which pods have (P,)."""
    for row in range(rows.start[cls], rows.start[cls + 1]):
        while rows.next_pod[row] < rows.end[row] and moved[rows.pods[rows.next_pod[row]]]:
            rows.next_pod[row] += 1


def open_all(book: Book) -> None:
    """Open all rows except those whose refusal is still valid, and find the best of each class."""
    rows = book.rows
    book.size = 0
    for cls in range(len(book.best)):
        book.turns[cls] = book.place[cls] = 0
    for cls in range(len(book.best)):
        for row in range(rows.start[cls], rows.start[cls + 1]):
            book.closed[row] = stands(book, cls, row)
        find_best(book, cls)


def open_refused(book: Book, cls: int) -> None:
    """Open the rows of a class that were refused."""
    rows = book.rows
    for row in range(rows.start[cls], rows.start[cls + 1]):
        if book.looked[book.marked, row] >= 0:
            book.closed[row] = 0


def close(book: Book, row: int) -> None:
    """Close a row."""
    book.closed[row] = 1
    find_best(book, book.rows.cls[row])


def refuse(book: Book, row: int, landing: int) -> None:
    """Close a row until something changes that its refusal depends on; ``landing``: the most probable one, or -1."""
    book.looked[book.marked, row] = book.moves
    book.landing[book.marked, row] = landing
    close(book, row)


def close_class(book: Book, cls: int) -> None:
    """Close all rows of a class."""
    rows = book.rows
    for row in range(rows.start[cls], rows.start[cls + 1]):
        book.closed[row] = 1
    book.best[cls] = -1
    settle(book, cls)


def stands(book: Book, cls: int, row: int) -> bool:
    """Return whether the refusal of a row is still valid: nothing that it depends on has changed.

    It depends on the rules of the class, the pods on the node, and those on the most probable landing.
    """
    since = book.looked[book.marked, row]
    if since < 0 or book.concerned[cls] > since:
        return False
    landing = book.landing[book.marked, row]
    if landing < 0:
        return since == book.moves
    return book.touched[book.rows.node[row]] <= since and book.touched[landing] <= since


# -- the heap ------------------------------------------------------------------------------------------------


def first_row(book: Book) -> int:
    """Return the best open row of all; -1 if there is none."""
    return book.best[book.heap[0]] if book.size > 0 else -1


def is_outdated(book: Book, row: int) -> bool:
    """Return whether the terms must compute a row again: any move changes what a row for balance promises."""
    cls = book.rows.cls[row]
    return book.stale[cls] == 1 or (not _is_for_rules(book, row) and book.asked[cls] < book.moves)


def promises_rules(book: Book, row: int) -> bool:
    """Return whether the terms promise that a row may fix a rule; else it is for balance alone."""
    return book.promised[0, row] != 0.0 or book.promised[1, row] != 0.0


def _is_for_rules(book: Book, row: int) -> bool:
    """Return whether a row may fix a rule, by all that is known; else it is for balance alone."""
    return book.key[0, row] != 0.0 or book.key[1, row] != 0.0


def settle(book: Book, cls: int) -> None:
    """Put a class where its best row belongs in the heap, or take it out if it has none."""
    place = book.place[cls] - 1
    if book.best[cls] < 0:
        if place >= 0:
            _take_out(book, place)
        return
    if place < 0:
        place = book.size
        book.size += 1
        _put(book, cls, place)
    _sink(book, _rise(book, place))


def _take_out(book: Book, place: int) -> None:
    """Remove the class at a place from the heap; the last one is put at its place."""
    book.place[book.heap[place]] = 0
    book.size -= 1
    if place < book.size:
        _put(book, book.heap[book.size], place)
        _sink(book, _rise(book, place))


def _put(book: Book, cls: int, place: int) -> None:
    book.heap[place] = cls
    book.place[cls] = place + 1


def _rise(book: Book, place: int) -> int:
    """Let the class at a place rise above those whose best rows are worse; return its place then."""
    cls = book.heap[place]
    while place > 0:
        above = (place - 1) // 2
        if not _goes_before(book, cls, book.heap[above]):
            break
        _put(book, book.heap[above], place)
        place = above
    _put(book, cls, place)
    return place


def _sink(book: Book, place: int) -> None:
    """Let the class at a place sink below those whose best rows are better."""
    cls = book.heap[place]
    below = _better_below(book, place)
    while below > 0 and _goes_before(book, book.heap[below], cls):
        _put(book, book.heap[below], place)
        place = below
        below = _better_below(book, place)
    _put(book, cls, place)


def _better_below(book: Book, place: int) -> int:
    """Return the better of the two places below a place; 0 if there is none."""
    below = 2 * place + 1
    if below >= book.size:
        return 0
    if below + 1 < book.size and _goes_before(book, book.heap[below + 1], book.heap[below]):
        return below + 1
    return below


def _goes_before(book: Book, one: int, other: int) -> bool:
    """Return whether the best row of a class comes before that of another."""
    mine, its = book.best[one], book.best[other]
    for entry in range(3):
        if book.key[entry, mine] != book.key[entry, its]:
            return book.key[entry, mine] < book.key[entry, its]
    if book.turns[one] != book.turns[other]:
        return book.turns[one] < book.turns[other]
    return is_before(book, mine, its)


def lower(book: Book, row: int, gains: memoryview[float], compared: bool) -> bool:
    """Write the exact result ``gains`` (3,) for the first row; return whether another row promises clearly more.

    ``compared``: rows that may fix rules are compared, too, and not only those for balance.
    """
    changes = False
    for entry in range(3):
        before = book.key[entry, row]
        set_key(book, row, entry, gains[entry])
        changes = changes or book.key[entry, row] != before
    cls = book.rows.cls[row]
    if not changes or (_is_for_rules(book, row) and not compared):
        settle(book, cls)
        return False
    book.lowered[row] = 1
    book.closed[row] = 1
    other = find_best(book, cls)
    behind = other >= 0 and _is_behind(book, row, other)
    # The class stands by its second row now: the first of the heap is the best of all others.
    other = first_row(book)
    behind = behind or (other >= 0 and _is_behind(book, row, other))
    book.closed[row] = 0
    if behind:
        find_best(book, cls)
    else:
        book.best[cls] = row
        settle(book, cls)
    return behind


def _is_behind(book: Book, row: int, other: int) -> bool:
    """Return whether ``other`` promises clearly more than a row."""
    for entry in range(2):
        mine, its = book.key[entry, row], book.key[entry, other]
        if mine != its:
            return mine - its > _CLEARLY * abs(mine)
    return not _is_for_rules(book, row) and book.key[2, row] * _MANY_TIMES > book.key[2, other]
