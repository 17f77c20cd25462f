"""The effects of open EvictionRequests: they are moves in flight, which the API server does not count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from rebalancer.base.plain_text import count
from rebalancer.snapshot.columns import Int32s, Ints, freeze
from rebalancer.snapshot.model import Owner, PodFlag, Snapshot
from rebalancer.snapshot.requests import COUNTS_FOR, EvictionRequest


def with_requests(
    snapshot: Snapshot,
    requests: Iterable[EvictionRequest],
    seconds: float = COUNTS_FOR.total_seconds(),
) -> Snapshot:
    """Return the snapshot with the requests for its pods, and with their effects.

    ``seconds``: the time for which a request counts as in flight; later it only keeps its own pod from being moved.

    While one is open, the owner of its pod is not settled, and each PodDisruptionBudget of the pod allows one disruption
    less, since the API server still counts the pod. The pod still serves, and occupies its room: see :func:`as_ended`. Of
    several requests for a pod an open one counts. A request is for a pod of its own namespace.
    """
    of_pods, pods = _of_pods(snapshot, requests, seconds), snapshot.pods
    asked = replace(snapshot, eviction_requests=of_pods)
    rows = pods_asked_for(asked)
    rows = rows[(pods.flags[rows] & PodFlag.TERMINATING) == 0]
    if not len(rows):
        return asked
    of_class = np.bincount(snapshot.pods.cls[rows], minlength=len(snapshot.classes))
    budgets = (
        replace(one, allowed=max(0, one.allowed - int(of_class[one.classes].sum())))
        for one in snapshot.budgets
    )
    return replace(asked, owners=_hold_owners(snapshot, of_class), budgets=tuple(budgets))


def as_ended(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot for planning: pods with an EvictionRequest are terminating, so that no other pod moves for what their end will fix.

    Not for decisions on machines: whether a node is empty, or can be emptied, depends on the pods that exist, not on requests.
    """
    rows, pods = pods_asked_for(snapshot), snapshot.pods
    if not len(rows):
        return snapshot
    flags = pods.flags.copy()
    flags[rows] |= PodFlag.TERMINATING
    return replace(snapshot, pods=replace(pods, flags=freeze(flags)))


def _of_pods(
    snapshot: Snapshot, requests: Iterable[EvictionRequest], seconds: float
) -> Mapping[str, EvictionRequest]:
    """Return uid of a pod -> the request that counts; one of ours that is open is to be seen, since it may have to be withdrawn."""
    now, pods, requests = snapshot.captured_at, snapshot.pods, list(requests)
    counting = [
        replace(one, late=one.open and one.age(now) > seconds)
        for one in requests
        if one.open or one.rests(now)
    ]
    in_order = sorted(counting, key=lambda one: (one.open, one.ours, not one.late, one.name))
    last = {(one.namespace, one.pod_uid): one for one in in_order}
    taken = {
        (one.namespace, one.in_place_of): replace(one, has_our_name=True)
        for one in requests
        if one.in_place_of
    }
    found: dict[str, EvictionRequest] = {}
    for pod in pods.uid.rows_of({uid for _, uid in (*last, *taken)}).tolist():
        uid, of_class = pods.uid[pod], snapshot.classes[pods.cls[pod]]
        one = last.get((of_class.namespace, uid))
        if one is None and of_class.spec.eviction_responders:
            one = taken.get((of_class.namespace, uid))
        if one is not None:
            found[uid] = one
    return found


def pods_asked_for(snapshot: Snapshot) -> Int32s:
    """Return the pods, ascending, for which a request is open that counts as in flight."""
    requests = (snapshot.eviction_requests or {}).items()
    uids = [uid for uid, one in requests if one.open and not one.late and one.pod_uid == uid]
    return snapshot.pods.uid.rows_of(uids).astype(np.int32)


def _hold_owners(snapshot: Snapshot, of_class: Ints) -> tuple[Owner, ...]:
    """Return the owners; ``of_class`` (C,): the pods for which requests are open."""
    of_owner = np.zeros(len(snapshot.owners), np.int64)
    for cls in np.flatnonzero(of_class).tolist():
        if (owner := snapshot.classes[cls].owner) >= 0:
            of_owner[owner] += of_class[cls]
    return tuple(
        replace(owner, unsettled=f"EvictionRequests are open for {count(int(asked), 'pod')} of it")
        if asked and owner.unsettled is None
        else owner
        for owner, asked in zip(snapshot.owners, of_owner.tolist(), strict=True)
    )
