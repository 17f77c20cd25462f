"""What earlier runs have left about groups, and what it means for this one: machines on their way, groups that wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rebalancer.capacity.backoff import GroupMemory, awaited, failed, grown
from rebalancer.capacity.codes import GroupCode
from rebalancer.capacity.groups import Groups
from rebalancer.capacity.growth import Outlook, Refusal
from rebalancer.capacity.sizes import sizes_of
from rebalancer.capacity.state import State
from rebalancer.capacity.waiting import refused_for
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.times import rfc3339


@dataclass(frozen=True, slots=True)
class Patience:
    """The times of scale-out, in seconds."""

    new_pod: float = 0.0
    provision: float = 900.0
    cool_down: float = 0.0

    @classmethod
    def of(cls, params: Any) -> Patience:
        """Return those of a strategy's options: ``newPodDelay``, ``provisionTime``, ``coolDown``."""
        spans = (params.new_pod_delay, params.provision_time, params.cool_down)
        return cls(*(span.total_seconds() for span in spans))


@dataclass(slots=True)
class Memories:
    """What is remembered of each group, in this run."""

    earlier: State = field(default_factory=State)
    patience: Patience | None = None
    """None where nothing grows: each pod is asked about, and no group is barred."""
    groups: dict[str, GroupMemory] = field(default_factory=dict)
    """As it is now."""

    def outlook(self, snapshot: Snapshot, groups: Groups) -> Outlook:
        """Return what is to be reckoned with, after a look at the groups' machines."""
        now, sizes = snapshot.captured_at, sizes_of(snapshot, groups)
        patience = self.patience or Patience()
        self.groups = {
            name: awaited(self.earlier.of(name), of, now, patience.provision)
            for name, of in sizes.items()
        }
        return Outlook(
            coming={
                name: of.coming
                for name, of in sizes.items()
                if of.coming and not self.groups[name].backs_off(now)
            },
            barred=dict(self._barred(now)),
            promised=self.earlier.promised,
            asking=None if self.patience is None else refused_for(snapshot, patience.new_pod),
        )

    def _barred(self, now: float) -> Iterator[tuple[str, Refusal]]:
        rest = 0.0 if self.patience is None else self.patience.cool_down
        for name, memory in self.groups.items():
            if memory.backs_off(now):
                text = f"{memory.why}; it is tried again after {rfc3339(memory.until)}"
                yield name, Refusal(name, GroupCode.BACKS_OFF, text)
            elif 0 < memory.grown <= now < memory.grown + rest:
                text = f"it grew at {rfc3339(memory.grown)}, and cools down"
                yield name, Refusal(name, GroupCode.COOLS_DOWN, text)

    def has_grown(self, group: str, now: float) -> None:
        """Note that a group was asked to grow."""
        self.groups[group] = grown(self.groups[group], now)

    def has_failed(self, group: str, code: str, why: str, now: float) -> None:
        """Note that it failed to."""
        self.groups[group] = failed(self.groups[group], code, why, now)
