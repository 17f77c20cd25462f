"""What a run does to machines, as data: one act each, in the order in which they were done."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ActStatus(enum.StrEnum):
    """Whether it was done. Stable: users alert on them."""

    DONE = "done"
    PLANNED = "planned"
    """Nothing is changed, and why is said beside it: a dry run, a strategy that observes, another autoscaler."""
    WAITS = "waits"
    """It will be done later, if things stay as they are."""
    FAILED = "failed"
    """It could not be done; a run in which something failed does not end with 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineAct:
    """One thing that was done to a machine or a group of them, or was not."""

    strategy: str
    """As it stands in the policy."""
    code: str
    """What it is; stable, of the strategy's own list."""
    status: ActStatus
    group: str
    """Name of the group, empty where the machine is in none."""
    message: str
    """One line: numbers, and why."""
    node: str = ""
    """Name of the node; empty where it is about a group."""
