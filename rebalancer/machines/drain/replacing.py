"""The loop of a replacement: node by node, with a limit at once, continuing where a killed process stopped."""

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
    """The nodes and the operations on them; the process may be killed after any call."""

    def stages(self) -> Mapping[str, Stage | None]:
        """Return name -> stage, for each old node that still exists; raises ClusterReadError."""

    def stage(self, name: str) -> Stage | None:
        """Return the stage of one node; None if it has none or is gone; raises ClusterReadError."""

    def enter(self, name: str, phase: ReplacePhase, after: Sequence[Stage | None]) -> bool:
        """Write a phase if the node is still at one of the stages ``after``; return whether it is in the phase now."""

    def works(self, name: str) -> str | None:
        """Return the batch work on a node; None if there is none; raises ClusterReadError."""

    def empty(self, names: Sequence[str]) -> str | None:
        """Empty these nodes; return None once they are empty, else why they are not."""

    def remove(self, name: str) -> str | None:
        """Remove the machine of a node; return why that failed, or None."""

    def closed(self) -> str | None:
        """Return why no further node may be started now (a closed window), or None."""

    def waits(self, why: str) -> None:
        """Report what is awaited."""


@dataclass(frozen=True, slots=True)
class ReplacementPace:
    """Limits on the pace of a replacement."""

    most: int
    """Nodes at once that are being emptied, or are empty and not removed yet."""
    pause: float
    """Seconds between two of them."""
    batch_until: float
    """Time of the stop's clock until which batch work is waited for."""


def replace(
    nodes: Replacing, pace: ReplacementPace, stop: Stop, by: str, unix: Callable[[], float]
) -> str | None:
    """Replace all nodes; return None when done, else why not.

    ``by``: this process, as recorded on nodes; ``unix`` returns the time of day in Unix seconds.

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
    """Return the nodes that some process has started, most advanced first."""
    busy = [(name, stage) for name, stage in stages.items() if stage and stage.phase in BUSY]
    busy.sort(key=lambda pair: (-_ORDER.index(pair[1].phase), pair[0]))
    return [name for name, _ in busy[:most]]


def _next_group(
    nodes: Replacing, stages: Mapping[str, Stage | None], pace: ReplacementPace
) -> tuple[list[str], str | None]:
    """Start on nodes without batch work; return them, and what is awaited if there are none."""
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
    """Empty a group of nodes and remove its machines; return why that failed, or None."""
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
