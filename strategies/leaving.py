"""Leaving: pods on nodes that are going away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import numpy as np
from pydantic import Field

from rebalancer.api import (
    LEAVING,
    Duration,
    Params,
    SelectorText,
    Snapshot,
    Strategy,
    Term,
    View,
)
from strategies.priced_nodes import EmptiedNodesTerm


class LeavingParams(Params):
    """Options of leaving: which nodes must be emptied."""

    nodes: tuple[str, ...] = Field(default=(), description="These nodes, by name.")
    selector: SelectorText = Field(
        default=SelectorText(),
        description="Nodes with these labels, as kubectl takes them; empty: none.",
    )
    lead_time: Duration = Field(
        default=timedelta(hours=1),
        description="How long before the time in the annotation rebalancer/leave pods begin to leave.",
    )
    annotation: bool = Field(
        default=True, description="Nodes annotated rebalancer/leave: a RFC 3339 time, or now."
    )
    drains: bool = Field(
        default=True, description="Nodes that rebalancer drain empties, while they are cordoned."
    )
    taints: tuple[str, ...] = Field(
        default=tuple(sorted(LEAVING.taints)),
        description="Nodes with one of these taints, whatever their value and effect.",
    )
    conditions: tuple[str, ...] = Field(
        default=tuple(sorted(LEAVING.conditions)),
        description="Nodes of which one of these conditions is True.",
    )


class Leaving(Strategy):
    """Moves pods off nodes that are going away, to nodes that stay.

    A node is going away by the annotation ``rebalancer/leave: <RFC 3339 time or now>``, by ``rebalancer drain``, by
    the taints of autoscalers and interruption handlers, by conditions (KEP-5683), or by the policy. This strategy
    does not cordon nodes: if replacements would land on a node that is going away, the pods stay, and the report
    says so.
    """

    Params = LeavingParams

    def terms(self, view: View, params: LeavingParams) -> Sequence[Term]:
        """Return one hard term: each pod on a node that is going away still has to move."""
        return [_LeavingTerm(view, params, _Reasons(view.snapshot, params).all())]


class _LeavingTerm(EmptiedNodesTerm):
    """The term for pods on nodes that are going away, with notes on these nodes."""

    def __init__(self, view: View, params: LeavingParams, reasons: dict[int, str]) -> None:
        names = view.snapshot.nodes.names
        super().__init__(
            view,
            list(reasons),
            lambda node: f"{names[node]} must be empty: {reasons.get(node, 'no')}",
        )
        self._notes = list(_notes(view.snapshot, params, reasons))

    def notes(self) -> Sequence[str]:
        """Return notes on nodes that still accept replacements, and on values that cannot be parsed."""
        return self._notes


class _Reasons:
    """Finds out why a node must be empty."""

    def __init__(self, snapshot: Snapshot, params: LeavingParams) -> None:
        self._snapshot, self._params = snapshot, params
        self._selected = np.zeros(len(snapshot.nodes), bool)
        if params.selector:
            self._selected = snapshot.nodes_matching(params.selector)
        self._begins = snapshot.captured_at + params.lead_time.total_seconds()

    def all(self) -> dict[int, str]:
        """Return node -> reason, for all nodes that must be empty."""
        nodes = range(len(self._snapshot.nodes))
        return {node: why for node in nodes if (why := self._of(node)) is not None}

    def _of(self, node: int) -> str | None:
        nodes, params = self._snapshot.nodes, self._params
        if nodes.names[node] in params.nodes:
            return "named by the policy"
        if self._selected[node]:
            return f"selected by {params.selector}"
        for taint in nodes.taint_sets[int(nodes.taint_set[node])]:
            if taint.key in params.taints:
                return f"tainted {taint.key}"
        return next(
            (
                notice.text
                for notice in nodes.notices.get(node, ())
                if notice.holds(
                    params.conditions,
                    drains=params.drains,
                    annotation=params.annotation,
                    scale_in=False,  # the strategy of that name empties these
                    until=self._begins,
                )
            ),
            None,
        )


def _notes(snapshot: Snapshot, params: LeavingParams, reasons: dict[int, str]) -> Iterator[str]:
    nodes = snapshot.nodes
    effects = ("NoSchedule", "NoExecute")
    for node in sorted(reasons):
        taints = nodes.taint_sets[int(nodes.taint_set[node])]
        if not nodes.unschedulable[node] and not any(t.effect in effects for t in taints):
            yield (
                f"{nodes.names[node]} must be empty ({reasons[node]}) and takes new pods: cordon it"
            )
    for name in sorted(set(params.nodes) - set(nodes.names)):
        yield f"there is no node {name}, which the policy names"
    for node, notices in sorted(nodes.notices.items()):
        for notice in notices:
            if notice.at is None:
                yield (
                    f"node {nodes.names[node]} is {notice.text}, which is not understood:"
                    " write a RFC 3339 time, or now"
                )
