"""Hands objects of a kind to the right door of the fold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rebalancer.snapshot.build import WORKLOADS, Fold

__all__ = ["WORKLOADS", "feed"]


def feed(fold: Fold, kind: str, objects: Iterable[Any]) -> None:
    """Add decoded objects of ``kind`` (any but Pod) to ``fold``.

    Raises:
        KeyError: the fold has no use for this kind.
    """
    if kind in WORKLOADS:
        fold.add_workloads(kind, objects)
        return
    doors: dict[str, Callable[[Iterable[Any]], None]] = {
        "Node": fold.add_nodes,
        "Namespace": fold.add_namespaces,
        "Service": fold.add_services,
        "ResourceQuota": fold.add_quotas,
        "PersistentVolumeClaim": fold.add_claims,
        "PersistentVolume": fold.add_volumes,
        "StorageClass": fold.add_storage_classes,
        "CSINode": fold.add_csi_nodes,
        "PodDisruptionBudget": fold.add_budgets,
        "HorizontalPodAutoscaler": fold.add_autoscalers,
        "NodeMetrics": fold.add_node_metrics,
        "PodMetrics": fold.add_pod_metrics,
    }
    doors[kind](objects)
