"""What earlier runs have left about groups, and what it means for scale-out now: upcoming machines, back-offs, cool-downs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rebalancer.capacity.backoff import (
    REFUSED,
    GroupState,
    decreased,
    failed,
    observed,
    scaled_out,
)
from rebalancer.capacity.codes import GroupCode
from rebalancer.capacity.groups import Groups
from rebalancer.capacity.pending_pods import unschedulable_for
from rebalancer.capacity.scale_out_plan import GroupRefusal, ScaleOutInputs
from rebalancer.capacity.sizes import sizes_of
from rebalancer.capacity.state import State
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.times import rfc3339


@dataclass(frozen=True, slots=True)
class ScaleOutTimes:
    """The times of scale-out, in seconds."""

    new_pod_delay: float = 0.0
    provision_time: float = 900.0
    cool_down: float = 0.0

    @classmethod
    def of(cls, params: Any) -> ScaleOutTimes:
        """Return those of a strategy's options: ``newPodDelay``, ``provisionTime``, ``coolDown``."""
        spans = (params.new_pod_delay, params.provision_time, params.cool_down)
        return cls(*(span.total_seconds() for span in spans))


@dataclass(slots=True)
class GroupStates:
    """The state of each group, in this run."""

    earlier: State = field(default_factory=State)
    times: ScaleOutTimes | None = None
    """None where nothing scales out: each pending pod counts, and no group is blocked."""
    groups: dict[str, GroupState] = field(default_factory=dict)
    """As it is now."""

    def inputs(self, snapshot: Snapshot, groups: Groups) -> ScaleOutInputs:
        """Return what scale-out has to take into account, after a look at the groups' machines."""
        now, sizes = snapshot.captured_at, sizes_of(snapshot, groups)
        times = self.times or ScaleOutTimes()
        self.groups = {
            name: observed(self.earlier.of(name), of, now, times.provision_time)
            for name, of in sizes.items()
        }
        return ScaleOutInputs(
            upcoming={
                name: of.upcoming
                for name, of in sizes.items()
                if of.upcoming and not self.groups[name].in_backoff(now)
            },
            blocked=dict(self._blocked(now)),
            triggered=self.earlier.triggered,
            triggering=(
                None if self.times is None else unschedulable_for(snapshot, times.new_pod_delay)
            ),
        )

    def _blocked(self, now: float) -> Iterator[tuple[str, GroupRefusal]]:
        rest = 0.0 if self.times is None else self.times.cool_down
        for name, state in self.groups.items():
            if state.in_backoff(now):
                text = f"{state.why}; back-off until {rfc3339(state.backoff_until)}"
                yield name, GroupRefusal(name, GroupCode.BACKOFF, text)
            elif 0 < state.scaled_out_at <= now < state.scaled_out_at + rest:
                text = f"scaled out at {rfc3339(state.scaled_out_at)}, and cools down"
                yield name, GroupRefusal(name, GroupCode.COOLDOWN, text)

    def unprovisioned(self, now: float) -> list[str]:
        """Return the groups in a back-off because requested machines were not provisioned."""
        return [
            name
            for name, state in sorted(self.groups.items())
            if state.in_backoff(now) and state.code != REFUSED and state.upcoming_since > 0
        ]

    def note_decreased(self, group: str) -> None:
        """Note that a group was decreased to the machines that it has."""
        self.groups[group] = decreased(self.groups[group])

    def note_scaled_out(self, group: str, now: float) -> None:
        """Note that the size of a group was increased."""
        self.groups[group] = scaled_out(self.groups[group], now)

    def note_failed(self, group: str, code: str, why: str, now: float) -> None:
        """Note that it could not be."""
        self.groups[group] = failed(self.groups[group], code, why, now)
