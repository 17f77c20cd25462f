"""A reflector: one resource kept current by a list, then a watch from its version; both again after an interruption."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, Protocol

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.stop import Stop
from rebalancer.kube.client import Client
from rebalancer.kube.failures import ForbiddenError, explain_errors
from rebalancer.kube.pages import Listing
from rebalancer.kube.watch import Watch, WatchEvent, Where
from rebalancer.wire.kinds import Resource

_EXPIRED = "the API server had forgotten their changes"


class Store(Protocol):
    """The store that a reflector fills; called from its threads."""

    lock: threading.Lock
    """Held while something is stored, and while a reflector changes its watch."""

    def take(self, resource: Resource, event: WatchEvent[Any]) -> Callable[[], None]:
        """Store one change while the lock is held; return a function that forwards it after the lock is released."""

    def where(self, listing: Listing) -> Where[Any]:
        """Return what to watch after a list."""

    def replace(self, resource: Resource) -> Listing:
        """List the resource, and replace all stored objects by it.

        Raises:
            ClusterReadError: it could not be read.
        """

    def note(self, resource: Resource, why: str) -> None:
        """Report that the resource is listed again, and why."""

    def fail(self, resource: Resource, error: ClusterReadError) -> None:
        """Report that the resource is no longer followed."""


class Reflector:
    """Follows one resource from the version of its list, in a thread."""

    def __init__(
        self,
        client: Client,
        listing: Listing,
        store: Store,
        stop: Stop,
        closed: threading.Event,
    ) -> None:
        """``listing``: the list to continue from. Watches end with ``stop``; nothing is listed after ``closed``."""
        self.resource, self._listing = listing.resource, listing
        self.watch: Watch[Any] | None = None
        """None before the start, and while the resource is listed again."""
        self.trouble: str | None = None
        """Why the resource is not followed."""
        self._client, self._store, self._stop, self._closed = client, store, stop, closed
        self._known_at = -math.inf
        """Time of the client's clock at which it was known to be current last, by a watch that is none any more."""
        self._relisting = threading.Lock()
        self._threads: list[threading.Thread] = []
        """Also those of watches that were late and given up: they may still wait for an answer."""

    @property
    def version(self) -> str:
        """The known version of the resource; empty while it is being listed."""
        watch = self.watch
        return watch.resource_version if watch is not None else ""

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
            self._client, self._store.where(self._listing), seconds=self._stop.left()
        )
        name = f"watch-{self.resource.plural}"
        thread = threading.Thread(target=self._follow, args=(watch,), name=name, daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()]
        self._threads.append(thread)
        thread.start()

    def relist(self, watch: Watch[Any] | None, why: str) -> bool:
        """List again and follow from there; return False if ``watch`` is no longer the resource's watch.

        Raises:
            ClusterReadError: the resource could not be read.
        """
        with self._relisting:
            if self.watch is not watch or self._closed.is_set():
                return False
            self._store.note(self.resource, self.trouble or why)
            if watch is not None:
                watch.close()
            with self._store.lock:
                if watch is not None:
                    self._known_at = max(self._known_at, watch.received)
                self.watch = None
            self._listing = self._store.replace(self.resource)
            if self.trouble is None and not self._closed.is_set():
                self.start()
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
        """Store the changes of ``watch``, while it is the resource's watch."""
        try:
            with explain_errors(self.resource):
                for event in watch:
                    if not self._take(watch, event):
                        return
            if watch.expired:
                self.relist(watch, _EXPIRED)
        except ClusterReadError as error:
            forbidden = isinstance(error, ForbiddenError)
            self.trouble = "our account may not watch them" if forbidden else str(error)
            self._store.fail(self.resource, error)

    def _take(self, watch: Watch[Any], event: WatchEvent[Any]) -> bool:
        with self._store.lock:
            if self.watch is not watch:
                return False
            pass_on = self._store.take(self.resource, event)
        pass_on()
        return True
