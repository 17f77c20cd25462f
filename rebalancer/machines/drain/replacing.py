"""The course of a replacement: node by node, never more at once than allowed, from wherever an earlier one was killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rebalancer.base.stop import Stop
from rebalancer.machines.drain.hook import SECONDS
from rebalancer.node_record.records import BUSY, ReplacePhase, Stage

_PAUSE = 5.0
"""Seconds between two looks at nodes that wait for their turn."""
_ORDER = list(ReplacePhase)


class Replacing(Protocol):
    """The nodes, and what can be done with them; any call may be the last before the process is killed."""

    def stages(self) -> Mapping[str, Stage | None]:
        """Return how far each old node is that still exists; raises ClusterReadError."""

    def stage(self, name: str) -> Stage | None:
        """Return how far one node is, None also if it is gone; raises ClusterReadError."""

    def enter(self, name: str, phase: ReplacePhase, after: Sequence[Stage | None]) -> bool:
        """Write a phase on a node if it is still at one of the given stages; return whether it is; raises ClusterReadError."""

    def works(self, name: str) -> str | None:
        """Return what batch work is on a node, None if there is none; raises ClusterReadError."""

    def empty(self, names: Sequence[str]) -> str | None:
        """Empty these nodes; return None once they are, else why they are not."""

    def remove(self, name: str) -> str | None:
        """Have the machine of a node removed; return why that failed, if it did."""

    def closed(self) -> str | None:
        """Return why no further node may be begun now (a window that is closed), or None."""

    def waits(self, why: str) -> None:
        """Say what is waited for."""


@dataclass(frozen=True, slots=True)
class ReplacementPace:
    """How fast nodes are replaced."""

    most: int
    """Nodes at once that are being emptied, or are empty and not removed yet."""
    pause: float
    """Seconds between two of them."""
    batch_until: float
    """Time of the stop's clock until which batch work is waited for."""


def replace(
    nodes: Replacing, pace: ReplacementPace, stop: Stop, by: str, unix: Callable[[], float]
) -> str | None:
    """Bring all nodes to their end; return None once they are there, else why they are not.

    ``by`` is this process, as it is written on nodes; ``unix`` returns the time of day in Unix seconds.

    Raises:
        ClusterReadError: a node could not be read or written.
    """
    while True:
        stages = nodes.stages()
        if all(stage is not None and stage.phase is ReplacePhase.DONE for stage in stages.values()):
            return None
        if (why := stop.reason()) is not None:
            return why
        group = _group(stages, pace.most)
        if not group:
            group, why = _next_group(nodes, stages, pace)
            if not group:
                if stop.now() >= pace.batch_until and why is not None and nodes.closed() is None:
                    return f"work did not end in time: {why}"
                nodes.waits(why or "another replacement")
                stop.wait(_PAUSE)
                continue
        if (why := _carry_on(nodes, group, by, unix)) is not None:
            return why
        now = nodes.stages()
        if any((stage := now.get(name)) is not None and stage.phase in BUSY for name in group):
            nodes.waits("another replacement")
            stop.wait(_PAUSE)
        elif any(stage is None or stage.phase is not ReplacePhase.DONE for stage in now.values()):
            stop.wait(pace.pause)


def _group(stages: Mapping[str, Stage | None], most: int) -> list[str]:
    """Return the nodes that were begun, by this process or another that may be dead; the furthest first."""
    busy = [(name, stage) for name, stage in stages.items() if stage and stage.phase in BUSY]
    busy.sort(key=lambda pair: (-_ORDER.index(pair[1].phase), pair[0]))
    return [name for name, _ in busy[:most]]


def _next_group(
    nodes: Replacing, stages: Mapping[str, Stage | None], pace: ReplacementPace
) -> tuple[list[str], str | None]:
    """Begin with nodes that have no batch work; return them, or what is waited for."""
    if (why := nodes.closed()) is not None:
        return [], why
    begun: list[str] = []
    working: str | None = None
    for name, stage in stages.items():
        if stage is not None and stage.phase is ReplacePhase.DONE:
            continue
        if (work := nodes.works(name)) is not None:
            working = working or work
        elif nodes.enter(name, ReplacePhase.EMPTYING, [stage]):
            begun.append(name)
            if len(begun) == pace.most:
                break
    now = nodes.stages()
    busy = [name for name, stage in now.items() if stage and stage.phase in BUSY]
    if len(busy) > pace.most:
        # Another process began at the same moment. The one that sees it steps back; nothing is evicted yet.
        for name in begun:
            nodes.enter(name, ReplacePhase.WAITING, [now[name]])
        return [], None
    return begun, working


def _carry_on(
    nodes: Replacing, group: Sequence[str], by: str, unix: Callable[[], float]
) -> str | None:
    """Empty a group and have its machines removed; return why that failed, if it did."""
    if (why := nodes.empty(group)) is not None:
        return why
    for name in group:
        stage = nodes.stage(name)
        if stage is None or stage.phase is ReplacePhase.DONE:
            continue  # the machine, and its node, are gone, or another process was faster
        if stage.phase is ReplacePhase.REMOVING and stage.by != by and unix() - stage.at < SECONDS:
            continue  # another process is about to
        if not nodes.enter(name, ReplacePhase.REMOVING, [stage]):
            continue
        if (why := nodes.remove(name)) is not None:
            nodes.enter(name, ReplacePhase.EMPTY, [nodes.stage(name)])
            return f"{name} is empty, but not removed: {why}"
        if (now := nodes.stage(name)) is not None:
            nodes.enter(name, ReplacePhase.DONE, [now])
    return None
