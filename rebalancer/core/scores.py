"""The scheduler's scores that are normalised: raw values of the feasible nodes, their extremes, and totals.

Sources: ``plugins/helper/normalize_score.go``, ``plugins/podtopologyspread/scoring.go``,
``plugins/interpodaffinity/scoring.go``, and NormalizeScore of each plug-in.
"""

from __future__ import annotations

from dataclasses import dataclass

from rebalancer.core.counts import DomainCounts
from rebalancer.core.numbers import round_half_up, truncate
from rebalancer.core.views import ints, reals
from rebalancer.core.windows import Ring, count_distinct, fill, slide

_MAX = 100
_BEYOND = 1 << 62
"""More than any raw score."""
_TAINTS, _AFFINITY, _LEAST_PODS, _MOST_PODS, _SIZES = 0, 1, 2, 3, 4
"""Rows of ``Board.extremes``; from ``_SIZES`` on one for each soft spread constraint, and two for the bounds of spread."""


NORMALISED = ("TaintToleration", "NodeAffinity", "InterPodAffinity", "PodTopologySpread")
"""The plug-ins whose scores are normalised, by their numbers. Of a class with alternatives of devices (``firstAvailable``),
DynamicResources takes the place of NodeAffinity."""
_BY_TAINTS, _BY_AFFINITY, _BY_PODS, _BY_SPREAD = 0, 1, 2, 3
_PLUG_INS = len(NORMALISED)


@dataclass(eq=False, repr=False)
class Weights:
    """The weights of the plug-ins whose scores are normalised; 0: it does not score."""

    taints: int
    """The weight of TaintToleration."""
    affinity: int
    """The weight of NodeAffinity."""
    pods: int
    """The weight of InterPodAffinity."""
    spread: int
    """The weight of PodTopologySpread."""


@dataclass(eq=False, repr=False)
class Preference:
    """A preference for or against the domains of some pods, for each of them."""

    pods: DomainCounts
    weight: int


@dataclass(eq=False, repr=False)
class SpreadArrays:
    """A topology spread constraint with ScheduleAnyway."""

    pods: DomainCounts
    shift: int
    """``maxSkew`` - 1."""
    labels: memoryview
    """(N,) numbers of the domains as they are counted for the weight of the constraint."""
    seen: memoryview
    """Room to count them: a zero for each at least."""
    per_node: bool
    """Whether each node is a domain of its own."""


@dataclass(eq=False, repr=False)
class Preferences:
    """The preferences of one pod. (N,) arrays are of all nodes."""

    taints: memoryview
    """(N,) PreferNoSchedule taints that it does not tolerate."""
    marked: memoryview
    """(N,) nodes that are supposed to carry one more."""
    affinity: memoryview | None
    """(N,) summed weights of the matching terms of preferred node affinity, or the scores of its alternatives of devices
    (DynamicResources); None: it has neither."""
    fixed: memoryview | None
    """(N,) weighted scores that need no normalisation, beside those of requests; None: all are 0."""
    pods: list[Preference]
    spread: list[SpreadArrays]
    ignored: memoryview
    """(N,) nodes that lack a key of the soft spread constraints, and score 0."""
    ignores: bool
    """Whether any node is ignored."""


class Board:
    """Room for the scores of one prediction; arrays (F,) are in the order of the ring."""

    def __init__(self, nodes: int, rows: int, logarithms: memoryview) -> None:
        """``rows``: how many soft spread constraints a pod has at most."""
        self.logarithms = logarithms
        """Of 2, 3, 4 ... (N + 3,): the weight of a spread constraint with 0, 1, 2 ... domains."""
        self.fixed = ints(nodes)
        """(F,) scores that need no normalisation, weighted."""
        self.taints = ints(nodes)
        self.affinity = ints(nodes)
        self.pods = ints(nodes)
        self.spread = ints(nodes)
        """(F,) raw scores."""
        self.totals = ints(nodes)
        """(F,) the sum of all weighted scores, for one kind of windows, up to a constant."""
        self.sums = reals(nodes)
        """(F,) raw spread scores before they are rounded."""
        self.bounded = ints(nodes)
        """(F,) raw spread scores; where a node is ignored, a number that bounds nothing."""
        self.low = ints(nodes)
        """(W,) the smallest raw spread score of each window."""
        self.high = ints(nodes)
        """(W,) the largest one."""
        self.done = ints(nodes)
        """(W,) whether the raw spread scores of each window are bounded."""
        self.extremes = ints((_SIZES + rows + 2) * nodes)
        """(rows * N,) what normalisation needs of each window, row by row, see the names of the rows."""


def read_scores(board: Board, ring: Ring, preferences: Preferences) -> None:
    """Write the raw scores of the feasible nodes that do not depend on windows; add to ``board.fixed``."""
    for place in range(ring.count):
        node = ring.nodes[place]
        board.taints[place] = preferences.taints[node] + preferences.marked[node]
        board.pods[place] = 0
    if preferences.affinity is not None:
        for place in range(ring.count):
            board.affinity[place] = preferences.affinity[ring.nodes[place]]
    if preferences.fixed is not None:
        for place in range(ring.count):
            board.fixed[place] += preferences.fixed[ring.nodes[place]]
    for preference in preferences.pods:
        _add_preference(board, ring, preference)


def _add_preference(board: Board, ring: Ring, preference: Preference) -> None:
    pods = preference.pods
    for place in range(ring.count):
        board.pods[place] += preference.weight * pods.counts[pods.domain[ring.nodes[place]]]


def find_extremes(board: Board, ring: Ring, preferences: Preferences) -> int:
    """Write the extremes of each window, and return the number of their rows."""
    size, extremes = len(ring.nodes), board.extremes
    slide(ring, board.taints, 1, extremes, _TAINTS * size)
    if preferences.affinity is None:
        fill(ring, extremes, _AFFINITY * size, 0)
    else:
        slide(ring, board.affinity, 1, extremes, _AFFINITY * size)
    slide(ring, board.pods, -1, extremes, _LEAST_PODS * size)
    slide(ring, board.pods, 1, extremes, _MOST_PODS * size)
    if not preferences.spread:
        return _SIZES
    row = _SIZES
    for constraint in preferences.spread:
        _count_domains(board, ring, preferences, constraint, row * size)
        row += 1
    _bound_spread(board, ring, preferences, row)
    return row + 2


def _count_domains(
    board: Board, ring: Ring, preferences: Preferences, constraint: SpreadArrays, offset: int
) -> None:
    """Write the number of the constraint's domains in each window."""
    if constraint.per_node and not preferences.ignores:
        fill(ring, board.extremes, offset, ring.size)
        return
    labels, seen = constraint.labels, constraint.seen
    count_distinct(ring, labels, preferences.ignored, seen, board.extremes, offset)


def _bound_spread(board: Board, ring: Ring, preferences: Preferences, row: int) -> None:
    """Write the smallest and the largest raw spread score of each window, from ``row`` on.

    They depend on the window's numbers of domains.
    """
    size, extremes = len(ring.nodes), board.extremes
    for window in range(ring.windows):
        board.done[window] = 0
    for window in range(ring.windows):
        if board.done[window]:
            continue
        _score_spread(board, ring, preferences, window)
        _find_bound(board, ring, preferences, -1, board.low)
        _find_bound(board, ring, preferences, 1, board.high)
        for other in range(window, ring.windows):
            if _has_sizes(board, row, size, window, other):
                low = board.low[other]
                extremes[row * size + other] = 0 if low == _BEYOND else low
                extremes[(row + 1) * size + other] = board.high[other]
                board.done[other] = 1


def _find_bound(
    board: Board, ring: Ring, preferences: Preferences, sign: int, bounds: memoryview
) -> None:
    """Write the smallest (``sign`` -1) or largest raw spread score of the nodes in each window that are not ignored."""
    ignored = 0 if sign > 0 else _BEYOND
    for place in range(ring.count):
        raw = board.spread[place]
        board.bounded[place] = ignored if preferences.ignored[ring.nodes[place]] else raw
    slide(ring, board.bounded, sign, bounds, 0)


def _has_sizes(board: Board, rows: int, size: int, window: int, other: int) -> bool:
    """Return whether two windows have the same numbers of domains."""
    for row in range(_SIZES, rows):
        if board.extremes[row * size + window] != board.extremes[row * size + other]:
            return False
    return True


def _score_spread(board: Board, ring: Ring, preferences: Preferences, window: int) -> None:
    """Write the raw spread scores (F,) for the numbers of domains of a window."""
    for place in range(ring.count):
        board.sums[place] = 0.0
    row = _SIZES
    for constraint in preferences.spread:
        domains = board.extremes[row * len(ring.nodes) + window]
        _add_spread(board, ring, constraint, board.logarithms[domains])
        row += 1
    for place in range(ring.count):
        board.spread[place] = round_half_up(board.sums[place])


def _add_spread(board: Board, ring: Ring, constraint: SpreadArrays, weight: float) -> None:
    """Add what a constraint contributes to the raw spread scores; nothing for nodes that lack its key."""
    pods, shift = constraint.pods, float(constraint.shift)
    for place in range(ring.count):
        node = ring.nodes[place]
        if pods.domain[node] != pods.size:
            board.sums[place] += pods.counts[pods.domain[node]] * weight + shift


def add_up(
    board: Board, ring: Ring, preferences: Preferences, weights: Weights, window: int
) -> None:
    """Write the total scores (F,) for all windows of the kind of ``window``, up to a constant.

    Nodes outside a window may lie outside its extremes; they are not looked at.
    """
    for place in range(ring.count):
        board.totals[place] = board.fixed[place]
    for number in range(_PLUG_INS):
        _add_one(board, ring, preferences, weights, window, number)


def _add_one(
    board: Board,
    ring: Ring,
    preferences: Preferences,
    weights: Weights,
    window: int,
    number: int,
) -> None:
    """Add the scores of one of ``NORMALISED`` to the totals; of TaintToleration up to a constant."""
    if number == _BY_TAINTS:
        _add_taints(board, ring, weights, window)
    elif number == _BY_AFFINITY:
        _add_affinity(board, ring, weights, window)
    elif number == _BY_PODS:
        _add_pods(board, ring, weights, window)
    elif number == _BY_SPREAD and preferences.spread:
        _score_spread(board, ring, preferences, window)
        _add_evenness(board, ring, preferences, weights, window)


def _add_taints(board: Board, ring: Ring, weights: Weights, window: int) -> None:
    """Add the scores of TaintToleration to the totals; nothing where no node has a taint."""
    most = board.extremes[_TAINTS * len(ring.nodes) + window]
    if most > 0:
        for place in range(ring.count):
            board.totals[place] += weights.taints * (_MAX - _MAX * board.taints[place] // most)


def _add_affinity(board: Board, ring: Ring, weights: Weights, window: int) -> None:
    """Add the scores of NodeAffinity to the totals."""
    most = board.extremes[_AFFINITY * len(ring.nodes) + window]
    if most > 0:
        for place in range(ring.count):
            board.totals[place] += weights.affinity * (_MAX * board.affinity[place] // most)


def write_each(
    board: Board,
    ring: Ring,
    preferences: Preferences,
    weights: Weights,
    scores: memoryview,
    first: int,
) -> None:
    """Write the weighted scores (F,) of each of ``NORMALISED`` into ``scores``, from ``first`` on; all nodes are in one window."""
    for number in range(_PLUG_INS):
        # Where no node has a taint, all get the most.
        untainted = board.extremes[_TAINTS * len(ring.nodes)] <= 0
        start = weights.taints * _MAX if number == _BY_TAINTS and untainted else 0
        for place in range(ring.count):
            board.totals[place] = start
        _add_one(board, ring, preferences, weights, 0, number)
        for place in range(ring.count):
            scores[first + number * ring.count + place] = board.totals[place]


def _add_pods(board: Board, ring: Ring, weights: Weights, window: int) -> None:
    """Add the scores of InterPodAffinity to the totals."""
    size = len(ring.nodes)
    low = board.extremes[_LEAST_PODS * size + window]
    high = board.extremes[_MOST_PODS * size + window]
    if high == low:
        return
    span = float(high - low)
    for place in range(ring.count):
        above = min(max(board.pods[place], low), high) - low
        board.totals[place] += weights.pods * truncate(float(_MAX) * (float(above) / span))


def _add_evenness(
    board: Board, ring: Ring, preferences: Preferences, weights: Weights, window: int
) -> None:
    """Add the scores of PodTopologySpread to the totals: fewer matching pods are better, ignored nodes get 0."""
    size = len(ring.nodes)
    row = _SIZES + len(preferences.spread)
    low = board.extremes[row * size + window]
    high = board.extremes[(row + 1) * size + window]
    for place in range(ring.count):
        if preferences.ignored[ring.nodes[place]]:
            continue
        score = _MAX
        if high > 0:
            score = _MAX * (high + low - board.spread[place]) // high
        board.totals[place] += weights.spread * score
