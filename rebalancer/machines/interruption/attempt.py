"""Run one step in its own thread, which is abandoned once its part of the time is over."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace

from rebalancer.base.abandonable import Abandonable
from rebalancer.base.errors import ClusterReadError
from rebalancer.base.stop import Stop
from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeView
from rebalancer.machines.interruption.model import StepContext, failed, timed_out
from rebalancer.machines.interruption.pipeline import PipelineContext, PlannedStep
from rebalancer.machines.interruption.record import Record, Wanted, patiently
from rebalancer.plan.machines import StepOutcome
from rebalancer.signals.model import Interruption, SignalError

_GOODBYE = 1.0
"""Seconds for a step to say how far it came, once its part of the time is over."""
_LONGEST_KEPT = 8 * 1024
"""Characters that a step may keep."""


def attempt(
    pipeline: PipelineContext,
    planned: PlannedStep,
    stop: Stop,
    act: Callable[[Client], StepOutcome],
    seconds: float,
) -> StepOutcome:
    """Return the outcome of ``act``; if ``stop`` comes first, abandon it and return why.

    ``seconds``: its part of the time, for the message.
    """

    def acting() -> StepOutcome:
        client = pipeline.client.beside(stop)
        try:
            return act(client)
        except (ClusterReadError, SignalError) as error:
            why = " ".join(str(error).split())
            return failed(why) if stop.reason() is None else timed_out(why)
        except Exception as error:  # noqa: BLE001  # a plug-in's error must not keep the next step from its turn
            pipeline.say(f"step {planned.name}: {type(error).__name__}: {error}")
            return failed(f"{type(error).__name__}: an error of the step")
        finally:
            client.close()

    task = Abandonable(acting, name=f"step-{planned.name}")
    stop.sooner(math.inf, task.done).wait(math.inf)
    if task.done.wait(_GOODBYE):
        return task.result()
    return timed_out(f"it did not end in its {seconds:.0f} s, and is left alone")


def context_of(
    pipeline: PipelineContext,
    planned: PlannedStep,
    record: Record,
    interruption: Interruption,
    client: Client,
    stop: Stop,
    outcomes: Mapping[str, StepOutcome],
) -> StepContext:
    """Return the context for a step, which includes the most urgent interruption of its machine."""

    def change(wanted: Wanted, left: str) -> NodeView | None:
        _require_short(left)
        return patiently(lambda: record.change(client, (planned.name, left), wanted), stop)

    apart, machine = planned.params.keeps, interruption.instance

    def keep(left: str) -> None:
        _require_short(left)
        if apart:
            patiently(lambda: pipeline.kept.keep(client, machine, planned.name, left), stop)
            return
        record.keep(planned.name, left)
        patiently(lambda: record.write(client), stop)

    return StepContext(
        interruption=replace(interruption, token=None),
        node=record.node,
        instance=interruption.instance,
        deadline=interruption.deadline,
        stop=stop,
        client=client,
        environ=pipeline.environ,
        unix=pipeline.clock.unix,
        outcomes=outcomes,
        left=pipeline.kept.of(client, machine, planned.name)
        if apart
        else record.left(planned.name),
        keep=keep,
        change=change,
        idempotency_key=_idempotency_key(
            record.node or interruption.instance, record.state.begun, planned.name
        ),
        plan=pipeline.plan,
    )


def _idempotency_key(machine: str, begun: float, step: str) -> str:
    """Return a key for a step in the pipeline run of ``machine`` that started at ``begun`` (Unix seconds).

    An event's id is not sufficient: a taint that is removed and set again has the same id, and must be handled
    again.
    """
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"kube-rebalancer/{machine}/{begun!r}/{step}"))


def _require_short(left: str) -> None:
    if len(left) > _LONGEST_KEPT:
        raise SignalError(f"a step may keep {_LONGEST_KEPT} characters, not {len(left)}")
