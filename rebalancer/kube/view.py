"""One run's view of a followed cluster: its first snapshot, later changes of pods, snapshots between waves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Protocol

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.cache import ClusterCache
from rebalancer.kube.client import Client
from rebalancer.kube.metrics import UsageSource, read_metrics, usage_notes
from rebalancer.kube.read import Readings, read_version
from rebalancer.kube.watch import EventType
from rebalancer.snapshot.build import Fold, Settled
from rebalancer.snapshot.measured import with_usage_of
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.kinds import METRICS, PODS, Resource
from rebalancer.wire.pods import PodRecord


class Listener(Protocol):
    """Receives changes of pods, called from another thread."""

    def take(self, event: EventType, pod: PodRecord) -> None:
        """Receive a change of a pod."""

    def fail(self, error: ClusterReadError) -> None:
        """Receive the error by which following pods ended."""


class RunView:
    """The view of one run. It starts with the snapshot for the plan."""

    def __init__(self, cache: ClusterCache, first: Snapshot, at: float) -> None:
        """``first``: the run's snapshot; ``at``: the client's time when it was captured."""
        self._cache, self._first, self._at = cache, first, at
        self._listener: Listener | None = None
        self._backlog: list[tuple[EventType, PodRecord]] | None = []
        """What happened to pods since that snapshot, for the run's listener; None where that is not known whole."""
        self._listed: set[str] = set()
        """The kinds that were listed again when the budgets were asked for last."""
        self._notes: dict[str, dict[str, None]] = {}
        """Why -> plurals."""

    @property
    def first(self) -> Snapshot:
        """The snapshot for the plan."""
        return self._first

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on lists that had to be read again, and why."""
        return tuple(
            f"{', '.join(sorted(plurals))} were listed again between waves: {why}"
            for why, plurals in sorted(self._notes.items())
        )

    # -- snapshots ---------------------------------------------------------------------------------

    def begin(self, settled: Settled, captured_at: float, version: tuple[int, int]) -> None:
        """Make the current objects the snapshot for the plan."""
        self._at = self._cache.client.monotonic()
        self._first = settled.snapshot(
            captured_at=captured_at,
            version=version,
            missing=self._first.missing,
            resource_version=self._cache.pods_version,
        )

    def snapshot(self, evicted: Collection[str]) -> Snapshot:
        """Return the current cluster, with the ``evicted`` pods (uids) as terminating.

        Usage was measured once, before the moves, and is carried over.

        Raises:
            ClusterReadError: a list had to be read again, and could not be.
        """
        self._cache.catch_up(evicted, listed=self._listed)
        self._listed = set()
        return self._make_snapshot(self._cache.await_controllers())

    def peek(self, evicted: Collection[str]) -> Snapshot | None:
        """Return the cluster as the watches know it, without any request; None if they are behind."""
        cache = self._cache
        return None if cache.is_behind(evicted) else self._make_snapshot(cache.settle())

    def _make_snapshot(self, settled: Settled) -> Snapshot:
        first = self._first
        now = settled.snapshot(
            captured_at=first.captured_at + self._cache.client.monotonic() - self._at,
            version=first.version,
            missing=first.missing,
            resource_version=self._cache.pods_version,
        )
        return with_usage_of(first, now)

    def list_exhausted_budgets(self, evicted: Collection[str]) -> set[str]:
        """Return the PodDisruptionBudgets (namespace/name) that currently allow no disruption.

        The data are those of :meth:`snapshot`, without making one.

        Raises:
            ClusterReadError: a list had to be read again, and could not be.
        """
        self._listed = self._cache.catch_up(evicted, PODS.kind, "PodDisruptionBudget")
        return self._cache.list_exhausted_budgets()

    # -- pods --------------------------------------------------------------------------------------

    def list_pods(self) -> bool:
        """List the pods again for the listener, in case their watch is silent; False if another thread just did.

        Raises:
            ClusterReadError: they could not be read.
        """
        return self._cache.list_pods()

    @contextmanager
    def listen(self, listener: Listener) -> Iterator[bool]:
        """Send changes of pods since the first snapshot to ``listener``, inside the ``with`` block.

        Yield whether these changes are complete; if not, call :meth:`list_pods`.
        """
        with self._cache.lock:
            whole = self._backlog is not None
            for event, pod in self._backlog or ():
                listener.take(event, pod)
            self._listener, self._backlog = listener, None
        self._notes = {}
        if (why := self._cache.pods_trouble) is not None:
            listener.fail(ClusterReadError(why))
        try:
            yield whole
        finally:
            with self._cache.lock:
                self._listener = None

    # -- what the cache reports, see Subscriber ------------------------------------------------------

    def take(self, event: EventType, pod: PodRecord) -> None:
        """Receive a change of a pod, see :class:`Subscriber`."""
        if self._backlog is not None:
            self._backlog.append((event, pod))

    def pass_on(self, event: EventType, pod: PodRecord) -> None:
        """Forward a change of a pod to the listener."""
        if self._listener is not None:
            self._listener.take(event, pod)

    def settle(self, *, whole: bool) -> None:
        """Record that all current data are known here, see :class:`Subscriber`."""
        self._backlog = [] if whole else None

    def pods_are_listed(self) -> None:
        """Record that the known changes of pods are incomplete."""
        self._backlog = None

    def note(self, resource: Resource, why: str) -> None:
        """Record which resource is listed again, and why."""
        self._notes.setdefault(why, {})[resource.plural] = None

    def fail(self, error: ClusterReadError) -> None:
        """Forward the error by which following pods ended."""
        if self._listener is not None:
            self._listener.fail(error)


def view_first(cache: ClusterCache, first: Snapshot, at: float) -> RunView:
    """Return the view of a run that has read the cluster itself; call it before entering the cache.

    ``first``: what the run has read; ``at``: the client's time when it was captured.
    """
    view = RunView(cache, first, at)
    cache.subscribe(view)
    return view


def view_now(
    cache: ClusterCache,
    evicted: Collection[str],
    *,
    captured_at: float,
    version: tuple[int, int],
    use: Fold | None = None,
) -> RunView:
    """Return the view of a new run; its first snapshot equals reading everything again.

    ``evicted``: by the previous run. ``use``: new measurements.

    Raises:
        ClusterReadError: a list had to be read again, and could not be.
    """
    view = RunView(cache, cache.first, cache.client.monotonic())
    cache.subscribe(view)
    cache.catch_up(evicted)
    cache.await_controllers()
    settled = cache.settle_for(view, evicted, use)
    view.begin(settled, captured_at, version)
    # The snapshot before it is released: on a large cluster it is large.
    cache.first = view.first
    return view


def read_view(
    client: Client,
    cache: ClusterCache,
    evicted: Collection[str],
    *,
    clock: Callable[[], float],
    usage: UsageSource | None = None,
) -> tuple[RunView, Readings]:
    """Return the view of a new run, with the current usage of pods; no list is read.

    One request asks for the server's version, which may have changed, and its time. ``evicted``: the pods (uids)
    that the previous run evicted. ``clock`` is our own, in Unix seconds.

    Raises:
        ClusterReadError: the server does not answer, or a list had to be read again and could not be.
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
    view = view_now(
        cache,
        evicted,
        captured_at=now if version.date is None else version.date,
        version=version.numbers,
        use=use,
    )
    troubles = [(each.listing.resource, each.trouble) for each in measured]
    return view, Readings(
        server=client.server,
        server_version=version.text,
        clock_skew=None if version.date is None else version.date + 0.5 - now,
        read_bytes=sum(each.listing.read_bytes for each in measured),
        seconds=client.monotonic() - started,
        notes=(*view.notes, *(() if usage is None else usage_notes(usage, troubles))),
    )
