"""The candidates of a plan as rows of one table, and which row of each class is worth most.

A row is a class and a node with pods of it. Its key is what the next of these pods gains per eviction cost, entry by entry,
negative: the smallest key goes first.
"""

from __future__ import annotations

from rebalancer.core.numbers import truncate

# Gains that differ by less are equal: what is left of them are roundings.
_STEPS = 1e9


class Rows:
    """R rows of C classes; those of one class stand together."""

    def __init__(
        self,
        start: memoryview,
        node: memoryview,
        pods: memoryview,
        next_pod: memoryview,
        end: memoryview,
        cost: memoryview,
        rank: memoryview,
    ) -> None:
        self.start = start
        """(C + 1,) where the rows of each class begin."""
        self.node = node
        """(R,)"""
        self.pods = pods
        """(M,) the pods that may move, row by row, in the order in which they go."""
        self.next_pod = next_pod
        """(R,) the place of the next one in ``pods``."""
        self.end = end
        """(R,) where the pods of each row end."""
        self.cost = cost
        """(P,) what evicting each pod costs when candidates are compared."""
        self.rank = rank
        """(P,) the order of pods whose keys are equal."""


class Book:
    """What the rows promise, and what is known of them. All arrays are (R,) but where another shape is named."""

    def __init__(
        self,
        rows: Rows,
        promised: memoryview,
        key: memoryview,
        closed: memoryview,
        lowered: memoryview,
        looked: memoryview,
        landing: memoryview,
        best: memoryview,
        touched: memoryview,
        concerned: memoryview,
    ) -> None:
        self.rows = rows
        self.promised = promised
        """(3, R) per entry of the cost, the most that one pod leaving can gain."""
        self.key = key
        """(3, R) the key, by what is promised or, after a closer look, by what is known."""
        self.closed = closed
        """1: it is not looked at any more in this rung."""
        self.lowered = lowered
        """1: a closer look has shown that it gains less than promised."""
        self.looked = looked
        """The number of moves made when it was refused; -1: it was not."""
        self.landing = landing
        """The most probable landing then; -1: there was none."""
        self.best = best
        """(C,) the open row with the smallest key; -1: there is none."""
        self.touched = touched
        """(N,) the number of moves made when a pod last left or came."""
        self.concerned = concerned
        """(C,) the number of moves made when one last concerned a rule of the class."""


def promise(book: Book, cls: int, gains: memoryview, most_lowered: int) -> None:
    """Write what the rows of a class promise now, ``gains`` (3, K), into the book.

    What a closer look has shown is forgotten, unless more than ``most_lowered`` rows were looked at and the rules promise
    the same: all pods of a large owner land alike, and all would be looked at again after each move.
    """
    rows = book.rows
    first = rows.start[cls]
    lowered = 0
    for row in range(first, rows.start[cls + 1]):
        lowered += book.lowered[row]
    for row in range(first, rows.start[cls + 1]):
        same = lowered > most_lowered and book.lowered[row] == 1
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
    if rows.next_pod[row] == rows.end[row]:
        book.key[entry, row] = 0.0
    else:
        key = _STEPS * gain / rows.cost[rows.pods[rows.next_pod[row]]]
        book.key[entry, row] = -truncate(key + 0.5 if key >= 0.0 else key - 0.5) / _STEPS


def find_best(book: Book, cls: int) -> int:
    """Find the best open row of a class that promises anything; return it, or -1."""
    rows = book.rows
    best = -1
    for row in range(rows.start[cls], rows.start[cls + 1]):
        if book.closed[row] or not is_worth(book, row):
            continue
        if best < 0 or is_before(book, row, best):
            best = row
    book.best[cls] = best
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
    """Go on to the first pod of each row of a class that has not moved, given which pods have (P,)."""
    for row in range(rows.start[cls], rows.start[cls + 1]):
        while rows.next_pod[row] < rows.end[row] and moved[rows.pods[rows.next_pod[row]]]:
            rows.next_pod[row] += 1


def open_all(book: Book, moves: int) -> None:
    """Open all rows but those whose refusal stands after so many moves, and find the best of each class."""
    rows = book.rows
    for cls in range(len(book.best)):
        for row in range(rows.start[cls], rows.start[cls + 1]):
            book.closed[row] = stands(book, cls, row, moves)
        find_best(book, cls)


def open_refused(book: Book, cls: int) -> None:
    """Open the rows of a class that were refused."""
    rows = book.rows
    for row in range(rows.start[cls], rows.start[cls + 1]):
        if book.looked[row] >= 0:
            book.closed[row] = 0


def close_class(book: Book, cls: int) -> None:
    """Close all rows of a class."""
    rows = book.rows
    for row in range(rows.start[cls], rows.start[cls + 1]):
        book.closed[row] = 1
    book.best[cls] = -1


def stands(book: Book, cls: int, row: int, moves: int) -> bool:
    """Return whether the refusal of a row stands: nothing has changed that it depends on.

    That is a rule of the class, or the pods on the node, or those on the most probable landing.
    """
    since = book.looked[row]
    if since < 0 or book.concerned[cls] > since:
        return False
    landing = book.landing[row]
    if landing < 0:
        return since == moves
    return book.touched[book.rows.node[row]] <= since and book.touched[landing] <= since
