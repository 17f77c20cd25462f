"""The replacements of victims, kept current by a Follower."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.watch import EventType
from rebalancer.run.execution.landing import Replacement
from rebalancer.wire.pods import FINISHED, PodRecord

_NONE: Mapping[str, tuple[str, str]] = MappingProxyType({})
_NOBODY: Mapping[str, str] = MappingProxyType({})


class PodFeed:
    """The pods that appeared since the snapshot; a listener of ``rebalancer.kube.view.RunView``.

    Only pods of ``controllers`` (victim uid -> controller uid) are kept; ``known`` are the uids of the snapshot's
    pods. In the namespaces ``restarted_in`` all pods are kept, because the controller that a restart creates is
    known only later.
    """

    def __init__(
        self,
        *,
        controllers: Mapping[str, str],
        known: frozenset[str],
        restarted_in: frozenset[str] = frozenset(),
        unready: Mapping[str, tuple[str, str]] = _NONE,
        waiting: Mapping[str, str] = _NOBODY,
    ) -> None:
        """``unready``: uid -> (controller uid, name) of the pods that were not Ready when the plan was made.

        ``waiting``: uid -> ``namespace/name`` of the pods without a node for which room is made.
        """
        self.read_all: Callable[[], bool] = lambda: False
        """Reads all pods once more and hands them over here; returns whether it could. Set by what follows the cluster."""
        self._controllers = dict(controllers)
        self._wanted = set(controllers.values())
        self._restarted_in = restarted_in
        self._gone: set[str] = set()
        """uids of the planned victims that exist no more."""
        self._known = set(known)
        self._waiting = dict(waiting)
        """Those that have no node yet."""
        self._unready = dict(unready)
        """Those of the plan's snapshot, until something is seen of them."""
        self._pods: dict[str, PodRecord] = {}
        self._seen: set[str] = set()
        """uids of the pods that were handed over since they were read once more last."""
        self._news = threading.Condition()
        self._changed = False
        self._error: ClusterReadError | None = None

    # -- what the executor asks --------------------------------------------------------------------

    def begin_wave(self) -> None:
        """Treat all pods seen so far as old: only later pods are replacements."""
        with self._news:
            self._known.update(self._pods)

    def controller_of(self, uid: str) -> str | None:
        """Return the controller uid of a planned victim."""
        return self._controllers.get(uid)

    def succeed(self, uid: str, controller: str) -> None:
        """Expect the replacement of a victim among the pods of another controller than its own."""
        with self._news:
            self._controllers[uid] = controller
            self._wanted.add(controller)

    def is_gone(self, uid: str) -> bool:
        """Return whether a followed pod no longer exists."""
        with self._news:
            return uid in self._gone

    def still_waits(self, uid: str) -> str | None:
        """See Feed."""
        with self._news:
            return self._waiting.get(uid)

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
                if pod.uid not in self._known
                and not pod.deleting
                and pod.controller_uid in self._wanted
            ]

    def ending(self) -> frozenset[str]:
        """Return the uids of terminating pods, which still use their resources."""
        with self._news:
            return frozenset(pod.uid for pod in self._pods.values() if pod.deleting)

    def unready_sibling(self, uid: str) -> str | None:
        """Return another unready pod of the controller of ``uid``; unchanged pods are as in the snapshot."""
        controller = self._controllers.get(uid)
        with self._news:
            seen = (
                pod.name
                for pod in self._pods.values()
                if pod.controller_uid == controller
                and pod.uid in self._known
                and pod.uid != uid
                and not (pod.ready or pod.deleting)
            )
            unseen = (
                name
                for other, (of, name) in self._unready.items()
                if of == controller and other != uid
            )
            return next(seen, None) or next(unseen, None)

    def wait(self, seconds: float) -> None:
        """Wait for the next change, ``seconds`` at most.

        Raises:
            ClusterReadError: the watch has ended and will not start again.
        """
        with self._news:
            if not self._changed:
                self._news.wait(seconds)
            self._changed = False
            if self._error is not None:
                raise self._error

    def list_again(self) -> None:
        """List all pods again; pods that are missing are gone."""
        with self._news:
            self._seen = set()
        complete = self.read_all()
        with self._news:
            if complete:
                self._pods = {uid: pod for uid, pod in self._pods.items() if uid in self._seen}
                self._gone |= self._controllers.keys() - self._seen
                self._waiting = {uid: of for uid, of in self._waiting.items() if uid in self._seen}
                self._unready.clear()

    # -- what it receives ---------------------------------------------------------------------------

    def take(self, event: EventType, pod: PodRecord) -> None:
        """Record a change of a pod."""
        with self._news:
            if pod.uid in self._waiting:
                self._seen.add(pod.uid)
                if event is EventType.DELETED or pod.node or pod.phase in FINISHED:
                    del self._waiting[pod.uid]
                    self._changed = True
                    self._news.notify_all()
            if pod.controller_uid not in self._wanted and pod.namespace not in self._restarted_in:
                return
            self._unready.pop(pod.uid, None)
            # One that has ended is seen where a strategy looks at such pods; it serves as little as one that is gone.
            if event is EventType.DELETED or pod.phase in FINISHED:
                self._pods.pop(pod.uid, None)
                if pod.uid in self._controllers:
                    self._gone.add(pod.uid)
            else:
                self._pods[pod.uid] = pod
                self._seen.add(pod.uid)
            self._changed = True
            self._news.notify_all()

    def fail(self, error: ClusterReadError) -> None:
        """Record that pods are no longer followed."""
        with self._news:
            self._error = error
            self._news.notify_all()
