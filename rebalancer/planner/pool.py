"""Who is wished away: the (class, node) pairs that terms would rather see gone, and what that could gain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.cost.term import Entry, Pricing
from rebalancer.planner.judge import Weighted
from rebalancer.snapshot.columns import Int32s

Pair = tuple[int, int]
"""A class and a node."""


@dataclass(slots=True)
class Wish:
    """What the terms expect of one pair."""

    gains: list[float]
    """Per entry, the most that one pod leaving can gain."""
    strategy: str
    """The one with the largest share in the entry that decides."""
    entry: int
    share: float
    promised: list[float]
    """The same as ``gains`` until a closer look lowers those."""


class Pool:
    """All pairs that some term wants to see gone."""

    def __init__(self, terms: Sequence[Weighted]) -> None:
        self._terms = terms
        self._of_class: dict[int, dict[int, Wish]] = {}
        self.seen: set[Pair] = set()
        """Every pair that was ever wished for."""
        of_balance = [w for w in terms if w.term.entry is Entry.IMBALANCE]
        pricing = [(w, w.term) for w in of_balance if isinstance(w.term, Pricing)]
        self._pricing = pricing if len(pricing) == len(of_balance) else []
        """The terms of imbalance, if all of them can be asked about one pair."""
        self.refresh(None)

    def pairs(self) -> Iterator[Pair]:
        """Yield all pairs that are wished for now."""
        for cls, wishes in self._of_class.items():
            for node in wishes:
                yield cls, node

    def get(self, pair: Pair) -> Wish | None:
        """Return what is wished for a pair, None if nothing is any more."""
        return self._of_class.get(pair[0], {}).get(pair[1])

    def refresh(self, classes: Int32s | None) -> list[Pair]:
        """Ask the terms again about ``classes`` (None: all); return the pairs they name."""
        for cls in classes.tolist() if classes is not None else list(self._of_class):
            self._of_class.pop(cls, None)
        found: dict[Pair, None] = {}
        for weighted in self._terms:
            rows = weighted.term.candidates(classes)
            if not len(rows.cls):
                continue
            entry = int(weighted.term.entry)
            for cls, node, gain in zip(
                rows.cls.tolist(),
                rows.node.tolist(),
                (rows.gain * weighted.weight).tolist(),
                strict=True,
            ):
                found[cls, node] = None
                self._add(cls, node, entry, gain, weighted.strategy)
        self.seen.update(found)
        return list(found)

    def has_rules(self, cls: int) -> bool:
        """Tell whether a hard or soft rule wants some pod of a class gone."""
        return any(w.promised[0] or w.promised[1] for w in self._of_class.get(cls, {}).values())

    def renew(self, pair: Pair) -> None:
        """Ask the terms again about a pair that is only about imbalance."""
        cls, node = pair
        if not self._pricing:
            self.refresh(np.array([cls], np.int32))
            return
        self._of_class.get(cls, {}).pop(node, None)
        for weighted, term in self._pricing:
            if (gain := term.gain_of(cls, node)) > 0:
                self._add(
                    cls, node, int(Entry.IMBALANCE), gain * weighted.weight, weighted.strategy
                )

    def _add(self, cls: int, node: int, entry: int, gain: float, strategy: str) -> None:
        wishes = self._of_class.setdefault(cls, {})
        wish = wishes.get(node)
        if wish is None:
            wish = wishes[node] = Wish([0.0, 0.0, 0.0], strategy, entry, gain, [0.0, 0.0, 0.0])
        elif (-entry, gain) > (-wish.entry, wish.share):
            wish.strategy, wish.entry, wish.share = strategy, entry, gain
        wish.gains[entry] += gain
        wish.promised[entry] += gain
