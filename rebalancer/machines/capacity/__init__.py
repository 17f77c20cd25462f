"""Machines: which nodes can be removed, and which groups have to be increased for the pending pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rebalancer.machines.capacity.scaling import Scaling
    from rebalancer.run.context import RunContext
    from rebalancer.run.source import Reading, Source


def scaling_of(run: RunContext, source: Source, reading: Reading) -> Scaling | None:
    """See :func:`rebalancer.machines.capacity.of_run.scaling_of`, which is loaded when a policy asks for it."""
    from rebalancer.machines.capacity import of_run  # noqa: PLC0415

    return of_run.scaling_of(run, source, reading)
