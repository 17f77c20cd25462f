"""The cluster kept current while a run acts, or for hours: each list is followed by a watch from where it ended.

What a watch reports is folded into what was read, so that a snapshot of it is what reading everything again
would give, without asking for it. A list whose changes cannot be followed (no permission to watch, a stream
that does not open) is read again for each snapshot; one whose version the server has forgotten, once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, Self

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.lists import phase_selector, read_objects, read_pods
from rebalancer.kube.pages import Listing
from rebalancer.kube.read import Kept
from rebalancer.kube.reflector import Reflector
from rebalancer.kube.watch import EventType, Watch, WatchEvent, Where, object_changes, pod_changes
from rebalancer.snapshot.build import Fold, Settled
from rebalancer.wire.kinds import AFTER_PODS, PODS, Resource
from rebalancer.wire.objects import Node
from rebalancer.wire.pods import PodRecord

_TIMEOUT = 2.0
"""Seconds for a watch to report what must have happened; then the list is read again."""
_POLL_INTERVAL = 0.02
_JOIN_TIMEOUT = 5.0


class Observer(Protocol):
    """Receives every change, from other threads, before the next snapshot shows it; for what is followed for long."""

    def pod_changed(self, pod: PodRecord) -> None:
        """Receive the newest version of a pod."""

    def object_changed(self, kind: str, before: Any | None, after: Any | None) -> None:
        """An object of another kind has changed: None before it was made, and after it went.

        Both are None where objects of the kind were listed again: any may have changed.
        """


class Subscriber(Protocol):
    """Receives what happens to pods, and what had to be listed again; from other threads."""

    def take(self, event: EventType, pod: PodRecord) -> None:
        """Something happened to a pod; the cache's lock is held."""

    def pass_on(self, event: EventType, pod: PodRecord) -> None:
        """The same, once the lock is free."""

    def settle(self, *, whole: bool) -> None:
        """What is stored now is known to the subscriber; ``whole``: and all that follows will be. The lock is held."""

    def pods_are_listed(self) -> None:
        """What happened to pods since the last change is not known whole; the lock is held."""

    def note(self, resource: Resource, why: str) -> None:
        """A resource is listed again; ``why``: in words."""

    def fail(self, error: ClusterReadError) -> None:
        """Pods are followed no longer."""


class ClusterCache:
    """Follows what was read, from the moment it is entered until it is left, or ``seconds`` have passed.

    Only what was listed in ``kept`` is followed, and pods in one ``namespace`` if one is given: there is no
    snapshot of less than everything. Runs look at it through a ``rebalancer.kube.view.RunView`` each.
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
        """As the cluster was read."""
        self._fold, self._observer = kept.fold, observer
        self.lock = threading.Lock()
        self._closed = threading.Event()
        self._stop = client.stop.sooner(seconds, self._closed)
        self._reflectors = [
            Reflector(client, listing, self, self._stop, self._closed)
            for listing in kept.listings
            if listing.pages
        ]
        self._pods = self._reflectors[0]
        self._subscriber: Subscriber | None = None
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
        """The version of the pods that is known, empty while they are listed."""
        return self._pods.version

    @property
    def pods_trouble(self) -> str | None:
        """Why pods are not followed."""
        return self._pods.trouble

    def nodes(self) -> list[Node]:
        """Return the nodes as they are known now."""
        with self.lock:
            return self._fold.every("Node")

    def silent_for(self) -> float:
        """Return the seconds for which something may have changed that is not known here.

        The server says at least once a minute that there was nothing.
        """
        return self.client.monotonic() - min(each.heard_at for each in self._reflectors)

    def settle(self) -> Settled:
        """Return what is known, which later changes leave alone."""
        with self.lock:
            return self._fold.settle()

    def list_exhausted_budgets(self) -> set[str]:
        """Return the PodDisruptionBudgets (namespace/name) that allow nothing, as they are known."""
        with self.lock:
            return self._fold.list_exhausted_budgets()

    def compact(self, evicted: Collection[str]) -> None:
        """Forget what no later run needs; ``evicted``: by the run before. To be called between two runs."""
        with self.lock:
            self._subscriber = None
            self._ending.intersection_update(evicted)
            self._fold.compact()

    # -- runs --------------------------------------------------------------------------------------

    def subscribe(self, subscriber: Subscriber) -> None:
        """Report to this ``subscriber`` from now on, and to no other: one run is under way."""
        with self.lock:
            self._subscriber = subscriber

    def retry_watches(self) -> None:
        """Start the watches that were given up once more."""
        for reflector in self._reflectors:
            reflector.trouble = None

    def settle_for(
        self, subscriber: Subscriber, evicted: Collection[str], use: Fold | None
    ) -> Settled:
        """Return what is known now; what happens from then on the ``subscriber`` has to know.

        ``use``: what was measured just now. Pods that were not ``evicted`` by the run before are no longer waited for.
        """
        with self.lock:
            # Not emptied: should this run fail, the next one asks for the same pods.
            self._ending.intersection_update(evicted)
            # Where the pods are being listed again, some are taken in before there is a listener.
            subscriber.settle(whole=self._pods.watch is not None)
            if use is not None:
                self._fold.take_metrics(use)
            settled = self._fold.settle()
            self._fold.forget_metrics()
        return settled

    # -- waiting -----------------------------------------------------------------------------------

    def catch_up(
        self, evicted: Collection[str], *kinds: str, listed: Collection[str] = ()
    ) -> set[str]:
        """Wait until all watches are open and have reported the pods that were ``evicted``; list again what is behind.

        Of some ``kinds`` only, if any are given; those in ``listed`` are not listed again. Return which were listed, these
        included.

        Raises:
            ClusterReadError: something had to be read again, and could not be.
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
        """Return whether a watch is not open, or has not reported all pods that were ``evicted``."""
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
        """Return what is known when the objects of controllers are there that pods name already.

        Raises:
            ClusterReadError: something had to be read again, and could not be.
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
        """Read the pods once more: their watch may have gone silent; False if another just did.

        Raises:
            ClusterReadError: they could not be read.
        """
        return bool(self._relist_all([self._pods], "their watch said nothing"))

    def _relist_all(self, reflectors: Sequence[Reflector], why: str) -> set[str]:
        """Return the kinds that were listed; the others were, meanwhile, by the threads that follow them."""
        watches: dict[Reflector, Watch[Any] | None] = {each: each.watch for each in reflectors}

        def relist(one: Reflector) -> bool:
            return one.relist(watches[one], why)

        # Pods first: their controllers decide which ReplicaSets and Jobs are kept.
        done = {each: relist(each) for each in watches if each is self._pods}
        others = [each for each in watches if each is not self._pods]
        with ThreadPoolExecutor(4, "lists") as pool:
            done |= dict(zip(others, pool.map(relist, others), strict=True))
        return {each.resource.kind for each, was_listed in done.items() if was_listed}

    # -- what the reflectors store, see Store ------------------------------------------------------

    def where(self, listing: Listing) -> Where[Any]:
        """See Store."""
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
        """See Store."""
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
            if self._subscriber is not None:
                self._subscriber.pods_are_listed()
        fold, listing = read_pods(self.client, self._how, self._report)
        with self.lock:
            self._fold.take_pods(fold)
        return listing

    def _report(self, pods: Iterable[PodRecord]) -> Iterator[PodRecord]:
        for pod in pods:
            if self._subscriber is not None:
                self._subscriber.pass_on(EventType.MODIFIED, pod)
            yield pod

    def note(self, resource: Resource, why: str) -> None:
        """See Store."""
        if self._subscriber is not None:
            self._subscriber.note(resource, why)

    def fail(self, resource: Resource, error: ClusterReadError) -> None:
        """See Store."""
        if resource == PODS and self._subscriber is not None:
            self._subscriber.fail(error)

    def take(self, resource: Resource, event: WatchEvent[Any]) -> Callable[[], None]:
        """See Store."""
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
        subscriber = self._subscriber
        if subscriber is not None:
            subscriber.take(event.type, pod)

        def pass_on() -> None:
            if subscriber is not None:
                subscriber.pass_on(event.type, pod)
            if self._observer is not None and not gone:
                self._observer.pod_changed(pod)

        return pass_on


def _do_nothing() -> None:
    """Nothing is passed on."""
