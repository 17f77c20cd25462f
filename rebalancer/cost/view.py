"""The view that strategies receive: the snapshot, the planned state, the scheduler model, and common queries on these."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rebalancer.cost.streaks import Streaks
from rebalancer.scheduler.explain import missing_zone
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.snapshot.columns import Bools, Floats, Int32s, Same, freeze
from rebalancer.snapshot.marks import to_be_empty
from rebalancer.snapshot.model import PodClass, Snapshot
from rebalancer.snapshot.selected import Selected
from rebalancer.snapshot.state import ClusterState, Runs
from rebalancer.snapshot.zones import (
    ZONE,
    may_use_zone,
    zones_with_nodes,
    zones_without_nodes,
)

_Made = TypeVar("_Made")
_MOST_TRIED = 100
"""Of so many pods at most is looked whether they keep their own replacements away from better nodes."""


@dataclass(frozen=True, slots=True)
class Crowding:
    """The number of living pods of each owner, and the nodes where they run."""

    pods: list[int]
    """Per owner how many."""
    fullest: list[int]
    """Per owner the most on one node."""
    _nodes: Runs
    """Per owner its nodes, ascending and once each."""

    @staticmethod
    def of(snapshot: Snapshot) -> Crowding:
        """Return the crowding of the snapshot."""
        pods, owners = snapshot.pods, len(snapshot.owners)
        owner_of = np.array([cls.owner for cls in snapshot.classes] or [-1], np.int64)
        living = pods.living
        owner = owner_of[pods.cls[living]]
        size = max(1, len(snapshot.nodes))
        places = (owner * size + pods.node[living])[owner >= 0]
        place, count = np.unique(places, return_counts=True)
        owner = place // size
        fullest = np.zeros(owners, np.int64)
        np.maximum.at(fullest, owner, count)
        return Crowding(
            np.bincount(owner, count, owners).astype(np.int64).tolist(),
            fullest.tolist(),
            Runs((place % size).astype(np.int32), owner.astype(np.int32), owners),
        )

    def crowded(self) -> list[int]:
        """Return the owners, ascending, that have two or more pods on the same node."""
        return [owner for owner, most in enumerate(self.fullest) if most > 1]

    def nodes(self, owner: int) -> Int32s:
        """Return the distinct nodes, ascending, with pods of an owner. Read-only array."""
        return self._nodes[owner]


@dataclass(frozen=True, slots=True)
class _Mobility:
    """Which classes have living pods that can be moved, and which have some that cannot."""

    movable: Bools
    """(P,) what it is made of: its identity names it, and it is kept for that."""
    some_movable: Bools
    """(C,)"""
    some_fixed: list[bool]
    """Per class."""

    @staticmethod
    def of(snapshot: Snapshot, movable: Bools) -> _Mobility:
        pods, classes = snapshot.pods, len(snapshot.classes)
        living = pods.living
        some_movable, some_fixed = (
            np.bincount(pods.cls[living & of], minlength=classes) > 0 for of in (movable, ~movable)
        )
        return _Mobility(movable, some_movable, some_fixed.tolist())


@dataclass(frozen=True, slots=True)
class View:
    """The input of a strategy: the snapshot, the state as planned so far, and the scheduler model."""

    snapshot: Snapshot
    state: ClusterState
    scheduler: SchedulerModel
    movable: Bools
    """(P,) pods without a protection."""
    streaks: Streaks | None = None
    """The strategy's own measurements in earlier runs (:meth:`Term.streaks`); None without a memory."""
    selected: Selected | None = None
    """The pods that the strategy may move by its ``select``; None: all. All pods count."""
    unready: Bools | None = None
    """(P,) pods that are not Ready, and that may move if they are judged by their state; None: there are none."""
    by_unit: Bools | None = None
    """(P,) pods whose only protection is their gang: they move with all of the gang or not at all; None: there are none."""
    kept_by: Callable[[Int32s], Mapping[str, int]] = field(
        default=lambda _: {}, repr=False, compare=False
    )
    """Reason why pods cannot be moved, as a sentence -> number of pods; pods kept only by a rule are not counted."""
    waiting: Bools | None = None
    """(P,) pods that only what ends by itself keeps in place, such as their age; None: there are none."""
    made: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)
    """The results of :meth:`once`, which groups share."""

    def once(self, key: Hashable, make: Callable[[], _Made]) -> _Made:
        """Return what ``make`` returns; for equal keys it is called once, whichever strategy calls first."""
        made: _Made | None = self.made.get(key)
        if made is None:
            made = self.made[key] = make()
        return made

    def shared(self, nodes: Bools) -> Bools:
        """Return one shared, read-only array for all equal masks of nodes (N,).

        Thousands of rules concern the same nodes; then comparing identities is enough.
        """
        return self.once(("nodes", nodes.tobytes()), lambda: freeze(nodes.copy()))

    def eligible(
        self, cls: int, *, affinity: bool = True, taints: bool = True, lasting: bool = False
    ) -> Bools:
        """Return the nodes (N,) that a class may use by node affinity and taints; either check can be turned off.

        ``lasting``: only taints count that do not pass by themselves. The array is shared and read-only.
        """
        masks: list[Bools] = []
        if affinity:
            masks.append(self.scheduler.node_affinity_mask(cls))
        if taints:
            asked = self.scheduler.lasting_taint_mask if lasting else self.scheduler.taint_mask
            masks.append(asked(cls))
        # By identity: the scheduler model gives classes that say the same one array.
        nodes = len(self.snapshot.nodes)
        return self.once(
            ("eligible", *map(Same, masks)),
            lambda: self.shared(np.logical_and.reduce([np.ones(nodes, bool), *masks])),
        )

    def domains_without_nodes(self, key: str, cls: int) -> tuple[str, ...]:
        """Return the domains of ``key`` that have no node and that a class may use: zones, as far as the cluster's storage names them."""
        if key != ZONE:
            return ()
        spec = self.snapshot.classes[cls].spec
        return tuple(zone for zone in self._zones[0] if may_use_zone(spec, zone))

    def missing_zone(self, cls: int) -> str:
        """Return which zone a class waits for that has no node; empty if none is known."""
        return missing_zone(self.scheduler, cls, *self._zones)

    @property
    def _zones(self) -> tuple[tuple[str, ...], set[str]]:
        """The zones that are known to have no node, and those that have; computed once."""
        of = self.snapshot
        return self.once("zones", lambda: (zones_without_nodes(of), zones_with_nodes(of)))

    def immobile(self, classes: Int32s, movers: Int32s) -> Int32s:
        """Return the living pods of ``classes``, on nodes, that cannot be moved, now or later.

        Only pods of ``movers`` without a lasting protection are movable. This refers to the snapshot: a pod that the
        plan has moved is still movable.
        """
        mine, fixed = set(movers.tolist()), self._of_classes.some_fixed
        pods = self.snapshot.pods
        parts = [
            living[~self.in_time[living]] if cls in mine else living
            for cls in classes.tolist()
            if (fixed[cls] or cls not in mine) and len(living := self.state.living_of(cls))
        ]
        kept = np.concatenate(parts).astype(np.int32) if parts else np.zeros(0, np.int32)
        return kept[pods.node[kept] >= 0]

    @property
    def in_time(self) -> Bools:
        """The pods (P,) that are movable, or will be: rules count these, since age is no reason why a rule cannot hold."""
        if (waiting := self.waiting) is None:
            return self.movable
        return self.once((Same(self.movable), Same(waiting)), lambda: self.movable | waiting)

    @property
    def _of_classes(self) -> _Mobility:
        """Computed once for all views with the same movable pods."""
        identity = "mobility", Same(self.movable)
        return self.once(identity, lambda: _Mobility.of(self.snapshot, self.movable))

    def any_selected(self, classes: Int32s) -> bool:
        """Return whether the strategy's ``select`` admits pods of any of these classes."""
        return self.selected is None or bool(self.selected.classes[classes].any())

    def any_movable(self, classes: Int32s) -> bool:
        """Return whether any living pod of ``classes`` may be moved."""
        return bool(self._of_classes.some_movable[classes].any())

    def replaceable(self) -> Iterator[tuple[int, PodClass]]:
        """Yield (index, class) of the pods whose replacements may land on another node.

        Excluded are pods without a controller, and pods that are bound to their node (``PodClass.per_node``).
        """
        for cls, of_class in enumerate(self.snapshot.classes):
            if of_class.owner >= 0 and not of_class.per_node:
                yield cls, of_class

    def comparable(self) -> Iterator[tuple[int, PodClass]]:
        """Yield those of ``replaceable`` whose place among other pods their scheduler chooses.

        Excluded are pods for which a scheduler without a profile makes nodes of one pod each, such as that of Fargate: each has
        its node for itself, without a pod of a DaemonSet.
        """
        alone = self.once("alone", self._find_alone)
        yield from (one for one in self.replaceable() if one[0] not in alone)

    def _find_alone(self) -> set[int]:
        """Return the classes of schedulers without a profile each of whose pods is the only one on its node."""
        of_others = {
            cls
            for cls, of_class in enumerate(self.snapshot.classes)
            if not self.scheduler.has_profile(of_class)
        }
        if not of_others:
            return of_others
        pods = self.snapshot.pods
        placed = np.flatnonzero(pods.living)
        beside = np.bincount(pods.node[placed])[pods.node[placed]] > 1
        return of_others - set(pods.cls[placed[beside]].tolist())

    def replaceable_by(
        self, rule: Callable[[PodClass], Hashable]
    ) -> Iterator[tuple[str, list[int]]]:
        """Yield (owner's ref, classes) for each owner and each value of ``rule``; None excludes a class.

        Classes whose replacements differ in where they may land are yielded apart, see :meth:`split_by_landing`.
        """
        grouped: dict[tuple[int, Hashable], list[int]] = {}
        for cls, of_class in self.replaceable():
            if (value := rule(of_class)) is not None:
                grouped.setdefault((of_class.owner, value), []).append(cls)
        for (owner, _), classes in grouped.items():
            for alike in self.split_by_landing(classes):
                yield self.snapshot.owners[owner].ref, alike

    def split_by_landing(self, classes: Sequence[int]) -> Sequence[list[int]]:
        """Return ``classes`` in parts; the replacements of one part may use the same nodes and request the same.

        Pods of one owner differ in that by their volumes, and after a resize in place.
        """
        if len(classes) == 1:
            return [list(classes)]
        parts: dict[Hashable, list[int]] = {}
        for cls in classes:
            parts.setdefault(self._landing_key(self.snapshot.classes[cls].replacement), []).append(
                cls
            )
        return list(parts.values())

    def _landing_key(self, replacement: int) -> Hashable:
        def find() -> Hashable:
            nodes = self.shared(self.usable(replacement))
            return Same(nodes), self.snapshot.requests[:, replacement].tobytes()

        return self.once(("landing key", replacement), find)

    def usable(self, cls: int) -> Bools:
        """Return the nodes (N,) that would accept a pod of ``cls`` if they were empty.

        ``Snapshot.foreign_nodes`` are left out, such as those of another operating system; kube-scheduler does not do this.
        """
        static = self.scheduler.static_mask(cls)
        native = self.snapshot.without_foreign(static, cls)
        return static if native is static else self.shared(native)

    def with_room(self, cls: int) -> Bools:
        """Return the nodes (N,) that accept one more pod of ``cls`` now, without ``Snapshot.foreign_nodes``."""
        return self.snapshot.without_foreign(self.scheduler.feasible(self.state, cls), cls)

    def classes_of_owner(self, owner: int) -> Int32s:
        """Return the classes of an owner's pods and of their replacements."""
        return self.state.classes_of_owner(owner)

    def rank_equals(self) -> Int32s:
        """Return the rank (P,) of each pod among pods whose moves are worth the same; computed once, read-only.

        By owner and node, then by what their replacements request and where these may run. Among pods that are
        equal in all of this, the highest ordinal is first, as when a StatefulSet scales in or rolls out. So it does
        not matter which pod of an owner is on which node, or has which volume.
        """
        return self.once("rank of equals", lambda: freeze(_rank_equals(self)))

    def crowding(self) -> Crowding:
        """Return the crowding of the snapshot; computed once."""
        return self.once("crowding", lambda: Crowding.of(self.snapshot))

    def least_with_room(self, classes: Sequence[int], price: Floats) -> float:
        """Return the lowest ``price`` (N,) that a replacement of ``classes`` could pay now.

        A better node without room is no reason to evict a pod. The result is infinite if no node has room, and 0 if
        no pod pays a price now. A pod does not keep its own replacement away.
        """
        paying = [cls for cls in classes if price[self.state.home_nodes(cls)].any()]
        if not paying:
            return 0.0
        of_class = self.snapshot.classes
        replacements = dict.fromkeys(of_class[cls].replacement for cls in paying)

        def lowest(nodes: Bools) -> float:
            return float(price.min(where=nodes, initial=np.inf))

        least = min(lowest(self.with_room(replacement)) for replacement in replacements)
        possible = min(lowest(self.usable(replacement)) for replacement in replacements)
        keeping = self._keeping_their_own_away(paying, price) if least > possible else ()
        for pod in islice(keeping, _MOST_TRIED):
            cls = int(self.snapshot.pods.cls[pod])
            with self.state.evicted(pod, gone=self.snapshot.waits(cls)):
                least = min(least, lowest(self.with_room(of_class[cls].replacement)))
            if least <= possible:
                break
        return least

    def _keeping_their_own_away(self, classes: Sequence[int], price: Floats) -> Iterator[int]:
        """Yield a pod of each class on each node with a price, if its replacement may land on more nodes once the pod is gone.

        It uses its claim alone, or rules between pods count it. A pod that a restart replaces still runs then.
        """
        for cls in classes:
            of_class = self.snapshot.classes[cls]
            filters = self.scheduler.filters_of(of_class.replacement)
            if of_class.restarts or cls not in filters.interacting(of_class.replacement):
                continue
            homes = self.state.home_nodes(cls)
            for node in homes[price[homes] > 0].tolist():
                yield int(self.state.pods_on(cls, node)[0])

    def to_be_empty(self) -> Bools:
        """Return the nodes (N,) that are marked to be emptied; read-only."""
        return self.shared(to_be_empty(self.snapshot))

    def pairs_on(self, nodes: Bools, classes: Int32s | None = None) -> tuple[Int32s, Int32s]:
        """Return the distinct (class, node) pairs of living pods that have not moved, on the given nodes (N,)."""
        pods = self.snapshot.pods
        here = self.state.unmoved(classes)
        here = here[nodes[pods.node[here]]]
        size = max(1, len(self.snapshot.nodes))
        pairs = np.unique(pods.cls[here].astype(np.int64) * size + pods.node[here])
        return (pairs // size).astype(np.int32), (pairs % size).astype(np.int32)


def _rank_equals(view: View) -> Int32s:
    snapshot, pods = view.snapshot, view.snapshot.pods
    classes = np.arange(len(snapshot.classes))
    owners = np.array([cls.owner for cls in snapshot.classes], np.int64)
    owned = owners >= 0
    # Classes are numbered by the names of their first pods: so are owners, and pods without one.
    first = np.full(len(snapshot.owners), len(classes))
    np.minimum.at(first, owners[owned], classes[owned])
    of_class = classes.copy()
    of_class[owned] = first[owners[owned]]
    owner = of_class[pods.cls]
    content = _number_contents(view, owner * (len(snapshot.nodes) + 1) + pods.node)
    order = np.lexsort((np.arange(len(pods)), -snapshot.ordinals, content, pods.node, owner))
    rank = np.empty(len(pods), np.int32)
    rank[order] = np.arange(len(pods), dtype=np.int32)
    return rank


def _number_contents(view: View, place: NDArray[np.int64]) -> Int32s:
    """Return a number (P,) for the content of each pod's class; ``place``: number of its owner and node together.

    Pods are compared only where an owner has several classes on one node.
    """
    snapshot, cls = view.snapshot, view.snapshot.pods.cls
    size = max(1, len(snapshot.classes))
    pairs = np.unique(place * size + cls)
    _, at, several = np.unique(pairs // size, return_inverse=True, return_counts=True)
    keys: dict[int, tuple[bytes, list[int], list[tuple[str, str]]]] = {}
    for index in np.unique(pairs[several[at] > 1] % size).tolist():
        of_class = snapshot.classes[index]
        nodes = view.usable(of_class.replacement).tobytes()
        requests = snapshot.requests[:, of_class.replacement].tolist()
        keys[index] = nodes, requests, sorted(of_class.common_labels)
    numbers = np.zeros(size, np.int32)
    distinct = sorted(keys.values())
    for index, key in keys.items():
        numbers[index] = bisect_left(distinct, key)
    return numbers[cls]
