"""The data shared by all pipeline runs: the cluster, the clock, and the output of messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Stop
from rebalancer.kube.client import Client
from rebalancer.machines.interruption.kept import KeptTexts
from rebalancer.machines.interruption.model import Step
from rebalancer.policy.interruption import InterruptionPolicy, StepParams


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step of the policy."""

    name: str
    """Of the step; a second one of the same has a number."""
    step: Step
    params: StepParams
    part: timedelta | float | None
    """See ``rebalancer.machines.interruption.parts``."""


def planned_steps(
    policy: InterruptionPolicy, step_named: Callable[[str], Any]
) -> tuple[PlannedStep, ...]:
    """Return the steps of the policy; ``step_named`` returns the plug-in for a name."""
    names: dict[str, int] = {}
    steps = []
    for one in policy.steps:
        names[one.step] = number = names.get(one.step, 0) + 1
        name = one.step if number == 1 else f"{one.step}-{number}"
        steps.append(PlannedStep(name, step_named(one.step), one.params, one.part))
    return tuple(steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineContext:
    """The input of a pipeline run."""

    client: Client
    clock: SystemClock
    environ: Mapping[str, str]
    stop: Stop
    """The process ends, or leads no longer: another one continues from what is recorded on the nodes."""
    steps: tuple[PlannedStep, ...]
    policy: InterruptionPolicy
    kept: KeptTexts
    """What steps keep beside the record on the node."""
    sources: frozenset[str]
    """Names of the sources in the policy: what stands on a node of others is not acted on."""
    plan: Callable[[], None]
    """See StepContext."""
    say: Callable[[str], None]
    """Writes a line to the process's log."""
    write_event: Callable[[str, str], None]
    """Writes an event on the node of a name, with this text."""
