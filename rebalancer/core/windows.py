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


class Ring:
    """The F feasible nodes in the order of the search, and the W windows of K nodes on them.

    Window ``w`` begins at place ``w`` and goes on from the last place to the first. If all feasible nodes are scored,
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
        self.chance = reals(nodes)
        """(F,) the result: the probability that each node is chosen."""
        self.queue = ints(2 * nodes)
        """Room for the places that may still be the best of a window, best first (a monotone queue)."""
        self.joined = reals(2 * nodes)
        """Beside the queue: what each of the best nodes had been given when it became one."""


def weigh_windows(ring: Ring, nodes: int, most: int) -> None:
    """Set up the windows over the feasible nodes, of which the scheduler scores ``most``, in a cluster of so many ``nodes``."""
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
    for place in range(count):
        ring.chance[place] = 0.0


def slide(ring: Ring, values: memoryview, sign: int, extremes: memoryview, offset: int) -> None:
    """Write the largest (``sign`` 1) or smallest (-1) of the ``values`` (F,) in each window into ``extremes``.

    That of window ``w`` goes to ``extremes[offset + w]``.
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

    Of N nodes, the numbers of a row begin at ``row * N``. If there are more kinds than ``_MAX_KINDS``, so many windows,
    evenly spread, stand for all.
    """
    kinds = _number(ring, extremes, rows)
    if kinds > _MAX_KINDS:
        _choose_representatives(ring)
        kinds = _number(ring, extremes, rows)
    return kinds


def _number(ring: Ring, extremes: memoryview, rows: int) -> int:
    """Number the windows that have a weight; return the number of kinds, or one too many if there are too many."""
    kinds = 0
    for window in range(ring.windows):
        ring.kind[window] = -1
        if ring.weight[window] == 0.0:
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
    """Give all weight to ``_MAX_KINDS`` windows: those in the middle of equal parts of the whole weight."""
    below = 0.0
    chosen = 0
    for window in range(ring.windows):
        below += ring.weight[window]
        ring.weight[window] = 0.0
        while chosen < _MAX_KINDS and (chosen + 0.5) / _MAX_KINDS <= below:
            ring.weight[window] += 1.0 / _MAX_KINDS
            chosen += 1


def share_out(ring: Ring, totals: memoryview, kind: int) -> None:
    """Add to each node its share of the windows of a kind, where the nodes' scores are ``totals`` (F,).

    The scheduler chooses one of the best nodes of a window at random. The queue holds the places of a window whose
    total no later place exceeds; the best ones are its first. ``level`` is what one that was always among the best
    has been given: each gets the difference between the levels at which it stopped and became one.
    """
    count, size, queue, joined = ring.count, ring.size, ring.queue, ring.joined
    front = back = best = 0
    level = 0.0
    for place in range(ring.windows + size - 1):
        value = totals[place if place < count else place - count]
        while back > front:
            last = queue[back - 1]
            at = last if last < count else last - count
            if totals[at] >= value:
                break
            back -= 1
            if back - front < best:
                ring.chance[at] += level - joined[back]
                best -= 1
        queue[back] = place
        back += 1
        window = place - size + 1
        if window > 0 and queue[front] < window:
            at = queue[front]
            if best > 0:
                ring.chance[at] += level - joined[front]
                best -= 1
            front += 1
        best = _join(ring, totals, front, back, best, level)
        if window >= 0 and ring.kind[window] == kind:
            level += ring.weight[window] / best
    for entry in range(front, front + best):
        at = queue[entry]
        ring.chance[at if at < count else at - count] += level - joined[entry]


def _join(ring: Ring, totals: memoryview, front: int, back: int, best: int, level: float) -> int:
    """Let the entries of the queue that are equal to its first be among the best; return how many are now."""
    count, queue = ring.count, ring.queue
    first = queue[front]
    most = totals[first if first < count else first - count]
    while front + best < back:
        at = queue[front + best]
        if totals[at if at < count else at - count] != most:
            break
        ring.joined[front + best] = level
        best += 1
    return best
