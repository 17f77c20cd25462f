"""Capacity: which nodes can be removed, and which groups must be scaled up for pending pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rebalancer.machines.capacity.scaling import Scaling
    from rebalancer.run.context import RunContext
    from rebalancer.run.source import Reading, Source


def scaling_of(run: RunContext, source: Source, reading: Reading) -> Scaling | None:
    """Return what a run does to machines; see :func:`rebalancer.machines.capacity.of_run.scaling_of`."""
    from rebalancer.machines.capacity import of_run  # noqa: PLC0415

    return of_run.scaling_of(run, source, reading)
