"""Capacity: which nodes can be removed, and which groups must be scaled up for pending pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rebalancer.machines.capacity.of_run import MachineMemory
    from rebalancer.machines.capacity.scaling import Scaling
    from rebalancer.run.context import RunNotes
    from rebalancer.run.source import Reading


class MachineScaler:
    """Creates the actions on machines for each run of one process, and keeps the memory that need not outlast the process."""

    def __init__(self) -> None:
        self._memory: MachineMemory | None = None

    def __call__(self, reading: Reading, notes: RunNotes) -> Scaling | None:
        """Return what the run does to machines, which is added to ``notes`` then and later; None without a strategy for it.

        Raises:
            ProviderError: the machines could not be read; none was changed.
            ClusterReadError: the stored state could not be read.
        """
        from rebalancer.machines.capacity import of_run  # noqa: PLC0415

        self._memory = self._memory or of_run.MachineMemory()
        return of_run.scaling_of(self._memory, reading, notes)
