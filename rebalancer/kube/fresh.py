"""The whole cluster once more, for the next run of a process that follows it: no list is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from rebalancer.kube.client import Client
from rebalancer.kube.follow import Follower
from rebalancer.kube.metrics import UsageSource, read_metrics, usage_notes
from rebalancer.kube.read import Readings, read_version
from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.kinds import METRICS


def read_fresh(
    client: Client,
    follower: Follower,
    evicted: Collection[str],
    *,
    clock: Callable[[], float],
    usage: UsageSource | None = None,
) -> tuple[Snapshot, Readings]:
    """Return the cluster as ``follower`` knows it, with what the pods use now.

    One request asks for the server's version, which may have changed, and for its time. ``evicted`` are the pods
    (uids) that the run before has evicted. ``clock`` is our own, Unix seconds.

    Raises:
        ClusterReadError: the server does not answer, or something had to be read again and could not be.
    """
    started = client.monotonic()
    version = read_version(client)
    now = clock()
    nothing_ends_it = threading.Event()
    measured = [
        read_metrics(usage, resource, nothing_ends_it) for resource in METRICS if usage is not None
    ]
    use = Fold()
    if all(each.trouble is None for each in measured):
        for each in measured:
            use.take_metrics(each.fold)
    snapshot = follower.fresh(
        evicted,
        captured_at=now if version.date is None else version.date,
        version=version.numbers,
        use=use,
    )
    troubles = [(each.listing.resource, each.trouble) for each in measured]
    return snapshot, Readings(
        server=client.server,
        server_version=version.text,
        clock_skew=None if version.date is None else version.date + 0.5 - now,
        read_bytes=sum(each.listing.read_bytes for each in measured),
        seconds=client.monotonic() - started,
        notes=(*follower.notes, *(() if usage is None else usage_notes(usage, troubles))),
    )
