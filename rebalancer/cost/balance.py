"""The balance of nodes by the shares of their resources that are requested or used, as the core computes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from rebalancer.core.balance import (
    Amounts,
    BalanceRule,
    Measurement,
    Thresholds,
    update,
    write_relief,
)
from rebalancer.core.views import view_of
from rebalancer.cost.groups import changes_of
from rebalancer.cost.term import Candidates
from rebalancer.cost.view import View
from rebalancer.snapshot.columns import Bools, Floats, Int32s, Same
from rebalancer.snapshot.model import MEASURED


def amounts_of(view: View) -> Amounts:
    """Return the usage of pods in the view's state, in the core's form; always the same object."""
    state = view.state
    held = state.lasting, state.lasting_usage, state.lasting_count, state.lasting_changes
    return view.once("amounts", lambda: Amounts(*map(view_of, held)))


class LoadBalance:
    """The cost of over-used and uneven nodes, and the pods that could leave them."""

    MEASURED = MEASURED
    """The resources whose use is measured."""
    Rule: TypeAlias = BalanceRule

    @dataclass(frozen=True, slots=True, eq=False)
    class Limits:
        """The thresholds for Q resources of N nodes."""

        resources: Sequence[str]
        """Q names; ``pods`` is the number of pods."""
        capacity: Floats
        """(Q, N) capacity of each node."""
        counts: Bools
        """(Q, N) whether the resource of the node counts."""
        over: Floats
        """(Q,) above this share a node is over-used."""
        under: Floats
        """(Q,) up to these shares a node is under-used."""
        mean: Floats
        """(Q,) the mean share at first."""
        gap: float
        """How much emptier than an over-used node another node must be to receive its pods, unless that node is under-used."""
        usable: Bools
        """(N,) nodes that may receive pods."""

    @dataclass(frozen=True, slots=True, eq=False)
    class Measured:
        """How the measured use of nodes counts."""

        rows: Sequence[int]
        """For each of Q resources, its row in the measured amounts; -1: the resource counts by requests."""
        demands: Floats
        """(Q, C) measured usage of a pod of each class."""
        known: Bools
        """(N,) nodes that were measured; others count by requests."""
        judged: Bools
        """(N,) nodes that may be over-used."""
        lasts: Bools
        """(N,) nodes whose measured usage allows moving pods off them."""
        by_request: Bools
        """(Q,) resources by which any node may give pods, once more is requested than the threshold."""
        larger: bool
        """Whether the larger of requests and use counts."""

    def __init__(
        self, view: View, demands: Floats, limits: Limits, measured: Measured | None = None
    ) -> None:
        """``demands`` (Q, C): what a pod of each class requests."""
        self._view = view
        self._masks: dict[int, Any] = {}
        """Class -> see :meth:`_mask_of`."""
        self._views: dict[Same, Any] = {}
        self.rule = BalanceRule(
            amounts_of(view),
            _reals(demands),
            _lower(view, limits),
            None if measured is None else _lower_measured(measured),
            self._mask_of,
        )

    def _mask_of(self, cls: int) -> Any:
        """Return a view of the nodes (N,) that the replacement of a class could ever use; one for all equal masks."""
        made = self._masks.get(cls)
        if made is None:
            usable = self._view.usable(self._view.snapshot.classes[cls].replacement)
            mask = Same(self._view.shared(usable))
            made = self._masks[cls] = self._views.setdefault(mask, view_of(mask.array))
        return made

    def cost(self) -> Floats:
        """Return the cost of each node (N,)."""
        update(self.rule)
        return np.asarray(self.rule.cost)

    def inviting(self) -> Floats:
        """Return the utilisation (N,) of each node as a target: -inf if under-used, inf if it receives no pods."""
        update(self.rule)
        return np.asarray(self.rule.inviting)

    def full(self) -> Floats:
        """Return the highest utilisation (N,) of a target for pods of each node."""
        update(self.rule)
        return np.asarray(self.rule.full)

    def giving(self) -> Bools:
        """Return the nodes (N,) that give pods: over-used ones that some node is empty enough for."""
        update(self.rule)
        gives = np.asarray(self.rule.gives) != 0
        giving: Bools = gives & (self.inviting().min(initial=np.inf) <= self.full())
        return giving

    def leaving(self, nodes: Bools, classes: Int32s | None = None) -> Candidates:
        """Return the pairs on ``nodes`` (N,) that could gain, as if these gave pods."""
        cls, node = self._view.pairs_on(nodes, classes)
        gain = np.zeros(len(cls))
        some, first = np.unique(cls, return_index=True)
        for of_class, start, end in zip(
            some.tolist(), first, np.append(first, len(cls))[1:], strict=True
        ):
            here = view_of(np.ascontiguousarray(node[start:end]))
            write_relief(self.rule, of_class, here, view_of(gain[start:end]))
        useful = gain > 0
        return Candidates(cls[useful], node[useful], gain[useful])

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:
        """Return the change (K,) if a pod moves from ``node`` to each destination."""
        return changes_of(self.rule, cls, node, replacement, destinations)


def _lower(view: View, limits: LoadBalance.Limits) -> Thresholds:
    known = view.snapshot.resources
    rows = [
        -2 if name == "pods" else known.index(name) if name in known else -1
        for name in limits.resources
    ]
    return Thresholds(
        view_of(np.array(rows, np.int64)),
        _reals(limits.capacity),
        view_of(np.ascontiguousarray(limits.counts)),
        _reals(limits.over),
        _reals(limits.under),
        _reals(limits.mean),
        limits.gap,
        view_of(np.ascontiguousarray(limits.usable)),
    )


def _lower_measured(measured: LoadBalance.Measured) -> Measurement:
    known, judged, lasts, by_request = (
        view_of(np.ascontiguousarray(some))
        for some in (measured.known, measured.judged, measured.lasts, measured.by_request)
    )
    rows, demands = view_of(np.array(measured.rows, np.int64)), _reals(measured.demands)
    return Measurement(rows, demands, known, judged, lasts, by_request, measured.larger)


def _reals(values: Floats) -> Any:
    return view_of(np.ascontiguousarray(values, np.float64))
