"""The loop of a replacement: node by node, with a limit at once, continuing where a killed process stopped."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from rebalancer.base.errors import PolicyError
from rebalancer.base.sending import SendingError, attempt, check_url, place
from rebalancer.base.stop import Stop
from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeView
from rebalancer.node_record.protocol import Write, change_record
from rebalancer.node_record.records import BUSY, STAGES, ReplacePhase, Stage

SECONDS = 300.0
"""For one node; a process that began to remove a machine longer ago than that was killed."""
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class ReplaceHook:
    """A command or URL, called once per empty node; called again if the caller was killed."""

    command: tuple[str, ...] = ()
    """The node's name is added as the last argument."""
    url: str = ""
    """Gets a POST with ``{"node": ..., "providerID": ...}``; any answer of 2xx is a success."""

    @classmethod
    def parse(cls, text: str) -> ReplaceHook:
        """Parse the value of ``--then``.

        Raises:
            PolicyError: it is neither a command nor a URL.
        """
        if text.startswith(("http://", "https://")):
            try:
                return cls(url=check_url(text))
            except SendingError as error:
                raise PolicyError([f"--then: {error}"]) from None
        try:
            command = tuple(shlex.split(text))
        except ValueError as error:
            raise PolicyError([f"--then: {error}: {text}"]) from None
        if not command:
            raise PolicyError(["--then: write a command, or an http(s) address"])
        return cls(command=command)

    def call(self, node: str, provider_id: str, environ: Mapping[str, str]) -> str | None:
        """Remove the machine of a node; return why that failed, or None."""
        return self._post(node, provider_id) if self.url else self._run(node, provider_id, environ)

    def _run(self, node: str, provider_id: str, environ: Mapping[str, str]) -> str | None:
        try:
            done = subprocess.run(  # noqa: S603  (the command is the caller's own)
                [*self.command, node],
                env={**environ, "PROVIDER_ID": provider_id},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{self.command[0]}: {error}"
        if done.returncode == 0:
            return None
        said = " ".join((done.stderr or done.stdout).split())[-_SHOWN:]
        return f"{self.command[0]} exited with {done.returncode}{f': {said}' if said else ''}"

    def _post(self, node: str, provider_id: str) -> str | None:
        body = msgspec.json.encode({"node": node, "providerID": provider_id})
        headers = {"Content-Type": "application/json"}
        why = attempt("POST", self.url, body, headers, SECONDS)
        return None if why is None else f"{place(self.url)} {why}"


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

    def advance(self, stages: Mapping[str, Stage | None]) -> str | None:
        """Do what there is to do beside the nodes, such as having machines added; return what is awaited, or None.

        Once it returns None and all nodes are done, the replacement is done.

        Raises:
            RebalancerError: that is not possible.
        """

    def why_not(self, name: str) -> str | None:
        """Return what is awaited before this node may be started, beside its work; None if it may be."""

    def leave_rest(self, begun: Collection[str]) -> None:
        """Leave the nodes that are not in ``begun``: they are given back, and not replaced."""

    def why_closed(self) -> str | None:
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
    pause_after: int | None = None
    """Nodes after which the rest is left; None: all are replaced."""


def replace_each(
    nodes: Replacing, pace: ReplacementPace, stop: Stop, by: str, unix: Callable[[], float]
) -> str | None:
    """Replace all nodes; return None when done, else why not.

    ``by``: this process, as recorded on nodes; ``unix`` returns the time of day in Unix seconds.

    Raises:
        ClusterReadError: a node could not be read or written.
    """
    removed: set[str] = set()
    while True:
        stages = nodes.stages()
        awaited = nodes.advance(stages)
        if awaited is None and _all_done(stages):
            return None
        if (why := stop.reason()) is not None:
            return why
        group, why = _choose_group(nodes, stages, _rest_of(pace, removed), stop, awaited)
        if group and why is None:
            why = _carry_on(nodes, group, by, unix)
        if why is not None:
            return why
        if not group:
            stop.wait(_PAUSE)
            continue
        now = nodes.stages()
        removed.update(name for name in group if _is_done(now, name))
        if pace.pause_after is not None and len(removed) >= pace.pause_after:
            nodes.leave_rest(removed)
            pace = replace(pace, pause_after=None)
        else:
            _pause(nodes, group, now, pace, stop)


def _choose_group(
    nodes: Replacing,
    stages: Mapping[str, Stage | None],
    pace: ReplacementPace,
    stop: Stop,
    awaited: str | None,
) -> tuple[list[str], str | None]:
    """Return the nodes that come next, and why it ends; none where something is awaited, which is reported."""
    group = _group(stages, pace.most)
    if group:
        return group, None
    group, work, waits = _next_group(nodes, stages, pace)
    if not group:
        if work and stop.now() >= pace.batch_until and nodes.why_closed() is None:
            return [], f"work did not end in time: {work}"
        nodes.waits(work or waits or awaited or "another replacement")
    return group, None


def _pause(
    nodes: Replacing,
    group: Sequence[str],
    stages: Mapping[str, Stage | None],
    pace: ReplacementPace,
    stop: Stop,
) -> None:
    if any((stage := stages.get(name)) is not None and stage.phase in BUSY for name in group):
        nodes.waits("another replacement")
        stop.wait(_PAUSE)
    elif not _all_done(stages):
        stop.wait(pace.pause)


def _is_done(stages: Mapping[str, Stage | None], name: str) -> bool:
    return name not in stages or (
        (stage := stages[name]) is not None and stage.phase is ReplacePhase.DONE
    )


def _all_done(stages: Mapping[str, Stage | None]) -> bool:
    return all(_is_done(stages, name) for name in stages)


def _rest_of(pace: ReplacementPace, removed: Collection[str]) -> ReplacementPace:
    """Return the pace with no more nodes at once than are left until the pause."""
    if pace.pause_after is None:
        return pace
    return replace(pace, most=min(pace.most, pace.pause_after - len(removed)))


def _group(stages: Mapping[str, Stage | None], most: int) -> list[str]:
    """Return the nodes that some process has started, most advanced first."""
    busy = [(name, stage) for name, stage in stages.items() if stage and stage.phase in BUSY]
    busy.sort(key=lambda pair: (-_ORDER.index(pair[1].phase), pair[0]))
    return [name for name, _ in busy[:most]]


def _next_group(
    nodes: Replacing, stages: Mapping[str, Stage | None], pace: ReplacementPace
) -> tuple[list[str], str | None, str | None]:
    """Start on nodes without batch work; return them, and the work and what else is awaited if there are none."""
    if (why := nodes.why_closed()) is not None:
        return [], None, why
    begun: list[str] = []
    working = waits = None
    for name in stages:
        if _is_done(stages, name):
            continue
        if (why := nodes.why_not(name)) is not None:
            waits = waits or why
        elif (work := nodes.works(name)) is not None:
            working = working or work
        elif nodes.enter(name, ReplacePhase.EMPTYING, [stages[name]]):
            begun.append(name)
            if len(begun) == pace.most:
                break
    now = nodes.stages()
    busy = [name for name, stage in now.items() if stage and stage.phase in BUSY]
    if len(busy) > pace.most:
        # Another process began at the same moment. The one that sees it steps back; nothing is evicted yet.
        for name in begun:
            nodes.enter(name, ReplacePhase.WAITING, [now[name]])
        return [], None, None
    return begun, working, waits


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


def stage_of(node: NodeView) -> Stage | None:
    """Return the stage of a node; None if there is none, it is malformed, or it belongs to another Node."""
    return STAGES.read(node)


def enter(
    client: Client, name: str, stage: Stage, *, may: Callable[[NodeView, Stage | None], bool]
) -> bool:
    """Write a stage on the Node with its uid, if it ``may`` follow the current one; return whether it is there now.

    Of two concurrent processes one succeeds: the write is guarded by the version that was read.

    Raises:
        ClusterReadError: the node could not be read or written.
    """
    entered = False

    def decide(node: NodeView, before: Stage | None) -> Write[Stage] | None:
        nonlocal entered
        entered = before == stage or may(node, before)
        return Write(stage) if entered else None

    node = change_record(client, name, STAGES, decide, uid=stage.uid)
    return entered and node is not None
