"""Consolidation: empty whole nodes, so that their machines can be removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rebalancer.api import (
    Direction,
    DomainTerm,
    Duration,
    Emptiable,
    Entry,
    Params,
    Percent,
    Snapshot,
    Strategy,
    Term,
    View,
)
from strategies.priced_nodes import EmptyingGroups

_Bools = NDArray[np.bool_]
_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]

_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
# What the size of a pod adds to its gain: the larger ones are placed while there is room for them.
_BY_SIZE = 0.05


class ConsolidationParams(Params):
    """Options of consolidation. Percentages are shares of a node's allocatable."""

    direction: ClassVar[Direction | None] = Direction.PACK

    under: dict[str, Percent] = Field(
        default={},
        description="Only nodes whose requests are at most so much of each of these that they have are emptied, and none that has"
        " none of them; none named: any node.",
    )
    min_node_age: Duration = Field(
        default=timedelta(minutes=10), description="Younger nodes stay: they may be new on purpose."
    )
    keep: Duration = Field(
        default=timedelta(hours=24),
        description="How long a node stays marked when no run renews the mark.",
    )


class Consolidation(Strategy):
    """Empties whole nodes whose pods all have landings elsewhere, so that an autoscaler can remove them.

    The planner chooses the nodes, see ``rebalancer.planner.emptying``; the policy's eagerness decides whether it is
    worth the evictions. The nodes are marked (``steer: marks``), so that the scheduler does not fill them again.
    """

    Params = ConsolidationParams

    def terms(self, view: View, params: ConsolidationParams) -> Sequence[Term]:  # noqa: ARG002
        """Return one imbalance term: each pod on a marked node still has to leave."""
        return [_EmptyingTerm(view)]

    def emptiable(self, view: View, params: ConsolidationParams) -> Emptiable:
        """Return the nodes that may be emptied."""
        counted = _count_accepting(view.snapshot)
        kept = dict(_keep_reasons(view, params))
        nodes = np.ones(len(view.snapshot.nodes), bool)
        nodes[list(kept)] = False
        return Emptiable(nodes, kept, counted, _need(view, counted))

    def marks_last(self, params: ConsolidationParams) -> float:
        """Return the seconds after which a mark expires."""
        return params.keep.total_seconds()


class _EmptyingTerm(DomainTerm):
    """A term for pods on marked nodes, with one price per node."""

    def __init__(self, view: View) -> None:
        marked = view.to_be_empty()
        names, sizes = view.snapshot.nodes.names, _BY_SIZE * _sizes(view.snapshot)
        groups = EmptyingGroups(
            view,
            _prices(view, marked),
            lambda node: f"{names[node]} is being emptied",
            lambda cls: float(sizes[cls]),
        )
        super().__init__(view, Entry.IMBALANCE, list(groups.present()), groups.later)
        self._view, self._count_accepting = view, _count_accepting(view.snapshot)
        self._need = _need(view, self._count_accepting)

    def packed(self) -> tuple[int, int]:
        """Return (number of nodes with pods, lower bound of that number)."""
        holding = _pods_on(self._view)[self._count_accepting] > 0
        return int(np.count_nonzero(holding)), self._need


def _prices(view: View, marked: _Bools) -> _Floats:
    """Return the price of a pod on each node (N,): higher on marked nodes with fewer remaining pods.

    So a nearly empty node is emptied first.
    """
    price = np.zeros(len(marked))
    nodes = np.flatnonzero(marked)
    order = nodes[np.lexsort((nodes, _pods_on(view)[nodes]))]
    price[order] = 1.0 + 1.0 / (1.0 + np.arange(len(order)))
    return price


# -- nodes -----------------------------------------------------------------------------------------------


def _count_accepting(snapshot: Snapshot) -> _Bools:
    """Return which nodes (N,) accept pods, by their own fields."""
    nodes = snapshot.nodes
    counted: _Bools = nodes.ready & ~nodes.unschedulable & ~nodes.leaving
    counted[list(nodes.unreadable)] = False
    return counted


def _keep_reasons(view: View, params: ConsolidationParams) -> Iterator[tuple[int, str]]:
    """Yield (node, reason) for each node that must not be emptied, with the first reason."""
    taken = np.zeros(len(view.snapshot.nodes), bool)
    for mask, words in _rules(view, params):
        for node in np.flatnonzero(mask & ~taken).tolist():
            yield node, words
        taken |= mask


def _rules(view: View, params: ConsolidationParams) -> Iterator[tuple[_Bools, str]]:
    """Yield (mask of nodes (N,) that must not be emptied, reason)."""
    snapshot, nodes = view.snapshot, view.snapshot.nodes
    yield ~_count_accepting(snapshot), "it takes no pods: cordoned, not Ready, or announced to go"
    if view.selected is not None:
        yield ~view.selected.nodes, "the select of the strategy leaves it out"
    for key in _CONTROL_PLANE:
        yield nodes.labels.column(key) >= 0, f"it is labelled {key}"
    for text, kept in _find_opt_outs(snapshot).items():
        yield kept, f"it is {text}"
    young = params.min_node_age.total_seconds()
    yield snapshot.captured_at - nodes.created < young, f"younger than minNodeAge, {young:.0f} s"
    has_none = np.full(len(nodes), bool(params.under))
    for name, share in params.under.items():
        used, room = _share_of(view, name)
        has_none &= room <= 0
        above = used > share * room + 1e-9
        yield above, f"more than {share:.0%} of its {name} is requested"
    # Of nothing nothing is requested: under a threshold for GPUs alone each node without one would be emptied.
    yield has_none, f"it has no {' and no '.join(params.under)}"


def _find_opt_outs(snapshot: Snapshot) -> dict[str, _Bools]:
    """Return reason -> nodes (N,), for nodes with a notice to keep them."""
    masks: dict[str, _Bools] = {}
    for node, notices in snapshot.nodes.notices.items():
        for notice in notices:
            if notice.kind == "keep":
                masks.setdefault(notice.text, np.zeros(len(snapshot.nodes), bool))[node] = True
    return masks


def _share_of(view: View, name: str) -> tuple[_Ints, _Ints]:
    """Return the requested and the allocatable amount of a resource on each node (N,)."""
    snapshot = view.snapshot
    if name == "pods":
        return view.state.lasting_count, snapshot.nodes.max_pods.astype(np.int64)
    if name not in snapshot.resources:
        nothing = np.zeros(len(snapshot.nodes), np.int64)
        return nothing, nothing
    row = snapshot.resources.index(name)
    return view.state.lasting[row], snapshot.nodes.allocatable[row]


# -- how few nodes could do ------------------------------------------------------------------------------


def _movers(snapshot: Snapshot) -> NDArray[np.int32]:
    """Return the classes whose pods are not bound to their node."""
    return np.array([i for i, cls in enumerate(snapshot.classes) if not cls.per_node], np.int32)


def _pods_on(view: View) -> _Ints:
    """Return the number of pods on each node (N,), without pods bound to their node."""
    return view.state.counts(_movers(view.snapshot)).astype(np.int64)


def _sizes(snapshot: Snapshot) -> _Floats:
    """Return per class (C,) the share of the largest node that its pod requests, maximum over resources."""
    most = np.maximum(1, snapshot.nodes.allocatable.max(axis=1, initial=1))
    sizes: _Floats = (snapshot.requests / most[:, None]).max(axis=0, initial=0.0)
    return sizes


def _need(view: View, counted: _Bools) -> int:
    """Return a lower bound on the number of nodes with pods: the maximum of the bounds per resource.

    Nodes with an immovable pod cannot be emptied. Of the others the largest are counted, with all of their allocatable,
    until the requests of all pods fit. And no two pods of more than half of the largest node share one: bounds L1 and, in
    part, L2 of Martello and Toth (1990), for bins of different sizes.
    """
    snapshot = view.snapshot
    pods, per_node = snapshot.pods, np.ones(len(snapshot.classes), bool)
    per_node[_movers(snapshot)] = False
    here = view.state.unmoved()
    here = here[counted[pods.node[here]]]
    own = per_node[pods.cls[here]]
    asked = np.vstack([snapshot.requests, np.ones((1, len(snapshot.classes)), np.int64)])
    room = np.vstack([snapshot.nodes.allocatable, snapshot.nodes.max_pods[None, :]]).astype(
        np.int64
    )
    np.subtract.at(room.T, pods.node[here[own]], asked[:, pods.cls[here[own]]].T)
    room = np.maximum(0, room)
    here = here[~own]
    if not len(here):
        return 0
    fixed = np.zeros(len(counted), bool)
    may_go = view.movable if view.by_unit is None else view.movable | view.by_unit
    fixed[pods.node[here[~may_go[here]]]] = True
    requests = asked[:, pods.cls[here]]
    lacking = requests.sum(axis=1) - room[:, fixed].sum(axis=1)
    others = np.sort(room[:, counted & ~fixed], axis=1)[:, ::-1].cumsum(axis=1)
    more = [
        int(np.searchsorted(of, lack)) + 1 if lack > 0 else 0
        for of, lack in zip(others, lacking.tolist(), strict=True)
    ]
    large = np.count_nonzero(2 * requests > room[:, counted].max(axis=1)[:, None], axis=1)
    # Not more than now, also where the pods of a node ask for more than it has.
    most = len(np.unique(pods.node[here]))
    return min(most, max(1, int(np.count_nonzero(fixed)) + max(more), int(large.max())))
