"""CapacityBuffers as a rule of every plan: no move fills the room that they reserve, and no node with such room is emptied."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from rebalancer.cost.room_term import Ask, RoomTerm
from rebalancer.cost.view import View
from rebalancer.planner.problem import Contribution
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.buffers import with_buffers
from rebalancer.snapshot.columns import Bools, Ints
from rebalancer.snapshot.model import Buffer, Snapshot
from rebalancer.snapshot.selected import Selected

CAPACITY_BUFFERS = "capacity-buffers"
"""The name of the rule in reports, beside the names of strategies."""


def keep_buffers(snapshot: Snapshot, profile: SchedulerProfile) -> tuple[Contribution, ...]:
    """Return the rule on the buffers of ``snapshot``: soft 1 for each chunk without room; none if there are no chunks.

    It requests no moves: scale-out adds the missing room.
    """
    buffers = [one for one in snapshot.buffers or () if one.chunks]
    if not buffers:
        return ()
    more = with_buffers(snapshot)
    model, first = SchedulerModel(more, profile), len(snapshot.classes)
    # A resource that neither nodes nor pods name no node has: the mask says so.
    kinds = [
        (
            one,
            more.without_foreign(model.static_mask(cls), cls),
            more.requests[: len(snapshot.resources), cls],
        )
        for cls, one in enumerate(buffers, first)
    ]
    of = Contribution(
        CAPACITY_BUFFERS,
        1.0,
        observed=False,
        terms=partial(_terms, kinds),
        selected=Selected(np.zeros(first, bool), np.zeros(len(snapshot.nodes), bool)),
    )
    return (of,)


def _terms(kinds: Sequence[tuple[Buffer, Bools, Ints]], view: View) -> Sequence[RoomTerm]:
    nodes = view.snapshot.nodes
    able = nodes.ready & ~nodes.leaving & ~view.to_be_empty()
    asks = [
        Ask(
            pod=-1,
            cls=-1,
            nodes=able & mask,
            priority=0,
            requests=requests,
            text=f"a chunk of CapacityBuffer {of.namespace}/{of.name}",
        )
        for of, mask, requests in kinds
        for _ in range(of.chunks)
    ]
    return [RoomTerm(view, asks)]
