"""The nodes in one run of scale-in: which can be removed, and the phase of each."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from typing import Protocol

from rebalancer.base.errors import ClusterReadError
from rebalancer.machines.capacity.codes import RemovalCode, ScaleInCode
from rebalancer.machines.capacity.removal import NodeRemoval
from rebalancer.machines.capacity.scaling import ScalerContext
from rebalancer.machines.capacity.writing import write_state
from rebalancer.plan.machines import ActStatus, MachineAct
from rebalancer.providers.contract import NodeGroup
from rebalancer.snapshot.scale_in import scale_ins
from rebalancer.wire.scale_in import Phase, ScaleIn
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


class ScaleInNodes:
    """The scale-in record of each node, read and written."""

    def __init__(self, context: ScalerContext) -> None:
        self.context = context
        self.options: ScaleInOptions = context.params
        self.snapshot = context.report.snapshot
        self.now = context.now()
        """When the run began, in Unix seconds."""
        standing = scale_ins(self.snapshot.nodes)
        self.others = {node for node, state in standing.items() if self._is_anothers(state)}
        """The nodes that another release notes, drains or removes: nothing is written on them."""
        self.states: dict[int, ScaleIn] = {
            node: state for node, state in standing.items() if node not in self.others
        }
        self.changed: dict[int, ScaleIn | None] = {}
        """What was written on nodes; in a dry run, what would be."""
        self.removal: dict[int, NodeRemoval] = {one.node: one for one in context.report.nodes}

    # -- what is known of a node -------------------------------------------------------------------

    def name(self, node: int) -> str:
        """Return the name of a node."""
        return self.snapshot.nodes.names[node]

    def _is_anothers(self, state: ScaleIn) -> bool:
        """Return whether another release is removing a node; a release that stopped writing no longer counts."""
        options, ours = self.options, self.context.release
        longest = max(options.unneeded_for, options.unready_for, options.give_up_after)
        live = not self.is_past(state.at, 2 * max(longest, options.cool_down_after_failure))
        return live and "" not in (ours, state.release) and state.release != ours

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

    def needed_for(self, node: int) -> timedelta:
        """Return for how long a node must be unneeded before it is removed."""
        ready = self.snapshot.nodes.ready[node]
        return self.options.unneeded_for if ready else self.options.unready_for

    def is_past(self, since: str, time: timedelta) -> bool:
        """Return whether ``time`` has passed since ``since``."""
        return age(since, self.now) >= time.total_seconds()

    # -- what is done with it ----------------------------------------------------------------------

    def cancel(self, node: int, why: str, *, failed: bool = False) -> MachineAct:
        """Cancel the scale-in of a node: remove the taint, and our cordon; a failure starts a cool-down."""
        at = rfc3339(self.context.now())
        by, release = self.context.by, self.context.release
        left = ScaleIn(Phase.FAILED, at, at, by, release=release, why=why) if failed else None
        code = ScaleInCode.FAILED if failed else ScaleInCode.CANCELLED
        act = self.write(node, left, code, why, gives_back=True)
        if failed and act.status is ActStatus.DONE:
            return replace(act, status=ActStatus.FAILED)
        return act

    def write(
        self,
        node: int,
        state: ScaleIn | None,
        code: ScaleInCode,
        text: str,
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
            status, text = ActStatus.PLANNED, f"{text} ({context.suspended})"
        else:
            status = ActStatus.DONE
            try:
                after = None if before is None else before.phase
                written = write_state(client, self.name(node), state, after)
            except ClusterReadError as error:
                return self.act(node, ScaleInCode.FAILED, ActStatus.FAILED, str(error))
            if written is None and (state is not None or before is not None):
                gone = "the node is gone, or another client has changed what stands on it, or wants it closed or kept"
                return self.act(node, code, ActStatus.WAITS, gone)
            state = written if state is not None else None
        if status is ActStatus.DONE or context.dry:
            self.changed[node] = state
        if state is None:
            self.states.pop(node, None)
        else:
            self.states[node] = state
        return self.act(node, code, status, text)

    def act(self, node: int, code: ScaleInCode, status: ActStatus, text: str) -> MachineAct:
        """Return an act on a node as data."""
        group = self.group(node)
        return MachineAct(
            strategy=self.context.strategy,
            code=code.value,
            status=status,
            group="" if group is None else group.name,
            node=self.name(node),
            message=text,
        )


def age(at: str, now: float) -> float:
    """Return the seconds since a time. A time in the future is not ours and is treated as very old."""
    seconds = now - unix_seconds(at)
    return seconds if seconds >= -_AHEAD else math.inf
