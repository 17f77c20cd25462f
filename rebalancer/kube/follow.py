"""The cluster kept current while a run acts, or for hours: each list is followed by a watch from where it ended.

What a watch reports is folded into what was read, so that a snapshot of it is what reading everything again
would give, without asking for it. A list whose changes cannot be followed (no permission to watch, a stream
that does not open) is read again for each snapshot; one whose version the server has forgotten, once.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.failures import ForbiddenError, explain_errors
from rebalancer.kube.lists import phase_selector, read_objects, read_pods
from rebalancer.kube.pages import Listing
from rebalancer.kube.read import Kept
from rebalancer.kube.watch import EventType, Watch, WatchEvent, Where, object_changes, pod_changes
from rebalancer.snapshot.build import Fold, Settled
from rebalancer.snapshot.carried import with_usage_of
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.kinds import AFTER_PODS, Resource
from rebalancer.wire.objects import Node
from rebalancer.wire.pods import PodRecord

_TIMEOUT = 2.0
"""Seconds for a watch to report what must have happened; then the list is read again."""
_POLL_INTERVAL = 0.02
_JOIN_TIMEOUT = 5.0


class Listener(Protocol):
    """Receives what happens to pods, from another thread, when it is known here."""

    def take(self, event: EventType, pod: PodRecord) -> None:
        """Something happened to a pod."""

    def fail(self, error: ClusterReadError) -> None:
        """Pods are followed no longer."""


class Observer(Protocol):
    """Receives every change, from other threads, before the next snapshot shows it; for what is followed for long."""

    def pod_changed(self, pod: PodRecord) -> None:
        """Receive the newest version of a pod."""

    def object_changed(self, kind: str, before: Any | None, after: Any | None) -> None:
        """An object of another kind has changed: None before it was made, and after it went.

        Both are None where objects of the kind were listed again: any may have changed.
        """


@dataclass(slots=True)
class _Track:
    """One list, and the watch that follows it."""

    resource: Resource
    listing: Listing
    watch: Watch[Any] | None = None
    trouble: str | None = None
    """Why it is not followed."""
    current: float = -math.inf
    """Time of the client's clock at which it was known to be current last, by a watch that is none any more."""
    renewing: threading.Lock = field(default_factory=threading.Lock)


class Follower:
    """Follows what was read, from the moment it is entered until it is left, or ``seconds`` have passed.

    Without ``everything``, only pods are followed, in one ``namespace`` if one is given, for the listener
    alone: there are no snapshots then.

    What lives for long is made without a listener: each of its runs takes a :meth:`fresh` snapshot, and is given the changes of pods
    while it is :meth:`subscribe` a listener of its own; now and then it is :meth:`compact`.
    """

    def __init__(
        self,
        client: Client,
        kept: Kept,
        listener: Listener | None,
        *,
        seconds: float,
        everything: bool = True,
        namespace: str = "",
        observer: Observer | None = None,
    ) -> None:
        self._client, self._listener, self._observer = client, listener, observer
        self._how = kept.how
        self._first, self._at = kept.snapshot, kept.at
        """The snapshot of the run that is under way, and the client's time when it was captured."""
        self._backlog: list[tuple[EventType, PodRecord]] | None = None
        """What happened to pods since that snapshot, for the run's listener; None where that is not known whole."""
        self._fold, self._namespace, self._folds = kept.fold, namespace, everything
        self._leaving = threading.Event()
        self._stop = client.stop.sooner(seconds, self._leaving)
        self._lock = threading.Lock()
        self._tracks = [
            _Track(listing.resource, listing)
            for listing in (kept.listings if everything else kept.listings[:1])
            if listing.pages
        ]
        self._pods = self._tracks[0]
        self._ending: set[str] = set()
        """uids of the pods that were seen to be on their way out, or gone."""
        self._absent = self._fold.settle().without_object()
        """Kind and uid of controllers that pods name and the server does not have."""
        self._threads: list[threading.Thread] = []
        """Also those of watches that were late and given up: they may still wait for an answer."""
        self._fresh: set[str] = set()
        """The kinds that were listed again when the budgets were asked for last."""
        self._notes: dict[str, dict[str, None]] = {}
        """Why -> plurals."""

    def __enter__(self) -> Self:
        for track in self._tracks:
            self._start(track)
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        for track in self._tracks:
            if track.watch is not None:
                track.watch.close()
        until = self._client.monotonic() + _JOIN_TIMEOUT
        for thread in self._threads:
            thread.join(timeout=max(0.0, until - self._client.monotonic()))

    @property
    def notes(self) -> tuple[str, ...]:
        """What had to be read again, and why, in words."""
        return tuple(
            f"{', '.join(sorted(plurals))} were listed again between waves: {why}"
            for why, plurals in sorted(self._notes.items())
        )

    # -- for long ----------------------------------------------------------------------------------

    def fresh(
        self,
        evicted: Collection[str],
        *,
        captured_at: float,
        version: tuple[int, int],
        use: Fold | None = None,
    ) -> Snapshot:
        """Return the cluster as it is now, for a new run: what reading everything would give.

        ``evicted``: by the run before. ``use``: what was measured just now. Watches that were given up start again.

        Raises:
            ClusterReadError: something had to be read again, and could not be.
        """
        self._notes = {}
        for track in self._tracks:
            track.trouble = None
        self._catch_up(evicted)
        self._await_controllers()
        with self._lock:
            # Not emptied: should this run fail, the next one asks for the same pods.
            self._ending.intersection_update(evicted)
            # Where the pods are being listed again, some are taken in before there is a listener.
            self._backlog = None if self._pods.watch is None else []
            if use is not None:
                self._fold.take_metrics(use)
            settled = self._fold.settle()
            self._fold.forget_metrics()
        self._at = self._client.monotonic()
        self._first = settled.snapshot(
            captured_at=captured_at,
            version=version,
            missing=self._first.missing,
            resource_version=self._pods.watch.resource_version if self._pods.watch else "",
        )
        return self._first

    @contextmanager
    def subscribe(self, listener: Listener) -> Iterator[bool]:
        """Report to ``listener`` what has become of pods since the last fresh snapshot, until this is left.

        Yield whether that is whole; if not, :meth:`list_pods`.
        """
        with self._lock:
            whole = self._backlog is not None
            for event, pod in self._backlog or ():
                listener.take(event, pod)
            self._listener, self._backlog = listener, None
        self._notes = {}
        if (why := self._pods.trouble) is not None:
            listener.fail(ClusterReadError(why))
        try:
            yield whole
        finally:
            with self._lock:
                self._listener = None

    def compact(self, evicted: Collection[str]) -> None:
        """Forget what no later run needs; ``evicted``: by the run before. To be called between two runs."""
        with self._lock:
            self._backlog = None
            self._ending.intersection_update(evicted)
            self._fold.compact()
        self._threads = [thread for thread in self._threads if thread.is_alive()]

    def nodes(self) -> list[Node]:
        """Return the nodes as they are known now."""
        with self._lock:
            return self._fold.every("Node")

    def silent_for(self) -> float:
        """Return the seconds for which something may have changed that is not known here.

        The server says at least once a minute that there was nothing.
        """
        # The watch first: it goes once its time is noted. No lock: a snapshot keeps it for longer than a probe waits.
        heard = [
            max(-math.inf if (watch := track.watch) is None else watch.received, track.current)
            for track in self._tracks
        ]
        return self._client.monotonic() - min(heard)

    # -- snapshots ---------------------------------------------------------------------------------

    def snapshot(self, evicted: Collection[str]) -> Snapshot:
        """Return the cluster as it is now, with the pods in it that were ``evicted`` (uids) on their way out.

        What is really used was measured once, before they moved, and is carried over.

        Raises:
            ClusterReadError: something had to be read again, and could not be.
        """
        self._catch_up(evicted)
        self._fresh = set()
        return self._make_snapshot(self._await_controllers())

    def peek(self, evicted: Collection[str]) -> Snapshot | None:
        """Return the cluster as the watches know it, without asking for anything; None if they are behind."""
        return None if self._behind(evicted, ()) else self._make_snapshot(self._settle())

    def _make_snapshot(self, settled: Settled) -> Snapshot:
        first = self._first
        now = settled.snapshot(
            captured_at=first.captured_at + self._client.monotonic() - self._at,
            version=first.version,
            missing=first.missing,
            resource_version=self._pods.watch.resource_version if self._pods.watch else "",
        )
        return with_usage_of(first, now)

    def list_exhausted_budgets(self, evicted: Collection[str]) -> set[str]:
        """Return the PodDisruptionBudgets (namespace/name) that allow nothing, in the cluster as it is now.

        As :meth:`snapshot` has them, without making one.

        Raises:
            ClusterReadError: something had to be read again, and could not be.
        """
        self._fresh = self._catch_up(evicted, self._pods.resource.kind, "PodDisruptionBudget")
        with self._lock:
            return self._fold.list_exhausted_budgets()

    def _settle(self) -> Settled:
        with self._lock:
            return self._fold.settle()

    def _catch_up(self, evicted: Collection[str], *kinds: str) -> set[str]:
        """Wait until all watches are open and have reported our own acts; list again what is behind.

        Of some ``kinds`` only, if any are given. Return which were listed; without kinds, what was listed
        just before for the budgets is not listed again.
        """
        until = self._client.monotonic() + _TIMEOUT
        listed = set() if kinds else set(self._fresh)
        while behind := [
            track for track in self._behind(evicted, kinds) if track.resource.kind not in listed
        ]:
            fixes = any(track.trouble is None for track in behind)
            if (
                fixes
                and self._client.monotonic() < until
                and self._stop.wait(_POLL_INTERVAL) is None
            ):
                continue
            listed |= self._list_all_again(behind, "their watch was broken or late")
            if self._pods.resource.kind in listed:
                self._ending.update(evicted)
        return listed

    def _behind(self, evicted: Collection[str], kinds: Collection[str]) -> list[_Track]:
        asked = [track for track in self._tracks if not kinds or track.resource.kind in kinds]
        return [
            track
            for track in asked
            if track.watch is None
            or not track.watch.is_current()
            or (track is self._pods and not self._ending.issuperset(evicted))
        ]

    def _await_controllers(self) -> Settled:
        """Return what is known when the objects of controllers are there that pods name already."""
        settled = self._settle()
        without = settled.without_object()
        self._absent &= without
        missing = without - self._absent
        return self._with_controllers(missing) if missing else settled

    def _with_controllers(self, missing: set[tuple[str, str]]) -> Settled:
        until = self._client.monotonic() + _TIMEOUT
        while (
            missing and self._client.monotonic() < until and self._stop.wait(_POLL_INTERVAL) is None
        ):
            missing = self._settle().without_object() - self._absent
        kinds = {kind for kind, _ in missing}
        tracks = [track for track in self._tracks if track.resource.kind in kinds]
        self._list_all_again(tracks, "pods name some that no watch had reported")
        settled = self._settle()
        self._absent |= missing & settled.without_object()
        return settled

    def list_pods(self) -> bool:
        """Read the pods once more, for the listener: their watch may have gone silent; False if another just did.

        Raises:
            ClusterReadError: they could not be read.
        """
        return bool(self._list_all_again([self._pods], "their watch said nothing"))

    # -- lists, once more --------------------------------------------------------------------------

    def _list_all_again(self, tracks: Sequence[_Track], why: str) -> set[str]:
        """Return the kinds that were listed; the others were, meanwhile, by the threads that follow them."""
        watches = {track.resource.kind: track.watch for track in tracks}

        def again(track: _Track) -> bool:
            return self._list_again(track, watches[track.resource.kind], why)

        # Pods first: their controllers decide which ReplicaSets and Jobs are kept.
        done = [again(track) for track in tracks if track is self._pods]
        with ThreadPoolExecutor(4, "lists") as pool:
            done += pool.map(again, (track for track in tracks if track is not self._pods))
        return {kind for kind, listed in zip(watches, done, strict=True) if listed}

    def _list_again(self, track: _Track, watch: Watch[Any] | None, why: str) -> bool:
        """Read a list again and follow it from there, unless ``watch`` is no longer the list's."""
        with track.renewing:
            if track.watch is not watch or self._leaving.is_set():
                return False
            self._notes.setdefault(track.trouble or why, {})[track.resource.plural] = None
            if watch is not None:
                watch.close()
            with self._lock:
                if watch is not None:
                    track.current = max(track.current, watch.received)
                track.watch = None
            track.listing = self._read_pods() if track is self._pods else self._read(track.resource)
            if track.trouble is None and not self._leaving.is_set():
                self._start(track)
            return True

    def _read_pods(self) -> Listing:
        with self._lock:
            self._backlog = None
        fold, listing = read_pods(self._client, self._how, self._report)
        with self._lock:
            self._fold.take_pods(fold)
        return listing

    def _read(self, resource: Resource) -> Listing:
        wanted = self._fold.controllers if resource in AFTER_PODS else None
        listing, objects = read_objects(self._client, resource, self._how, self._leaving, wanted)
        with self._lock:
            self._fold.forget(resource.kind)
            self._fold.add(resource.kind, objects)
        if self._observer is not None:
            self._observer.object_changed(resource.kind, None, None)
        return listing

    def _report(self, pods: Iterable[PodRecord]) -> Iterator[PodRecord]:
        for pod in pods:
            if self._listener is not None:
                self._listener.take(EventType.MODIFIED, pod)
            yield pod

    # -- watches -----------------------------------------------------------------------------------

    def _start(self, track: _Track) -> None:
        where = self._where(track)
        track.watch = watch = Watch(self._client, where, seconds=self._stop.left())
        name = f"watch-{track.resource.plural}"
        thread = threading.Thread(target=self._follow, args=(track, watch), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _where(self, track: _Track) -> Where[Any]:
        kind, listing = track.resource.kind, track.listing
        form = listing.content_type
        of_pods = track is self._pods
        return Where(
            track.resource,
            listing.items_version,
            form,
            (lambda: pod_changes(form)) if of_pods else (lambda: object_changes(kind, form)),
            selector=phase_selector(self._how.finished) if of_pods else "",
            namespace=self._namespace if of_pods else "",
        )

    def _follow(self, track: _Track, watch: Watch[Any]) -> None:
        """Follow a list in a thread of its own, for as long as ``watch`` is its watch."""
        try:
            with explain_errors(track.resource):
                for event in watch:
                    if not self._take(track, watch, event):
                        return
            if watch.expired:
                self._list_again(track, watch, "the API server had forgotten their changes")
        except ClusterReadError as error:
            self._give_up(track, error)

    def _give_up(self, track: _Track, error: ClusterReadError) -> None:
        forbidden = isinstance(error, ForbiddenError)
        track.trouble = "our account may not watch them" if forbidden else str(error)
        if track is self._pods and self._listener is not None:
            self._listener.fail(error)

    def _take(self, track: _Track, watch: Watch[Any], event: WatchEvent[Any]) -> bool:
        """Fold one change; return whether the watch is still the list's."""
        with self._lock:
            if track.watch is not watch:
                return False
            if track is not self._pods:
                self._take_object(track.resource.kind, event)
                return True
            gone = event.type is EventType.DELETED
            if gone or event.object.deleting:
                self._ending.add(event.object.uid)
            if self._folds and gone:
                self._fold.remove_pod(event.object.uid)
            elif self._folds:
                self._fold.change_pod(event.object)
            listener = self._listener
            if self._backlog is not None:
                self._backlog.append((event.type, event.object))
        if listener is not None:
            listener.take(event.type, event.object)
        if self._observer is not None and not gone:
            self._observer.pod_changed(event.object)
        return True

    def _take_object(self, kind: str, event: WatchEvent[Any]) -> None:
        gone = event.type is EventType.DELETED
        if self._observer is not None:
            before = self._fold.find(kind, event.object)
            self._observer.object_changed(kind, before, None if gone else event.object)
        if gone:
            self._fold.remove(kind, event.object)
        else:
            self._fold.change(kind, event.object)
