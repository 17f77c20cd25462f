"""Zones that have no node, as the cluster's storage or an earlier run shows: what an autoscaler has emptied, or an outage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rebalancer.snapshot.labels import ZONE_KEYS
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.objects import (
    LabelSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    SchedulingSpec,
)

ZONE = ZONE_KEYS[0]


def zones_without_nodes(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the zones that have no node, by name: volumes stand there, or are to be made, or an earlier run saw nodes."""
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
        terms = [set(_zones_of_term(term)) for term in node.required.node_selector_terms]
        yield set().union(*terms) if all(terms) else set()
    for one in of.spec.volumes or ():
        if one.persistent_volume_claim is not None:
            name = one.persistent_volume_claim.claim_name
            claim = volumes.claims.get((of.namespace, name))
            volume = volumes.volumes.get(claim.spec.volume_name) if claim is not None else None
            yield set(_zones_of_volume(volume)) if volume is not None else set()


def _zones_of_storage(snapshot: Snapshot) -> Iterator[str]:
    for volume in snapshot.volumes.volumes.values():
        yield from _zones_of_volume(volume)
    for of_class in snapshot.volumes.storage_classes.values():
        for raw in of_class.allowed_topologies or ():
            for given in _label_expressions(raw):
                if _is_zone(str(given.get("key"))):
                    yield from map(str, given.get("values") or ())


def _zones_of_volume(volume: PersistentVolume) -> Iterator[str]:
    affinity = volume.spec.node_affinity
    required = affinity.required if affinity is not None else None
    for term in required.node_selector_terms if required is not None else ():
        yield from _zones_of_term(term)


def _zones_of_term(term: NodeSelectorTerm) -> Iterator[str]:
    for asked in term.match_expressions or ():
        if asked.operator == "In" and _is_zone(asked.key):
            yield from asked.values or ()


def _label_expressions(raw: Any) -> Sequence[dict[str, Any]]:
    found = raw.get("matchLabelExpressions") if isinstance(raw, dict) else None
    return [one for one in found or () if isinstance(one, dict)]


def _is_zone(key: str) -> bool:
    """Return whether a label holds a zone; drivers have labels of their own, with the same values."""
    return key.endswith("/zone")


def may_use_zone(spec: SchedulingSpec, zone: str) -> bool:
    """Return whether nothing that a pod asks of its node's labels excludes ``zone``; of other labels nothing is known."""
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
