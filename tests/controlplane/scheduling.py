"""Fragments of pod specs that say where pods may and should go."""

from collections.abc import Mapping
from typing import Any

from tests.controlplane.objects import HOSTNAME, ZONE

Labels = Mapping[str, str]


def prefer_apart(labels: Labels, topology_key: str = ZONE, weight: int = 100) -> dict[str, Any]:
    """Return an affinity: preferably not in one domain with pods that carry the labels."""
    wish = {"weight": weight, "podAffinityTerm": _term(labels, topology_key)}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}


def require_apart(labels: Labels, topology_key: str = HOSTNAME) -> dict[str, Any]:
    """Return an affinity: never in one domain with pods that carry the labels."""
    term = _term(labels, topology_key)
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(
    labels: Labels,
    topology_key: str = ZONE,
    *,
    hard: bool = True,
    max_skew: int = 1,
    **more: Any,
) -> dict[str, Any]:
    """Return a topology spread constraint; further fields by their API names."""
    return {
        "maxSkew": max_skew,
        "topologyKey": topology_key,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(labels)},
        **more,
    }


def require_node(key: str, *values: str) -> dict[str, Any]:
    """Return an affinity: only on nodes whose label has one of these values."""
    expression = {"key": key, "operator": "In", "values": list(values)}
    terms = [{"matchExpressions": [expression]}]
    required = {"nodeSelectorTerms": terms}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _term(labels: Labels, topology_key: str) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": topology_key}
