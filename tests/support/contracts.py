"""The contracts of machine providers, signal sources and steps, as functions that tests of each call."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Stop
from rebalancer.machines.interruption.model import Step, StepContext
from rebalancer.plan.machines import PipelineOutcome, Result, StepOutcome, StepStatus
from rebalancer.policy.values import is_label_key, is_label_value
from rebalancer.providers.contract import KnownNode, Machines, NodeGroup, NodeTemplate
from rebalancer.signals.model import (
    MAX_RECEIVE,
    FollowedNodes,
    Interruption,
    Receiver,
    SignalSource,
    SourceContext,
)
from rebalancer.testing.contract import ContractError
from rebalancer.wire.quantity import parse, parse_resource

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
    _require(took < MAX_RECEIVE + _SPARE, f"receive took {took:.0f} s")
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


_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")


def check_provider(machines: Machines, nodes: Sequence[KnownNode]) -> list[NodeGroup]:
    """Raise AssertionError if an open provider violates the contract; return its groups.

    ``nodes``: the nodes of a cluster whose machines belong to the provider. All requests only read.
    """
    groups = list(machines.groups(nodes))
    _hold(groups == list(machines.groups(nodes)), "groups are others when they are asked for again")
    _hold(groups == list(machines.groups(list(reversed(nodes)))), "the nodes' order matters")
    names = [group.name for group in groups]
    _hold(len(set(names)) == len(names), f"groups of one name: {names}")
    instances = Counter(instance for group in groups for instance in group.instances)
    twice = [instance for instance, count in instances.items() if count > 1]
    _hold(not twice, f"machines that are in two groups, or twice in one: {twice}")
    for group in groups:
        _hold(
            machines.group_named(group.name, nodes) == group,
            f"{group.name} is another one by its name",
        )
        _check_sizes(group)
        _check_template(group, machines.template(group))
    _hold(machines.group_named("no such group", nodes) is None, "there is a group of any name")
    _hold(
        {group.name for group in machines.groups(())} <= set(names),
        "a cluster without nodes has groups that one with nodes has not",
    )
    return groups


def check_scaling(machines: Machines, nodes: Sequence[KnownNode], name: str) -> None:
    """Raise AssertionError if an open provider that acts violates the contract.

    The group ``name`` gets one machine, and loses one. It needs a machine, and sizes that allow one more and one
    less. Other groups must not change.
    """

    def read() -> tuple[NodeGroup, list[NodeGroup]]:
        groups = list(machines.groups(nodes))
        (mine,) = [group for group in groups if group.name == name]
        return mine, [group for group in groups if group.name != name]

    before, others = read()
    _hold(before.is_sized and bool(before.instances), f"{name} has no sizes, or no machine")
    size = before.desired or 0
    failure = machines.launch_failure(before, 0.0)
    _hold(failure is None or bool(failure.strip()), f"{name}: a launch has failed for no reason")
    _hold(
        isinstance(machines.is_launching(before), bool), f"{name}: whether launches are in progress"
    )
    machines.set_size(before, size + 1)
    larger, still = read()
    _hold(larger.desired == size + 1, f"{name} is to have {larger.desired} machines after set_size")
    ended = before.instances[0]
    machines.terminate(larger, ended)
    after, also = read()
    _hold(ended not in after.instances, f"{name}: {ended} still counts after terminate")
    _hold(after.desired == size, f"{name} is to have {after.desired} machines after terminate")
    limits = {(group.minimum, group.maximum) for group in (before, larger, after)}
    _hold(len(limits) == 1, f"{name}: its minimum or maximum was changed")
    _hold(others == still == also, "other groups were changed")


def _check_sizes(group: NodeGroup) -> None:
    _hold(bool(group.name), "a group has no name")
    _hold(len(set(group.zones)) == len(group.zones), f"{group.name}: zones stand twice")
    for size in (group.minimum, group.maximum, group.desired):
        _hold(size is None or size >= 0, f"{group.name}: a size is negative")
    if group.minimum is not None and group.maximum is not None:
        _hold(group.minimum <= group.maximum, f"{group.name}: its minimum exceeds its maximum")


def _check_template(group: NodeGroup, template: NodeTemplate | None) -> None:
    if template is None:
        return
    for name, amount in template.allocatable.items():
        _hold(parse_resource(name, amount) >= 0, f"{group.name}: {name} is negative")
    lacking = {"cpu", "memory", "pods"} - template.allocatable.keys()
    _hold(not lacking, f"{group.name}: its template says nothing of {sorted(lacking)}")
    _hold(parse(template.allocatable["pods"]) > 0, f"{group.name}: its nodes take no pods")
    for key, value in template.labels.items():
        _hold(is_label_key(key), f"{group.name}: {key!r} is no key of a label")
        _hold(is_label_value(value), f"{group.name}: {value!r} is no value of a label")
    for taint in template.taints:
        _hold(taint.effect in _EFFECTS, f"{group.name}: {taint.effect!r} is no effect of a taint")


def _hold(condition: bool, otherwise: str) -> None:
    if not condition:
        raise AssertionError(otherwise)
