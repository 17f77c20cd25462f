"""What nodes and pods really use, as the metrics API (metrics.k8s.io) has measured it."""

from __future__ import annotations

from dataclasses import dataclass

from rebalancer.snapshot.columns import Bools, Ints

MEASURED = ("cpu", "memory")
"""Axis M of all columns, in the base units of the snapshot's resources."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Measured use, as read-only columns over the nodes and classes of a snapshot."""

    nodes: Ints
    """(M, N) in use on each node, by whatever runs there; 0 where it is not known.

    As measured, or as estimated once pods have moved (``rebalancer.snapshot.carried``).
    """
    known: Bools
    """(N,) nodes whose measurement is fresh enough to go by, and not of an earlier node of that name."""
    classes: Ints
    """(M, C) mean over the measured pods of each class; of what it replaces, or what it requests, where none was.

    Replicas share their work: what one of them uses at the moment says little of its replacement.
    """
    at: float
    """Unix seconds of the newest measurement of a node, 0 if there is none."""
