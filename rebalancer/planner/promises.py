"""What terms promise: the (class, node) pairs that they name, and how much a pod that leaves could gain at most."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.cost.term import Entry, Pricing
from rebalancer.planner.problem import WeightedTerm
from rebalancer.snapshot.columns import Int32s

Pair = tuple[int, int]
"""A class and a node."""
# Up to so many pairs of a class, what a closer look has shown of them is forgotten once a pod of it has moved.
_MANY = 30


@dataclass(slots=True)
class Promise:
    """What the terms expect of one pair."""

    gains: list[float]
    """Per entry, the most that one pod leaving can gain."""
    strategy: str
    """The one with the largest share in the entry that decides."""
    entry: int
    share: float
    promised: list[float]
    """The same as ``gains`` until a closer look lowers those."""


class Promises:
    """All pairs that some term names."""

    def __init__(self, terms: Sequence[WeightedTerm]) -> None:
        self._terms = terms
        self._of_class: dict[int, dict[int, Promise]] = {}
        self._ruled: dict[int, bool] = {}
        """Class -> whether a hard or soft rule names a pair of it, where that was asked for."""
        self.seen: set[Pair] = set()
        """Every pair that was ever named."""
        of_balance = [w for w in terms if w.term.entry is Entry.IMBALANCE]
        pricing = [(w, w.term) for w in of_balance if isinstance(w.term, Pricing)]
        self._pricing = pricing if len(pricing) == len(of_balance) else []
        """The terms of imbalance, if all of them can be asked about one pair."""
        self.refresh(None)

    def classes(self) -> Iterable[int]:
        """Return all classes of which a pair is named now."""
        return self._of_class

    def pairs(self) -> Iterator[Pair]:
        """Yield all pairs that are named now."""
        for cls, promises in self._of_class.items():
            for node in promises:
                yield cls, node

    def get(self, pair: Pair) -> Promise | None:
        """Return what is promised for a pair, None if no term names it any more."""
        return self._of_class.get(pair[0], {}).get(pair[1])

    def refresh(self, classes: Int32s | None) -> list[Pair]:
        """Ask the terms again about ``classes`` (None: all); return the pairs they name."""
        before: dict[int, dict[int, Promise]] = {}
        for cls in classes.tolist() if classes is not None else list(self._of_class):
            if (of_class := self._of_class.pop(cls, None)) is not None:
                before[cls] = of_class
            self._ruled.pop(cls, None)
        pairs: dict[Pair, None] = {}
        for weighted in self._terms:
            rows = weighted.selected_rows(weighted.term.candidates(classes))
            if not len(rows.cls):
                continue
            entry = int(weighted.term.entry)
            for cls, node, gain in zip(
                rows.cls.tolist(),
                rows.node.tolist(),
                (rows.gain * weighted.weight).tolist(),
                strict=True,
            ):
                pairs[cls, node] = None
                self._add(cls, node, entry, gain, weighted.strategy)
        for cls, of_class in before.items():
            self._keep_looks(of_class, self._of_class.get(cls, {}))
        self.seen.update(pairs)
        return list(pairs)

    @staticmethod
    def _keep_looks(before: Mapping[int, Promise], now: Mapping[int, Promise]) -> None:
        """Keep what a closer look has shown of nodes for which rules promise the same as before.

        Else all pods of a large owner, whose landings are all alike, would be judged again after each of its moves.
        """
        looked_at = [node for node, was in before.items() if was.gains != was.promised]
        for node in looked_at if len(looked_at) > _MANY else ():
            was, same = before[node], now.get(node)
            if (
                same is not None
                and any(same.promised[:2])
                and same.promised[:2] == was.promised[:2]
            ):
                same.gains = was.gains

    def has_rules(self, cls: int) -> bool:
        """Return whether a hard or soft rule names a pair of the class."""
        ruled = self._ruled.get(cls)
        if ruled is None:
            promises = self._of_class.get(cls, {}).values()
            ruled = self._ruled[cls] = any(p.promised[0] or p.promised[1] for p in promises)
        return ruled

    def renew(self, pair: Pair) -> None:
        """Ask the terms again about a pair that is only about imbalance."""
        cls, node = pair
        if not self._pricing:
            self.refresh(np.array([cls], np.int32))
            return
        self._of_class.get(cls, {}).pop(node, None)
        for weighted, term in self._pricing:
            if weighted.may_move(cls, node) and (gain := term.gain_of(cls, node)) > 0:
                self._add(
                    cls, node, int(Entry.IMBALANCE), gain * weighted.weight, weighted.strategy
                )

    def _add(self, cls: int, node: int, entry: int, gain: float, strategy: str) -> None:
        promises = self._of_class.setdefault(cls, {})
        promise = promises.get(node)
        if promise is None:
            promise = Promise([0.0, 0.0, 0.0], strategy, entry, gain, [0.0, 0.0, 0.0])
            promises[node] = promise
        elif (-entry, gain) > (-promise.entry, promise.share):
            promise.strategy, promise.entry, promise.share = strategy, entry, gain
        promise.gains[entry] += gain
        promise.promised[entry] += gain
