"""Make room: pods that wait because no node takes them, though the cluster has the room in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rebalancer.api import (
    Ask,
    Duration,
    Params,
    Strategy,
    Term,
    View,
)

_Int32s = NDArray[np.int32]


class MakeRoomParams(Params):
    """Options of make-room."""

    after: Duration = Field(
        default=timedelta(minutes=2),
        description="How long a pod must have waited, by its condition PodScheduled.",
    )


class MakeRoom(Strategy):
    """Lets pods in that no node takes, by the fewest moves of pods of their own or lower priority.

    Each pod that leaves has a landing, the room is marked until the waiting pod has its node, and a pod for which
    preemption has nominated a node is left alone. The planner searches, see ``rebalancer.planner.room``.
    """

    Params = MakeRoomParams
    makes_room: ClassVar[bool] = True

    def terms(self, view: View, params: MakeRoomParams) -> Sequence[Term]:
        """Return one soft term: a pod that waits is one that still has to be let in."""
        return self.room_terms(view, params)

    def room_after(self, params: MakeRoomParams) -> float:
        """See Strategy."""
        return params.after.total_seconds()

    def asks(self, view: View, params: MakeRoomParams) -> Sequence[Ask]:
        """See Strategy."""
        snapshot, everywhere = view.snapshot, np.ones(len(view.snapshot.nodes), bool)
        return [
            Ask(
                pod=pod,
                cls=cls,
                nodes=everywhere,
                priority=snapshot.classes[cls].priority,
                requests=snapshot.requests[:, cls],
                text=snapshot.pod_ref(pod),
            )
            for pod in _waiting(view, params).tolist()
            for cls in [int(snapshot.pods.cls[pod])]
        ]


def _waiting(view: View, params: MakeRoomParams) -> _Int32s:
    """Return the pods that have waited long enough, in the scheduler's order; those that others see to are left out."""
    snapshot, pods = view.snapshot, view.snapshot.pods
    since = np.array(
        [
            np.inf if state.nominated or (at := state.unschedulable_since()) is None else at
            for state in pods.states
        ]
        or [np.inf],
        float,
    )[pods.state]
    long = snapshot.captured_at - since >= params.after.total_seconds()
    rows = np.flatnonzero(long & snapshot.awaiting_a_node())
    mine = np.array([p for p in rows.tolist() if _is_known(view, int(pods.cls[p]))], np.int32)
    priority = [snapshot.classes[cls].priority for cls in pods.cls[mine].tolist()]
    order = np.lexsort((mine, pods.created[mine], -np.array(priority, np.int64)))
    return mine[order]


def _is_known(view: View, cls: int) -> bool:
    """Return whether the scheduler looks at pods of a class, and it is known what it does with them."""
    return not (view.scheduler.rejection(cls) or view.scheduler.find_unmodelled(cls))
