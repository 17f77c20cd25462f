"""The executor's actor and feed on a real API server."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rebalancer.evictor.feed import PodFeed
from rebalancer.kube.client import Client
from rebalancer.kube.events import EventWriter, Subject
from rebalancer.kube.evict import Answer, evict, read_pod
from rebalancer.kube.podview import PodView
from rebalancer.plan.plan import Move
from rebalancer.snapshot.model import Snapshot


class ClusterActor:
    """Evicts through a client, and writes events about it."""

    def __init__(
        self,
        client: Client,
        snapshot: Snapshot,
        *,
        clock: Callable[[], float],
        instance: str,
        warn: Callable[[str], None],
        grace_seconds: int | None = None,
    ) -> None:
        """``grace_seconds``: of the evicted pods; None leaves each its own."""
        self._client, self._warn, self._grace = client, warn, grace_seconds
        self._events = EventWriter(client, clock=clock, instance=instance)
        self._owners = {owner.ref: owner for owner in snapshot.owners}

    def evict(self, namespace: str, name: str, uid: str) -> Answer:
        """See Actor."""
        return evict(self._client, namespace, name, uid, grace_period_seconds=self._grace)

    def read_pod(
        self, namespace: str, name: str, *, seconds: float, after_stop: bool = False
    ) -> PodView | None:
        """See Actor."""
        client = self._client.last_words if after_stop else self._client
        return read_pod(client, namespace, name, seconds=seconds)

    def announce(self, move: Move) -> None:
        """See Actor: one event on the pod, one on its owner."""
        owner = self._owners.get(move.owner)
        note = f"moved off {move.node} by {move.strategy}: {move.reason}"
        if move.landings:
            landing = move.landings[0]
            note += f"; expected on {landing.node} ({landing.probability:.0%})"
        self._events.write(
            Subject("Pod", move.namespace, move.pod, move.uid),
            Subject(owner.kind, owner.namespace, owner.name, owner.uid) if owner else None,
            note,
        )

    def close(self) -> None:
        """End what is still being written."""
        if (warning := self._events.close()) is not None:
            self._warn(warning)


def open_feed(snapshot: Snapshot, moves: Sequence[Move]) -> PodFeed:
    """Return a feed of the pods that replace those of ``moves``."""
    controllers, known = _controllers(snapshot, moves)
    return PodFeed(controllers=controllers, known=known)


def _controllers(
    snapshot: Snapshot, moves: Sequence[Move]
) -> tuple[dict[str, str], frozenset[str]]:
    """Return victim uid -> controller uid, and the uids of all pods of those controllers."""
    victims = {move.uid for move in moves}
    uids, cls = snapshot.pods.uid, snapshot.pods.cls
    owners = {move.owner for move in moves}
    concerned = np.array(
        [c.owner >= 0 and snapshot.owners[c.owner].ref in owners for c in snapshot.classes], bool
    )
    controllers: dict[str, str] = {}
    known: set[str] = set()
    for pod in np.flatnonzero(concerned[cls]).tolist() if len(cls) else ():
        uid = uids[pod]
        known.add(uid)
        if uid in victims:
            controllers[uid] = snapshot.classes[cls[pod]].controller_uid
    return controllers, frozenset(known)
