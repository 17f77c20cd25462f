"""A cache of predictions, each valid until something it depends on changes.

A prediction depends on the positions of the pods that the class's rules count, on the nodes that its replacement
fits, and on the scores of other nodes compared with the winners. A move elsewhere changes none of these, or lowers
the score of a node that did not win; then the prediction stays valid.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rebalancer.scheduler.kept_columns import Columns
from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.state import ClusterState

if TYPE_CHECKING:
    from rebalancer.scheduler.prediction import Prediction
    from rebalancer.scheduler.sampling import Margins

# How many numbers all kept margins may hold.
_KEPT_NUMBERS = 4_000_000


@dataclass(frozen=True, slots=True)
class Question:
    """The inputs on which a prediction depends."""

    key: Hashable
    """The replacement, and the kind of its source."""
    counted: Int32s
    """The classes that the replacement's rules count."""
    columns: Columns
    """What resources say now of the replacement."""
    static: Bools
    """(N,) the nodes that it could ever go to."""
    keeps: bool
    """Whether it rests on nothing else, so that it may be kept."""


@dataclass(slots=True)
class _Kept:
    prediction: Prediction
    stamp: int
    """Of the classes that the replacement's rules count, the victim still among them."""
    columns: Columns
    seen: int
    """Up to where the columns' journal of changes is in it."""
    margins: Margins
    """(N,) by how much the score of a node may rise without its winning anywhere."""


class KeptPredictions:
    """The latest prediction for each replacement and kind of source node."""

    def __init__(self, nodes: int) -> None:
        self._most = max(64, _KEPT_NUMBERS // max(1, nodes))
        self._kept: dict[Hashable, _Kept] = {}
        self._state: ClusterState | None = None

    def known(self, state: ClusterState, question: Question) -> Prediction | None:
        """Return the cached prediction for a question; None if something that it depends on has changed."""
        if state is not self._state:
            self._state = state
            self._kept.clear()
        if not question.keeps:
            return None
        kept = self._kept.get(question.key)
        if kept is None or kept.stamp != state.newest_stamp(question.counted):
            return None
        return kept.prediction if _stands(kept, question) else None

    def keep(
        self, state: ClusterState, question: Question, prediction: Prediction, margins: Margins
    ) -> None:
        """Cache a new prediction with the margins (N,) of the scores, for the state of the latest :meth:`known`."""
        if not question.keeps:
            return
        if question.key not in self._kept and len(self._kept) >= self._most:
            self._kept.pop(next(iter(self._kept)))
        stamp, seen = state.newest_stamp(question.counted), len(question.columns.journal)
        self._kept[question.key] = _Kept(prediction, stamp, question.columns, seen, margins)


def _stands(kept: _Kept, question: Question) -> bool:
    """Return whether the cached prediction is still valid, and update its record of the columns."""
    if question.columns is not kept.columns:
        return False
    journal, static = kept.columns.journal, question.static
    if kept.seen == len(journal):
        return True
    margins = kept.margins
    for node, rise, refits in journal[kept.seen :]:
        if not static[node]:
            continue
        if refits or (rise > 0 and rise >= margins[node]) or (rise < 0 and margins[node] == 0):
            return False
        if margins[node] > 0:
            margins[node] -= rise
    kept.seen = len(journal)
    return True


def unlimited(nodes: int) -> Margins:
    """Return infinite margins (N,), for a prediction that does not depend on scores."""
    return np.full(nodes, np.iinfo(np.int32).max // 2, np.int32)
