"""Scale-in: the steps from noticing that a node is unneeded to terminating its machine.

How long a node is unneeded, and which scale-in has failed, the process remembers (:class:`ScaleInMemory`): after a
restart both begin again. What must outlast it is the record on a node that is closed (``rebalancer.wire.marks``).
Each of its steps is one write, after which the process may be killed: the next one reads the record and continues.

    can be removed for long enough
          -> leaving: cordoned, tainted; the planner moves its pods, by the strategy's term
    empty -> ending: its machine is terminated, its group smaller by one; the cloud controller removes the Node
    needed again, or not empty in time -> cancelled: untainted, and uncordoned if it was us who cordoned it

The order, the times and the obstacles are those of Cluster Autoscaler (``core/scaledown``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import NamedTuple, Protocol

import msgspec

from rebalancer.base.durations import format_duration
from rebalancer.base.errors import ClusterReadError, ProviderError, ProviderRefusalError
from rebalancer.kube.client import Client
from rebalancer.machines.capacity.removal import NodeRemoval
from rebalancer.machines.capacity.scaling import Scaler, ScalerContext
from rebalancer.machines.capacity.writing import change_state
from rebalancer.machines.drain.remaining import EXCLUDED, MAX_DELAY, delay_of, describe_remaining
from rebalancer.machines.reasons import (
    NodeStays,
    Reason,
    RemovalCode,
    ScaleInCode,
    ScaleInWaits,
)
from rebalancer.node_record.tasks import GONE, OPENED
from rebalancer.plan.machines import ActStatus, MachineAct
from rebalancer.providers.contract import GroupSizeError, NodeGroup
from rebalancer.snapshot.marks import scale_ins, with_scale_ins
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.marks import Phase, ScaleInRecord
from rebalancer.wire.times import rfc3339, unix_seconds

_AHEAD = 60.0
"""Seconds by which a time may be ahead: the clocks of API servers differ."""


class ScaleInOptions(Protocol):
    """The options of a strategy with ``scales: in``."""

    unneeded_for: timedelta
    unready_for: timedelta
    at_once: int
    draining_at_once: int
    give_up_after: timedelta
    cool_down_after_growth: timedelta
    cool_down_after_failure: timedelta


class Unneeded(NamedTuple):
    """A node that can be removed; times are Unix seconds."""

    since: float
    """The time since which it can be removed without a break."""
    seen: float
    """The time of the last look at which it could be removed."""


class Failed(NamedTuple):
    """A node whose scale-in has failed."""

    at: float
    """Unix seconds of the last time."""
    times: int
    """The number of failures since it was needed last."""


@dataclass(slots=True)
class ScaleInMemory:
    """A process's memory of nodes from its earlier runs, by their uid."""

    unneeded: dict[str, Unneeded] = field(default_factory=dict)
    failed: dict[str, Failed] = field(default_factory=dict)

    def forget_gone(self, snapshot: Snapshot) -> None:
        """Forget the nodes that are gone."""
        for known in (self.unneeded, self.failed):
            for uid in known.keys() - {*snapshot.nodes.uid}:
                del known[uid]


class ScaleInNodes:
    """The nodes as scale-in knows them: the record on each, and what is remembered."""

    def __init__(self, context: ScalerContext) -> None:
        self.context = context
        self.options: ScaleInOptions = context.params
        self.memory: ScaleInMemory = context.scale_in
        self.snapshot = context.report.snapshot
        self.now = context.now()
        """When the run began, in Unix seconds."""
        standing = scale_ins(self.snapshot.nodes)
        self.others = {node for node, state in standing.items() if self._is_anothers(state)}
        """The nodes that another release removes: nothing is written on them."""
        self.states: dict[int, ScaleInRecord] = {
            node: state for node, state in standing.items() if node not in self.others
        }
        self.changed: dict[int, ScaleInRecord | None] = {}
        """What was written on nodes; in a dry run, what would be."""
        self.removal: dict[int, NodeRemoval] = {one.node: one for one in context.report.nodes}

    # -- what is known of a node -------------------------------------------------------------------

    def name(self, node: int) -> str:
        """Return the name of a node."""
        return self.snapshot.nodes.names[node]

    def uid(self, node: int) -> str:
        """Return the uid of a node."""
        return self.snapshot.nodes.uid[node]

    def _is_anothers(self, state: ScaleInRecord) -> bool:
        """Return whether another release is removing a node; what is long overdue is anybody's."""
        ours, longest = self.context.release, max(self.options.give_up_after, _ACCEPTED_UNREADY)
        differs = "" not in (ours, state.release) and state.release != ours
        return differs and not self.is_past(state.at, 2 * longest)

    def group(self, node: int) -> NodeGroup | None:
        """Return the group of a node; None if it is in none."""
        return self.context.report.groups.group_of(node)

    def is_empty(self, node: int) -> bool:
        """Return whether all pods on a node are bound to it."""
        return self.removal[node].code is RemovalCode.EMPTY

    def may_go_on(self, node: int) -> bool:
        """Return whether the scale-in of a node may continue; True without a group: the provider may lag behind."""
        removal = self.removal[node]
        return removal.removable or removal.code is RemovalCode.NO_GROUP

    def unneeded_time(self, node: int) -> timedelta:
        """Return for how long a node must be unneeded before it is removed; its group may set the time itself."""
        own, options = self.context.report.groups.options_of(node), self.options
        if self.snapshot.nodes.ready[node]:
            return options.unneeded_for if own.unneeded_for is None else own.unneeded_for
        return options.unready_for if own.unready_for is None else own.unready_for

    def is_past(self, since: str, time: timedelta) -> bool:
        """Return whether ``time`` has passed since ``since``."""
        return age(since, self.now) >= time.total_seconds()

    def pause_of(self, node: int) -> float | None:
        """Return until when a node is left alone because its scale-in has failed; None if it is not."""
        failed = self.memory.failed.get(self.uid(node))
        if failed is None:
            return None
        pause = max(
            self.options.cool_down_after_failure, _PAUSES[min(failed.times, len(_PAUSES)) - 1]
        )
        until = failed.at + pause.total_seconds()
        return until if failed.at <= self.now < until else None

    # -- what is done with it ----------------------------------------------------------------------

    def cancel(self, node: int, why: Reason[ScaleInCode]) -> MachineAct:
        """Cancel the scale-in of a node: remove the taint, and our cordon; a failure starts a cool-down."""
        act = self.write(node, None, why, gives_back=True)
        if why.code is ScaleInCode.FAILED and act.status is ActStatus.DONE:
            before = self.memory.failed.get(self.uid(node), Failed(0, 0))
            self.memory.failed[self.uid(node)] = Failed(
                math.floor(self.context.now()), before.times + 1
            )
            return replace(act, status=ActStatus.FAILED)
        return act

    def write(
        self,
        node: int,
        state: ScaleInRecord | None,
        why: Reason[ScaleInCode],
        *,
        gives_back: bool = False,
    ) -> MachineAct:
        """Write a record on a node, with the cordon and taint that go with it, if the scaler acts.

        ``gives_back``: the change restores capacity, see ScalerContext.
        """
        context = self.context
        client, before = context.client, self.states.get(node)
        suspended = context.suspended is not None and not (gives_back and context.gives_back)
        if suspended or client is None:
            status = ActStatus.PLANNED
        else:
            status = ActStatus.DONE
            try:
                after = None if before is None else before.phase
                written = change_state(client, self.name(node), state, after)
            except ClusterReadError as error:
                return self.act(node, ActStatus.FAILED, Reason(ScaleInCode.FAILED, str(error)))
            if written.why_not is not None:
                return self.act(node, ActStatus.WAITS, why._replace(message=written.why_not))
            state = written.record
            context.show(self.name(node))
        if status is ActStatus.DONE or context.dry:
            self.changed[node] = state
        if state is None:
            self.states.pop(node, None)
        else:
            self.states[node] = state
        return self.act(node, status, why)

    def act(self, node: int, status: ActStatus, why: Reason[ScaleInCode]) -> MachineAct:
        """Return an act on a node as data; one that is only planned names what suspends it."""
        planned = f" ({self.context.suspended})" if status is ActStatus.PLANNED else ""
        group = self.group(node)
        return MachineAct(
            strategy=self.context.strategy,
            code=why.code.value,
            status=status,
            group="" if group is None else group.name,
            node=self.name(node),
            message=f"{why.message}{planned}",
        )


def age(at: str, now: float) -> float:
    """Return the seconds since a time. A time in the future is not ours and is treated as very old."""
    seconds = now - unix_seconds(at)
    return seconds if seconds >= -_AHEAD else math.inf


def note_unneeded(nodes: ScaleInNodes) -> Iterator[MachineAct]:
    """Note since when nodes can be removed, and forget those that are needed; empty ones first.

    Where the scaler is suspended, nothing new is noted. The time starts again after a long pause between runs.
    """
    nodes.memory.forget_gone(nodes.snapshot)
    open_ = [node for node in nodes.removal if node not in nodes.states.keys() | nodes.others]
    for node in sorted(open_, key=lambda node: not nodes.is_empty(node)):
        removal = nodes.removal[node]
        if removal.removable and nodes.pause_of(node) is None:
            yield from _note(nodes, node)
        elif not removal.removable and removal.code is not RemovalCode.NO_GROUP:
            if nodes.pause_of(node) is None:
                nodes.memory.failed.pop(nodes.uid(node), None)
            if nodes.memory.unneeded.pop(nodes.uid(node), None) is not None:
                why = Reason(ScaleInCode.NEEDED, removal.message)
                yield nodes.act(node, ActStatus.DONE, why)


def _note(nodes: ScaleInNodes, node: int) -> Iterator[MachineAct]:
    now, uid, needed = nodes.now, nodes.uid(node), nodes.unneeded_time(node)
    before, suspended = nodes.memory.unneeded.get(uid), nodes.context.suspended
    status, time = ActStatus.WAITS, format_duration(needed)
    why = ScaleInWaits.UNNEEDED.of(why=nodes.removal[node].message, time=time)
    # The time is the API server's, estimated anew by each run: it may go back a little.
    if before is not None and abs(now - before.seen) <= needed.total_seconds():
        why = ScaleInWaits.UNNEEDED_SINCE.of(since=rfc3339(before.since), time=time)
        nodes.memory.unneeded[uid] = before._replace(seen=now)
    elif suspended is None:
        status = ActStatus.DONE
        nodes.memory.unneeded[uid] = Unneeded(math.floor(now), now)
    if suspended is not None:
        status = ActStatus.PLANNED
    if not _is_due(nodes, node):
        yield nodes.act(node, status, why)


def start_draining(nodes: ScaleInNodes) -> Iterator[MachineAct]:
    """Cordon and taint as many of the due nodes as may be removed at once, empty ones first."""
    known = nodes.memory.unneeded
    due = sorted(
        (node for node in nodes.removal if _is_due(nodes, node)),
        key=lambda node: (not nodes.is_empty(node), known[nodes.uid(node)].since, node),
    )
    for node in due:
        why = _cool_down(nodes, node) or _at_limit(nodes, node)
        yield _cordon(nodes, node) if why is None else nodes.act(node, ActStatus.WAITS, why)


def _cordon(nodes: ScaleInNodes, node: int) -> MachineAct:
    context, since = nodes.context, rfc3339(nodes.memory.unneeded[nodes.uid(node)].since)
    leaving = ScaleInRecord(
        Phase.LEAVING, since, rfc3339(nodes.now), context.by, release=context.release
    )
    why = ScaleInWaits.STARTED.of(since=since, why=nodes.removal[node].message)
    act = nodes.write(node, leaving, why)
    if act.status is ActStatus.DONE:
        # Once it is given back, it must last again.
        nodes.memory.unneeded.pop(nodes.uid(node), None)
    return act


def _is_due(nodes: ScaleInNodes, node: int) -> bool:
    known = nodes.memory.unneeded.get(nodes.uid(node))
    return (
        known is not None
        and node not in nodes.states.keys() | nodes.others
        and nodes.removal[node].removable
        and nodes.now - known.since >= nodes.unneeded_time(node).total_seconds()
    )


def _at_limit(nodes: ScaleInNodes, node: int) -> Reason[ScaleInCode] | None:
    """Return which limit on concurrent removals forbids one more; None if none does."""
    options = nodes.options
    going = list(nodes.states)
    if len(going) >= options.at_once:
        return ScaleInWaits.AT_ONCE.of(number=len(going), most=options.at_once)
    draining = [one for one in going if not nodes.is_empty(one)]
    if not nodes.is_empty(node) and len(draining) >= options.draining_at_once:
        most = options.draining_at_once
        return ScaleInWaits.DRAINING_AT_ONCE.of(number=len(draining), most=most)
    return None


def _cool_down(nodes: ScaleInNodes, node: int) -> Reason[ScaleInCode] | None:
    """Return why a node must not be drained for now; None if it may be.

    Judged by the cluster and the provider: the youngest node, upcoming machines, and failures on nodes.
    """
    groups, after = nodes.context.report.groups, nodes.options.cool_down_after_growth
    group = groups.group_of(node)
    desired = 0 if group is None or not after else group.desired or 0
    if group is not None and len(group.instances) < desired:
        have = len(group.instances)
        return ScaleInWaits.MACHINES_COME.of(group=group.name, have=have, desired=desired)
    names, created = nodes.snapshot.nodes.names, nodes.snapshot.nodes.created
    youngest = max(groups.of_node, key=lambda one: (created[one], one), default=None)
    if youngest is not None and nodes.now - created[youngest] < after.total_seconds():
        return ScaleInWaits.NODE_JOINED.of(node=names[youngest], time=format_duration(after))
    pause = nodes.options.cool_down_after_failure.total_seconds()
    for one, name in enumerate(names):
        failed = nodes.memory.failed.get(nodes.uid(one))
        if failed is not None and 0 <= nodes.now - failed.at < pause:
            return ScaleInWaits.NODE_FAILED.of(node=name, at=rfc3339(failed.at))
    return None


_PAUSES = tuple(timedelta(minutes=minutes) for minutes in (0, 10, 20, 60))
"""For how long a node is left alone after its scale-in has failed, the first time and the next ones; a cool-down at least."""

_CORDONED = 5.0
"""Seconds for which a node must be cordoned before it counts as empty: the scheduler may have chosen it just before."""
_LATEST = 20.0
"""Seconds after the note on the node within which the request is sent, or not at all; sending it takes up to 13 more."""
_SETTLED = timedelta(minutes=1)
"""Until a machine whose termination was requested, without an answer, is known as such: DescribeAutoScalingGroups may lag behind."""
_ACCEPTED, _ACCEPTED_UNREADY = timedelta(minutes=10), timedelta(hours=1)
"""The same after the provider has accepted the request, of a node that is Ready, and of one that is not: it is ending."""


def terminate_if_empty(nodes: ScaleInNodes, node: int, state: ScaleInRecord) -> MachineAct:
    """Terminate the machine of a draining node if all pods on it are bound to the node."""
    context, client = nodes.context, nodes.context.client
    if context.suspended is not None or client is None:
        after = nodes.options.give_up_after
        if nodes.is_past(state.at, after):
            time, why_not = format_duration(after), context.suspended
            return nodes.cancel(node, ScaleInWaits.NOT_REMOVED.of(time=time, why=why_not))
        return nodes.act(node, ActStatus.PLANNED, ScaleInWaits.SUSPENDED.of(at=state.at))
    if not nodes.may_go_on(node):
        return nodes.act(node, ActStatus.WAITS, ScaleInWaits.JUDGED_LATER.of())
    if age(state.at, context.now()) < (EXCLUDED if state.excluded else _CORDONED):
        return nodes.act(node, ActStatus.WAITS, ScaleInWaits.JUST_CLOSED.of(at=state.at))
    group = nodes.group(node)
    try:
        left = describe_remaining(
            client,
            nodes.name(node),
            clock=context.now,
            version=nodes.snapshot.version,
            ready=bool(nodes.snapshot.nodes.ready[node]),
        )
        if left:
            return _emptying(nodes, node, state, left)
        if group is None:
            return _emptying(nodes, node, state, NodeStays.NO_GROUP.sentence)
        why = delay_of(client, nodes.name(node), context.warn)
        waits = None if why is None else _delay(nodes, node, state, why)
        return waits or _terminate(client, nodes, node, state, group, why)
    except (ClusterReadError, ProviderError) as error:
        return nodes.act(node, ActStatus.FAILED, Reason(ScaleInCode.FAILED, str(error)))


def _delay(nodes: ScaleInNodes, node: int, state: ScaleInRecord, why: str) -> MachineAct | None:
    """Return the act by which an empty node waits, because of ``why``; None once it has waited for long."""
    delayed = ScaleInWaits.DELAYED.of(why=why)
    if not state.empty:
        seen = msgspec.structs.replace(state, empty=rfc3339(nodes.context.now()))
        return nodes.write(node, seen, delayed)
    if age(state.empty, nodes.context.now()) >= MAX_DELAY:
        return None
    return nodes.act(node, ActStatus.WAITS, delayed)


def terminating(nodes: ScaleInNodes, node: int, state: ScaleInRecord) -> MachineAct:
    """Return the progress of a node whose machine is being terminated."""
    row = ScaleInWaits.ENDED if nodes.group(node) is None else ScaleInWaits.ENDING
    return nodes.act(node, ActStatus.WAITS, row.of(at=state.at))


def is_overdue(nodes: ScaleInNodes, node: int, state: ScaleInRecord) -> bool:
    """Return whether a machine is still in its group long after its termination was requested."""
    time = _SETTLED
    if state.accepted:
        time = _ACCEPTED if nodes.snapshot.nodes.ready[node] else _ACCEPTED_UNREADY
    return nodes.is_past(state.accepted or state.at, time) and nodes.group(node) is not None


def try_again(nodes: ScaleInNodes, node: int, state: ScaleInRecord) -> MachineAct:
    """Let the next run judge a node again whose machine should be gone; at the second time its scale-in has failed."""
    why = ScaleInWaits.STILL_THERE.of(at=state.at)
    if state.why:
        return nodes.cancel(node, why._replace(code=ScaleInCode.FAILED))
    again = msgspec.structs.replace(
        state,
        phase=Phase.LEAVING,
        at=rfc3339(nodes.now),
        by=nodes.context.by,
        why=why.message,
        accepted="",
    )
    return nodes.write(node, again, why, gives_back=True)


def _emptying(nodes: ScaleInNodes, node: int, state: ScaleInRecord, left: str) -> MachineAct:
    after = nodes.options.give_up_after
    if nodes.is_past(state.at, after):
        time = format_duration(after)
        return nodes.cancel(node, ScaleInWaits.NOT_EMPTIED.of(time=time, left=left))
    return nodes.act(node, ActStatus.WAITS, Reason(ScaleInCode.DRAINING, left))


def _terminate(
    client: Client,
    nodes: ScaleInNodes,
    node: int,
    state: ScaleInRecord,
    group: NodeGroup,
    despite: str | None,
) -> MachineAct:
    """Terminate the machine of an empty node, ``despite`` something that was waited for in vain.

    First the group is read. Then the phase "ending" is written on the current version of the node, so that a killed
    process cancels nothing. Then the request is sent, with nothing in between.
    """
    refused: MachineAct | None = None

    def may_be_sent() -> bool:
        nonlocal refused
        refused = _last_look(client, nodes, node, state)
        return refused is None

    instance = nodes.snapshot.nodes.provider_id[node] or nodes.name(node)
    try:
        requested = nodes.context.guarded.terminate(group.name, instance, may_be_sent)
    except GroupSizeError as error:
        return nodes.cancel(node, Reason(ScaleInCode.CANCELLED, str(error)))
    except ProviderRefusalError as error:
        # Where a reply was lost it may have been done all the same: then the node stays cordoned.
        return nodes.cancel(node, Reason(ScaleInCode.FAILED, str(error)))
    if refused is None and not requested:
        # It may be about to end: no pod is to come to it.
        refused = _last_look(client, nodes, node, state)
        left = ScaleInWaits.LEFT_GROUP.of(group=group.name)
        return refused or nodes.act(node, ActStatus.WAITS, left)
    if refused is None:
        nodes.context.group_states.note_end(group.name)
        _note_accepted(client, nodes, node)
    row = ScaleInWaits.TERMINATED if despite is None else ScaleInWaits.TERMINATED_DESPITE
    done = row.of(machine=instance, group=group.name, why=despite, seconds=MAX_DELAY)
    return refused or nodes.act(node, ActStatus.DONE, done)


def _note_accepted(client: Client, nodes: ScaleInNodes, node: int) -> None:
    """Write on a node that the end of its machine was accepted; without that it counts as not answered."""
    accepted = msgspec.structs.replace(nodes.states[node], accepted=rfc3339(nodes.context.now()))
    with suppress(ClusterReadError):
        if (
            written := change_state(client, nodes.name(node), accepted, Phase.ENDING).record
        ) is not None:
            nodes.states[node] = written


def _last_look(
    client: Client, nodes: ScaleInNodes, node: int, state: ScaleInRecord
) -> MachineAct | None:
    """Write the phase "ending" on a node; return another act if the request must not be sent, else None.

    Since the run has read the node, someone may have protected it or may want it for something else. After
    ``_SETTLED`` another process treats the request as lost, so it must not be sent later than ``_LATEST``.
    """
    context, stop = nodes.context, nodes.context.stop
    if (stopped := stop.reason()) is not None:
        return nodes.act(node, ActStatus.WAITS, Reason(ScaleInCode.DRAINING, stopped))
    ending = msgspec.structs.replace(
        state, phase=Phase.ENDING, at=rfc3339(context.now()), by=context.by
    )
    began = stop.now()
    written = change_state(client, nodes.name(node), ending, state.phase)
    if written.record is None or written.why_not is not None:
        return nodes.cancel(node, Reason(ScaleInCode.CANCELLED, written.why_not or GONE))
    nodes.states[node] = written.record
    context.show(nodes.name(node))
    if (stopped := stop.reason()) is not None:
        return nodes.act(node, ActStatus.WAITS, Reason(ScaleInCode.TERMINATING, stopped))
    if stop.now() - began > _LATEST:
        return nodes.write(node, state, ScaleInWaits.TOO_SLOW.of(seconds=_LATEST))
    return None


class NodeScaleIn(Scaler):
    """Removes nodes: cordons and uncordons them before the plan, and terminates empty ones after it."""

    def __init__(self, context: ScalerContext) -> None:
        super().__init__(context)
        self._nodes = ScaleInNodes(context)

    @property
    def awaits_end(self) -> bool:
        """Whether some node may become empty after the plan."""
        return bool(self._nodes.states)

    def with_acts(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the nodes to be drained cordoned, also in a dry run."""
        return with_scale_ins(snapshot, self._nodes.changed)

    def before(self) -> Iterator[MachineAct]:
        """Check each closed node again, note which others are unneeded, and close those unneeded for long enough."""
        for node, state in list(self._nodes.states.items()):
            yield from self._look_again(node, state)
        yield from note_unneeded(self._nodes)
        yield from start_draining(self._nodes)

    def _look_again(self, node: int, state: ScaleInRecord) -> Iterator[MachineAct]:
        nodes = self._nodes
        if not nodes.snapshot.nodes.unschedulable[node]:
            yield nodes.cancel(node, Reason(ScaleInCode.CANCELLED, OPENED))
        elif state.phase is Phase.LEAVING and not nodes.may_go_on(node):
            why = ScaleInWaits.NEEDED_AGAIN.of(why=nodes.removal[node].message)
            yield nodes.cancel(node, why)
        elif state.phase is Phase.ENDING and is_overdue(nodes, node, state):
            yield try_again(nodes, node, state)

    def after(self) -> Iterator[MachineAct]:
        """Terminate the machines of empty nodes."""
        nodes = self._nodes
        for node, state in list(nodes.states.items()):
            if self._context.stop.reason() is None:
                ending = state.phase is Phase.ENDING
                yield (terminating if ending else terminate_if_empty)(nodes, node, state)
