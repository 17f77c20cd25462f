"""Parts of pod specs with placement rules."""

from typing import Any

from rebalancer.testing.objects import prefer_apart, require_apart, spread


def require_node(key: str, *values: str) -> dict[str, Any]:
    """Return required node affinity to nodes whose label has one of these values."""
    expression = {"key": key, "operator": "In", "values": list(values)}
    terms = [{"matchExpressions": [expression]}]
    required = {"nodeSelectorTerms": terms}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


__all__ = ["prefer_apart", "require_apart", "require_node", "spread"]
