"""Duplicates: several replicas of one owner on one node although other nodes have room."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rebalancer.api import (
    CapGroup,
    Domains,
    DomainTerm,
    Entry,
    Group,
    Params,
    Strategy,
    Term,
    View,
)


class DuplicatesParams(Params):
    """Options of duplicates."""

    exclude_owner_kinds: tuple[str, ...] = Field(
        default=(), description="Kinds of owners whose replicas may share nodes, like Job."
    )


class Duplicates(Strategy):
    """Moves replicas of one owner off a node that holds more than its share of them.

    The share is ceil(replicas / feasible nodes); a node is feasible if its labels and taints allow the
    pod and it had room for one when the plan began, or holds one.
    """

    Params = DuplicatesParams

    def terms(self, view: View, params: DuplicatesParams) -> Sequence[Term]:
        """Return one soft term."""
        room = _Room(view)
        # Most owners have no two pods on a node: their groups are made when a move concerns them.
        crowded = view.crowding().crowded()
        groups = (_group(view, room, params, owner, only_broken=True) for owner in crowded)

        def later(cls: int) -> Group | None:
            owner = view.snapshot.classes[cls].owner
            return _group(view, room, params, owner) if owner >= 0 else None

        return [DomainTerm(view, Entry.SOFT, [g for g in groups if g is not None], later)]


class _Room:
    """Which nodes had room for a pod when the plan began.

    A group may be created after some moves. The cap on pods per node must not depend on these moves.
    """

    def __init__(self, view: View) -> None:
        snapshot, state = view.snapshot, view.state
        self._scheduler, self._requests = view.scheduler, snapshot.requests
        self._free = snapshot.nodes.allocatable - state.used
        self._places = state.pod_count < snapshot.nodes.max_pods
        self._known: dict[tuple[int, bytes], tuple[NDArray[np.bool_], int, object]] = {}

    def possible(self, cls: int) -> tuple[NDArray[np.bool_], int]:
        """Return the nodes (N,) that a pod of ``cls`` could use, and their number; shared by equal classes."""
        static, request = self._scheduler.static_mask(cls), self._requests[:, cls][:, None]
        known = self._known.get(key := (id(static), request.tobytes()))
        if known is None:
            room = ((request == 0) | (request <= self._free)).all(axis=0) & self._places
            mask = static & room
            # The array whose identity is in the key is kept beside it.
            known = self._known[key] = mask, int(np.count_nonzero(mask)), static
        return known[:2]


def _group(
    view: View, room: _Room, params: DuplicatesParams, index: int, *, only_broken: bool = False
) -> CapGroup | None:
    """Return the group of an owner; None if its pods may share nodes.

    ``only_broken``: also None if no node exceeds the cap.
    """
    owner, classes = view.snapshot.owners[index], view.classes_of_owner(index)
    per_node = view.snapshot.classes[int(classes[0])].per_node
    if per_node or owner.kind in params.exclude_owner_kinds:
        return None
    crowding = view.crowding()
    if (pods := crowding.pods[index]) < 2:
        return None
    # Nodes that could hold a pod of the owner, or hold one.
    possible, feasible = room.possible(view.snapshot.classes[int(classes[0])].replacement)
    feasible += int(np.count_nonzero(~possible[crowding.nodes(index)]))
    cap = -(-pods // max(1, feasible))
    if only_broken and crowding.fullest[index] <= cap:
        return None
    return CapGroup(
        view,
        label=f"{owner.ref} ({pods} pods, {feasible} feasible nodes)",
        domains=Domains.nodes(view),
        counted=classes,
        cap=cap,
    )
