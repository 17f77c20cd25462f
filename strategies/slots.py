"""Slots: free room of a certain size on nodes, for future pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from rebalancer.api import (
    Ask,
    LabelKey,
    LabelsField,
    Params,
    Quantity,
    Strategy,
    Term,
    View,
)

_Bools = NDArray[np.bool_]
_SYSTEM, _LINUX = "kubernetes.io/os", "linux"


class SlotsParams(Params):
    """Options of slots."""

    free: dict[str, Quantity] = Field(
        default={},
        description="What a slot has free on one node, by resource, as in a pod's requests.",
    )
    count: int = Field(default=1, ge=1, le=100, description="How many slots there should be.")
    per: LabelKey | None = Field(
        default=None,
        description="A label of nodes: so many slots on the nodes of each of its values; absent: on all nodes together.",
    )
    nodes: LabelsField | None = Field(
        default=None, description="Labels of the nodes that count; absent: all."
    )
    priority: int = Field(
        default=0, description="Pods of a higher priority than this do not leave for a slot."
    )

    @model_validator(mode="after")
    def _asks_for_something(self) -> SlotsParams:
        if not self.free:
            raise ValueError("slots needs free, with amounts of resources: {cpu: 4, memory: 16Gi}")
        return self


class Slots(Strategy):
    """Keeps resources free on a number of nodes, or in each zone or pool, by the fewest moves.

    A slot is room for one pod that asks for ``free``; a node with twice as much free holds two. Once there are enough,
    nothing moves, and no other strategy fills them.
    """

    Params = SlotsParams
    makes_room: ClassVar[bool] = True

    def terms(self, view: View, params: SlotsParams) -> Sequence[Term]:
        """Return one soft term: the slots that are missing."""
        return self.room_terms(view, params)

    def asks(self, view: View, params: SlotsParams) -> Sequence[Ask]:
        """Return the requests for room, one for each slot."""
        amounts = view.snapshot.amounts(params.free)
        # No node has any of a resource that neither nodes nor pods name.
        nothing = np.zeros(len(view.snapshot.resources), np.int64)
        requests = nothing if amounts is None else amounts
        system = _system(view, params)
        return [
            _ask(params, nodes & (amounts is not None), value, requests)
            for nodes, value in _places(view, params, system)
            for _ in range(params.count)
        ]


def _system(view: View, params: SlotsParams) -> str:
    """Return the operating system of the nodes that count; empty: any.

    Linux, unless ``nodes`` or ``per`` names the label, or ``nodes`` selects nodes of other systems only.
    """
    if params.nodes is None:
        return "" if params.per == _SYSTEM else _LINUX
    if _SYSTEM in {params.per, *params.nodes.list_keys()}:
        return ""
    snapshot = view.snapshot
    chosen = snapshot.nodes_matching(params.nodes)
    other = chosen.any() and not snapshot.without_other_systems(chosen, _LINUX).any()
    return "" if other else _LINUX


def _ask(params: SlotsParams, nodes: _Bools, value: str, requests: NDArray[np.int64]) -> Ask:
    """Return the ask for one slot in a place, which has this value of the label."""
    text = ", ".join(f"{name} {amount}" for name, amount in sorted(params.free.items()))
    return Ask(
        pod=-1,
        cls=-1,
        nodes=nodes,
        priority=params.priority,
        requests=requests,
        text=f"a slot of {text}" + (f" in {params.per}={value}" if value else ""),
    )


def _places(view: View, params: SlotsParams, system: str) -> Iterator[tuple[_Bools, str]]:
    """Yield the nodes of each place that should have slots, with the value of its label; empty: of all places."""
    nodes = view.snapshot.nodes
    able = nodes.ready & ~nodes.unschedulable & ~nodes.leaving & ~view.to_be_empty()
    if params.nodes:
        able &= view.snapshot.nodes_matching(params.nodes)
    if system:
        able = view.snapshot.without_other_systems(able, system)
    if params.per is None:
        yield able, ""
        return
    column = nodes.labels.column(params.per)
    for number, value in enumerate(nodes.labels.values(params.per)):
        of_value = column == number
        if of_value.any():
            yield able & of_value, value
