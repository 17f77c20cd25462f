"""Make room: for pending pods that fit on no node, although the cluster has enough room in total."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rebalancer.api import (
    Ask,
    Duration,
    Params,
    Snapshot,
    Strategy,
    Term,
    View,
)

_Int32s = NDArray[np.int32]
_Floats = NDArray[np.float64]


class MakeRoomParams(Params):
    """Options of make-room."""

    after: Duration = Field(
        default=timedelta(minutes=2),
        description="How long a pod must have waited, by its condition PodScheduled.",
    )
    provision_time: Duration = Field(
        default=timedelta(minutes=15),
        description="How long, since it waits, a pod for which a machine is on its way is left alone at most.",
    )


class MakeRoom(Strategy):
    """Lets pods in that no node takes, by the fewest moves of pods of their own or lower priority.

    Each pod that leaves has a landing, the room is marked until the waiting pod has its node, and a pod for which
    preemption has nominated a node, or for which a machine is on its way, is left alone. A pod whose resize waits for room
    on its node gets it by its neighbours' moves. The planner searches, see ``rebalancer.planner.room.plan``.
    """

    Params = MakeRoomParams
    makes_room: ClassVar[bool] = True

    def terms(self, view: View, params: MakeRoomParams) -> Sequence[Term]:
        """Return one soft term: each pending pod costs 1."""
        return self.room_terms(view, params)

    def room_after(self, params: MakeRoomParams) -> float:
        """Return the seconds after which a waiting pod gets room."""
        return params.after.total_seconds()

    def asks(self, view: View, params: MakeRoomParams) -> Sequence[Ask]:
        """Return the requests for room, one for each waiting pod."""
        asks = [*_resizes(view, params), *self._asks_of_waiting(view, params)]
        return sorted(asks, key=lambda ask: -ask.priority)

    def _asks_of_waiting(self, view: View, params: MakeRoomParams) -> Sequence[Ask]:
        snapshot, everywhere = view.snapshot, np.ones(len(view.snapshot.nodes), bool)
        since, patience = _since(snapshot), params.provision_time.total_seconds()
        coming = snapshot.machines_coming or {}
        return [
            Ask(
                pod=pod,
                cls=cls,
                nodes=everywhere,
                priority=snapshot.classes[cls].priority,
                requests=snapshot.requests[:, cls],
                text=snapshot.pod_ref(pod),
                held=f"a machine is on its way for it, says an Event ({reason})" if reason else "",
                patient=patient,
            )
            for pod in _waiting(view, params).tolist()
            for cls in [int(snapshot.pods.cls[pod])]
            for patient in [snapshot.captured_at - since[pod] < patience]
            for reason in [patient and coming.get(snapshot.pods.uid[pod])]
        ]


def _waiting(view: View, params: MakeRoomParams) -> _Int32s:
    """Return the pods that have waited long enough, in the scheduler's order; those that others see to are left out."""
    snapshot, pods = view.snapshot, view.snapshot.pods
    rows = snapshot.unschedulable_pods()
    rows = rows[snapshot.captured_at - _since(snapshot)[rows] >= params.after.total_seconds()]
    mine = np.array([p for p in rows.tolist() if _is_known(view, int(pods.cls[p]))], np.int32)
    priority = [snapshot.classes[cls].priority for cls in pods.cls[mine].tolist()]
    order = np.lexsort((mine, pods.created[mine], -np.array(priority, np.int64)))
    return mine[order]


def _resizes(view: View, params: MakeRoomParams) -> Iterator[Ask]:
    """Yield the resources that pods lack whose resize the kubelet has put off for lack of room, or calls infeasible (KEP-1287).

    Their nodes count the new requests as taken (``resourcehelper.PodRequests``), and so have too little.
    """
    snapshot, pods = view.snapshot, view.snapshot.pods
    pending = {
        number: condition
        for number, state in enumerate(pods.states)
        for condition in state.conditions
        if condition.type == "PodResizePending" and condition.status == "True"
    }
    rows = np.flatnonzero(np.isin(pods.state, list(pending)) & pods.living)
    for pod in rows.tolist():
        cls, condition = int(pods.cls[pod]), pending[int(pods.state[pod])]
        infeasible = condition.reason == "Infeasible"
        if not infeasible and snapshot.captured_at - condition.since < params.after.total_seconds():
            continue
        nodes = np.zeros(len(snapshot.nodes), bool)
        nodes[pods.node[pod]] = not infeasible
        yield Ask(
            pod=-1,
            cls=-1,
            nodes=nodes,
            priority=snapshot.classes[cls].priority,
            requests=snapshot.requests[:, cls],
            text=f"the resize of {snapshot.pod_ref(pod)}",
            about=pod,
            counted=True,
            held="the kubelet calls its resize infeasible: its node could not hold it"
            if infeasible
            else "",
        )


def _since(snapshot: Snapshot) -> _Floats:
    """Return since when (P,) pods fit on no node; 0 for pods that fit on one."""
    pods = snapshot.pods
    return np.array([one.unschedulable_since() or 0 for one in pods.states] or [0.0])[pods.state]


def _is_known(view: View, cls: int) -> bool:
    """Return whether the scheduler considers pods of a class, and the model can predict it."""
    return not (view.scheduler.rejection(cls) or view.scheduler.find_unmodelled(cls))
