"""Limits on moves as counters: budgets, PodDisruptionBudgets and quotas, and the first limit that one more move would exceed.

A limit is a largest number for a counter; several limits may share one. Each class and each node has a list of the limits that
a move of its pods is under.
"""

from __future__ import annotations

from dataclasses import dataclass

_IN_FLIGHT = 0
"""The counter of all moves in flight; those of the owners follow."""
_PARTS = 2
"""A move is under the limits of its class, and of its node."""


@dataclass(eq=False, repr=False)
class LimitLists:
    """The limits of each of X classes or nodes, ascending."""

    start: memoryview
    """(X + 1,) where the list of each begins."""
    limit: memoryview
    """(E,) the numbers of the limits."""
    amount: memoryview
    """(E,) the amount that one move adds to the counter of each."""


@dataclass(eq=False, repr=False)
class LimitArrays:
    """L limits on C counters, numbered in the order in which they are named."""

    used: memoryview
    """(C,) the present value of each counter."""
    owners: int
    """The number of counters of owners, which follow the first counter."""
    counter: memoryview
    """(L,) the counter of each limit."""
    most: memoryview
    """(L,) the largest number that it allows."""
    strategy: memoryview
    """(L,) the number of the strategy whose moves it is about; 0: all."""
    of_ready: memoryview
    """(L,) 1: it is about pods that are Ready alone."""
    of_open: memoryview
    """(L,) 1: it is not about pods on nodes of closed zones."""
    closed: memoryview
    """(N,) 1: a node of a closed zone."""
    of_class: LimitLists
    of_node: LimitLists
    spared: memoryview
    """(C,) number of moves in flight that do not count when moves make room for waiting pods."""


def find_full(
    limits: LimitArrays,
    cls: int,
    node: int,
    strategy: int,
    first: int,
    last: int,
    ready: bool,
    itself: int,
    for_room: bool,
) -> int:
    """Return the first limit from ``first`` to below ``last`` that one more move would exceed; -1 if there is none.

    The move is of a pod of a class off a node, for a strategy; -1 for the node: for limits of classes alone. ``itself``: so many of the
    moves in flight, and of those of its owner, are of the pod itself. ``for_room``: it makes room for pods that wait.
    """
    full, before = -1, last
    for of_node in range(_PARTS if node >= 0 else 1):
        lists = limits.of_node if of_node else limits.of_class
        index = node if of_node else cls
        for place in range(lists.start[index], lists.start[index + 1]):
            limit = lists.limit[place]
            if (
                limit < first
                or limit >= before
                or not is_about(limits, limit, node, strategy, ready)
            ):
                continue
            counter = limits.counter[limit]
            used = limits.used[counter] + lists.amount[place]
            if counter <= limits.owners:
                used -= itself
                if counter == _IN_FLIGHT and for_room:
                    used -= limits.spared[cls]
            if used > limits.most[limit]:
                full = before = limit
    return full


def is_about(limits: LimitArrays, limit: int, node: int, strategy: int, ready: bool) -> bool:
    """Return whether a limit is about a move for a strategy of a pod on a node, which is Ready or not."""
    if limits.strategy[limit] != 0 and limits.strategy[limit] != strategy:
        return False
    if limits.of_ready[limit] and not ready:
        return False
    return node < 0 or not (limits.of_open[limit] and limits.closed[node])


def count_left(limits: LimitArrays, limit: int) -> int:
    """Return how much more a limit allows."""
    return limits.most[limit] - limits.used[limits.counter[limit]]


def count(limits: LimitArrays, cls: int, node: int, strategy: int, first: int, ready: bool) -> None:
    """Add a move of a pod of a class off a node to the counters of all limits from ``first`` on that it is under."""
    for of_node in range(_PARTS if node >= 0 else 1):
        lists = limits.of_node if of_node else limits.of_class
        index = node if of_node else cls
        for place in range(lists.start[index], lists.start[index + 1]):
            limit = lists.limit[place]
            if limit >= first and is_about(limits, limit, node, strategy, ready):
                limits.used[limits.counter[limit]] += lists.amount[place]
