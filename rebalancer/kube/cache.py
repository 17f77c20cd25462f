"""A cache of the cluster, kept current during a run or for hours: each list is followed by a watch from its version.

The changes of the watches are folded into the data, so that a snapshot equals what reading everything again would
give, without requests. A list whose version the server has dropped is read again. During a run, a list whose watch
is refused is read again for each snapshot; without an end, reading and watching are tried again for ever.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.stop import Backoff, Stop
from rebalancer.kube.client import Client
from rebalancer.kube.failures import ForbiddenError, explain_errors
from rebalancer.kube.lists import Listing, phase_selector, read_objects, read_pods
from rebalancer.kube.metrics import UsageSource, read_metrics, usage_notes
from rebalancer.kube.read import Kept, Readings, read_version
from rebalancer.kube.watch import EventType, Watch, WatchEvent, Where, object_changes, pod_changes
from rebalancer.snapshot.build import Fold, Settled
from rebalancer.snapshot.measured import with_usage_of
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.kinds import AFTER_PODS, METRICS, PODS, Resource
from rebalancer.wire.objects import Node
from rebalancer.wire.pods import PodRecord

_EXPIRED = "the API server had forgotten their changes"


class Trouble(NamedTuple):
    """Why changes of a resource are not received."""

    why: str
    since: float
    """Time of the client's clock."""


class Reflector:
    """Follows one resource from the version of its list, in a thread.

    A ``lasting`` one never ends by itself: it lists and watches again, with longer and longer pauses.
    """

    def __init__(
        self,
        client: Client,
        listing: Listing,
        store: ClusterCache,
        stop: Stop,
        closed: threading.Event,
        *,
        lasting: bool,
    ) -> None:
        """``listing``: the list to continue from. Watches end with ``stop``; nothing is listed after ``closed``."""
        self.resource, self._listing = listing.resource, listing
        self.watch: Watch[Any] | None = None
        """None before the start, and while the resource is listed again."""
        self._client, self._store, self._stop, self._closed = client, store, stop, closed
        self._lasting = lasting
        self._trouble: Trouble | None = None
        """The last one; it is over once a newer watch has opened."""
        limits = client.limits.follow
        self._backoff = Backoff(limits.first_relist, limits.longest_relist)
        """Of all watches one after the other: each of them may end as soon as it begins."""
        self._known_at = -math.inf
        """Time of the client's clock at which it was last known to be current, by a watch that has ended."""
        self._relisting = threading.Lock()
        self._threads: list[threading.Thread] = []
        """The last one follows. The others are of watches that were late and given up: they may still wait for an answer."""

    @property
    def version(self) -> str:
        """The known version of the resource; empty while it is being listed."""
        watch = self.watch
        return watch.resource_version if watch is not None else ""

    @property
    def trouble(self) -> Trouble | None:
        """Why the resource is not followed now; None if it is."""
        watch = self.watch
        return None if watch is not None and watch.has_opened else self._trouble

    @property
    def heard_at(self) -> float:
        """The time of the client's clock up to which all changes are known."""
        # The watch first: it goes once its time is noted. No lock: a snapshot keeps it for longer than a probe waits.
        watch = self.watch
        return max(-math.inf if watch is None else watch.received, self._known_at)

    def is_current(self) -> bool:
        """Return whether changes are reported without delay."""
        return self.watch is not None and self.watch.is_current()

    def start(self) -> None:
        """Start a thread that watches."""
        self.watch = watch = Watch(
            self._client, self._store.where(self._listing), seconds=self._stop.seconds_left()
        )
        self._begin(partial(self._follow, watch))

    def _begin(self, task: Callable[[], None]) -> None:
        name = f"watch-{self.resource.plural}"
        thread = threading.Thread(target=task, name=name, daemon=True)
        self._threads = [*(one for one in self._threads if one.is_alive()), thread]
        thread.start()

    def _resume(self) -> None:
        """Have a thread list again if this one, in which that has failed, is a run's."""
        if threading.current_thread() not in self._threads:
            self._begin(self._list_again)

    def relist(self, watch: Watch[Any] | None, why: str) -> bool:
        """List again and follow from there; return False if ``watch`` is no longer the resource's watch.

        Raises:
            ClusterReadError: the resource could not be read.
        """
        with self._relisting:
            if self.watch is not watch or self._closed.is_set():
                return False
            trouble = self.trouble
            self._store.note(self.resource, why if trouble is None else trouble.why)
            if watch is not None:
                self._drop(watch)
            try:
                self._listing = self._store.replace(self.resource)
            except ClusterReadError as error:
                if self._lasting:
                    self._fail(None, error)
                    self._resume()
                raise
            if (self._lasting or trouble is None) and not self._closed.is_set():
                self.start()
            return True

    def _drop(self, watch: Watch[Any]) -> bool:
        """End ``watch``; return False if another thread has done so already.

        If the watch had opened, the failure before it is forgotten.
        """
        watch.close()
        with self._store.lock:
            if self.watch is not watch:
                return False
            self._known_at = max(self._known_at, watch.received)
            if watch.has_opened:
                self._trouble = None
            self.watch = None
            return True

    def close(self) -> None:
        """End the watch; its thread ends soon."""
        if self.watch is not None:
            self.watch.close()

    def join(self, until: float) -> None:
        """Wait for all threads, until the time ``until`` of the client's clock."""
        for thread in self._threads:
            thread.join(timeout=max(0.0, until - self._client.monotonic()))

    def _follow(self, watch: Watch[Any]) -> None:
        """Store the changes of ``watch``; when it ends early, list again, from where another thread follows."""
        began = self._client.monotonic()
        try:
            with explain_errors(self.resource):
                for event in watch:
                    if not self._take(watch, event):
                        return
        except ClusterReadError as error:
            self._fail(watch, error)
        else:
            if not watch.expired:
                return
            self._drop(watch)
        if self._client.monotonic() - began > self._backoff.maximum:
            self._backoff.reset()
        self._list_again()

    def _list_again(self) -> None:
        """List after a pause, again and again if the reflector is lasting, until a watch begins here or elsewhere."""
        while self._lasting or self.trouble is None:
            if self._backoff.wait(self._stop) is not None:
                return
            if self._threads[-1] is not threading.current_thread():
                return
            try:
                with explain_errors(self.resource):
                    self.relist(None, _EXPIRED)
            except ClusterReadError as error:
                self._fail(None, error)
            else:
                return

    def _fail(self, watch: Watch[Any] | None, error: ClusterReadError) -> None:
        """Note why nothing is received; report it if something was until now."""
        replaced = watch is not None and not self._drop(watch)
        if replaced or self._stop.reason() is not None:
            return
        forbidden = isinstance(error, ForbiddenError)
        why = "our account may not watch them" if forbidden else str(error)
        known = self._trouble
        since = self._client.monotonic() if known is None else known.since
        self._trouble = Trouble(why, since)
        if known is None:
            self._store.fail(self.resource, why, error)

    def _take(self, watch: Watch[Any], event: WatchEvent[Any]) -> bool:
        with self._store.lock:
            if self.watch is not watch:
                return False
            pass_on = self._store.take(self.resource, event)
        pass_on()
        return True


_TIMEOUT = 2.0
"""Seconds for a watch to report what must have happened; then the list is read again."""
_POLL_INTERVAL = 0.02
_JOIN_TIMEOUT = 5.0


class Observer(Protocol):
    """Receives every change, from other threads, before the next snapshot shows it; for long-lived processes."""

    def pod_changed(self, pod: PodRecord) -> None:
        """Receive the newest version of a pod."""

    def object_changed(self, kind: str, before: Any | None, after: Any | None) -> None:
        """Receive a change of another object: ``before`` is None if it is new, ``after`` if it was deleted.

        If both are None, the kind was listed again, and any object may have changed.
        """

    def watch_failed(self, plural: str, why: str) -> None:
        """Receive that changes of a list are not received any more, until it is listed again."""


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
        """The kinds that had been listed again at the last query of the budgets."""
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
        self._first = self._snapshot_at(settled, captured_at, version)

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
        first, since = self._first, self._cache.client.monotonic() - self._at
        now = self._snapshot_at(settled, first.captured_at + since, first.version)
        return with_usage_of(first, now)

    def _snapshot_at(self, settled: Settled, at: float, version: tuple[int, int]) -> Snapshot:
        return settled.snapshot(
            captured_at=at,
            version=version,
            missing=self._first.missing,
            resource_version=self._cache.pods_version,
        )

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

    # -- what the cache reports, from other threads ---------------------------------------------------

    def take(self, event: EventType, pod: PodRecord) -> None:
        """Receive a change of a pod; the cache's lock is held."""
        if self._backlog is not None:
            self._backlog.append((event, pod))

    def pass_on(self, event: EventType, pod: PodRecord) -> None:
        """Forward the same change to the listener after the lock is released."""
        if self._listener is not None:
            self._listener.take(event, pod)

    def settle(self, *, whole: bool) -> None:
        """Begin to collect changes of pods anew, since the current data are known; unless ``whole``, some will be missing. The lock is held."""
        self._backlog = [] if whole else None

    def pods_are_listed(self) -> None:
        """Record that the known changes of pods are incomplete; the lock is held."""
        self._backlog = None

    def note(self, resource: Resource, why: str) -> None:
        """Record which resource is listed again, and why."""
        self._notes.setdefault(why, {})[resource.plural] = None

    def fail(self, error: ClusterReadError) -> None:
        """Forward the error by which following pods ended."""
        if self._listener is not None:
            self._listener.fail(error)


class ClusterCache:
    """Follows the lists that were read, from entering the context until leaving it, or for ``seconds``.

    Only the lists in ``kept`` are followed, and pods in one ``namespace`` if one is given; then there are no
    snapshots. Each run reads the cache through its own :class:`RunView`.
    """

    def __init__(
        self,
        client: Client,
        kept: Kept,
        *,
        seconds: float,
        namespace: str = "",
        observer: Observer | None = None,
    ) -> None:
        self.client, self._how, self._namespace = client, kept.how, namespace
        self.first = kept.snapshot
        """The snapshot with which the latest run has begun."""
        self._fold, self._observer = kept.fold, observer
        self.lock = threading.Lock()
        self._closed = threading.Event()
        self._stop = client.stop.sooner(seconds, self._closed)
        self._reflectors = [
            Reflector(client, listing, self, self._stop, self._closed, lasting=math.isinf(seconds))
            for listing in kept.listings
            if listing.pages
        ]
        self._pods = self._reflectors[0]
        self._view: RunView | None = None
        """Of the run in progress."""
        self._ending: set[str] = set()
        """uids of the pods that were seen to be on their way out, or gone."""
        self._absent = self._fold.settle().without_object()
        """Kind and uid of controllers that pods name and the server does not have."""

    def __enter__(self) -> Self:
        for reflector in self._reflectors:
            reflector.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        for reflector in self._reflectors:
            reflector.close()
        until = self.client.monotonic() + _JOIN_TIMEOUT
        for reflector in self._reflectors:
            reflector.join(until)

    # -- what is known -----------------------------------------------------------------------------

    @property
    def pods_version(self) -> str:
        """The known version of the list of pods; empty while it is being read."""
        return self._pods.version

    @property
    def pods_trouble(self) -> str | None:
        """Why pods are not followed; None if they are."""
        trouble = self._pods.trouble
        return None if trouble is None else trouble.why

    def troubles(self) -> dict[str, Trouble]:
        """Return the lists (plurals) whose changes are not received now, and why."""
        every = {each.resource.plural: each.trouble for each in self._reflectors}
        return {plural: trouble for plural, trouble in every.items() if trouble is not None}

    def describe_troubles(self) -> str:
        """Return which changes are not received, for how long and why; empty if all are."""
        troubles = self.troubles()
        if not troubles:
            return ""
        first = min(troubles.values(), key=lambda trouble: trouble.since)
        seconds = self.client.monotonic() - first.since
        return f"changes of {', '.join(troubles)} are not received for {seconds:.0f} s: {first.why}"

    def nodes(self) -> list[Node]:
        """Return the nodes as currently known."""
        with self.lock:
            return self._fold.every("Node")

    def silent_for(self) -> float:
        """Return for how many seconds changes may have been missed.

        The server sends something at least once a minute.
        """
        return self.client.monotonic() - min(each.heard_at for each in self._reflectors)

    def settle(self) -> Settled:
        """Return the current objects; later changes do not affect them."""
        with self.lock:
            return self._fold.settle()

    def list_exhausted_budgets(self) -> set[str]:
        """Return the known PodDisruptionBudgets (namespace/name) that allow no disruption."""
        with self.lock:
            return self._fold.list_exhausted_budgets()

    def compact(self, evicted: Collection[str]) -> None:
        """Drop data that no later run needs; ``evicted``: by the previous run. Call it between two runs."""
        with self.lock:
            self._view = None
            self._ending.intersection_update(evicted)
            self._fold.compact()

    # -- runs --------------------------------------------------------------------------------------

    def view_first(self, first: Snapshot, at: float) -> RunView:
        """Return the view of a run that has read the cluster itself; call it before entering the context.

        ``first``: what the run has read; ``at``: the client's time when it was captured.
        """
        view = RunView(self, first, at)
        with self.lock:
            self._view = view
        return view

    def view_now(
        self,
        evicted: Collection[str],
        *,
        captured_at: float,
        version: tuple[int, int],
        use: Fold | None = None,
    ) -> RunView:
        """Return the view of a new run; its first snapshot equals reading everything again.

        ``evicted``: by the previous run; other pods are no longer awaited. ``use``: new measurements.

        Raises:
            ClusterReadError: a list had to be read again, and could not be.
        """
        view = self.view_first(self.first, self.client.monotonic())
        self.catch_up(evicted)
        self.await_controllers()
        with self.lock:
            # Not emptied: should this run fail, the next one asks for the same pods.
            self._ending.intersection_update(evicted)
            # Where the pods are being listed again, some are taken in before there is a listener.
            view.settle(whole=self._pods.watch is not None)
            if use is not None:
                self._fold.take_metrics(use)
            settled = self._fold.settle()
            self._fold.forget_metrics()
        view.begin(settled, captured_at, version)
        # The snapshot before it is released: on a large cluster it is large.
        self.first = view.first
        return view

    # -- waiting -----------------------------------------------------------------------------------

    def catch_up(
        self, evicted: Collection[str], *kinds: str, listed: Collection[str] = ()
    ) -> set[str]:
        """Wait until all watches are open and have reported the ``evicted`` pods; list again the kinds whose watches are behind.

        With ``kinds``, only these; kinds in ``listed`` are not listed again. Return the kinds that were listed,
        including ``listed``.

        Raises:
            ClusterReadError: a list had to be read again, and could not be.
        """
        until = self.client.monotonic() + _TIMEOUT
        done = set(listed)
        while behind := [
            each for each in self._behind(evicted, kinds) if each.resource.kind not in done
        ]:
            fixes = any(each.trouble is None for each in behind)
            if (
                fixes
                and self.client.monotonic() < until
                and self._stop.wait(_POLL_INTERVAL) is None
            ):
                continue
            done |= self._relist_all(behind, "their watch was broken or late")
            if PODS.kind in done:
                self._ending.update(evicted)
        return done

    def is_behind(self, evicted: Collection[str]) -> bool:
        """Return whether a watch is not open, or has not reported all ``evicted`` pods."""
        return bool(self._behind(evicted, ()))

    def _behind(self, evicted: Collection[str], kinds: Collection[str]) -> list[Reflector]:
        asked = [each for each in self._reflectors if not kinds or each.resource.kind in kinds]
        return [
            each
            for each in asked
            if not each.is_current()
            or (each is self._pods and not self._ending.issuperset(evicted))
        ]

    def await_controllers(self) -> Settled:
        """Return the current objects, once the controllers that pods name are known.

        Raises:
            ClusterReadError: a list had to be read again, and could not be.
        """
        settled = self.settle()
        without = settled.without_object()
        self._absent &= without
        missing = without - self._absent
        return self._with_controllers(missing) if missing else settled

    def _with_controllers(self, missing: set[tuple[str, str]]) -> Settled:
        until = self.client.monotonic() + _TIMEOUT
        while (
            missing and self.client.monotonic() < until and self._stop.wait(_POLL_INTERVAL) is None
        ):
            missing = self.settle().without_object() - self._absent
        kinds = {kind for kind, _ in missing}
        behind = [each for each in self._reflectors if each.resource.kind in kinds]
        self._relist_all(behind, "pods name some that no watch had reported")
        settled = self.settle()
        self._absent |= missing & settled.without_object()
        return settled

    # -- lists, once more --------------------------------------------------------------------------

    def list_pods(self) -> bool:
        """List the pods again, in case their watch is silent; False if another thread just did.

        Raises:
            ClusterReadError: they could not be read.
        """
        return bool(self._relist_all([self._pods], "their watch said nothing"))

    def _relist_all(self, reflectors: Sequence[Reflector], why: str) -> set[str]:
        """List again; return the kinds listed here. The others were listed by the threads that follow them."""
        watches: dict[Reflector, Watch[Any] | None] = {each: each.watch for each in reflectors}

        def relist(one: Reflector) -> bool:
            return one.relist(watches[one], why)

        # Pods first: their controllers decide which ReplicaSets and Jobs are kept.
        done = {each: relist(each) for each in watches if each is self._pods}
        others = [each for each in watches if each is not self._pods]
        with ThreadPoolExecutor(4, "lists") as pool:
            done |= dict(zip(others, pool.map(relist, others), strict=True))
        return {each.resource.kind for each, was_listed in done.items() if was_listed}

    # -- what the reflectors store ------------------------------------------------------

    def where(self, listing: Listing) -> Where[Any]:
        """Return where to watch after a list."""
        kind, form = listing.resource.kind, listing.content_type
        of_pods = listing.resource == PODS
        return Where(
            listing.resource,
            listing.items_version,
            form,
            partial(pod_changes, form) if of_pods else partial(object_changes, kind, form),
            selector=phase_selector(self._how.finished) if of_pods else "",
            namespace=self._namespace if of_pods else "",
        )

    def replace(self, resource: Resource) -> Listing:
        """List the resource, and replace all stored objects by it."""
        if resource == PODS:
            return self._replace_pods()
        wanted = self._fold.controllers if resource in AFTER_PODS else None
        listing, objects = read_objects(self.client, resource, self._how, self._closed, wanted)
        with self.lock:
            self._fold.forget(resource.kind)
            self._fold.add(resource.kind, objects)
        if self._observer is not None:
            self._observer.object_changed(resource.kind, None, None)
        return listing

    def _replace_pods(self) -> Listing:
        with self.lock:
            if self._view is not None:
                self._view.pods_are_listed()
        fold, listing = read_pods(self.client, self._how, self._report)
        with self.lock:
            self._fold.take_pods(fold)
        return listing

    def _report(self, pods: Iterable[PodRecord]) -> Iterator[PodRecord]:
        for pod in pods:
            if self._view is not None:
                self._view.pass_on(EventType.MODIFIED, pod)
            yield pod

    def note(self, resource: Resource, why: str) -> None:
        """Report that the resource is listed again, and why."""
        if self._view is not None:
            self._view.note(resource, why)

    def fail(self, resource: Resource, why: str, error: ClusterReadError) -> None:
        """Report that changes of the resource are not received now."""
        if resource == PODS and self._view is not None:
            self._view.fail(error)
        if self._observer is not None:
            self._observer.watch_failed(resource.plural, why)

    def take(self, resource: Resource, event: WatchEvent[Any]) -> Callable[[], None]:
        """Store one change; return a function that forwards it after the lock is released."""
        if resource == PODS:
            return self._take_pod(event)
        gone, kind = event.type is EventType.DELETED, resource.kind
        if self._observer is not None:
            before = self._fold.find(kind, event.object)
            self._observer.object_changed(kind, before, None if gone else event.object)
        if gone:
            self._fold.remove(kind, event.object)
        else:
            self._fold.change(kind, event.object)
        return _do_nothing

    def _take_pod(self, event: WatchEvent[PodRecord]) -> Callable[[], None]:
        pod, gone = event.object, event.type is EventType.DELETED
        if gone or pod.deleting:
            self._ending.add(pod.uid)
        if gone:
            self._fold.remove_pod(pod.uid)
        else:
            self._fold.change_pod(pod)
        view = self._view
        if view is not None:
            view.take(event.type, pod)

        def pass_on() -> None:
            if view is not None:
                view.pass_on(event.type, pod)
            if self._observer is not None and not gone:
                self._observer.pod_changed(pod)

        return pass_on


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
    view = cache.view_now(
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


def _do_nothing() -> None:
    """Do nothing: there is nothing to forward."""
