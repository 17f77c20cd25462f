"""Devices of dynamic resource allocation as further resources, so that nothing after the snapshot needs to know them.

The scheduler searches, node by node, devices for all requests of a pod. If all requests that may match the same devices
match all or none of those on each node, the devices are interchangeable, and counting them is exact: such a set of
devices is a resource of its own, with a row. Allocations are read from the claims: a pod with other devices than its class
requests gets a class of its own. Requests that match only a part of what another matches on a node, and all that
:mod:`rebalancer.snapshot.device_inventory` and :mod:`rebalancer.snapshot.device_requests` name, are not modelled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from rebalancer.snapshot.columns import Bools, Ints, freeze
from rebalancer.snapshot.device_inventory import Inventory
from rebalancer.snapshot.device_requests import (
    DeviceKind,
    DeviceObjects,
    Need,
    Wanted,
    find_provided,
    list_asked,
)
from rebalancer.snapshot.model import DEVICE_ROW, Devices, Snapshot
from rebalancer.snapshot.owners import add_classes
from rebalancer.wire import devices as w
from rebalancer.wire.objects import NodeSelector


def claims_devices(snapshot: Snapshot) -> bool:
    """Return whether a pod, or its replacement, has resource claims."""
    return any(cls.spec.resource_claims for cls in snapshot.classes)


def is_unoffered(snapshot: Snapshot, row: int, *, plugged: bool = False) -> bool:
    """Return whether pods have a resource on a node that does not offer it, or request one that no node offers.

    ``plugged``: it comes from device plug-ins although no node has any yet.
    """
    offered, asks = snapshot.nodes.allocatable[row] > 0, snapshot.requests[row] > 0
    using = (snapshot.pods.node >= 0) & asks[snapshot.pods.cls]
    elsewhere = not offered[snapshot.pods.node[using]].all()
    return elsewhere or (bool(asks.any()) and not plugged and not offered.any())


def with_devices(snapshot: Snapshot, objects: DeviceObjects) -> Snapshot:
    """Return the snapshot with a row of resources for each set of devices that can be counted."""
    claiming = [cls for cls, of in enumerate(snapshot.classes) if of.spec.resource_claims]
    provided = find_provided(snapshot, objects.classes or ())
    unoffered = any(is_unoffered(snapshot, row) for row in list_asked(snapshot))
    if not claiming and not provided and not unoffered:
        return snapshot
    if lacking := objects.find_lacking():
        claiming += np.flatnonzero(snapshot.requests[list(provided)].any(axis=0)).tolist()
        why = dict.fromkeys(claiming, (f"the snapshot holds no {lacking}",))
        return replace(snapshot, devices=Devices(why, {}, {}, frozenset()))
    inventory = Inventory(snapshot, objects.slices or (), objects.taint_rules or ())
    wanted = Wanted(snapshot, objects, inventory)
    return _Rows(snapshot, objects, inventory, wanted).make()


@dataclass(frozen=True, slots=True)
class _Set:
    """Devices of which requests of some kinds want all or none on each node."""

    name: str
    kinds: Sequence[DeviceKind]
    members: Bools
    """(D,)"""
    size: Ints
    """(N,)"""


class _Row(NamedTuple):
    name: str
    requests: Ints
    """(C,)"""
    capacity: Ints
    """(N,)"""
    allocatable: Ints
    """(N,)"""
    kinds: Sequence[DeviceKind] = ()
    """The kinds of requests for the devices that the set counts."""


class _Rows:
    """The sets of devices as rows of a snapshot."""

    def __init__(
        self, snapshot: Snapshot, objects: DeviceObjects, inventory: Inventory, wanted: Wanted
    ) -> None:
        self._snapshot, self._inventory, self._wanted = snapshot, inventory, wanted
        self._sets = list(self._find_sets())
        self._kinds = [kind for of in self._sets for kind in of.kinds]
        self._offered = _table([self._count_offered(of) for of in self._sets], len(snapshot.nodes))
        """(S, N) what device plug-ins offer of the resources that a set represents on other nodes."""
        for of, offered in zip(self._sets, self._offered, strict=True):
            self._judge_kinds(of, offered)
        self._in_use = np.zeros(len(inventory.devices), bool)
        self._in_use[inventory.find(_list_allocated(objects.claims or ()))] = True
        self._split()
        self._rows = list(self._make_rows())

    def make(self) -> Snapshot:
        snapshot, rows, needs = self._snapshot, self._rows, self._wanted.needs
        before, nodes = len(snapshot.resources), snapshot.nodes
        preferred = dict(self._wanted.find_preferences())
        return replace(
            snapshot,
            resources=(*snapshot.resources, *(row.name for row in rows)),
            requests=_append(snapshot.requests, [row.requests for row in rows]),
            nodes=replace(
                nodes,
                allocatable=_append(
                    self._offer(nodes.allocatable), [row.allocatable for row in rows]
                ),
                capacity=_append(self._offer(nodes.capacity), [row.capacity for row in rows]),
            ),
            devices=Devices(
                {cls: tuple(dict.fromkeys(need.why)) for cls, need in needs.items()},
                {cls: need.rejected for cls, need in needs.items() if need.rejected},
                {cls: self._pin(need.pins) for cls, need in needs.items() if need.pins},
                frozenset(range(before, before + len(rows))),
                {
                    snapshot.resources.index(kind.resource): before + number
                    for number, row in enumerate(rows)
                    for kind in row.kinds
                    if kind.resource
                },
                len(snapshot.classes),
                preferred,
            ),
        )

    def _offer(self, amounts: Ints) -> Ints:
        """Return amounts of nodes (R, N) in which extended resources are the number of devices that represent them.

        The devices' own row has how many are left.
        """
        offered = amounts.copy()
        for kind in self._kinds:
            if kind.resource:
                row, number = (
                    self._snapshot.resources.index(kind.resource),
                    self._wanted.count(kind),
                )
                offered[row, number > 0] = number[number > 0]
        return offered

    def _count_offered(self, of: _Set) -> Ints:
        names = [kind.resource for kind in of.kinds if kind.resource]
        rows = [self._snapshot.resources.index(name) for name in dict.fromkeys(names)]
        offered: Ints = np.add.reduce(self._snapshot.nodes.allocatable[rows])
        return offered

    def _pin(self, selectors: Sequence[NodeSelector]) -> Bools:
        """Return the nodes (N,) where all that is allocated already can be used."""
        labels = self._snapshot.nodes.labels
        return freeze(np.logical_and.reduce([labels.selector(one) for one in selectors]))

    def _find_sets(self) -> Iterator[_Set]:
        """Yield the sets of devices that requests have in common, directly or through other requests."""
        alike: dict[bytes, list[DeviceKind]] = {}
        masks: dict[bytes, Bools] = {}
        for kind, of in sorted(self._wanted.matches.items(), key=lambda each: repr(each[0])):
            if not isinstance(of, str) and any(map(Need.is_modelled, self._wanted.asking[kind])):
                alike.setdefault(of.tobytes(), []).append(kind)
                masks[of.tobytes()] = of
        left, named = list(masks), Counter[str]()
        while left:
            kinds, members = list(alike[left[0]]), masks[left.pop(0)].copy()
            while near := [one for one in left if (masks[one] & members).any()]:
                kinds += [kind for one in near for kind in alike[one]]
                left = [one for one in left if one not in near]
                members |= np.logical_or.reduce([masks[one] for one in near])
            name = f"{DEVICE_ROW}{kinds[0].name}"
            # A pod may ask for a resource of that name itself.
            named[name] += 1 + (not named[name] and name in self._snapshot.resources)
            number = f":{named[name]}" if named[name] > 1 else ""
            yield _Set(f"{name}{number}", kinds, members, self._inventory.count(members))

    def _judge_kinds(self, of: _Set, offered: Ints) -> None:
        """Note which requests want only a part of what others want on a node, or what a device plug-in has there, too."""
        names = self._snapshot.nodes.names
        both = np.flatnonzero((offered > 0) & (of.size > 0)).tolist()
        for kind in of.kinds:
            own = self._wanted.count(kind)
            why = [
                f"{names[one]} has devices and a device plug-in for the same resource"
                for one in both[:1]
            ]
            for one in np.flatnonzero((own > 0) & (own < of.size)).tolist()[:1]:
                what = f"only some of the devices that {kind.name} has on {names[one]}"
                why.append(f"other pods ask for {what}, or for more")
            for need in self._wanted.asking[kind] if why else ():
                need.why += why

    def _split(self) -> None:
        """Give pods with other devices than their class requests a class that uses what they have.

        Their replacements have the original class. Resources of device plug-ins are not affected.
        """
        pods, classes, needs = self._snapshot.pods, self._snapshot.classes, self._wanted.needs
        asked = _table([self._sum_asked(of.kinds) for of in self._sets], len(classes))
        placed = np.flatnonzero(pods.node >= 0)
        node, cls = pods.node[placed], pods.cls.copy()
        wanted, own = asked[:, cls[placed]], self._offered[:, node] == 0
        has = np.where(own, self._find_held()[:, placed], wanted)
        split: dict[tuple[int, ...], int] = {}
        for place in np.flatnonzero((has != wanted).any(axis=0)).tolist():
            key = int(cls[placed[place]]), *has[:, place].tolist()
            cls[placed[place]] = split.setdefault(key, len(classes) + len(split))
        needs |= {new: needs[of] for (of, *_), new in split.items() if of in needs}
        self._snapshot = add_classes(
            replace(self._snapshot, pods=replace(pods, cls=freeze(cls))),
            [classes[of] for of, *_ in split],
            [of for of, *_ in split],
        )
        more = _table([amounts for _, *amounts in split], len(self._sets))
        self._taken = np.hstack([asked, more.T])
        """(S, C) devices of each set that a pod of each class uses."""
        self._held = np.zeros_like(self._offered)
        """(S, N) devices that are released with the pods of each node."""
        np.add.at(self._held.T, node, (has * own).T)

    def _find_held(self) -> Ints:
        """Return how many devices of each set pods have (S, P) by claims that are deleted with them.

        Other devices are in use regardless of pods.
        """
        pods, needs = self._snapshot.pods, self._wanted.needs
        held = np.zeros((len(self._sets), len(pods)), np.int64)
        for pod, claims in self._wanted.owned.items():
            if int(pods.cls[pod]) in needs:
                reserved = [
                    claim
                    for claim in claims
                    if pods.uid[pod] in {one.uid for one in claim.status.reserved_for or ()}
                ]
                some = self._inventory.find(_list_allocated(reserved))
                held[:, pod] = [of.members[some].sum() for of in self._sets]
        return held

    def _make_rows(self) -> Iterator[_Row]:
        for of, taken, held, offered in zip(
            self._sets, self._taken, self._held, self._offered, strict=True
        ):
            used = self._inventory.count(of.members & self._in_use)
            able = np.where(offered > 0, offered, of.size - used + held)
            yield _Row(of.name, taken, of.size, able, of.kinds)
            where: dict[bytes, list[DeviceKind]] = {}
            for kind in of.kinds:
                has = self._wanted.count(kind) > 0
                # The row of an extended resource tells its nodes apart.
                if not kind.resource and (np.where(has, of.size, 0) != of.size + offered).any():
                    where.setdefault(has.tobytes(), []).append(kind)
            for place, (some, kinds) in enumerate(where.items(), 1):
                there = np.where(np.frombuffer(some, bool), of.size, 0)
                asked = np.minimum(self._sum_asked(kinds), taken)
                yield _Row(f"{of.name}/{place}", asked, there, there)

    def _sum_asked(self, kinds: Sequence[DeviceKind]) -> Ints:
        """Return how many devices a pod of each class needs (C,) by requests of some kinds."""
        asked = np.zeros(len(self._snapshot.classes), np.int64)
        # Where all are asked for there must be one at least.
        every = {kind: int(max(self._wanted.count(kind), default=0)) or 1 for kind in kinds}
        for cls, need in self._wanted.needs.items():
            asked[cls] = sum(
                one.number or every[one.kind] for one in need.requests if one.kind in every
            )
        return asked


def _list_allocated(claims: Iterable[w.ResourceClaim]) -> Iterator[w.AllocatedDevice]:
    """Yield the devices that are allocated exclusively; administrators' access allocates none."""
    for claim in claims:
        yield from (device for device in claim.devices if not device.admin_access)


def _table(rows: Sequence[Any], width: int) -> Ints:
    return np.array(rows, np.int64).reshape(len(rows), width)


def _append(matrix: Ints, rows: Sequence[Ints]) -> Ints:
    return freeze(np.vstack([matrix, *rows]).astype(np.int64))
