"""What one process remembers of the machines of a group: which were there before, and which new ones are useful."""

from __future__ import annotations

from datetime import timedelta

from rebalancer.base.durations import format_duration
from rebalancer.machines.surge.note import GroupNote
from rebalancer.machines.surge.view import GroupView, MachineView
from rebalancer.providers.contract import NodeGroup

_BARE = 60.0
"""Seconds that a machine must be seen without a node before it is ended as one that did not join: its node may be away for a
moment."""


class Newcomers:
    """Tells new machines from those that were there when a replacement began."""

    def __init__(self, ready_within: timedelta) -> None:
        """``ready_within``: within which a new machine must be useful."""
        self._within = ready_within
        self._before: set[str] = set()
        """Instances that were there before their group grew, as far as this process has seen it."""
        self._bare: dict[str, float] = {}
        """Instance without a node -> Unix seconds since when it was seen so."""
        self._useful: dict[str, float] = {}
        """Instance -> Unix seconds when it was last seen to be useful."""

    @property
    def before(self) -> frozenset[str]:
        """Instances that are known not to be new."""
        return frozenset(self._before)

    def begin(self, group: NodeGroup) -> None:
        """Note the machines of a group that has not grown yet."""
        self._before.update(group.instances)

    def look(self, view: GroupView, now: float) -> None:
        """Note since when machines have no node; ``now``: Unix seconds."""
        bare = [one.instance for one in view.machines if not one.node]
        self._bare = {instance: self._bare.get(instance, now) for instance in bare}

    def may_be_surplus(self, one: MachineView, now: float) -> bool:
        """Return whether a machine has a node, or has had none for longer than a node may be away."""
        least = min(_BARE, self._within.total_seconds() / 2)
        return bool(one.node) or now - self._bare.get(one.instance, now) >= least

    def find_missing(
        self, view: GroupView, note: GroupNote, now: float, going: frozenset[str]
    ) -> tuple[str, bool] | None:
        """Return (what the first new machine lacks, whether that has taken too long); None once all are useful.

        ``going``: nodes of new machines that are ended anyway.
        """
        new, within = view.new(note, self._before), self._within.total_seconds()
        self._useful |= {one.instance: now for one in new if one.useful}
        unknown = view.unknown(self._before)
        for one in [*unknown, *new]:
            known = one not in unknown
            if known and (one.useful or one.node in going):
                continue
            lacks = one.lacks if known else "the provider does not say when it was launched"
            machine = one.instance.rpartition("/")[2]
            text = f"the new machine {machine} of {view.group.name}: {lacks}"
            since = max(note.since, one.created, self._useful.get(one.instance, 0.0))
            late = now - since > within
            return f"{text}, after {format_duration(self._within)}" if late else text, late
        return None
