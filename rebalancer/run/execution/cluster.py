"""The executor's actor and feed for a real API server."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.stop import Backoff
from rebalancer.kube.client import Client
from rebalancer.kube.events import EventWriter, Subject
from rebalancer.kube.evict import AnswerKind, EvictionAnswer, PodView, evict, read_pod
from rebalancer.kube.restart import Restart
from rebalancer.plan.plan import Method, Move
from rebalancer.run.execution.landing import PodFeed
from rebalancer.snapshot.model import PodFlag, Snapshot
from rebalancer.wire.times import rfc3339

_READ = 10.0
"""Seconds for a read before a restart."""
_NEW_REPLICA_SET = 10.0
"""Seconds for the Deployment's controller to make a ReplicaSet: it takes a fraction of one, unless it is behind."""
_FIRST_WAIT, _MAX_WAIT = 0.05, 1.0


def no_grace(_uid: str) -> int | None:
    """Return None: each pod keeps its own grace period."""
    return None


def _ignore(uid: str, controller: str) -> None:
    """Do nothing."""


class ClusterActor:
    """Evicts and restarts pods through a client, and writes events about it."""

    def __init__(
        self,
        client: Client,
        snapshot: Snapshot,
        *,
        clock: Callable[[], float],
        instance: str,
        warn: Callable[[str], None],
        grace: Callable[[str], int | None] = no_grace,
        succeed: Callable[[str, str], None] = _ignore,
    ) -> None:
        """``grace``: uid of a pod -> its grace period in seconds; None keeps its own.

        ``succeed`` is called with the uid of a pod and the uid of the ReplicaSet that a restart created for it.
        """
        self._clock, self._succeed = clock, succeed
        self._restarts: dict[str, Restart] = {}
        self._client, self._warn, self._grace = client, warn, grace
        self._events = EventWriter(client, clock=clock, instance=instance)
        self._owners = {owner.ref: owner for owner in snapshot.owners}

    def evict(self, namespace: str, name: str, uid: str) -> EvictionAnswer:
        """Send the eviction once, with the pod's grace period."""
        return evict(self._client, namespace, name, uid, grace_period_seconds=self._grace(uid))

    def restart(self, move: Move) -> EvictionAnswer:
        """Ask for the restart of the pod's rollout, and wait for the new ReplicaSet."""
        owner = self._owners.get(move.owner)
        one = self._restarts.setdefault(
            move.uid,
            Restart(
                self._client,
                move.namespace,
                move.pod,
                move.uid,
                deployment=owner.uid if owner is not None else "",
                at=rfc3339(int(self._clock())),
                seconds=_READ,
            ),
        )
        answer = one.ask()
        if answer.kind is AnswerKind.RESTARTED:
            self._await_replica_set(move, one)
        return answer

    def _await_replica_set(self, move: Move, one: Restart) -> None:
        """Wait until the ReplicaSet exists whose pod replaces that of ``move``."""
        stop, backoff = self._client.stop, Backoff(_FIRST_WAIT, _MAX_WAIT)
        until = stop.now() + _NEW_REPLICA_SET
        try:
            while (controller := one.replica_set()) is None:
                if stop.now() + backoff.pause > until or backoff.wait(stop) is not None:
                    return
        except ClusterReadError as error:
            self._warn(f"{move.owner}: its new ReplicaSet could not be read: {error}")
            return
        self._succeed(move.uid, controller)

    def read_pod(
        self, namespace: str, name: str, *, seconds: float, after_stop: bool = False
    ) -> PodView | None:
        """Return the current pod of this name, see :meth:`Actor.read_pod`."""
        client = self._client.last_words if after_stop else self._client
        return read_pod(client, namespace, name, seconds=seconds)

    def announce(self, move: Move) -> None:
        """Write one event for the pod and one for its owner."""
        owner = self._owners.get(move.owner)
        how = " by a restart of its rollout" if move.method is Method.RESTART else ""
        note = f"moved off {move.node} by {move.strategy}{how}: {move.reason}"
        if move.landings:
            landing = move.landings[0]
            note += f"; expected on {landing.node} ({landing.probability:.0%})"
        self._events.write(
            Subject("Pod", move.namespace, move.pod, move.uid),
            Subject(owner.kind, owner.namespace, owner.name, owner.uid) if owner else None,
            note,
        )

    def close(self) -> None:
        """Finish writing events."""
        if (warning := self._events.close()) is not None:
            self._warn(warning)


def open_feed(snapshot: Snapshot, moves: Sequence[Move]) -> PodFeed:
    """Return a feed of the pods that will replace those of ``moves``."""
    controllers, known = _controllers(snapshot, moves)
    restarted = {move.namespace for move in moves if move.method is Method.RESTART}
    return PodFeed(
        controllers=controllers,
        known=known,
        restarted_in=frozenset(restarted),
        unready=_unready(snapshot, known),
        waiting=_waiting(snapshot, moves),
    )


def _waiting(snapshot: Snapshot, moves: Sequence[Move]) -> dict[str, str]:
    """Return uid -> ``namespace/name`` of the pods without a node for which some of ``moves`` make room."""
    uids = {move.makes_way_for for move in moves if move.room is not None}
    pods = snapshot.pods
    return {
        pods.uid[pod]: snapshot.pod_ref(pod)
        for pod in (pods.uid.rows_of(uids).tolist() if uids else ())
        if pods.node[pod] < 0
    }


def _unready(snapshot: Snapshot, uids: frozenset[str]) -> dict[str, tuple[str, str]]:
    """Return uid -> (controller uid, name) of the pods that alone keep their owners unsettled.

    Some of them may be moved for their bad state; once such a pod is Ready, the others count.
    """
    unready: dict[str, tuple[str, str]] = {}
    pods = snapshot.pods
    for pod in pods.uid.rows_of(uids).tolist():
        cls = int(pods.cls[pod])
        owner = snapshot.owner_of(cls)
        going = int(pods.flags[pod]) & PodFlag.TERMINATING
        if owner is not None and owner.lacks_ready_only and not (going or pods.is_ready(pod)):
            unready[pods.uid[pod]] = (snapshot.classes[cls].controller_uid, pods.name[pod])
    return unready


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
