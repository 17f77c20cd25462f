"""Measured usage of nodes and pods, from the metrics API (metrics.k8s.io) or Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rebalancer.snapshot.columns import Bools, Ints

MEASURED = ("cpu", "memory")
"""Axis M of all columns, in the base units of the snapshot's resources."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Measured usage as read-only columns over the nodes and classes of a snapshot."""

    nodes: Ints
    """(M, N) in use on each node, by whatever runs there; 0 where it is not known.

    As measured, or as estimated once pods have moved (``rebalancer.snapshot.measured``).
    """
    known: Bools
    """(N,) nodes whose measurement is fresh enough to go by, and not of an earlier node of that name."""
    classes: Ints
    """(M, C) mean over the measured pods of each class; of what it replaces, or what it requests, where none was.

    Replicas share their work: what one of them uses at the moment says little of its replacement.
    """
    at: float
    """Unix seconds at which the newest measurement of a node was made, or began; 0 if there is none."""
    measured: tuple[bool, ...] = (True,) * len(MEASURED)
    """(M,) what was measured at all; of all others nothing is known, and ``classes`` has their requests."""
    why_unknown: Mapping[str, str] = field(default_factory=dict)
    """Node -> why what was answered of it is no measurement, where that is known."""
    others: tuple[str, ...] = ()
    """Names of a few measured nodes, where the cluster has none of all that were measured."""

    def has(self, resource: str) -> bool:
        """Return whether a resource of MEASURED was measured."""
        return self.measured[MEASURED.index(resource)]
