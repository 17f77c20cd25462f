"""Find the smallest set of nodes to mark so that the scheduler chooses a given node.

The arithmetic of TaintToleration is reproduced exactly. A mark adds one PreferNoSchedule taint. The plug-in scores
``100 - 100 * count // most``, with the largest count of the nodes that are scored, and its weight is so large that
it outweighs the differences of all other scores in most clusters (``plugins/tainttoleration``,
``DefaultNormalizeScore``). Whether marks raise ``most`` decides what each is worth, so both cases are computed. A
node wins for certain if every other node scores less: exactly the nodes with an equal or higher score must be
marked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rebalancer.scheduler.profile import TAINT_TOLERATION
from rebalancer.snapshot.columns import Int32s, Ints

NEVER = np.iinfo(np.int32).max
"""In place of a number of marks: no marks make the scheduler choose this node."""


@dataclass(frozen=True, slots=True)
class _Case:
    """The nodes to mark, given the largest count of soft taints on any node."""

    scores: Ints
    """(F,) total of each node that is not marked."""
    least: Int32s
    """(F,) how many nodes have to be marked for each to win, NEVER where that cannot be."""
    raised: bool
    """Whether a node with the largest count has to be among those that are marked."""


def _from_fewest(raw: Ints, largest: int) -> Ints:
    """Return 100 for a raw score of 0, less for more (``DefaultNormalizeScore``, reversed)."""
    return 100 - 100 * raw // max(largest, 1)


class Steering:
    """For each scored node (F,): the smallest set of other nodes to mark so that it wins, and its size."""

    def __init__(
        self,
        nodes: Int32s,
        total: Ints,
        taints: Ints,
        weights: Mapping[str, int],
        *,
        tolerated: bool,
    ) -> None:
        """``total`` (F,): the scores without marks; ``taints`` (F,): the number of untolerated soft taints.

        ``tolerated``: the pod tolerates marks.
        """
        self.nodes = nodes
        self._taints = taints
        weight = 0 if tolerated else weights.get(TAINT_TOLERATION, 0)
        self._most = int(taints.max(initial=0))
        others = total - weights.get(TAINT_TOLERATION, 0) * _from_fewest(taints, self._most)
        cases = [_unmark(total)]
        if weight and len(nodes):
            if self._most:
                cases[0] = _case(others, taints, self._most, weight, raised=False)
            cases.append(_case(others, taints, self._most + 1, weight, raised=True))
        self._cases = cases
        self.marks: Int32s = np.min([case.least for case in cases], axis=0).astype(np.int32)
        """(F,) how many nodes have to be marked for each to win for sure, NEVER where no marks do it."""

    def to_mark(self, place: int) -> Int32s:
        """Return the nodes, ascending, to mark so that ``nodes[place]`` wins; ``marks[place]`` must not be NEVER."""
        case = min(self._cases, key=lambda case: int(case.least[place]))
        marked = case.scores >= case.scores[place]
        marked[place] = False
        top = self._taints == self._most
        if case.raised and not (marked & top).any():
            top[place] = False
            marked[np.flatnonzero(top)[0]] = True
        return np.sort(self.nodes[marked])


def _unmark(total: Ints) -> _Case:
    best = total == total.max(initial=0)
    least = np.where(best & (np.count_nonzero(best) == 1), 0, NEVER)
    return _Case(total, least.astype(np.int32), raised=False)


def _case(others: Ints, taints: Ints, most: int, weight: int, *, raised: bool) -> _Case:
    """Return the nodes to mark if ``most`` is the largest count; ``raised``: a mark has raised it."""
    plain = others + weight * _from_fewest(taints, most)
    marked = others + weight * _from_fewest(taints + 1, most)
    top = taints == (most - 1 if raised else most)
    order = np.argsort(-plain, kind="stable")
    ordered = plain[order]
    # How many score as much as each, or more: itself among them, which a mark would lower, too.
    until = np.searchsorted(-ordered, -ordered, side="right")
    best_marked = np.maximum.accumulate(marked[order])[until - 1]
    tops = np.cumsum(top[order])[until - 1] - top[order]
    least = until - 1
    wins = best_marked < ordered
    if raised:
        # Marking one more lifts the largest count, if there is another one that has it.
        elsewhere = np.count_nonzero(top) - top[order] > 0
        least = least + (tops == 0)
        wins &= elsewhere
    else:
        wins &= tops == 0
    fewest = np.full(len(plain), NEVER, np.int32)
    fewest[order] = np.where(wins, least, NEVER)
    return _Case(plain, fewest, raised)
