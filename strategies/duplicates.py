"""Duplicates: replicas of one owner that share a node although others are free."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from rebalancer.api import (
    Bools,
    CapGroup,
    Domains,
    DomainTerm,
    Entry,
    Group,
    Int32s,
    Params,
    Term,
    View,
)


class DuplicatesParams(Params):
    """Options of duplicates."""

    exclude_owner_kinds: tuple[str, ...] = Field(
        default=(), description="Kinds of owners whose replicas may share nodes, like Job."
    )


class Duplicates:
    """Moves replicas of one owner off a node that holds more than its share of them.

    The share is ceil(replicas / feasible nodes); a node is feasible if its labels and taints allow the
    pod and it has room for one, or holds one already.
    """

    Params = DuplicatesParams

    def terms(self, view: View, params: DuplicatesParams) -> Sequence[Term]:
        """Return one soft term."""
        # Most owners have no two pods on a node: nothing to count for them yet.
        crowded = view.crowded_owners().tolist()
        found = (_group(view, params, owner, only_broken=True) for owner in crowded)

        def later(cls: int) -> Group | None:
            owner = view.snapshot.classes[cls].owner
            return _group(view, params, owner) if owner >= 0 else None

        return [DomainTerm(view, Entry.SOFT, [g for g in found if g is not None], later)]


def _group(
    view: View, params: DuplicatesParams, index: int, *, only_broken: bool = False
) -> CapGroup | None:
    """Return the group of an owner; None if duplicates do not matter to it, or none has to go."""
    owner = view.snapshot.owners[index]
    if owner.kind == "DaemonSet" or owner.kind in params.exclude_owner_kinds:
        return None
    classes = view.classes_of_owner(index)
    fullest, pods = view.crowding(classes)
    if pods < 2:
        return None
    feasible = _feasible(view, classes)
    cap = -(-pods // max(1, feasible))
    if only_broken and fullest <= cap:
        return None
    return CapGroup(
        view,
        label=f"{owner.ref} ({pods} pods, {feasible} feasible nodes)",
        domains=Domains.nodes(view),
        counted=classes,
        cap=cap,
    )


def _feasible(view: View, classes: Int32s) -> int:
    """Count the nodes that could hold a pod of the owner, with room as it is now."""
    newest = view.snapshot.classes[int(classes[0])].replacement
    possible = view.scheduler.static_mask(newest) & _room(view, newest)
    possible[view.state.occupied(classes)] = True
    return int(np.count_nonzero(possible))


def _room(view: View, cls: int) -> Bools:
    """Return the nodes (N,) with room for a pod of ``cls`` as it is now; classes alike share the answer."""
    snapshot, state = view.snapshot, view.state
    request = snapshot.requests[:, cls][:, None]
    known = view.made.get(identity := ("room", request.tobytes()))
    if not isinstance(known, tuple) or known[0] != state.version:
        free = snapshot.nodes.allocatable - state.used
        room = ((request == 0) | (request <= free)).all(axis=0)
        room &= state.pod_count < snapshot.nodes.max_pods
        known = view.made[identity] = state.version, room
    found: Bools = known[1]
    return found
