"""Zones and their states; a zone without nodes is known from the cluster's storage or an earlier run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from rebalancer.base.plain_text import count
from rebalancer.snapshot.columns import Bools, Ints
from rebalancer.snapshot.labels import MISSING, ZONE_KEYS
from rebalancer.snapshot.leaving import CANDIDATE, LEAVING, NoticeKind
from rebalancer.snapshot.model import Nodes, Snapshot
from rebalancer.snapshot.nodes import version_numbers_of
from rebalancer.wire.marks import NOT_BALANCED
from rebalancer.wire.objects import (
    LabelSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    SchedulingSpec,
    Taint,
)

ZONE = ZONE_KEYS[0]
_FEWEST_CLOSED = 2
"""Closed nodes with pods that make a zone closed: one of several is a node that somebody works on."""
_FEWEST_OPEN = 2
"""So many open nodes of a group show that its zone is not being closed; one may have been left out by mistake."""
_MAX_REPLACED = 3
"""Largest number of leaving or old nodes for each open node. With more, the open nodes are not their replacements."""
_FEW_ZONES = 10
"""A region has no more. Where there are more, a zone is a rack or a node, and one closed node is work on a node."""
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_BY_KUBERNETES = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Keys of taints that Kubernetes sets by itself, for conditions of a node."""
_WORK = frozenset({NoticeKind.DRAIN, NoticeKind.SCALE_IN, NoticeKind.WORKED_ON})


class ZoneState(StrEnum):
    """The state of a zone."""

    OPEN = "open"
    CLOSED = "closed"
    """Most of its nodes accept no new pods (cordoned, tainted by hand, NotReady, leaving), while pods are on them."""
    EMPTY = "empty"
    """It has no node, though volumes, storage classes or an earlier run say that it exists."""
    BACK = "back"
    """It accepts new pods, and has none yet, while other zones have some."""


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone and its state."""

    name: str
    state: ZoneState
    nodes: int = 0
    pods: int = 0
    """Living pods on its nodes, without those that are bound to their node."""
    why: str = ""
    """Why its closed nodes take no new pods, with numbers; empty in other states."""

    def __str__(self) -> str:
        if self.state is not ZoneState.CLOSED:
            return self.name
        size, pods = count(self.nodes, "node"), count(self.pods, "pod")
        return f"{self.name} (of {size} {self.why}, with {pods})"


def list_zones(snapshot: Snapshot) -> tuple[Zone, ...]:
    """Return all zones by name, with their states."""
    empty = (Zone(name, ZoneState.EMPTY) for name in zones_without_nodes(snapshot))
    return tuple(sorted([*snapshot.once(_judge_zones), *empty], key=lambda zone: zone.name))


def _judge_zones(snapshot: Snapshot) -> list[Zone]:
    """Return the zones that have nodes, by name.

    A zone is closed if more than half of its nodes accept no new pods, at least two of these have pods that would be recreated
    elsewhere, and some zone is not shut. The only node of a zone is enough if there are few zones, unless it is
    leaving: then its pods are moved. Load balancers may send such pods no traffic although they are Ready, as in a zonal shift.
    """
    nodes, evidence = snapshot.nodes, _Evidence(snapshot)
    zone_of, names = nodes.labels.zones()
    number = _movable_on(snapshot)
    present = np.unique(zone_of[zone_of >= 0]).tolist()
    shut_of = {zone: evidence.shut_in(zone_of == zone) for zone in present}
    few, some_open = len(present) <= _FEW_ZONES, not all(of.any() for of in shut_of.values())
    made: list[Zone] = []
    for zone in present:
        mine, shut = zone_of == zone, shut_of[zone]
        size, pods = int(mine.sum()), int(number[mine].sum())
        held = int((shut & (number > 0)).sum())
        whole = few and held == size and not nodes.leaving[mine].all()
        enough = held >= _FEWEST_CLOSED or whole
        why, state = "", ZoneState.OPEN
        if enough and some_open:
            state, why = ZoneState.CLOSED, _why_shut(snapshot, shut)
        elif not pods and number.any() and evidence.takes_pods(mine):
            state = ZoneState.BACK
        made.append(Zone(names[zone], state, size, pods, why))
    return sorted(made, key=lambda zone: zone.name)


class _Evidence:
    """What nodes that accept no new pods indicate about their zone.

    Work on single nodes indicates nothing, because their pods serve until each has been moved.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        nodes = self._nodes = snapshot.nodes
        closed_to_most = [any(map(_keeps_away, taints)) for taints in nodes.taint_sets]
        self._takes_most = ~np.array(closed_to_most or [False], bool)[nodes.taint_set]
        leaving = nodes.leaving & ~(self._takes_most & _find_candidates(nodes))
        by_hand = nodes.unschedulable | _find_tainted_later(snapshot)
        self._shut = by_hand | ~nodes.ready | leaving
        self._worked_on = np.zeros(len(nodes), bool)
        """(N,) nodes that a command empties or replaces, that scale-in removes, or that kured reboots."""
        self._worked_on[[nodes.index[one] for one in snapshot.ordered if one in nodes.index]] = True
        for row, notices in nodes.notices.items():
            self._worked_on[row] |= any(one.kind in _WORK for one in notices)
        left_out = nodes.labels.column(NOT_BALANCED) != MISSING
        self._going = leaving | (by_hand & left_out)
        """(N,) nodes whose removal is announced, or that are closed for an upgrade."""
        self._by_hand = by_hand
        """(N,) cordoned, or tainted since their pods came."""
        self._versions = _rank_versions(nodes.kubelet)
        self._groups = nodes.labels.groups()

    def shut_in(self, mine: Bools) -> Bools:
        """Return the nodes (N,) that shut the zone of the nodes ``mine`` (N,); none if it is not shut."""
        nodes = self._nodes
        # NotReady a node may be for the cause that shuts the zone, whatever else is said of it.
        counted = mine & ~(self._worked_on & nodes.ready)
        opened = counted & ~self._shut & self._takes_most
        replaced = counted & nodes.ready & (self._going | self._find_outdated(opened))
        # Nodes may join a zone that is shut: it takes more of them to show that others are replaced, or removed, one by one.
        if _MAX_REPLACED * np.count_nonzero(opened) >= np.count_nonzero(replaced):
            counted &= ~replaced
        shut = counted & self._shut
        if _is_most(counted & ~nodes.ready, counted):
            return shut
        is_shut = _is_most(shut, counted) and not self._has_open_group(counted, opened)
        return shut if is_shut else np.zeros(len(nodes), bool)

    def takes_pods(self, mine: Bools) -> bool:
        """Return whether a node among ``mine`` (N,) accepts most pods."""
        return bool((mine & ~self._shut & self._takes_most).any())

    def _find_outdated(self, opened: Bools) -> Bools:
        """Return the nodes (N,) closed by hand whose kubelet is older than each of the nodes ``opened`` (N,): an upgrade replaces them."""
        oldest = self._versions[opened].min() if opened.any() else 0
        known = self._versions > 0
        return known & (self._versions < oldest) & self._by_hand

    def _has_open_group(self, counted: Bools, opened: Bools) -> bool:
        """Return whether half of a node group in a zone accepts pods, as it did when others there were closed.

        A zone is closed by closing all nodes that exist; nodes may join afterwards.
        """
        since = self._nodes.created[counted & self._shut].max(initial=0.0)
        were_there = opened & (self._nodes.created <= since)
        return any(
            (takes := np.count_nonzero(opened & (self._groups == group))) >= _FEWEST_OPEN
            and 2 * takes >= np.count_nonzero(counted & (self._groups == group))
            for group in np.unique(self._groups[were_there]).tolist()
        )


def _find_candidates(nodes: Nodes) -> Bools:
    """Return the nodes (N,) of which nothing is announced but that Cluster Autoscaler or Karpenter may remove them."""
    marked = [any(taint.key == CANDIDATE for taint in taints) for taints in nodes.taint_sets]
    candidates = np.array(marked or [False], bool)[nodes.taint_set]
    for row, notices in nodes.notices.items():
        candidates[row] |= any(notice.kind is NoticeKind.CANDIDATE for notice in notices)
        candidates[row] &= not any(notice.holds(LEAVING.conditions) for notice in notices)
    return candidates


def _is_most(some: Bools, of: Bools) -> bool:
    return 2 * int(np.count_nonzero(some)) > int(np.count_nonzero(of))


def _keeps_away(taint: Taint) -> bool:
    return taint.effect in ("NoSchedule", "NoExecute")


def _find_tainted_later(snapshot: Snapshot) -> Bools:
    """Return the nodes (N,) with a taint that somebody has set on nodes in use: it is no node pool's.

    Of Kubernetes' own taints only ``out-of-service`` is set by hand.
    """
    nodes = snapshot.nodes
    by_hand = [
        {taint.key for taint in taints if _keeps_away(taint) and _is_by_hand(taint.key)}
        for taints in nodes.taint_sets
    ]
    every = set().union(*by_hand)
    if not every:
        return np.zeros(len(nodes), bool)
    of_sets = {key: np.array([key in keys for keys in by_hand], bool) for key in every}
    judge = _TaintJudge(snapshot)
    later = [of for key, of in of_sets.items() if judge.is_set_later(key, of[nodes.taint_set])]
    found: Bools = np.logical_or.reduce(later or [np.zeros(len(by_hand), bool)])[nodes.taint_set]
    return found


class _TaintJudge:
    """Judges by the pods whether a taint is a node pool's; a namespace with less than half of the pods decides nothing alone."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot, pods = snapshot, snapshot.pods
        names, of_class = np.unique([of.namespace for of in snapshot.classes], return_inverse=True)
        self._namespace: Ints = of_class[pods.cls]
        self._movable: Bools = pods.living & ~snapshot.per_node & (pods.node >= 0)
        number = np.bincount(self._namespace[self._movable], minlength=len(names))
        self._most: Bools = 2 * number >= number.sum()
        """Namespace -> whether at least half of the pods are there."""

    def is_set_later(self, key: str, tainted: Bools) -> bool:
        """Return whether the pods on the nodes ``tainted`` (N,) came before the taint with this key.

        That is taken to be so if most pods do not tolerate it, on most of these nodes that have pods. A key that pods
        tolerate by name belongs to a node pool: then the result is False. One namespace alone decides neither,
        unless it has at least half of all pods.
        """
        pods = self._snapshot.pods
        if self._is_of_several(pods.living & self._tolerate({key})):
            return False
        there = self._movable & tainted[pods.node]
        against = there & ~self._tolerate({key, ""})
        size = len(tainted)
        number = np.bincount(pods.node[there], minlength=size)
        most = 2 * np.bincount(pods.node[against], minlength=size) > number
        return _is_most(most, number > 0) and self._is_of_several(against)

    def _tolerate(self, keys: AbstractSet[str]) -> Bools:
        """Return the pods (P,) with a toleration of one of these keys; the empty key matches all taints."""
        of_class = [
            any(one.key in keys for one in of.spec.tolerations or ())
            for of in self._snapshot.classes
        ]
        of_pods: Bools = np.array(of_class, bool)[self._snapshot.pods.cls]
        return of_pods

    def _is_of_several(self, pods: Bools) -> bool:
        """Return whether ``pods`` (P,) are of several namespaces, or of one with at least half of all pods."""
        namespaces = np.unique(self._namespace[pods])
        return len(namespaces) > 1 or bool(self._most[namespaces].any())


def _is_by_hand(key: str) -> bool:
    """Return whether people, or a program of theirs, set taints with this key."""
    return key == _OUT_OF_SERVICE or not key.startswith(_BY_KUBERNETES)


def _rank_versions(kubelets: Sequence[str]) -> Ints:
    """Return the place (N,) of each kubelet's version among those of all, the oldest first; 0: it is not known."""
    versions = [version_numbers_of(text) for text in kubelets]
    known = sorted({version for version in versions if version is not None})
    places = {version: place for place, version in enumerate(known, 1)}
    return np.array([0 if of is None else places[of] for of in versions], np.int64)


def _movable_on(snapshot: Snapshot) -> Ints:
    """Return the number of living pods (N,) on each node, without those that are bound to it."""
    pods = snapshot.pods
    on = pods.node[pods.living & ~snapshot.per_node]
    return np.bincount(on, minlength=len(snapshot.nodes))


def closed_nodes(snapshot: Snapshot) -> Bools:
    """Return the nodes (N,) of closed zones, whose pods are taken not to serve."""
    closed = {zone.name for zone in snapshot.once(_judge_zones) if zone.state is ZoneState.CLOSED}
    zone_of, names = snapshot.nodes.labels.zones()
    return np.isin(zone_of, [index for index, name in enumerate(names) if name in closed])


def owners_to_refill(snapshot: Snapshot) -> Bools:
    """Return the owners (O,) with several pods, all of them in one zone, while a zone is back: they are most at risk."""
    owners = np.zeros(len(snapshot.owners), bool)
    if not any(zone.state is ZoneState.BACK for zone in snapshot.once(_judge_zones)):
        return owners
    pods, (zone_of, _) = snapshot.pods, snapshot.nodes.labels.zones()
    living = np.flatnonzero(pods.living & ~snapshot.per_node)
    owner = np.array([cls.owner for cls in snapshot.classes], np.int64)[pods.cls[living]]
    zone = zone_of[pods.node[living]][owner >= 0]
    owner = owner[owner >= 0]
    lowest, highest = np.full(len(owners), len(zone_of)), np.full(len(owners), -1)
    np.minimum.at(lowest, owner, zone)
    np.maximum.at(highest, owner, zone)
    several = np.bincount(owner, minlength=len(owners)) > 1
    return several & (lowest == highest) & (highest >= 0)


def closed_zones(snapshot: Snapshot) -> str:
    """Return a sentence that names the zones in the state ``ZoneState.CLOSED``; empty if there are none."""
    closed = [str(zone) for zone in snapshot.once(_judge_zones) if zone.state is ZoneState.CLOSED]
    if not closed:
        return ""
    zones_are, are = ("zone", "is") if len(closed) == 1 else ("zones", "are")
    which = ", ".join(closed)
    return f"{zones_are} {which} {are} closed: only hard rules and nodes that go move pods"


def _why_shut(snapshot: Snapshot, shut: Bools) -> str:
    """Return why the nodes ``shut`` (N,) take no new pods, with numbers."""
    nodes = snapshot.nodes
    stay = nodes.ready & ~nodes.leaving
    numbers = {
        "cordoned": shut & nodes.unschedulable & stay,
        "tainted": shut & ~nodes.unschedulable & stay,
        "NotReady": shut & ~nodes.ready & ~nodes.leaving,
        "about to go": shut & nodes.leaving,
    }
    return ", ".join(f"{n} {why}" for why, of in numbers.items() if (n := int(of.sum())))


def zones_without_nodes(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the zones without nodes, by name: they have volumes, or volumes may be created there, or an earlier run saw nodes."""
    present = zones_with_nodes(snapshot)
    if not present:
        return ()
    return tuple(sorted({*_zones_of_storage(snapshot), *snapshot.earlier_zones} - present))


def zones_with_nodes(snapshot: Snapshot) -> set[str]:
    """Return the zones of all nodes."""
    labels = snapshot.nodes.labels
    return {
        labels.values(key)[value]
        for key in ZONE_KEYS
        for value in set(labels.column(key).tolist())
        if value >= 0
    }


def asked_without_nodes(snapshot: Snapshot, cls: int, present: set[str]) -> tuple[str, ...]:
    """Return the zones in which pods of a class have to be, by their spec or a volume, if none is ``present``; else nothing."""
    for zones in _zones_asked(snapshot, cls):
        if zones and present and not zones & present:
            return tuple(sorted(zones))
    return ()


def _zones_asked(snapshot: Snapshot, cls: int) -> Iterator[set[str]]:
    of, volumes = snapshot.classes[cls], snapshot.volumes
    if (zone := (of.spec.node_selector or {}).get(ZONE)) is not None:
        yield {zone}
    node = of.spec.affinity.node_affinity if of.spec.affinity is not None else None
    if node is not None and node.required is not None:
        terms = [set(_zones_of_term(term, snapshot)) for term in node.required.node_selector_terms]
        yield set().union(*terms) if all(terms) else set()
    for one in of.spec.volumes or ():
        if one.persistent_volume_claim is not None:
            name = one.persistent_volume_claim.claim_name
            claim = volumes.claims.get((of.namespace, name))
            volume = volumes.volumes.get(claim.spec.volume_name) if claim is not None else None
            yield set(_zones_of_volume(volume, snapshot)) if volume is not None else set()


def _zones_of_storage(snapshot: Snapshot) -> Iterator[str]:
    for volume in snapshot.volumes.volumes.values():
        yield from _zones_of_volume(volume, snapshot)
    for of_class in snapshot.volumes.storage_classes.values():
        for raw in of_class.allowed_topologies or ():
            for given in _label_expressions(raw):
                if snapshot.nodes.labels.holds_zone(str(given.get("key"))):
                    yield from map(str, given.get("values") or ())


def _zones_of_volume(volume: PersistentVolume, snapshot: Snapshot) -> Iterator[str]:
    affinity = volume.spec.node_affinity
    required = affinity.required if affinity is not None else None
    for term in required.node_selector_terms if required is not None else ():
        yield from _zones_of_term(term, snapshot)


def _zones_of_term(term: NodeSelectorTerm, snapshot: Snapshot) -> Iterator[str]:
    for asked in term.match_expressions or ():
        if asked.operator == "In" and snapshot.nodes.labels.holds_zone(asked.key):
            yield from asked.values or ()


def _label_expressions(raw: Any) -> Sequence[dict[str, Any]]:
    found = raw.get("matchLabelExpressions") if isinstance(raw, dict) else None
    return [one for one in found or () if isinstance(one, dict)]


def may_use_zone(spec: SchedulingSpec, zone: str) -> bool:
    """Return whether no condition of a pod on its node's labels excludes ``zone``; conditions on other labels are ignored."""
    if (spec.node_selector or {}).get(ZONE, zone) != zone:
        return False
    node = spec.affinity.node_affinity if spec.affinity is not None else None
    if node is None or node.required is None:
        return True
    return any(
        all(_admits(asked, zone) for asked in term.match_expressions or () if asked.key == ZONE)
        for term in node.required.node_selector_terms
    )


def _admits(asked: LabelSelectorRequirement, zone: str) -> bool:
    within = zone in (asked.values or ())
    return {"In": within, "NotIn": not within, "DoesNotExist": False}.get(asked.operator, True)
