"""Which classes an inter-pod affinity term or a spread constraint means."""

from __future__ import annotations

from rebalancer.snapshot.columns import Int32s
from rebalancer.snapshot.labels import matches, with_label_keys
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.objects import PodAffinityTerm, TopologySpreadConstraint


def affinity_classes(snapshot: Snapshot, cls: int, term: PodAffinityTerm) -> Int32s:
    """Return the classes that ``term`` of a pod of class ``cls`` matches, in its namespaces.

    Namespaces are those listed plus those whose labels match the namespaceSelector; with neither, the
    pod's own (KEP-2249). An empty namespaceSelector means all.
    """
    of_class = snapshot.classes[cls]
    namespaces = set(term.namespaces or ())
    if term.namespace_selector is not None:
        namespaces.update(
            name
            for name, labels in snapshot.namespaces.items()
            if matches(term.namespace_selector, labels)
        )
    elif not namespaces:
        namespaces = {of_class.namespace}
    selector = with_label_keys(
        term.label_selector, of_class.labels, term.match_label_keys, term.mismatch_label_keys
    )
    return snapshot.class_index.match(namespaces, selector)


def spread_classes(snapshot: Snapshot, cls: int, constraint: TopologySpreadConstraint) -> Int32s:
    """Return the classes that a spread constraint of class ``cls`` counts: same namespace only."""
    of_class = snapshot.classes[cls]
    selector = with_label_keys(
        constraint.label_selector, of_class.labels, constraint.match_label_keys
    )
    return snapshot.class_index.match([of_class.namespace], selector)
