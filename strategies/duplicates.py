"""Duplicates: replicas of one owner that share a node although others are free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from pydantic import Field

from rebalancer.api import CapGroup, Domains, DomainTerm, Entry, Int32s, Params, Term, View


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
        return [DomainTerm(view, Entry.SOFT, list(_groups(view, params)))]


def _groups(view: View, params: DuplicatesParams) -> Iterator[CapGroup]:
    domains = Domains.nodes(view)
    for index, owner in enumerate(view.snapshot.owners):
        if owner.kind == "DaemonSet" or owner.kind in params.exclude_owner_kinds:
            continue
        classes = view.classes_of_owner(index)
        fullest, pods = view.crowding(classes)
        # Most owners have no two pods on a node: nothing to count for them.
        if fullest < 2:
            continue
        feasible = _feasible(view, classes)
        cap = -(-pods // max(1, feasible))
        if fullest <= cap:
            continue
        yield CapGroup(
            view,
            label=f"{owner.ref} ({pods} pods, {feasible} feasible nodes)",
            domains=domains,
            counted=classes,
            cap=cap,
        )


def _feasible(view: View, classes: Int32s) -> int:
    """Count the nodes that could hold a pod of the owner, with room as it is now."""
    snapshot, state = view.snapshot, view.state
    newest = snapshot.classes[int(classes[0])].replacement
    allowed = view.scheduler.static_mask(newest)
    request = snapshot.requests[:, newest][:, None]
    free = snapshot.nodes.allocatable - state.used
    room = ((request == 0) | (request <= free)).all(axis=0)
    room &= state.pod_count < snapshot.nodes.max_pods
    holds = state.counts(classes) > 0
    return int(np.count_nonzero((allowed & room) | holds))
