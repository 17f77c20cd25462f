"""Fragments of pod specs that say where pods may and should go."""

from typing import Any

from rebalancer.testing.objects import prefer_apart, require_apart, spread


def require_node(key: str, *values: str) -> dict[str, Any]:
    """Return an affinity: only on nodes whose label has one of these values."""
    expression = {"key": key, "operator": "In", "values": list(values)}
    terms = [{"matchExpressions": [expression]}]
    required = {"nodeSelectorTerms": terms}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


__all__ = ["prefer_apart", "require_apart", "require_node", "spread"]
