"""Scale-in: from the first time a node could go to the end of its machine, one step after the other.

All that is known from run to run stands on the node (``rebalancer.wire.scale_in``). Each step is one write, after which the
process may be killed: the next run reads what stands there, and goes on.

    could go        -> unneeded: since when is noted, and taken away once it cannot go any more
    long enough     -> leaving: cordoned, tainted; the planner moves its pods, by the strategy's term
    empty           -> ending: its machine is ended, its group smaller by one; the Node is the cloud controller's affair
    cannot go after all, or not in time -> given back: open again, as far as it was us who closed it

The order, the times and what keeps a node are those of Cluster Autoscaler (``core/scaledown``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Protocol

import msgspec

from rebalancer.base.durations import format_duration
from rebalancer.base.errors import ClusterReadError, ProviderError, ProviderRefusalError
from rebalancer.capacity.codes import RemovalCode, ScaleInCode
from rebalancer.capacity.removal import NodeRemoval
from rebalancer.capacity.scaling import ScalerContext
from rebalancer.capacity.writing import enter_ending, left_on, write_state
from rebalancer.kube.client import Client
from rebalancer.plan.machines import ActStatus, MachineAct
from rebalancer.providers.contract import NodeGroup
from rebalancer.providers.guarded import GroupSizeError
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.scale_in import scale_ins, with_scale_ins
from rebalancer.wire.scale_in import GOING, Phase, ScaleIn
from rebalancer.wire.times import rfc3339, unix_seconds

_NOTED_AT_ONCE = 50
"""Most nodes of which one run notes that they could go: each is a write."""
_CLOSED = 5.0
"""Seconds for which a node must have been closed before it counts as empty: the scheduler may have chosen it just before."""
_SETTLED = timedelta(minutes=1)
"""Until a machine whose end was asked for is sure to be known as such: DescribeAutoScalingGroups may lag behind."""

_AHEAD = 60.0
"""Seconds by which a time may be ahead: the clocks of API servers differ."""


class ScaleInOptions(Protocol):
    """The options that a strategy of ``scales: in`` has."""

    unneeded_for: timedelta
    unready_for: timedelta
    at_once: int
    draining_at_once: int
    give_up_after: timedelta
    cool_down_after_growth: timedelta
    cool_down_after_failure: timedelta


class NodeScaleIn:
    """Takes nodes out; see :class:`rebalancer.capacity.scaling.Scaler`."""

    def __init__(self, context: ScalerContext) -> None:
        self._context, self._params = context, _options(context)
        self._snapshot = context.report.snapshot
        self._now = context.now()
        self._states: dict[int, ScaleIn] = scale_ins(self._snapshot.nodes)
        self._changed: dict[int, ScaleIn | None] = {}
        """What was written on nodes, or would be."""
        self._removal = {one.node: one for one in context.report.nodes}

    def seen(self, snapshot: Snapshot) -> Snapshot:
        """See Reshaping: closed nodes are closed for the plan, also in a dry run."""
        acts = self._context.suspended is None or self._context.dry
        return with_scale_ins(snapshot, self._changed) if acts else snapshot

    # -- before the plan ---------------------------------------------------------------------------

    def before(self) -> Iterator[MachineAct]:
        """Look at each node again, note which could go, and close those that could for long enough."""
        for node, state in list(self._states.items()):
            yield from self._again(node, state)
        new = [node for node, of in self._removal.items() if of.goes and node not in self._states]
        for node in sorted(new, key=lambda node: not self._is_empty(node))[:_NOTED_AT_ONCE]:
            yield from self._noted(node, self._removal[node])
        yield from self._taken_out()

    def _again(self, node: int, state: ScaleIn) -> Iterator[MachineAct]:
        removal = self._removal[node]
        match state.phase:
            case Phase.UNNEEDED if not removal.goes:
                yield self._write(node, None, ScaleInCode.NEEDED, removal.message)
            case Phase.UNNEEDED:
                yield from self._noted(node, removal, state)
            case Phase.FAILED if self._passed(state.at, self._params.cool_down_after_failure):
                yield self._write(node, None, ScaleInCode.COOLING_DOWN, "its cool-down is over")
            case Phase.LEAVING | Phase.ENDING if not self._snapshot.nodes.unschedulable[node]:
                yield self._given_back(node, "another client has uncordoned it")
            case Phase.LEAVING if not self._may_go(node):
                yield self._given_back(node, f"it cannot go any more: {removal.message}")
            case Phase.ENDING if self._passed(state.at, _SETTLED) and self._group(node) is not None:
                yield self._not_ended(node, state)
            case _:
                pass

    def _not_ended(self, node: int, state: ScaleIn) -> MachineAct:
        """Have the next run judge a node again whose machine should have ended; the second time it is given back."""
        text = f"its machine was to be ended at {state.at}, and is still there"
        if state.why:
            return self._given_back(node, text, failed=True)
        again = msgspec.structs.replace(
            state, phase=Phase.LEAVING, at=rfc3339(self._now), by=self._context.by, why=text
        )
        return self._write(node, again, ScaleInCode.EMPTYING, text)

    def _may_go(self, node: int) -> bool:
        """Return whether nothing is known that keeps a node; one in no group is waited for: the provider may lag behind."""
        removal = self._removal[node]
        return removal.goes or removal.code is RemovalCode.NO_GROUP

    def _noted(
        self, node: int, removal: NodeRemoval, state: ScaleIn | None = None
    ) -> Iterator[MachineAct]:
        """Note since when a node could go. What was seen last must not be longer ago than it takes: runs may have paused."""
        at, needed = rfc3339(self._now), self._needed_for(node)
        if state is None or self._passed(state.at, needed):
            fresh = ScaleIn(Phase.UNNEEDED, at, at, self._context.by)
            text = f"{removal.message}; it is taken out if that lasts {format_duration(needed)}"
            if state is not None:
                text += f" from now on: no run has looked since {state.at}"
            yield self._write(node, fresh, ScaleInCode.UNNEEDED, text)
        elif self._passed(state.at, needed / 2):
            # Written only now and then: every run would be many writes for nothing.
            later = msgspec.structs.replace(state, at=at)
            act = self._write(node, later, ScaleInCode.UNNEEDED, "")
            if act.status is ActStatus.FAILED:
                yield act
        if state is not None and not self._is_due(node):
            text = f"since {state.since}; it is taken out if that lasts {format_duration(needed)}"
            yield self._act(node, ScaleInCode.UNNEEDED, ActStatus.WAITS, text)

    def _taken_out(self) -> Iterator[MachineAct]:
        """Close as many of the nodes that are due as may be on their way at once, the empty ones first."""
        due = sorted(
            filter(self._is_due, self._states),
            key=lambda node: (not self._is_empty(node), self._states[node].since, node),
        )
        for node in due:
            if (cooling := self._cooling(node)) is not None:
                yield self._act(node, ScaleInCode.COOLING_DOWN, ActStatus.WAITS, cooling)
            elif (full := self._full(node)) is not None:
                yield self._act(node, ScaleInCode.ENOUGH_AT_ONCE, ActStatus.WAITS, full)
            else:
                yield self._closed(node)

    def _closed(self, node: int) -> MachineAct:
        removal, state = self._removal[node], self._states[node]
        leaving = msgspec.structs.replace(
            state, phase=Phase.LEAVING, at=rfc3339(self._now), by=self._context.by
        )
        return self._write(
            node, leaving, ScaleInCode.TAKEN_OUT, f"since {state.since}: {removal.message}"
        )

    def _is_due(self, node: int) -> bool:
        state = self._states.get(node)
        return (
            state is not None
            and state.phase is Phase.UNNEEDED
            and self._removal[node].goes
            and self._passed(state.since, self._needed_for(node))
        )

    def _needed_for(self, node: int) -> timedelta:
        ready = self._snapshot.nodes.ready[node]
        return self._params.unneeded_for if ready else self._params.unready_for

    def _is_empty(self, node: int) -> bool:
        return self._removal[node].code is RemovalCode.EMPTY

    def _full(self, node: int) -> str | None:
        """Return which limit of nodes on their way is reached for one more, None if none is."""
        going = [one for one, state in self._states.items() if state.phase in GOING]
        if len(going) >= self._params.at_once:
            return f"{len(going)} nodes are on their way out, and atOnce is {self._params.at_once}"
        draining = [one for one in going if not self._is_empty(one)]
        if not self._is_empty(node) and len(draining) >= self._params.draining_at_once:
            most = self._params.draining_at_once
            return f"pods leave {len(draining)} nodes, and drainingAtOnce is {most}"
        return None

    def _cooling(self, node: int) -> str | None:
        """Return why a node is not taken out for now, None if it may be.

        By what stands in the cluster and at the provider: the youngest node, machines on their way, and failures on nodes.
        """
        groups, after = self._context.report.groups, self._params.cool_down_after_growth
        group = groups.group_of(node)
        desired = 0 if group is None or not after else group.desired or 0
        if group is not None and len(group.instances) < desired:
            return f"{group.name} has {len(group.instances)} of {desired} machines"
        names, created = self._snapshot.nodes.names, self._snapshot.nodes.created
        youngest = max(groups.of_node, key=lambda one: (created[one], one), default=None)
        if youngest is not None and self._now - created[youngest] < after.total_seconds():
            return f"{names[youngest]} has joined less than {format_duration(after)} ago"
        for one, state in self._states.items():
            if state.phase is Phase.FAILED:
                return f"{names[one]} had to be given back at {state.at}"
        return None

    # -- once pods were moved ----------------------------------------------------------------------

    def after(self) -> Iterator[MachineAct]:
        """End the machines of the nodes that are empty."""
        for node, state in list(self._states.items()):
            if state.phase in GOING and self._context.stop.reason() is None:
                ending = state.phase is Phase.ENDING
                yield self._ending(node, state) if ending else self._ended(node, state)

    def _ending(self, node: int, state: ScaleIn) -> MachineAct:
        text = f"its machine was to be ended at {state.at}: whether it is, is seen later"
        if self._group(node) is None:
            text = f"its machine was ended at {state.at}: the cloud controller removes the node"
        return self._act(node, ScaleInCode.ENDING, ActStatus.WAITS, text)

    def _ended(self, node: int, state: ScaleIn) -> MachineAct:
        client = self._context.client
        if self._context.suspended is not None or client is None:
            text = f"its pods leave since {state.at} ({self._context.suspended})"
            return self._act(node, ScaleInCode.EMPTYING, ActStatus.PLANNED, text)
        if not self._may_go(node):
            text = "whether it can go is judged by the next run"
            return self._act(node, ScaleInCode.EMPTYING, ActStatus.WAITS, text)
        if self._age(state.at, self._context.now()) < _CLOSED:
            text = f"closed at {state.at}: a pod may be on its way to it"
            return self._act(node, ScaleInCode.EMPTYING, ActStatus.WAITS, text)
        group = self._group(node)
        try:
            left = left_on(
                client,
                self._snapshot.nodes.names[node],
                clock=self._context.now,
                version=self._snapshot.version,
                ready=bool(self._snapshot.nodes.ready[node]),
            )
            if left:
                return self._emptying(node, state, left)
            if group is None:
                return self._emptying(node, state, "its machine is in no group of the provider")
            return self._terminated(client, node, state, group)
        except (ClusterReadError, ProviderError) as error:
            return self._act(node, ScaleInCode.FAILED, ActStatus.FAILED, str(error))

    def _emptying(self, node: int, state: ScaleIn, left: str) -> MachineAct:
        after = self._params.give_up_after
        if self._passed(state.at, after):
            return self._given_back(
                node, f"not empty after {format_duration(after)}: {left}", failed=True
            )
        return self._act(node, ScaleInCode.EMPTYING, ActStatus.WAITS, left)

    def _terminated(
        self, client: Client, node: int, state: ScaleIn, group: NodeGroup
    ) -> MachineAct:
        """End the machine of an empty node: first that is written, so that a kill in between gives nothing back."""
        name, context = self._snapshot.nodes.names[node], self._context
        ending = msgspec.structs.replace(
            state, phase=Phase.ENDING, at=rfc3339(context.now()), by=context.by
        )
        if (why := enter_ending(client, name, ending)) is not None:
            return self._given_back(node, why)
        self._states[node] = ending
        if (stopped := context.stop.reason()) is not None:
            return self._act(node, ScaleInCode.ENDING, ActStatus.WAITS, stopped)
        instance = self._snapshot.nodes.provider_id[node] or name
        try:
            asked = context.guarded.terminate(group.name, instance)
        except GroupSizeError as error:
            return self._given_back(node, str(error))
        except ProviderRefusalError as error:
            # Where a reply was lost it may have been done all the same: what ends is not opened again.
            return self._given_back(node, str(error), failed=True)
        if not asked:
            text = f"its machine has left {group.name}: the cloud controller removes the node"
            return self._act(node, ScaleInCode.ENDING, ActStatus.WAITS, text)
        text = f"{instance} is ended, and {group.name} is to have one machine less"
        return self._act(node, ScaleInCode.TERMINATED, ActStatus.DONE, text)

    # -- what is written ---------------------------------------------------------------------------

    def _given_back(self, node: int, why: str, *, failed: bool = False) -> MachineAct:
        """Open a node again; after a failure nothing is taken out for a while."""
        at = rfc3339(self._context.now())
        left = ScaleIn(Phase.FAILED, at, at, self._context.by, why=why) if failed else None
        code = ScaleInCode.FAILED if failed else ScaleInCode.GIVEN_BACK
        act = self._write(node, left, code, why)
        if failed and act.status is ActStatus.DONE:
            return replace(act, status=ActStatus.FAILED)
        return act

    def _write(self, node: int, state: ScaleIn | None, code: ScaleInCode, text: str) -> MachineAct:
        """Have this stand on a node, with the cordon and the taint that go with it, where the scaler acts."""
        client, before = self._context.client, self._states.get(node)
        if self._context.suspended is not None or client is None:
            status, text = ActStatus.PLANNED, f"{text} ({self._context.suspended})"
        else:
            name, status = self._snapshot.nodes.names[node], ActStatus.DONE
            try:
                after = None if before is None else before.phase
                written = write_state(client, name, state, after)
            except ClusterReadError as error:
                return self._act(node, ScaleInCode.FAILED, ActStatus.FAILED, str(error))
            if written is None and (state is not None or before is not None):
                gone = "the node is gone, or another client has changed what stands on it"
                return self._act(node, code, ActStatus.WAITS, gone)
            state = written if state is not None else None
        self._changed[node] = state
        if state is None:
            self._states.pop(node, None)
        else:
            self._states[node] = state
        return self._act(node, code, status, text)

    def _act(self, node: int, code: ScaleInCode, status: ActStatus, text: str) -> MachineAct:
        group = self._group(node)
        return MachineAct(
            strategy=self._context.strategy,
            code=code.value,
            status=status,
            group="" if group is None else group.name,
            node=self._snapshot.nodes.names[node],
            message=text,
        )

    def _group(self, node: int) -> NodeGroup | None:
        return self._context.report.groups.group_of(node)

    def _passed(self, since: str, time: timedelta) -> bool:
        return self._age(since, self._now) >= time.total_seconds()

    @staticmethod
    def _age(at: str, now: float) -> float:
        """Return the seconds since a time; one that is yet to come is none of ours, and would hold its node for ever."""
        age = now - unix_seconds(at)
        return age if age >= -_AHEAD else math.inf


def _options(context: ScalerContext) -> ScaleInOptions:
    options: ScaleInOptions = context.params
    return options
