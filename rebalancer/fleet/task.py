"""One simulation as plain data: the task that a worker gets, and the row or failure that it returns."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Rules(msgspec.Struct, frozen=True):
    """A policy as text, so that workers do not need its file."""

    name: str
    """As the user has named it."""
    text: str
    """The effective policy in YAML, without what the scheduler's configuration says."""
    configuration: str = ""
    """The configuration of kube-scheduler that the policy names, in JSON; empty for none."""


class TaskSetting(msgspec.Struct, frozen=True):
    """How all tasks of a comparison are played."""

    judge: Rules
    """By whose rules the end of every simulation is scored."""
    cycles: int = 20
    lifted: bool = False
    memory: bool = True


class Task(msgspec.Struct, frozen=True):
    """One policy on one snapshot, with landings drawn once."""

    number: int
    """From 0; rows are in the order of the tasks."""
    policy: Rules
    snapshot: str
    """As the user has named it."""
    source: str
    """Where a worker reads it, whatever its working directory."""
    draw: int
    """From 0."""
    seed: tuple[int, ...]
    """Of the landings; the same for all policies of a snapshot and draw."""
    setting: TaskSetting
    content: str = ""
    """A digest of the snapshot's file."""


class LeftByRule(msgspec.Struct, frozen=True):
    """The cost that is left at the end by one rule of the judging policy, per entry."""

    hard: float
    soft: float
    imbalance: float
    unmet: int
    """Rules that are unmet: a constraint of a workload, a node."""
    judged: bool = True
    """False: the strategy could not judge all, because something was not measured."""


class Origin(msgspec.Struct, frozen=True):
    """Where a snapshot comes from, to recognise repeats: two of one cluster in the same state, or taken soon after each other."""

    state: str = ""
    """A digest of the nodes, the pods and where they are; empty: not known."""
    series: str = ""
    """The cluster and the place where its snapshots are kept."""
    at: float = 0.0
    """When the snapshot was taken, in Unix seconds; 0: its file does not say it."""


class Row(msgspec.Struct, frozen=True):
    """The result of one task. It depends on nothing but the task and its snapshot."""

    number: int
    policy: str
    snapshot: str
    draw: int
    nodes: int
    pods: int
    silent: bool
    """Whether no further run would do anything; False: the cycles ended before that, or the memory forbade it."""
    measures: Mapping[str, float]
    """Name of a measure (``rebalancer.fleet.measures``) -> value."""
    left: Mapping[str, LeftByRule]
    """Strategy of the judge -> what it leaves."""
    warnings: tuple[str, ...] = ()
    origin: Origin = Origin()


class Failure(msgspec.Struct, frozen=True):
    """A task that has no result."""

    number: int
    policy: str
    snapshot: str
    draw: int
    error: str
    """One line."""


Result = Row | Failure


def fail(task: Task, error: str) -> Failure:
    """Return the failure of a task."""
    return Failure(task.number, task.policy.name, task.snapshot, task.draw, error)
