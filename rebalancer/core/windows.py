"""The nodes that the scheduler scores in a large cluster, as a distribution over windows.

From 100 nodes on the scheduler stops its search at the K-th feasible node. It searches in a fixed order (zones round
robin, ``backend/cache/node_tree.go``), starting where the last search ended. So the probability of a window of K
feasible nodes is the probability that the search starts directly before it. All windows are evaluated exactly:
normalisation needs only the extremes of each window, and windows with equal extremes, of one *kind*, share their totals.
"""

from __future__ import annotations

from rebalancer.core.views import ints, reals

_MAX_KINDS = 48
"""More kinds of windows than this are stood for by so many windows, evenly spread."""


class LandingShares:
    """Room for the shares of the windows of one kind, and for the numbers of the scores that share them out."""

    def __init__(self, nodes: int) -> None:
        self.value = ints(nodes)
        """(F,) a number for the score at each place."""
        entries = 2
        while entries < 2 * nodes:
            entries *= 2
        self.table = ints(entries)
        """The scores that have a number, each in the entry for it."""
        self.number = ints(entries)
        """The number of the score in each entry."""
        self.written = ints(entries)
        """The round in which each entry was written."""
        self.round = 0
        self.begun = reals(2 * nodes)
        """(F + K,) shares of windows whose best nodes begin at each place."""
        self.left = reals(2 * nodes)
        """(F + K,) shares of windows whose best nodes end at each place."""
        self.running = reals(nodes)
        """By number of a score: the shares that have begun, and not ended."""
        self.ended = reals(nodes)
        """By number of a score: the shares that end before its next place."""


class Ring:
    """The F feasible nodes in the order of the search, and the W windows of K nodes on them.

    Window ``w`` begins at place ``w`` and continues from the last place to the first. If all feasible nodes are scored,
    there is one window. All arrays have room for N nodes.
    """

    def __init__(self, nodes: int) -> None:
        self.count = 0
        """F."""
        self.windows = 0
        """W: F, or 1 if all nodes are scored."""
        self.size = 0
        """K."""
        self.nodes = ints(nodes)
        """(F,) the node at each place."""
        self.rank = ints(nodes)
        """(F,) its place among all nodes in the order of the search."""
        self.weight = reals(nodes)
        """(W,) the probability of each window; they sum up to 1."""
        self.kind = ints(nodes)
        """(W,) the kind of each window."""
        self.first = ints(_MAX_KINDS)
        """(kinds,) the first window of each kind."""
        self.sorted = ints(_MAX_KINDS)
        """(kinds,) the kinds in the order of their extremes."""
        self.times = ints(nodes)
        """(W,) how often each window counts: once, unless a sample represents all."""
        self.chance = reals(2 * nodes)
        """(F,) the result: the probability that each node is chosen, up to a constant factor. Beyond, room for :func:`fold`."""
        self.queue = ints(2 * nodes)
        """Room for the places that may still be the best of a window, best first (a monotone queue)."""
        self.shares = LandingShares(nodes)


def weigh_windows(ring: Ring, nodes: int, most: int) -> None:
    """Set up the windows over the feasible nodes, of which the scheduler scores ``most``; ``nodes``: the size of the cluster."""
    count = ring.count
    ring.size = min(count, most)
    ring.windows = count if count > most else 1
    if ring.windows == 1:
        ring.weight[0] = 1.0
    else:
        before = ring.rank[count - 1] - nodes
        for place in range(count):
            ring.weight[place] = float(ring.rank[place] - before) / nodes
            before = ring.rank[place]
    for window in range(ring.windows):
        ring.times[window] = 1
    for place in range(count + ring.size):
        ring.chance[place] = 0.0


def slide(ring: Ring, values: memoryview, sign: int, extremes: memoryview, offset: int) -> None:
    """Write the largest (``sign`` 1) or smallest (-1) of the ``values`` (F,) in each window into ``extremes``.

    The value of window ``w`` is written to ``extremes[offset + w]``.
    """
    count, queue, size = ring.count, ring.queue, ring.size
    if _is_even(values, count):
        fill(ring, extremes, offset, values[0])
        return
    front = back = 0
    for place in range(ring.windows + size - 1):
        value = sign * values[place if place < count else place - count]
        while back > front:
            last = queue[back - 1]
            if sign * values[last if last < count else last - count] > value:
                break
            back -= 1
        queue[back] = place
        back += 1
        window = place - size + 1
        if window >= 0:
            while queue[front] < window:
                front += 1
            best = queue[front]
            extremes[offset + window] = values[best if best < count else best - count]


def _is_even(values: memoryview, count: int) -> bool:
    for place in range(1, count):
        if values[place] != values[0]:
            return False
    return True


def fill(ring: Ring, extremes: memoryview, offset: int, value: int) -> None:
    """Write ``value`` for each window, see :func:`slide`."""
    for window in range(ring.windows):
        extremes[offset + window] = value


def count_distinct(
    ring: Ring,
    labels: memoryview,
    ignored: memoryview,
    seen: memoryview,
    distinct: memoryview,
    offset: int,
) -> None:
    """Write the number of distinct labels in each window into ``distinct``, see :func:`slide`; ``ignored`` nodes do not count.

    ``labels`` and ``ignored`` (N,) are of all nodes. ``seen``: zeros, one for each label; zeros again afterwards.
    """
    count, size = ring.count, ring.size
    number = 0
    for place in range(ring.windows + size - 1):
        node = ring.nodes[place if place < count else place - count]
        if not ignored[node]:
            label = labels[node]
            number += seen[label] == 0
            seen[label] += 1
        window = place - size + 1
        if window >= 0:
            distinct[offset + window] = number
            node = ring.nodes[window]
            if not ignored[node]:
                label = labels[node]
                seen[label] -= 1
                number -= seen[label] == 0
    for place in range(count):
        seen[labels[ring.nodes[place]]] = 0


def number_kinds(ring: Ring, extremes: memoryview, rows: int) -> int:
    """Number the windows by their ``extremes``, and return the number of kinds.

    Of N nodes, the numbers of a row begin at ``row * N``. If there are more kinds than ``_MAX_KINDS``, that number of windows, evenly spread, represents all.
    """
    kinds = _number(ring, extremes, rows)
    if kinds > _MAX_KINDS:
        _choose_representatives(ring)
        kinds = _number(ring, extremes, rows)
    _sort_kinds(ring, extremes, rows, kinds)
    return kinds


def _sort_kinds(ring: Ring, extremes: memoryview, rows: int, kinds: int) -> None:
    """Sort the kinds by their extremes, so that shares are added in an order that no labels of nodes decide."""
    for kind in range(kinds):
        place = kind
        while place > 0 and _is_less(ring, extremes, rows, kind, ring.sorted[place - 1]):
            ring.sorted[place] = ring.sorted[place - 1]
            place -= 1
        ring.sorted[place] = kind


def _is_less(ring: Ring, extremes: memoryview, rows: int, kind: int, other: int) -> bool:
    size = len(ring.nodes)
    for row in range(rows):
        mine = extremes[row * size + ring.first[kind]]
        its = extremes[row * size + ring.first[other]]
        if mine != its:
            return mine < its
    return False


def _number(ring: Ring, extremes: memoryview, rows: int) -> int:
    """Number the windows that count; return the number of kinds, or one too many if there are too many."""
    kinds = 0
    for window in range(ring.windows):
        ring.kind[window] = -1
        if ring.times[window] == 0:
            continue
        kind = _find_kind(ring, extremes, rows, window, kinds)
        if kind == kinds:
            if kinds == _MAX_KINDS:
                return kinds + 1
            ring.first[kinds] = window
            kinds += 1
        ring.kind[window] = kind
    return kinds


def _find_kind(ring: Ring, extremes: memoryview, rows: int, window: int, kinds: int) -> int:
    """Return the kind of a window among the first ``kinds``; ``kinds`` itself if it is of a new one."""
    size = len(ring.nodes)
    before = window - 1
    if window > 0 and ring.kind[before] >= 0 and _is_same(extremes, rows, size, window, before):
        return ring.kind[before]
    for kind in range(kinds):
        if _is_same(extremes, rows, size, window, ring.first[kind]):
            return kind
    return kinds


def _is_same(extremes: memoryview, rows: int, size: int, window: int, other: int) -> bool:
    for row in range(rows):
        if extremes[row * size + window] != extremes[row * size + other]:
            return False
    return True


def _choose_representatives(ring: Ring) -> None:
    """Let ``_MAX_KINDS`` windows count, those in the middle of equal parts of the whole weight, and no other."""
    below = 0.0
    chosen = 0
    for window in range(ring.windows):
        below += ring.weight[window]
        ring.weight[window] = 1.0 / _MAX_KINDS
        ring.times[window] = 0
        last = window == ring.windows - 1
        while chosen < _MAX_KINDS and ((chosen + 0.5) / _MAX_KINDS <= below or last):
            ring.times[window] += 1
            chosen += 1


def share_out(ring: Ring, totals: memoryview, kind: int) -> None:
    """Add to each node its share of the windows of a kind, where the nodes' scores are ``totals`` (F,).

    The scheduler chooses one of the best nodes of a window at random.
    """
    if ring.windows == 1:
        _choose_best(ring, totals)
        return
    _number_values(ring, totals)
    _mark_shares(ring, totals, kind)
    _add_shares(ring)


def _choose_best(ring: Ring, totals: memoryview) -> None:
    """Let the nodes with the best score have chance 1, and others 0."""
    most = totals[0]
    for place in range(1, ring.count):
        most = max(most, totals[place])
    for place in range(ring.count):
        ring.chance[place] = float(totals[place] == most)


def _number_values(ring: Ring, totals: memoryview) -> None:
    """Write a number for the score at each place into ``LandingShares.value``, equal for equal scores: a table by open addressing."""
    shares = ring.shares
    shares.round += 1
    mask = len(shares.table) - 1
    number = 0
    for place in range(ring.count):
        score = totals[place]
        entry = (score ^ (score >> 16)) & mask
        while shares.written[entry] == shares.round and shares.table[entry] != score:
            entry = (entry + 1) & mask
        if shares.written[entry] != shares.round:
            shares.written[entry] = shares.round
            shares.table[entry] = score
            shares.number[entry] = number
            shares.running[number] = shares.ended[number] = 0.0
            number += 1
        shares.value[place] = shares.number[entry]


def _mark_shares(ring: Ring, totals: memoryview, kind: int) -> None:
    """Write for each window of the kind its share: where its best nodes begin, and where they end.

    The queue contains the places of a window whose score no later place exceeds; the best ones are first.
    """
    count, size, queue, shares = ring.count, ring.size, ring.queue, ring.shares
    front = back = best = 0
    for place in range(count + size):
        shares.begun[place] = shares.left[place] = 0.0
    for place in range(count + size - 1):
        score = totals[place if place < count else place - count]
        while back > front:
            last = queue[back - 1]
            if totals[last if last < count else last - count] >= score:
                break
            back -= 1
        queue[back] = place
        back += 1
        best = min(best, back - front - 1)
        window = place - size + 1
        if window > 0 and queue[front] < window:
            front += 1
            best = max(best - 1, 0)
        if window >= 0 and ring.kind[window] == kind:
            best = _count_best(ring, front, back, best)
            share = ring.weight[window] / best
            for _ in range(ring.times[window]):
                shares.begun[queue[front]] += share
                shares.left[queue[front + best - 1]] += share


def _count_best(ring: Ring, front: int, back: int, best: int) -> int:
    """Return how many entries of the queue are equal to its first; at least ``best`` are."""
    count, queue, shares = ring.count, ring.queue, ring.shares
    first = queue[front]
    most = shares.value[first if first < count else first - count]
    while front + best < back:
        at = queue[front + best]
        if shares.value[at if at < count else at - count] != most:
            break
        best += 1
    return best


def _add_shares(ring: Ring) -> None:
    """Add the shares to the nodes: each place has those that have begun at equal scores before, and not ended."""
    count, shares = ring.count, ring.shares
    for place in range(count + ring.size):
        number = shares.value[place if place < count else place - count]
        shares.running[number] += shares.begun[place] - shares.ended[number]
        shares.ended[number] = shares.left[place]
        if shares.running[number] > 0.0:
            ring.chance[place] += shares.running[number]


def fold(ring: Ring) -> None:
    """Add the values of places beyond the last one to the first places, which are the same nodes."""
    if ring.windows > 1:
        for place in range(ring.size):
            ring.chance[place] += ring.chance[ring.count + place]
