"""The contract of signal sources: the interruptions they report, their input, and their lifecycle.

A source is a class with a ``Params`` model, registered under the entry point group ``rebalancer.signals``. It is
loaded only when a policy names it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from rebalancer.base.stop import Stop
from rebalancer.plan.machines import PipelineOutcome
from rebalancer.policy.values import Params
from rebalancer.wire.marks import is_ours
from rebalancer.wire.objects import Node

_MAX_WAIT = 15.0


def machine_of(provider_id: str) -> str:
    """Return the name of the machine in a ``providerID`` such as ``aws:///ZONE/NAME``."""
    return provider_id.rpartition("/")[2]


def is_sole(node: Node, every: Iterable[Node]) -> bool:
    """Return whether no other node has the ``providerID`` of ``node``; a kubelet chooses its own ``providerID``."""
    machine, uid = machine_of(node.spec.provider_id), node.metadata.uid
    return not any(
        one.metadata.uid != uid and machine_of(one.spec.provider_id) == machine for one in every
    )


class NodeNews(Protocol):
    """The nodes of the cluster, kept current by a watch."""

    def node_of(self, node: str, provider_id: str, instance: str) -> Node | None:
        """Return a node by name, else by a unique providerID, else by a providerID that ends in ``/instance``."""

    def every(self) -> Iterable[Node]:
        """Return all nodes as currently known."""

    def news(self, stop: Stop) -> Mapping[str, Node | None]:
        """Return name -> changed node (None if deleted) since the previous call; the first call returns all nodes.

        Waits for the first change for some seconds, or until ``stop``. Only one source may call it.
        """


class FollowedNodes:
    """The nodes of a ClusterCache, notified by an observer of changes. Thread-safe."""

    def __init__(self, every: Callable[[], Iterable[Node]]) -> None:
        """``every`` returns all nodes as currently known."""
        self._every = every
        self._lock, self._came = threading.Lock(), threading.Event()
        self._changed: dict[str, Node | None] = {}
        self._all = True
        self._known: set[str] = set()
        """Names of the nodes that :meth:`news` has returned, and not reported as gone."""
        self._came.set()

    def note_change(self, before: Any | None, after: Any | None) -> None:
        """Record a change of a node: new if ``before`` is None, deleted if ``after`` is None.

        If both are None, any node may have changed.
        """
        if before is not None and after is not None and _same(before, after):
            return
        with self._lock:
            if before is None and after is None:
                self._all = True
            elif after is not None:
                self._changed[after.metadata.name] = after
            elif before is not None:
                self._changed[before.metadata.name] = None
            self._came.set()

    def news(self, stop: Stop) -> Mapping[str, Node | None]:
        """Return the changed nodes since the previous call, see :meth:`NodeNews.news`."""
        stop.sooner(_MAX_WAIT, self._came).wait(_MAX_WAIT)
        with self._lock:
            changed, whole = self._changed, self._all
            self._changed, self._all = {}, False
            self._came.clear()
        if whole:
            there = {node.metadata.name: node for node in self._every()}
            # What went while nothing was heard of it was not said to be gone.
            changed = {**dict.fromkeys(self._known), **there}
        for name, node in changed.items():
            (self._known.discard if node is None else self._known.add)(name)
        return changed

    def every(self) -> Iterable[Node]:
        """Return all nodes as currently known."""
        return self._every()

    def node_of(self, node: str, provider_id: str, instance: str) -> Node | None:
        """Return a node by name, providerID or instance, see :meth:`NodeNews.node_of`."""
        every = list(self._every())
        if node:
            return next((one for one in every if one.metadata.name == node), None)
        machine = instance or machine_of(provider_id)
        of_it = [one for one in every if machine and machine_of(one.spec.provider_id) == machine]
        is_it = len(of_it) == 1 and provider_id in ("", of_it[0].spec.provider_id)
        return of_it[0] if is_it else None


def _same(before: Node, after: Node) -> bool:
    """Return whether a change is irrelevant to all sources; heartbeats change a node every few seconds."""
    return _list_announced_by(before) == _list_announced_by(after)


def _list_announced_by(node: Node) -> tuple[object, ...]:
    conditions = sorted(
        (each.type, each.status)
        for each in node.status.conditions or ()
        if not is_ours(each.type, each.reason)
    )
    return (
        node.spec.taints,
        conditions,
        node.metadata.annotations,
        node.metadata.uid,
        node.spec.provider_id,
    )


MAX_RECEIVE = 20.0
"""Seconds after which ``receive`` has returned: the longest wait of a long poll."""
HEARTBEAT = 10.0
"""Seconds between two heartbeats of one interruption."""
OVER = 180.0
"""Seconds after which an announcement whose time has passed is of no more use: clocks differ by less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """An announcement that one machine will be stopped or replaced."""

    id: str
    """The same each time that the same event is received for the same machine, and another for another machine."""
    kind: str
    """Such as spot, rebalance, maintenance, scale-in, shutdown: lower case, digits and hyphens."""
    source: str
    """Name of the source in the policy."""
    instance: str = ""
    """Name of the machine at its provider."""
    node: str = ""
    """Name of the Node. Of this, ``provider_id`` and ``instance`` at least one is known."""
    uid: str = ""
    """Uid of the Node, if the source knows it: the announcement does not apply to another Node with that name."""
    provider_id: str = ""
    """The Node's ``spec.providerID``."""
    deadline: float | None = None
    """Unix seconds at which the machine ends; None: not known."""
    until: float | None = None
    """Unix seconds: the latest time at which it ends, if ``deadline`` is the start of a window."""
    reason: str = ""
    """One line of text for people."""
    held: bool = False
    """Whether the machine does not end before ``done`` is called, as long as ``heartbeat`` extends that."""
    cancelled: bool = False
    """Whether the event with this id is cancelled: the machine does not end."""
    token: Any = field(default=None, compare=False, repr=False)
    """The source's own: a receipt handle, a hook. Of the interruption that came last."""

    @property
    def machine(self) -> str:
        """The machine as text for messages."""
        return self.node or self.instance or self.provider_id

    def is_over(self, now: float) -> bool:
        """Return whether the machine should have been gone :data:`OVER` seconds ago; it has stayed, or is back.

        ``now``: Unix seconds.
        """
        latest = latest_end(self.deadline, self.until)
        return latest is not None and now > latest + OVER


def latest_end(deadline: float | None, until: float | None) -> float | None:
    """Return the latest time at which a machine ends (Unix seconds); None if unknown."""
    return deadline if deadline is None or until is None else max(deadline, until)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """The input that a source receives from the process."""

    name: str
    """Name of the source in the policy: its interruptions carry it."""
    environ: Mapping[str, str]
    unix: Callable[[], float]
    """Returns the time in Unix seconds."""
    nodes: NodeNews
    """The nodes of the cluster, as they are followed."""


class SignalError(Exception):
    """A request of the source failed. The message is one line, has the remedy, and contains no secret.

    It is logged and counted in the metrics, and the request is retried after a growing pause.
    """


@runtime_checkable
class Receiver(Protocol):
    """An open source. ``receive``, ``heartbeat`` and ``done`` are called from different threads, also concurrently."""

    def receive(self, stop: Stop) -> Sequence[Interruption]:
        """Wait for interruptions, up to ``MAX_RECEIVE`` seconds or until ``stop``, and return them.

        An interruption that is not done may be returned again; its id identifies it.

        Raises:
            SignalError: the request failed.
        """

    def heartbeat(self, interruption: Interruption) -> None:
        """Extend the time until the end (a hook's heartbeat, a message's visibility).

        Called about every ``HEARTBEAT`` seconds.

        Raises:
            SignalError: the request failed.
        """

    def done(self, interruption: Interruption, outcome: PipelineOutcome) -> None:
        """Release the announcement of a finished interruption: delete the message, or complete the hook.

        Called again for the same interruption if the process died in between, or if this call failed.

        Raises:
            SignalError: the request failed.
        """

    def close(self) -> None:
        """Close the connections. No method is called afterwards."""


@runtime_checkable
class SignalSource(Protocol):
    """A plug-in of the entry point group ``rebalancer.signals``; the first docstring line is its description."""

    Params: ClassVar[type[Params]]

    def open(self, params: Any, surroundings: SourceContext) -> Receiver:
        """Return an open receiver. Expensive imports and requests happen here, not earlier.

        Raises:
            SignalError: the source cannot be opened (a missing library, an invalid option). The process then
                ends, since a retry could not help.
        """
