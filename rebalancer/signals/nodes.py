"""The cluster's nodes for signal sources and the pipeline: find the Node of a machine, and watch for changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from rebalancer.base.stop import Stop
from rebalancer.wire.objects import Node

_LONGEST_WAIT = 15.0


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
        """Names of the nodes that :meth:`news` has returned, and not said to be gone."""
        self._came.set()

    def changed(self, before: Any | None, after: Any | None) -> None:
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
        stop.sooner(_LONGEST_WAIT, self._came).wait(_LONGEST_WAIT)
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
    return _announced_by(before) == _announced_by(after)


def _announced_by(node: Node) -> tuple[object, ...]:
    conditions = sorted((each.type, each.status) for each in node.status.conditions or ())
    return (
        node.spec.taints,
        conditions,
        node.metadata.annotations,
        node.metadata.uid,
        node.spec.provider_id,
    )
