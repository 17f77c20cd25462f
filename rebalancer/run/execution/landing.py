"""Follow the replacements of evicted pods: find them, and where they landed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.watch import EventType
from rebalancer.plan.plan import Move
from rebalancer.wire.pods import FINISHED, PodRecord


@dataclass(frozen=True, slots=True)
class Replacement:
    """A pod that a controller created after an eviction."""

    uid: str
    name: str
    namespace: str
    controller: str
    """uid of the controller."""
    node: str
    ready: bool
    created: float


class Feed(Protocol):
    """The current pods of some controllers."""

    def begin_wave(self) -> None:
        """Begin a wave: pods that exist now are not counted as replacements."""

    def controller_of(self, uid: str) -> str | None:
        """Return the controller uid of a followed pod."""

    def newcomers(self) -> Iterable[Replacement]:
        """Return the living pods of the victims' controllers that appeared in this wave."""

    def ending(self) -> Collection[str]:
        """Return the uids of terminating pods, which still use their resources."""

    def is_gone(self, uid: str) -> bool:
        """Return whether a followed pod no longer exists."""

    def pause_of(self, uid: str) -> float:
        """Return for how many seconds the controller of a victim may make no pod again, since its pods have failed."""

    def still_waits(self, uid: str) -> str | None:
        """Return ``namespace/name`` of a pod for which room is made, while it is pending; None after it is bound or gone."""

    def unready_sibling(self, uid: str) -> str | None:
        """Return the name of an unready pod with the controller of pod ``uid``; None if none is known.

        Replacements of this wave do not count: they will become Ready.
        """

    def wait(self, seconds: float) -> None:
        """Wait for a possible change, ``seconds`` at most; raises ClusterReadError."""

    def list_again(self) -> None:
        """List all pods again, in case a watch is silent; raises ClusterReadError."""


class Arrivals:
    """Pairs the victims of a wave with their replacements."""

    def __init__(self, feed: Feed, fits: Callable[[Move, str], bool]) -> None:
        """``fits``: whether a replacement on a node landed where the move expected it."""
        self._feed, self._fits = feed, fits
        self._taken: dict[str, str] = {}
        self._placed: set[str] = set()
        self._exchanged: dict[str, list[str]] = {}
        """Controller -> the nodes of its replacements, in the order of the moves, when they were exchanged last."""

    def begin_wave(self) -> None:
        """Start looking for the replacements of pods that will be evicted now."""
        self._exchanged.clear()
        self._feed.begin_wave()

    def ending(self, moves: Sequence[Move]) -> int:
        """Return the number of victims that are not gone yet."""
        ending = self._feed.ending()
        return sum(1 for move in moves if move.uid in ending)

    def is_gone(self, uid: str) -> bool:
        """Return whether a followed pod no longer exists."""
        return self._feed.is_gone(uid)

    def pause_before(self, moves: Sequence[Move], seen: Mapping[str, Replacement]) -> float:
        """Return the longest time in seconds for which controllers may make none of the replacements that are not ``seen``."""
        return max((self._feed.pause_of(m.uid) for m in moves if m.uid not in seen), default=0.0)

    def still_waits(self, uid: str) -> str | None:
        """See Feed."""
        return self._feed.still_waits(uid)

    def unready_sibling(self, uid: str) -> str | None:
        """Return the name of another unready pod of the same controller; None if none is known."""
        return self._feed.unready_sibling(uid)

    def wait(self, seconds: float) -> None:
        """Wait for changes; raises ClusterReadError."""
        self._feed.wait(seconds)

    def list_again(self) -> None:
        """List all pods again, in case a watch is silent."""
        self._feed.list_again()

    def replacements(self, moves: Sequence[Move]) -> dict[str, Replacement]:
        """Return victim uid -> replacement, for those seen so far.

        Replacements of one controller are interchangeable; they are assigned to its victims in order of creation,
        and remain assigned unless they disappear, or unless another order gives more of them their expected nodes.
        """
        fresh = sorted(self._feed.newcomers(), key=lambda r: (r.created, r.uid))
        by_uid = {replacement.uid: replacement for replacement in fresh}
        result: dict[str, Replacement] = {}
        open_: list[Move] = []
        for move in moves:
            known = self._taken.get(move.uid)
            if known in by_uid:
                result[move.uid] = by_uid[known]
            else:
                open_.append(move)
        used = set(self._taken.values()) & by_uid.keys()
        for move in open_:
            controller = self._feed.controller_of(move.uid)
            for replacement in fresh:
                if replacement.uid not in used and replacement.controller == controller:
                    self._taken[move.uid] = replacement.uid
                    used.add(replacement.uid)
                    result[move.uid] = replacement
                    break
        placed = [move for move in moves if move.uid in result and result[move.uid].node]
        self._exchange(placed, result)
        self._placed |= {uid for uid, replacement in result.items() if replacement.node}
        return result

    def _exchange(self, moves: Sequence[Move], result: dict[str, Replacement]) -> None:
        """Assign the replacements of one controller to its victims so that most of them are where they were expected.

        All of them have nodes. Pods of one controller that are created at the same time say nothing about which of them came for which victim.
        """
        of_controller: dict[str, list[Move]] = {}
        for move in moves:
            of_controller.setdefault(result[move.uid].controller, []).append(move)
        for controller, together in of_controller.items():
            nodes = [result[move.uid].node for move in together]
            pairs = zip(together, nodes, strict=True)
            if all(self._fits(move, node) for move, node in pairs):
                continue
            if self._exchanged.get(controller) == nodes:
                continue
            fits = [[self._fits(move, node) for node in nodes] for move in together]
            had = [result[move.uid] for move in together]
            for move, number in zip(together, _match(fits), strict=True):
                result[move.uid] = had[number]
                self._taken[move.uid] = had[number].uid
            self._exchanged[controller] = [result[move.uid].node for move in together]

    def withdrawn(self, uid: str, replacements: Mapping[str, Replacement]) -> bool:
        """Return whether a victim's replacement had a node, is gone, and was not replaced.

        A rollout or a scale-down deletes the newest pods first: there is nothing left to wait for.
        """
        return uid in self._placed and uid not in replacements


def _match(fits: Sequence[Sequence[bool]]) -> list[int]:
    """Assign a different column to each row, so that the number of fits is largest. Where no change improves it, row i keeps column i.

    Kuhn's algorithm for a maximum matching of bipartite graphs, by augmenting paths.
    """
    row_of: dict[int, int] = {n: n for n, row in enumerate(fits) if row[n]}

    def augment(row: int, tried: set[int]) -> bool:
        for column, does in enumerate(fits[row]):
            if does and column not in tried:
                tried.add(column)
                if column not in row_of or augment(row_of[column], tried):
                    row_of[column] = row
                    return True
        return False

    for row in range(len(fits)):
        if not fits[row][row]:
            augment(row, set())
    column_of = {row: column for column, row in row_of.items()}
    for row in range(len(fits)):
        if row not in column_of and row not in row_of:
            column_of[row] = row
    left = sorted({*range(len(fits))} - {*column_of.values()})
    return [column_of[row] if row in column_of else left.pop(0) for row in range(len(fits))]


_NONE: Mapping[str, tuple[str, str]] = MappingProxyType({})
_NOBODY: Mapping[str, str] = MappingProxyType({})
_NO_PAUSE: Mapping[str, float] = MappingProxyType({})

NamedController = tuple[str, str, str, str]
"""Namespace, kind, API group and name of a controller."""
_NO_NAMES: Mapping[NamedController, str] = MappingProxyType({})


def named_controller(pod: PodRecord) -> NamedController:
    """Return the controller that a pod names."""
    return pod.namespace, pod.controller_kind, pod.controller_group, pod.controller_name


class PodFeed:
    """The pods that appeared since the snapshot; a listener of ``rebalancer.kube.cache.RunView``.

    Only pods of ``controllers`` (victim uid -> controller uid) are kept; ``known`` are the uids of the snapshot's
    pods. In the namespaces ``restarted_in`` all pods are kept, because the controller that a restart creates is
    known only later. ``named`` are controllers that may be made again under their names, with other uids: their pods count
    as those of the uid given here.
    """

    def __init__(
        self,
        *,
        controllers: Mapping[str, str],
        known: frozenset[str],
        restarted_in: frozenset[str] = frozenset(),
        unready: Mapping[str, tuple[str, str]] = _NONE,
        waiting: Mapping[str, str] = _NOBODY,
        named: Mapping[NamedController, str] = _NO_NAMES,
        pauses: Mapping[str, float] = _NO_PAUSE,
    ) -> None:
        """``unready``: uid -> (controller uid, name) of the pods that were not Ready when the plan was made.

        ``waiting``: uid -> ``namespace/name`` of the pods without a node for which room is made. ``pauses``: see ``pause_of``.
        """
        self.read_all: Callable[[], bool] = lambda: False
        """Reads all pods once more and hands them over here; returns whether it could. Set by what follows the cluster."""
        self._controllers = dict(controllers)
        self._wanted = set(controllers.values())
        self._restarted_in, self._named, self._pauses = restarted_in, named, pauses
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

    def pause_of(self, uid: str) -> float:
        """See Feed."""
        return self._pauses.get(uid, 0.0)

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
            if pod.controller_uid not in self._wanted:
                made_again = self._named.get(named_controller(pod))
                if made_again is not None:
                    pod = pod._replace(controller_uid=made_again)
                elif pod.namespace not in self._restarted_in:
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
