"""Leaving: pods on nodes that are announced to go."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from datetime import timedelta

import numpy as np
from pydantic import Field

from rebalancer.api import (
    LEAVING,
    DomainTerm,
    Duration,
    Entry,
    Params,
    PodClass,
    PriceGroup,
    SelectorText,
    Snapshot,
    Term,
    View,
)


class LeavingParams(Params):
    """Options of leaving: what makes a node one that must be empty."""

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


class Leaving:
    """Moves pods off nodes that are announced to go, to nodes that stay.

    By the annotation ``rebalancer/leave: <RFC 3339 time or now>``, by ``rebalancer drain``, by the taints of
    autoscalers and interruption handlers, by conditions (KEP-5683), or by the policy. Nothing here cordons a
    node: where replacements would land on a node that leaves, pods stay, and the report says so.
    """

    Params = LeavingParams

    def terms(self, view: View, params: LeavingParams) -> Sequence[Term]:
        """Return one hard term: a pod on a node that leaves is one that still has to move."""
        return [_LeavingTerm(view, params, _Reasons(view.snapshot, params).all())]


class _LeavingTerm(DomainTerm):
    """The groups of one price: 1 for a pod on a node that leaves."""

    def __init__(self, view: View, params: LeavingParams, reasons: dict[int, str]) -> None:
        groups = _Groups(view, reasons)
        super().__init__(view, Entry.HARD, list(groups.present()), groups.later)
        self._notes = list(_notes(view.snapshot, params, reasons))

    def notes(self) -> Sequence[str]:
        """See Noting: nodes that leave and yet take replacements, and what is not understood."""
        return self._notes


class _Reasons:
    """Knows why a node must be empty."""

    def __init__(self, snapshot: Snapshot, params: LeavingParams) -> None:
        self._snapshot, self._params = snapshot, params
        self._selected = np.zeros(len(snapshot.nodes), bool)
        if params.selector:
            self._selected = snapshot.nodes_matching(params.selector)
        self._begins = snapshot.captured_at + params.lead_time.total_seconds()

    def all(self) -> dict[int, str]:
        """Return node -> why it must be empty, for those that must."""
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
                    until=self._begins,
                )
            ),
            None,
        )


def _tolerations(of_class: PodClass) -> Hashable:
    return of_class.spec.tolerations or ()


class _Groups:
    """Makes the group of an owner's classes: at once where a pod is to leave, else when a move concerns it."""

    def __init__(self, view: View, reasons: dict[int, str]) -> None:
        self._view, self._reasons = view, reasons
        self._price = np.zeros(len(view.snapshot.nodes))
        self._price[list(reasons)] = 1.0
        self._owned = list(view.replaceable_by(_tolerations)) if reasons else []
        self._of_class = {cls: owned for owned in self._owned for cls in owned[1]}

    def present(self) -> Iterator[PriceGroup]:
        """Yield the groups with a pod on a node that leaves."""
        for owner, classes in self._owned:
            homes = [self._view.state.home_nodes(cls) for cls in classes]
            if any(self._price[home].any() for home in homes):
                yield self._group(owner, classes)

    def later(self, cls: int) -> PriceGroup | None:
        """Return the group of a class that has no pod on such a node yet."""
        owned = self._of_class.get(cls)
        return None if owned is None else self._group(*owned)

    def _group(self, owner: str, classes: list[int]) -> PriceGroup:
        view, names = self._view, self._view.snapshot.nodes.names
        replacement = view.snapshot.classes[classes[0]].replacement
        possible = view.scheduler.static_mask(replacement) & (self._price == 0)
        return PriceGroup(
            view,
            label=owner,
            classes=np.array(classes, np.int32),
            price=self._price,
            least=0.0 if possible.any() else np.inf,
            describe=lambda node: f"{names[node]} must be empty: {self._reasons.get(node, 'no')}",
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
