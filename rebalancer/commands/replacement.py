"""What ``replace`` does to nodes: with a hook that removes their machines, or with machines of the provider."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from msgspec.structs import replace as replace_record

from rebalancer.base.errors import ClusterReadError, ProviderError
from rebalancer.base.plain_text import count
from rebalancer.commands.drain import Drain
from rebalancer.kube.nodes import NodeView, read_node
from rebalancer.machines.capacity.delays import EXCLUDED, MAX_DELAY, delay_of
from rebalancer.machines.capacity.writing import describe_remaining
from rebalancer.machines.drain.cordon import Choice, finish, give_back, order_of, take
from rebalancer.machines.drain.replacing import (
    ReplaceHook,
    ReplacementPace,
    enter,
    replace_each,
    stage_of,
)
from rebalancer.machines.drain.rounds import EmptyingOptions, EmptyingRounds
from rebalancer.machines.surge.choice import MachineChoice
from rebalancer.machines.surge.note import author
from rebalancer.machines.surge.surging import Surge, SurgeOptions
from rebalancer.node_record.records import BUSY, ReplacePhase, Stage
from rebalancer.policy.windows import is_open
from rebalancer.providers.contract import Outdated
from rebalancer.run.names import instance
from rebalancer.run.options import flag
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.times import unix_seconds

_MAX_LAG = 20.0
"""Seconds after the last stage within which the request to end a machine is sent, or not at all."""
_POLL_INTERVAL = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceOptions(EmptyingOptions):
    """The flags of ``replace``."""

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
    """A replacement in progress, see ``rebalancer.machines.drain.replacing.Replacing``: a hook removes machines."""

    def __init__(
        self,
        emptying: EmptyingRounds,
        choice: Choice,
        uids: Mapping[str, str],
        hook: ReplaceHook | None,
        wait_batch: float,
    ) -> None:
        self._emptying, self._choice, self._hook = emptying, choice, hook
        self._uids = dict(uids)
        self._wait_batch = wait_batch
        self._client = emptying.client
        self._by = instance(emptying.base.environment)
        self._drain = Drain(emptying, self._client, uids, uncordon_on_failure=False, replaces=True)
        self._batch_until = math.inf
        self._said: str | None = None
        self._reached: Callable[[int, int], None] = lambda _done, _total: None

    def run(self, pace: ReplacementPace) -> str | None:
        """Cordon all nodes, then replace them; return None when done, else why not."""
        why: str | None = "it was cut off"
        try:
            self._batch_until = self._drain.cordon_all() + self._wait_batch
            why = self._replace(pace)
        except ClusterReadError as error:
            why = self._emptying.stop.reason() or str(error)
        finally:
            if why is not None:
                self._drain.end(empty=False)
        return why

    def _replace(self, pace: ReplacementPace) -> str | None:
        emptying = self._emptying
        pace = replace(pace, batch_until=self._batch_until)
        with emptying.progress.course("replacing", "nodes") as self._reached:
            return replace_each(
                self, pace, emptying.stop, self._by, emptying.environment.clock.unix
            )

    def nodes(self) -> Mapping[str, str]:
        """Return name -> uid of the nodes to be replaced."""
        return self._uids

    def stages(self) -> Mapping[str, Stage | None]:
        """Return name -> stage, for each old node that still exists."""
        nodes = {name: self._read(name) for name in self.nodes()}
        stages = {name: stage_of(node) for name, node in nodes.items() if node is not None}
        for name, stage in list(stages.items()):
            done = stage is not None and stage.phase is ReplacePhase.DONE
            node = nodes[name]
            if node is not None and not done and not self.is_old(node):
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
        return None if node is None else stage_of(node)

    def _read(self, name: str) -> NodeView | None:
        """Return the chosen node; None if it is gone. Another Node with its name is a new machine."""
        node = read_node(self._client, name)
        return node if node is not None and node.uid == self.nodes().get(name) else None

    def is_old(self, node: NodeView) -> bool:
        """Return whether a node is to be replaced still: its labels may change, and its kubelet be updated in place."""
        return self._choice.still_has(node)

    def leave_out(self, name: str, why: str) -> None:
        """Give back a node that is not replaced."""
        if finish(self._client, name, self._by, uncordon=True):
            self._emptying.conditions.show(self._client, name)
            self.note_left_out(name, why)

    def note_left_out(self, name: str, why: str) -> None:
        """Report a node that was given back."""
        self._emptying.base.notes.append(f"node {name} is {why}: it was given back")
        self._emptying.progress.note("left out", f"left out {name}", node=name)

    def leave_rest(self, begun: Collection[str]) -> None:
        """Give back the nodes that are not in ``begun``."""
        for name in [name for name in self.nodes() if name not in begun]:
            self.leave_out(name, "left to a later call")
            del self._uids[name]

    def advance(self, stages: Mapping[str, Stage | None]) -> str | None:  # noqa: ARG002
        """Return None: new machines are not this command's part."""
        return None

    def why_not(self, name: str) -> str | None:  # noqa: ARG002
        """Return None: the pre-flight has judged the room for all nodes together."""
        return None

    def enter(self, name: str, phase: ReplacePhase, after: Sequence[Stage | None]) -> bool:
        """Write a phase if the node is still at one of the stages ``after``; return whether it is in the phase."""
        acts = (ReplacePhase.EMPTYING, ReplacePhase.REMOVING)

        def may(node: NodeView, before: Stage | None) -> bool:
            return before in after and (phase not in acts or self.is_old(node))

        entered = self.write(name, self._stage_at(name, phase), may)
        if entered:
            self._emptying.conditions.show(self._client, name)
            self._emptying.progress.note(phase.value, f"{phase.value:<8} {name}", node=name)
        return entered

    def _stage_at(self, name: str, phase: ReplacePhase) -> Stage:
        now = self._emptying.environment.clock.unix()
        return Stage(phase, self._by, now, self.nodes().get(name, ""))

    def write(self, name: str, stage: Stage, may: Callable[[NodeView, Stage | None], bool]) -> bool:
        """Write a stage; return whether it stands on the node now."""
        return enter(self._client, name, stage, may=may)

    def works(self, name: str) -> str | None:
        """Return the batch work on a node; None if there is none."""
        emptying = self._emptying
        if emptying.stop.now() >= self._batch_until and emptying.options.evict_batch:
            emptying.evict_batch()
            return None
        left = self.drain_of([name]).look()
        return f"{name}: {left.text()}" if left.batch or left.unread else None

    def drain_of(self, names: Sequence[str]) -> Drain:
        """Return the drain of some of the nodes."""
        return self._drain.of(names)

    def empty(self, names: Sequence[str]) -> str | None:
        """Empty these nodes, and wait for what delays the end of machines that the hook removes; return None, or why not."""
        why = self.drain_of(names).run(self._wait_batch)
        return why if why is not None or self._hook is None else self.await_delays(names)

    def await_delays(self, names: Sequence[str]) -> str | None:
        """Wait for what delays the end of these empty nodes' machines, a time at most; return why it was stopped, or None."""
        stop = self._emptying.stop
        until = stop.now() + MAX_DELAY
        for name in names:
            while (why := self._why_delayed(name)) is not None:
                if stop.now() >= until:
                    text = f"{name}: its machine is ended although {why} after {MAX_DELAY:.0f} s"
                    self._note(text)
                    break
                self.waits(f"{name}: {why}")
                if (stopped := stop.wait(_POLL_INTERVAL)) is not None:
                    return stopped
        return None

    def _why_delayed(self, name: str) -> str | None:
        """Return why the machine of an empty node must not be ended yet; None if it may be."""
        node = self._read(name)
        if node is None:
            return None
        order = order_of(node)
        if order is not None and order.excluded:
            closed = self._emptying.environment.clock.unix() - unix_seconds(order.at)
            if closed < EXCLUDED:
                return f"load balancers use it still, since it was closed at {order.at}"
        return delay_of(self._client, name, self._note)

    def _note(self, text: str) -> None:
        """Add a sentence to the report, once."""
        notes = self._emptying.base.notes
        if text not in notes:
            notes.append(text)

    def remove(self, name: str) -> str | None:
        """Remove the machine of a node; return why that failed, or None."""
        node = self._read(name)
        if self._hook is None or node is None:
            return None
        return self._hook.call(name, node.provider_id, self._emptying.environment.environ)

    def why_closed(self) -> str | None:
        """Return why no further node may be started now (a closed window of the policy), or None."""
        now = self._emptying.environment.clock.unix()
        open_ = is_open(self._emptying.base.loaded.policy.windows, now)
        return None if open_ else "the policy's window is closed"

    def waits(self, why: str) -> None:
        """Report what is awaited when it changes."""
        if why != self._said:
            self._said = why
            self._emptying.progress.note("waiting", f"waiting  for {why}")


class SurgeReplacement(NodeReplacement):
    """A replacement with machines of the provider: a node is closed once there is more than enough without it."""

    def __init__(
        self, emptying: EmptyingRounds, choice: MachineChoice, options: ReplaceOptions
    ) -> None:
        super().__init__(emptying, choice, {}, None, options.wait_batch)
        clock = emptying.environment.clock
        self._surge = Surge(
            choice.machines,
            choice.group_notes,
            self,
            SurgeOptions(
                surge=options.surge or 1,
                ready_within=timedelta(seconds=options.ready_within),
                by=author(self._by),
                outdated=choice.outdated,
                startup_taints=choice.settings.startup_taints,
            ),
            emptying.stop,
            clock.unix,
            choice.old,
            choice.under_way,
        )
        self._taking_back = options.take_back
        if options.take_back:
            self._surge.take_back("ordered")

    def run(self, pace: ReplacementPace) -> str | None:
        """Replace the machines, and restore their groups; return None when done, else why not."""
        self._batch_until = self._emptying.stop.now() + self._wait_batch
        try:
            with self._surge.alive():
                why = self._replace(pace)
        except (ClusterReadError, ProviderError) as error:
            why = self._emptying.stop.reason() or str(error)
        if why is None:
            why = self._surge.trouble or (None if self._taking_back else self._surge.reason)
        for name in self._surge.groups_left():
            self._emptying.base.notes.append(
                f"{name} is not restored: call this again to go on, or with --take-back instead"
            )
        for name, nodes in self._surge.groups_not_begun().items():
            text = f"{count(nodes, 'old node')} of {name}: its replacement was not begun"
            self._emptying.base.notes.append(f"{text}; call this again")
        return why

    # -- of the loop -------------------------------------------------------------------------------

    def nodes(self) -> Mapping[str, str]:
        """Return name -> uid of the nodes whose machines are to be ended now."""
        return self._surge.in_work()

    def advance(self, stages: Mapping[str, Stage | None]) -> str | None:
        """Have machines added, or what was changed restored; return what is awaited, or None."""
        busy = {name for name, stage in stages.items() if stage is not None and stage.phase in BUSY}
        return self._surge.advance(busy)

    def why_not(self, name: str) -> str | None:
        """Return which machine is awaited before this node may be closed; None if it may be."""
        return self._surge.why_not(name)

    def is_old(self, node: NodeView) -> bool:
        """Return whether a node's machine is to be ended still."""
        if self._surge.is_surplus(node.name):
            return True
        return super().is_old(node) and self._surge.is_old(node.name, node.provider_id)

    def leave_out(self, name: str, why: str) -> None:
        """Give back a node that is not replaced."""
        uid = self.nodes().get(name, "")
        if self._surge.forget(name) and self.give_back(name, uid):
            self.note_left_out(name, why)

    def leave_rest(self, begun: Collection[str]) -> None:
        """Replace no more than ``begun``: the others were not closed."""
        left = self._surge.leave_rest(begun)
        if left:
            text = (
                f"{left} old nodes are left to a later call"
                if left > 1
                else "1 old node is left to a later call"
            )
            self._emptying.base.notes.append(text)

    def write(self, name: str, stage: Stage, may: Callable[[NodeView, Stage | None], bool]) -> bool:
        """Write a stage; the first one with the cordon, in one write, and the last one only while that stands."""
        if stage.phase is ReplacePhase.WAITING:
            return self.give_back(name, stage.uid)
        if stage.phase is not ReplacePhase.EMPTYING:
            removes = stage.phase is ReplacePhase.REMOVING
            return super().write(
                name,
                stage,
                lambda node, before: may(node, before) and (node.unschedulable or not removes),
            )
        order = replace_record(self._emptying.order(), uid=stage.uid)
        entered = take(self._client, name, order, stage, may=may)
        if entered:
            self._surge.note_closed(name)
        return entered

    def drain_of(self, names: Sequence[str]) -> Drain:
        """Return the drain of some of the nodes; their records stay until their machines are gone."""
        nodes = self.nodes()
        uids = {name: nodes[name] for name in names if name in nodes}
        return Drain(
            self._emptying, self._client, uids, uncordon_on_failure=False, keeps_record=True
        )

    def empty(self, names: Sequence[str]) -> str | None:
        """Empty these nodes, and wait for what delays their end; return None, or why they are not empty."""
        for name in names:
            self._take_over(name)
        full = [name for name in names if not self._is_dead(name)]
        if full and (why := super().empty(full)) is not None:
            return why
        return self.await_delays(names)

    def _take_over(self, name: str) -> None:
        """Write a node's record and stage as ours, where another process that was killed has begun with it."""
        stage = self.stage(name)
        early = (ReplacePhase.EMPTYING, ReplacePhase.EMPTY)
        if stage is not None and stage.by != self._by and stage.phase in early:
            order = replace_record(self._emptying.order(), uid=stage.uid)
            ours = replace_record(stage, by=self._by)
            take(self._client, name, order, ours, may=lambda _, before: before == stage)
            self._emptying.conditions.show(self._client, name)

    def _is_dead(self, name: str) -> bool:
        """Return whether a new node never became useful, and has no pods but those that nothing could end there."""
        if not self._surge.is_surplus(name) or self._surge.is_ready(name):
            return False
        return not describe_remaining(
            self._client,
            name,
            clock=self._emptying.environment.clock.unix,
            version=(0, 0),
            ready=False,
        )

    def remove(self, name: str) -> str | None:
        """Have the machine of a node ended; return why that failed, or None."""
        began = self._emptying.stop.now()
        return self._surge.end(name, lambda: self._why_not_end(name, began))

    def _why_not_end(self, name: str, began: float) -> str | None:
        """Return why the machine of a node must not be ended now; asked directly before the request is sent."""
        node = self._read(name)
        if node is None:
            return "its node is gone, or another one has its name"
        stage = stage_of(node)
        if stage is None or (stage.phase, stage.by) != (ReplacePhase.REMOVING, self._by):
            return "another process has taken it over"
        if not node.unschedulable:
            return "another client has uncordoned it"
        late = self._emptying.stop.now() - began > _MAX_LAG
        return f"it took more than {_MAX_LAG:.0f} s to ask the provider" if late else None

    # -- of the surge ------------------------------------------------------------------------------

    def look(self) -> tuple[Snapshot, float]:
        """Return the state of the cluster, and the seconds by which its clock is ahead."""
        return self._emptying.look()

    def give_back(self, name: str, uid: str) -> bool:
        """Open a node that the replacement has closed; False if its machine may be ending."""
        given = give_back(self._client, name, uid)
        self._emptying.conditions.show(self._client, name)
        return given

    def say(self, code: str, text: str) -> None:
        """Report a step."""
        self._emptying.progress.note(code, text)
