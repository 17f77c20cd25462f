"""The contracts of a signal source and of a step, as functions that plug-in authors call in their tests."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Stop
from rebalancer.machines.interruption.model import Step, StepContext
from rebalancer.plan.machines import PipelineOutcome, Result, StepOutcome, StepStatus
from rebalancer.signals.model import (
    LONGEST_RECEIVE,
    Interruption,
    Receiver,
    SignalSource,
    SourceContext,
)
from rebalancer.signals.nodes import FollowedNodes
from rebalancer.testing.contract import ContractError

_KIND = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z")
_SPARE = 10.0
"""Seconds beyond what is allowed, for a machine that is busy."""
_ROUNDS = 10


def surroundings(name: str = "source", **changes: Any) -> SourceContext:
    """Return a source's context for tests: no nodes, an empty environment, the real time."""
    given = {"environ": {}, "unix": time.time, "nodes": FollowedNodes(list), **changes}
    return SourceContext(name=name, **given)


def check_source(
    source: SignalSource,
    params: Any,
    announce: Callable[[], None],
    machines: Collection[str],
    given: SourceContext | None = None,
) -> Sequence[Interruption]:
    """Check ``source``; return its interruptions of the machines.

    Parameters
    ----------
    announce
        Makes the outside world announce that ``machines`` (names of nodes or instances, or providerIDs) will go; called once.
    given
        The context for the source; by default :func:`surroundings`.

    Raises:
        ContractError: the source violates the contract.
    """
    _require(isinstance(source, SignalSource), "lacks Params or open(params, surroundings)")
    _require(bool((type(source).__doc__ or "").strip()), "its class has no docstring")
    around = surroundings() if given is None else given
    receiver = source.open(params, around)
    _require(isinstance(receiver, Receiver), "open returns no Receiver")
    try:
        announce()
        said = _collect(receiver, machines)
        _check_each(said.values(), around.name)
        for one in said.values():
            receiver.heartbeat(one)
        _check_stopped(receiver)
        _check_done(receiver, list(said.values()))
    finally:
        receiver.close()
    again = source.open(params, around)
    again.close()
    return list(said.values())


def check_step(step: Step, params: Any, context: StepContext) -> StepOutcome:
    """Check that ``step`` may run twice on ``context``; return its second outcome.

    Raises:
        ContractError: the step violates the contract.
    """
    _require(isinstance(step, Step), "lacks Params or act(context, params)")
    _require(bool((type(step).__doc__ or "").strip()), "its class has no docstring")
    first, second = step.act(context, params), step.act(context, params)
    for outcome in (first, second):
        _require(isinstance(outcome, StepOutcome), "act returns no StepOutcome")
        _require("\n" not in outcome.why, "the reason of an outcome is not one line")
        explained = outcome.status is StepStatus.DONE or outcome.why.strip()
        _require(bool(explained), f"{outcome.status} without a reason")
        _require(outcome.status is not StepStatus.RUNNING, "act has ended, and says it has not")
    worse = first.status is StepStatus.DONE and second.status is StepStatus.FAILED
    _require(not worse, f"done the first time, and the second time failed: {second.why}")
    return second


def _collect(receiver: Receiver, machines: Collection[str]) -> dict[str, Interruption]:
    """Return id -> interruption, once every machine has one."""
    said: dict[str, Interruption] = {}
    missing = set(machines)
    for _ in range(_ROUNDS):
        for one in _receive(receiver):
            _check_id(said, one)
            missing -= {one.node, one.instance, one.provider_id}
        if not missing:
            # What is not done may be said again: it is known by its id then.
            for one in receiver.receive(_come()):
                _check_id(said, one)
            return said
    raise ContractError(f"says nothing of {', '.join(sorted(missing))}")


def _check_id(said: dict[str, Interruption], one: Interruption) -> None:
    known = said.setdefault(one.id, one)
    same = (known.machine, known.kind) == (one.machine, one.kind)
    _require(same, f"{one.id} is the id of {known.machine} and of {one.machine}")
    others = [
        other.id
        for other in said.values()
        if (other.machine, other.kind) == (one.machine, one.kind) and other.id != one.id
    ]
    _require(not others, f"{one.id}: the same was said before under another id")


def _come() -> Stop:
    """Return a stop that is already set."""
    signalled = threading.Event()
    signalled.set()
    return Stop(SystemClock(), signalled=signalled)


def _receive(receiver: Receiver) -> Sequence[Interruption]:
    began = time.monotonic()
    said = receiver.receive(Stop(SystemClock()))
    took = time.monotonic() - began
    _require(took < LONGEST_RECEIVE + _SPARE, f"receive took {took:.0f} s")
    return said


def _check_each(said: Collection[Interruption], name: str) -> None:
    for one in said:
        where = one.id or "an interruption"
        _require(bool(one.id.strip()) and one.id.isprintable(), f"{where}: no id")
        _require(one.source == name, f"{where}: its source is {one.source}, and not {name}")
        _require(_KIND.match(one.kind) is not None, f"{where}: {one.kind!r} is no kind")
        _require(bool(one.machine), f"{where}: of no machine")
        _require(one.reason == " ".join(one.reason.split()), f"{where}: its reason is not one line")
        _require(one.deadline is None or 0 < one.deadline < 1e11, f"{where}: no Unix seconds")
        _require(not one.cancelled, f"{where}: is cancelled, though nothing was")


def _check_stopped(receiver: Receiver) -> None:
    """Check that ``receive`` does not wait once its stop is set."""
    began = time.monotonic()
    receiver.receive(_come())
    _require(time.monotonic() - began < _SPARE, "receive goes on after its stop")


def _check_done(receiver: Receiver, said: Sequence[Interruption]) -> None:
    """Check that ``done`` may be called again, and that finished interruptions are not received again."""
    outcome = PipelineOutcome(Result.DONE, {"cordon": StepOutcome(StepStatus.DONE)})
    for one in (*said, *said):
        receiver.done(one, outcome)
    again = {one.id for one in _receive(receiver) if not one.cancelled} & {one.id for one in said}
    _require(not again, f"says again what is done: {', '.join(sorted(again))}")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ContractError(message)
