"""The course of a replacement: node by node, with a limit at once, continuing where a killed process stopped."""

from __future__ import annotations

import math
import shlex
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import msgspec

from rebalancer.base.errors import ClusterReadError, PolicyError
from rebalancer.base.sending import SendingError, attempt, check_url, place
from rebalancer.base.stop import Stop
from rebalancer.kube.nodes import NodeView, read_node
from rebalancer.machines.drain.command import EmptyingOptions, NodeCommand
from rebalancer.machines.drain.cordon import Choice, enter, let_go
from rebalancer.machines.drain.draining import Drain
from rebalancer.machines.drain.remaining import EXCLUDED, MAX_DELAY, delay_of
from rebalancer.node_record.records import BUSY, DRAINS, ReplacePhase, Stage, stage_of
from rebalancer.node_record.tasks import Course
from rebalancer.policy.windows import is_open
from rebalancer.providers.contract import Outdated
from rebalancer.run.context import instance
from rebalancer.run.options import flag
from rebalancer.wire.times import unix_seconds

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


@dataclass(frozen=True, slots=True)
class ReplacementPace:
    """Limits on the pace of a replacement."""

    most: int
    """Nodes at once that are being emptied, or are empty and not removed yet."""
    pause: float
    """Seconds between two nodes."""
    batch_until: float
    """Time of the stop's clock until which batch work is waited for."""
    pause_after: int | None = None
    """Nodes after which the rest is left; None: all are replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceOptions(EmptyingOptions):
    """The flags of ``replace``."""

    report_kind: ClassVar[str] = "ReplaceReport"

    selector: str | None = flag(
        "Old nodes: with these labels, as kubectl takes them: pool=old.",
        "-l",
        "--selector",
        default=None,
        metavar="LABELS",
    )
    kubelet_below: str | None = flag(
        "Old nodes: their kubelet is older than this version, such as 1.36.",
        default=None,
        metavar="VERSION",
    )
    older_than: float | None = flag(
        "Old nodes: they were created longer ago than this, such as 30d.",
        default=None,
        metavar="DURATION",
        parse="duration",
    )
    outdated: str | None = flag(
        "Old nodes, with --surge: their machine was not made from the current template of its group, or has not its image.",
        default=None,
        choices=tuple(one.value for one in Outdated),
    )
    surge: int | None = flag(
        "Have the policy's provider add machines to each group of old nodes, at most N more than it has, before old nodes are"
        " emptied; and end the machines of those. Then each group has its size again.",
        default=None,
        least=1,
        metavar="N",
    )
    ready_within: float = flag(
        "With --surge: within which a new machine must be useful, else everything is taken back.",
        default=900.0,
        metavar="DURATION",
        parse="duration",
    )
    take_back: bool = flag(
        "Take back what replacements with --surge have left that were stopped or killed: surplus machines are ended, and groups"
        " and nodes are as before.",
        default=False,
    )
    max_unavailable: int = flag(
        "Most nodes at once that are being emptied, or are empty and not removed yet.",
        default=1,
        least=1,
        metavar="N",
    )
    pause: float = flag(
        "Between one node (or --max-unavailable of them) and the next.",
        default=30.0,
        metavar="DURATION",
        parse="duration",
    )
    pause_after: int | None = flag(
        "Replace N nodes, and leave the rest to a later call.", default=None, least=1, metavar="N"
    )
    then: str | None = flag(
        "What removes the machine of an empty node: a command, without a shell, with the node's name as its last argument and"
        " PROVIDER_ID set, or an http(s) address that gets a POST of both. It may be called again after a kill.",
        default=None,
        metavar="COMMAND|URL",
    )


class NodeReplacement:
    """A replacement in progress, whose machines a hook removes. The process may be killed after any call."""

    def __init__(
        self,
        command: NodeCommand,
        choice: Choice,
        uids: Mapping[str, str],
        hook: ReplaceHook | None,
        wait_batch: float,
    ) -> None:
        self._command, self._choice, self._hook = command, choice, hook
        self._uids = dict(uids)
        self._wait_batch = wait_batch
        self._client = command.client
        self._by = instance(command.base.environment)
        self._drain = Drain(command, uids, uncordon_on_failure=False, replaces=True)
        self._batch_until = math.inf
        self._said: str | None = None
        self._reached: Callable[[int, int], None] = lambda _done, _total: None

    def run(self, pace: ReplacementPace) -> Course[str | None]:
        """Cordon all nodes, then replace them; the result is None when done, else why not."""
        why: str | None = "it was cut off"
        try:
            self._batch_until = self._drain.cordon_all() + self._wait_batch
            why = yield from self._replace(pace)
        except ClusterReadError as error:
            why = self._command.base.stop.reason() or str(error)
        finally:
            if why is not None:
                self._drain.end(empty=False)
        return why

    def _replace(self, pace: ReplacementPace) -> Course[str | None]:
        command = self._command
        pace = replace(pace, batch_until=self._batch_until)
        with command.base.progress.course("replacing", "nodes") as self._reached:
            return (yield from replace_each(self, pace, command.base.stop))

    def nodes(self) -> Mapping[str, str]:
        """Return name -> uid of the nodes to be replaced."""
        return self._uids

    def stages(self) -> Mapping[str, Stage | None]:
        """Return name -> stage, for each old node that still exists."""
        nodes = {name: self._read(name) for name in self.nodes()}
        stages = {
            name: stage_of(DRAINS.read(node)) for name, node in nodes.items() if node is not None
        }
        for name, stage in list(stages.items()):
            done = stage is not None and stage.phase is ReplacePhase.DONE
            node = nodes[name]
            if node is None or done or self.is_old(node):
                continue
            if not self._may_be_ending(stage):
                self.leave_out(name, "not chosen any more")
                del stages[name]
        left = sum(
            stage is None or stage.phase is not ReplacePhase.DONE for stage in stages.values()
        )
        self._reached(len(nodes) - left, len(nodes))
        return stages

    def stage(self, name: str) -> Stage | None:
        """Return the stage of one node; None if it has none or is gone."""
        node = self._read(name)
        return None if node is None else stage_of(DRAINS.read(node))

    def _read(self, name: str) -> NodeView | None:
        """Return the chosen node; None if it is gone. Another Node with its name is a new machine."""
        node = read_node(self._client, name)
        return node if node is not None and node.uid == self.nodes().get(name) else None

    def is_old(self, node: NodeView) -> bool:
        """Return whether a node is to be replaced still: its labels may change, and its kubelet be updated in place."""
        return self._choice.still_has(node)

    def _may_be_ending(self, stage: Stage | None) -> bool:
        """Return whether any process may be removing a machine: its hook has ended after a time at the latest."""
        if stage is None or self._hook is None:
            return False
        return _is_being_removed(stage, self._command.base.environment.clock.unix())

    def is_removed_elsewhere(self, stage: Stage) -> bool:
        """Return whether another process is about to remove a machine, or does so."""
        return is_removed_elsewhere(stage, self._by, self._command.base.environment.clock.unix())

    def leave_out(self, name: str, why: str) -> None:
        """Give back a node that is not replaced, and whose machine does not end."""
        if let_go(self._client, name, self._by, stays=True):
            self._command.conditions.show(self._client, name)
            self.note_left_out(name, why)

    def note_left_out(self, name: str, why: str) -> None:
        """Report a node that was given back."""
        self._command.note(f"node {name} is {why}: it was given back")
        self._command.base.progress.note("left out", f"left out {name}", node=name)

    def leave_rest(self, begun: Collection[str]) -> None:
        """Give back the nodes that are not in ``begun``."""
        for name in [name for name in self.nodes() if name not in begun]:
            self.leave_out(name, "left to a later call")
            del self._uids[name]

    def advance(self, stages: Mapping[str, Stage | None]) -> str | None:  # noqa: ARG002
        """Do the work beside the nodes, such as requests for machines; return what is awaited, or None.

        Once it returns None and all nodes are done, the replacement is done. Here nothing is: machines are the hook's.

        Raises:
            RebalancerError: that is not possible.
        """
        return None

    def why_not(self, name: str) -> str | None:  # noqa: ARG002
        """Return what is awaited before this node may be started, beside its work; None: the pre-flight has judged the room."""
        return None

    def enter(self, name: str, phase: ReplacePhase, after: Sequence[Stage | None]) -> bool:
        """Write a phase if the node is still at one of the stages ``after``; return whether it is in the phase."""
        acts = (ReplacePhase.EMPTYING, ReplacePhase.REMOVING)

        def may(node: NodeView, before: Stage | None) -> bool:
            return before in after and (phase not in acts or self.is_old(node))

        now = self._command.base.environment.clock.unix()
        stage = Stage(phase, self._by, now, self.nodes().get(name, ""))
        entered = self.write(name, stage, may)
        if entered:
            self._command.conditions.show(self._client, name)
            self._command.base.progress.note(phase.value, f"{phase.value:<8} {name}", node=name)
        return entered

    def write(self, name: str, stage: Stage, may: Callable[[NodeView, Stage | None], bool]) -> bool:
        """Write a stage; return whether it is on the node now."""
        return enter(self._client, name, stage, may=may)

    def works(self, name: str) -> str | None:
        """Return the batch work on a node; None if there is none."""
        command = self._command
        if command.base.stop.now() >= self._batch_until and command.options.evict_batch:
            command.evict_batch()
            return None
        left = self.drain_of([name]).look()
        return f"{name}: {left.text()}" if left.batch or left.unread else None

    def drain_of(self, names: Sequence[str]) -> Drain:
        """Return the drain of some of the nodes."""
        return self._drain.of(names)

    def empty(self, names: Sequence[str]) -> Course[str | None]:
        """Empty these nodes, and wait for reasons to delay the removal of their machines; the result is None, or why it failed."""
        why = yield from self.drain_of(names).run(self._wait_batch)
        if why is not None or self._hook is None:
            return why
        return (yield from self.await_delays(names))

    def await_delays(self, names: Sequence[str]) -> Course[str | None]:
        """Wait for what delays the end of these empty nodes' machines, a time at most; the result is why it was stopped, or None."""
        stop = self._command.base.stop
        until = stop.now() + MAX_DELAY
        for name in names:
            while (why := self._why_delayed(name)) is not None:
                if stop.now() >= until:
                    text = f"{name}: its machine is ended although {why} after {MAX_DELAY:.0f} s"
                    self._command.note(text)
                    break
                self.waits(f"{name}: {why}")
                if (stopped := (yield _PAUSE)) is not None:
                    return stopped
        return None

    def _why_delayed(self, name: str) -> str | None:
        """Return why the machine of an empty node must not be ended yet; None if it may be."""
        node = self._read(name)
        if node is None:
            return None
        order = DRAINS.read(node)
        if order is not None and order.excluded:
            closed = self._command.base.environment.clock.unix() - unix_seconds(order.at)
            if closed < EXCLUDED:
                return f"load balancers use it still, since it was closed at {order.at}"
        return delay_of(self._client, name, self._command.note)

    def remove(self, name: str) -> str | None:
        """Remove the machine of a node; return why that failed, or None."""
        node = self._read(name)
        if self._hook is None or node is None:
            return None
        return self._hook.call(name, node.provider_id, self._command.base.environment.environ)

    def why_closed(self) -> str | None:
        """Return why no further node may be started now (a closed window of the policy), or None."""
        now = self._command.base.environment.clock.unix()
        open_ = is_open(self._command.base.loaded.policy.windows, now)
        return None if open_ else "the policy's window is closed"

    def waits(self, why: str) -> None:
        """Report what is awaited when it changes."""
        if why != self._said:
            self._said = why
            self._command.base.progress.note("waiting", f"waiting  for {why}")


def _is_being_removed(stage: Stage, now: float) -> bool:
    return stage.phase is ReplacePhase.REMOVING and now - stage.at < SECONDS


def is_removed_elsewhere(stage: Stage, by: str, now: float) -> bool:
    """Return whether, at Unix second ``now``, another process than ``by`` is about to remove a machine, or does so."""
    return stage.by != by and _is_being_removed(stage, now)


def replace_each(nodes: NodeReplacement, pace: ReplacementPace, stop: Stop) -> Course[str | None]:
    """Replace all nodes; the result is None when done, else why not.

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
            why = yield from _carry_on(nodes, group)
        if why is not None:
            return why
        if not group:
            yield _PAUSE
            continue
        now = nodes.stages()
        removed.update(name for name in group if _is_done(now, name))
        if pace.pause_after is not None and len(removed) >= pace.pause_after:
            nodes.leave_rest(removed)
            pace = replace(pace, pause_after=None)
        else:
            yield _pause(nodes, group, now, pace)


def _choose_group(
    nodes: NodeReplacement,
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
    nodes: NodeReplacement,
    group: Sequence[str],
    stages: Mapping[str, Stage | None],
    pace: ReplacementPace,
) -> float:
    if any((stage := stages.get(name)) is not None and stage.phase in BUSY for name in group):
        nodes.waits("another replacement")
        return _PAUSE
    return 0.0 if _all_done(stages) else pace.pause


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
    """Return up to ``most`` nodes whose replacement has begun, by any process; the most advanced first."""
    busy = [(name, stage) for name, stage in stages.items() if stage and stage.phase in BUSY]
    busy.sort(key=lambda pair: (-_ORDER.index(pair[1].phase), pair[0]))
    return [name for name, _ in busy[:most]]


def _next_group(
    nodes: NodeReplacement, stages: Mapping[str, Stage | None], pace: ReplacementPace
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


def _carry_on(nodes: NodeReplacement, group: Sequence[str]) -> Course[str | None]:
    """Empty a group of nodes and remove its machines; the result is why that failed, or None."""
    if (why := (yield from nodes.empty(group))) is not None:
        return why
    for name in group:
        stage = nodes.stage(name)
        if stage is None or stage.phase is ReplacePhase.DONE:
            continue  # the machine, and its node, are gone, or another process was faster
        if nodes.is_removed_elsewhere(stage):
            continue
        if not nodes.enter(name, ReplacePhase.REMOVING, [stage]):
            continue
        if (why := nodes.remove(name)) is not None:
            nodes.enter(name, ReplacePhase.EMPTY, [nodes.stage(name)])
            return f"{name} is empty, but not removed: {why}"
        if (now := nodes.stage(name)) is not None:
            nodes.enter(name, ReplacePhase.DONE, [now])
    return None
