"""The stored states of groups and their effect on scale-out: upcoming machines, back-offs, cool-downs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rebalancer.base.errors import ProviderError
from rebalancer.machines.capacity.backoff import (
    NOT_LAUNCHED,
    REFUSED,
    GroupState,
    decreased,
    failed,
    observed,
    scaled_out,
)
from rebalancer.machines.capacity.codes import GroupCode
from rebalancer.machines.capacity.groups import Groups
from rebalancer.machines.capacity.pending_pods import unschedulable_for
from rebalancer.machines.capacity.scale_out_plan import GroupRefusal, ScaleOutInputs
from rebalancer.machines.capacity.sizes import Sizes, sizes_of
from rebalancer.machines.capacity.state import State
from rebalancer.providers.contract import Machines, NodeGroup
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.times import rfc3339

_BEHIND = 10.0
"""Seconds by which the provider's clock may be behind the API server's."""


@dataclass(frozen=True, slots=True)
class ScaleOutTimes:
    """The times of scale-out, in seconds."""

    new_pod_delay: float = 0.0
    provision_time: float = 900.0
    cool_down: float = 0.0

    @classmethod
    def of(cls, params: Any) -> ScaleOutTimes:
        """Return the times in a strategy's options: ``newPodDelay``, ``provisionTime``, ``coolDown``."""
        spans = (params.new_pod_delay, params.provision_time, params.cool_down)
        return cls(*(span.total_seconds() for span in spans))


@dataclass(slots=True)
class GroupStates:
    """The state of each group in this run."""

    earlier: State = field(default_factory=State)
    times: ScaleOutTimes | None = None
    """None where nothing scales out: each pending pod counts, and no group is blocked."""
    groups: dict[str, GroupState] = field(default_factory=dict)
    """As it is now."""
    warn: Callable[[str], None] = lambda _: None
    """Is given what could not be asked."""

    def inputs(self, snapshot: Snapshot, groups: Groups, machines: Machines) -> ScaleOutInputs:
        """Return the inputs of scale-out, after updating the states from the groups' machines."""
        now, sizes = snapshot.captured_at, sizes_of(snapshot, groups)
        times = self.times or ScaleOutTimes()
        self.groups = {
            group.name: self._launched(
                group,
                observed(
                    self.earlier.of(group.name),
                    sizes[group.name],
                    now,
                    times.provision_time,
                    group.suspended,
                ),
                now,
                machines,
            )
            for group in groups.groups
        }
        for group in groups.groups:
            self._note_unknown(group, has_nodes=bool(groups.nodes_of(group)), now=now)
        return ScaleOutInputs(
            upcoming={
                name: of.upcoming
                for name, of in sizes.items()
                if of.upcoming
                and not self.groups[name].is_paused(now)
                and not self.groups[name].is_foreign(now)
            },
            blocked=dict(self._blocked(now, sizes)),
            triggered=self.earlier.triggered,
            triggering=(
                None if self.times is None else unschedulable_for(snapshot, times.new_pod_delay)
            ),
        )

    def _note_unknown(self, group: NodeGroup, *, has_nodes: bool, now: float) -> None:
        """Record since when a group has machines but no node; its tags may be shared with another cluster."""
        since = self.earlier.of(group.name).unknown_since
        unknown = bool(group.instances) and not has_nodes
        self.groups[group.name] = msgspec.structs.replace(
            self.groups[group.name],
            unknown_since=(since if 0 < since <= now else now) if unknown else 0,
        )

    def _launched(
        self, group: NodeGroup, state: GroupState, now: float, machines: Machines
    ) -> GroupState:
        """Return the state of a group with failed launches; the provider is asked if machines are missing.

        As in Cluster Autoscaler's AWS provider: if the request fails, no failed launch is known.
        """
        missing = group.desired is not None and len(group.instances) < group.desired
        if self.times is None or not missing or state.is_paused(now):
            return state
        since = max(state.upcoming_since, state.failed_at) - _BEHIND
        try:
            why = machines.launch_failure(group, since)
        except ProviderError as error:
            self.warn(f"whether launches have failed is not known: {error}")
            return state
        return failed(state, NOT_LAUNCHED, why, now) if why else state

    def _blocked(
        self, now: float, sizes: Mapping[str, Sizes]
    ) -> Iterator[tuple[str, GroupRefusal]]:
        rest = 0.0 if self.times is None else self.times.cool_down
        for name, state in self.groups.items():
            if state.is_foreign(now):
                text = f"it has machines, and none has been a node of this cluster since {rfc3339(state.unknown_since)}"
                yield name, GroupRefusal(name, GroupCode.FOREIGN, text)
            elif state.suspended:
                yield name, GroupRefusal(name, GroupCode.SUSPENDED, state.suspended)
            elif state.in_backoff(now):
                text = f"{state.why}; back-off until {rfc3339(state.backoff_until)}"
                yield name, GroupRefusal(name, GroupCode.BACKOFF, text)
            elif self.times is not None and (not sizes[name].are_healthy or sizes[name].are_lost):
                yield name, GroupRefusal(name, GroupCode.UNHEALTHY, sizes[name].unhealthy())
            elif 0 < state.scaled_out_at <= now < state.scaled_out_at + rest:
                text = f"scaled out at {rfc3339(state.scaled_out_at)}, and cools down"
                yield name, GroupRefusal(name, GroupCode.COOLDOWN, text)

    def unprovisioned(self, now: float) -> set[str]:
        """Return the groups in a back-off because machines were not provisioned, unless launches are suspended."""
        return {
            name
            for name, state in self.groups.items()
            if state.in_backoff(now)
            and state.code != REFUSED
            and state.upcoming_since > 0
            and not state.suspended
            and not state.is_foreign(now)
        }

    def note_decreased(self, group: str) -> None:
        """Record that a group was decreased to its existing machines."""
        self.groups[group] = decreased(self.groups[group])

    def note_scaled_out(self, group: str, now: float) -> None:
        """Record that the size of a group was increased."""
        self.groups[group] = scaled_out(self.groups[group], now)

    def note_failed(self, group: str, code: str, why: str, now: float) -> None:
        """Record that the size of a group could not be increased."""
        self.groups[group] = failed(self.groups[group], code, why, now)
