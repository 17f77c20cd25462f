"""Machines as data: the acts of a run on machines, and the results of interruptions."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass


class ActStatus(enum.StrEnum):
    """The status of an act on a machine. The values are stable: users alert on them."""

    DONE = "done"
    PLANNED = "planned"
    """Nothing is changed; the message has the reason: a dry run, a strategy that observes, another autoscaler."""
    WAITS = "waits"
    """It will be done later, if nothing changes."""
    FAILED = "failed"
    """It could not be done; a run in which something failed does not end with 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineAct:
    """One act on a machine or a machine group, executed or not."""

    strategy: str
    """The strategy's name in the policy."""
    code: str
    """The code of the act; stable, from the strategy's own list."""
    status: ActStatus
    group: str
    """Name of the group, empty where the machine is in none."""
    message: str
    """One line: numbers, and why."""
    node: str = ""
    """Name of the node; empty where it is about a group."""


class StepStatus(enum.StrEnum):
    """How a step of the pipeline ended."""

    RUNNING = "running"
    """It has not ended; a process that takes over runs it again."""
    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed-out"
    """Its part of the time was over."""
    SKIPPED = "skipped"
    """There was nothing to do for it."""


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The outcome of one step."""

    status: StepStatus
    why: str = ""
    """One line; may be empty where the step is done."""

    @property
    def is_good(self) -> bool:
        """Whether the step succeeded, or had nothing to do."""
        return self.status in (StepStatus.DONE, StepStatus.SKIPPED)

    def __str__(self) -> str:
        return f"{self.status} ({self.why})" if self.why else self.status.value


class Result(enum.StrEnum):
    """The final result of an interruption."""

    DONE = "done"
    """Each step was done, or had nothing to do."""
    INCOMPLETE = "incomplete"
    """A step failed or ran out of time. Nothing more is tried."""
    CANCELLED = "cancelled"
    """The interruption was cancelled, and what was done to the node was undone."""
    EXPIRED = "expired"
    """It was received after the machine was to have gone, and nothing was done."""
    GONE = "gone"
    """The Node went before the first step, or another one has come under its name."""
    WITHDRAWN = "withdrawn"
    """It was not cancelled, but the machine has not ended in time, or is back: what was done to its node was undone."""


@dataclass(frozen=True, slots=True)
class PipelineOutcome:
    """How the steps for an interrupted machine have ended; the source that announced it is told so."""

    result: Result
    steps: Mapping[str, StepOutcome]
    """Name of the step in the policy -> the outcome of it, in order."""


@dataclass(frozen=True, slots=True)
class InterruptedMachine:
    """One interrupted machine in the report."""

    node: str
    instance: str
    kind: str
    source: str
    deadline: float | None
    result: str
    """A Result, or under-way, or waiting."""
    steps: Mapping[str, StepOutcome]

    @property
    def goes_at(self) -> float | None:
        """When the machine ends, in Unix seconds; None if that is not known, or its steps have ended."""
        return None if self.result in set(Result) else self.deadline
