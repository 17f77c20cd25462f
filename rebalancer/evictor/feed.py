"""Follows pods through one watch, in a thread of its own, from where the snapshot's list ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, Self

from rebalancer.errors import ClusterReadError
from rebalancer.evictor.landing import Replacement
from rebalancer.kube.podview import PodView
from rebalancer.kube.watch import EventType, PodEvent


class Watch(Protocol):
    """A bounded watch of pods (``rebalancer.kube.watch.PodWatch``)."""

    expired: bool

    def __iter__(self) -> Iterator[PodEvent]:
        """Yield the changes."""

    def close(self) -> None:
        """End it, from any thread."""


class PodFeed:
    """The pods that appeared since the snapshot, kept current by a watch.

    ``open_watch`` opens one from a resourceVersion; ``relist`` returns all pods with the version of their
    list, for when the server has forgotten ours. Only pods of ``controllers`` (pod uid -> controller uid of
    the planned victims) are kept.
    """

    def __init__(
        self,
        open_watch: Callable[[str], Watch],
        relist: Callable[[], tuple[Iterable[PodView], str]],
        *,
        version: str,
        controllers: Mapping[str, str],
        known: frozenset[str],
    ) -> None:
        self._open, self._relist, self._version = open_watch, relist, version
        self._controllers = controllers
        self._wanted = frozenset(controllers.values())
        self._known = set(known)
        self._pods: dict[str, PodView] = {}
        self._news = threading.Condition()
        self._changed = False
        self._error: ClusterReadError | None = None
        self._closed = False
        self._watch: Watch | None = None
        self._thread = threading.Thread(target=self._run, name="pod-feed", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        if self._watch is not None:
            self._watch.close()
        self._thread.join(timeout=5)

    # -- what the executor asks --------------------------------------------------------------------

    def begin_wave(self) -> None:
        """Take all pods seen so far for old ones: what comes from now on are replacements."""
        with self._news:
            self._known.update(self._pods)

    def controller_of(self, uid: str) -> str | None:
        """Return the controller (uid) of a planned victim."""
        return self._controllers.get(uid)

    def newcomers(self) -> list[Replacement]:
        """Return the living pods of the victims' controllers that appeared in this wave."""
        with self._news:
            return [
                Replacement(
                    uid=pod.uid,
                    name=pod.name,
                    namespace=pod.namespace,
                    controller=pod.controller_uid,
                    node=pod.node,
                    ready=pod.ready,
                    created=pod.created,
                )
                for pod in self._pods.values()
                if pod.uid not in self._known and not pod.deleting
            ]

    def ending(self) -> frozenset[str]:
        """Return the uids of the pods that are on their way out, and still hold their places."""
        with self._news:
            return frozenset(pod.uid for pod in self._pods.values() if pod.deleting)

    def wait(self, seconds: float) -> None:
        """Return at the next change, or after so many seconds.

        Raises:
            ClusterReadError: the watch has ended for good.
        """
        with self._news:
            if not self._changed:
                self._news.wait(seconds)
            self._changed = False
            if self._error is not None:
                raise self._error

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closed:
                self._watch = watch = self._open(self._version)
                for event in watch:
                    self._take(event.type, event.pod)
                if watch.expired:
                    pods, self._version = self._relist()
                    for pod in pods:
                        self._take(EventType.MODIFIED, pod)
                else:
                    return
        except ClusterReadError as error:
            with self._news:
                self._error = error
                self._news.notify_all()

    def _take(self, event: EventType, pod: PodView) -> None:
        if pod.controller_uid not in self._wanted:
            return
        with self._news:
            if event is EventType.DELETED:
                self._pods.pop(pod.uid, None)
            else:
                self._pods[pod.uid] = pod
            self._changed = True
            self._news.notify_all()
