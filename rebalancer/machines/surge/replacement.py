"""The actions on nodes in a replacement with new machines of the provider."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace as replace_record

from rebalancer.base.errors import (
    ClusterReadError,
    ProviderError,
)
from rebalancer.base.plain_text import count
from rebalancer.kube.nodes import NodeView
from rebalancer.machines.drain.command import NodeCommand
from rebalancer.machines.drain.cordon import enter
from rebalancer.machines.drain.draining import Drain
from rebalancer.machines.drain.remaining import describe_remaining
from rebalancer.machines.drain.replacing import (
    NodeReplacement,
    ReplacementPace,
    ReplaceOptions,
)
from rebalancer.machines.surge.choice import MachineChoice
from rebalancer.machines.surge.surging import Surge
from rebalancer.node_record.records import BUSY, DRAINS, ReplacePhase, Stage, stage_of
from rebalancer.node_record.tasks import Course

_MAX_LAG = 20.0
"""Seconds after the last stage within which the request to end a machine is sent, or not at all."""


class SurgeReplacement(NodeReplacement):
    """A replacement with machines of the provider: a node is closed once there is more than enough without it."""

    def __init__(
        self, command: NodeCommand, choice: MachineChoice, options: ReplaceOptions
    ) -> None:
        super().__init__(command, choice, {}, None, options.wait_batch)
        self._surge = Surge(command, choice, options)
        self._taking_back = options.take_back
        if options.take_back:
            self._surge.take_back("ordered")

    def run(self, pace: ReplacementPace) -> Course[str | None]:
        """Replace the machines, and restore their groups; the result is None when done, else why not."""
        self._batch_until = self._command.base.stop.now() + self._wait_batch
        try:
            with self._surge.alive():
                why = yield from self._replace(pace)
        except (ClusterReadError, ProviderError) as error:
            why = self._command.base.stop.reason() or str(error)
        if why is None:
            why = self._surge.trouble or (None if self._taking_back else self._surge.reason)
        for name in self._surge.groups_left():
            self._command.note(
                f"{name} is not restored: call this again to go on, or with --take-back instead"
            )
        for name, nodes in self._surge.groups_not_begun().items():
            text = f"{count(nodes, 'old node')} of {name}: its replacement was not begun"
            self._command.note(f"{text}; call this again")
        return why

    # -- of the loop -------------------------------------------------------------------------------

    def nodes(self) -> Mapping[str, str]:
        """Return name -> uid of the nodes whose machines are to be ended now."""
        return self._surge.in_work()

    def advance(self, stages: Mapping[str, Stage | None]) -> str | None:
        """Request machines, or restore what was changed; return what is awaited, or None."""
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
        """Release a node that is not replaced, and report ``why``.

        Its record is removed. It is uncordoned unless somebody else wants it closed.
        """
        uid = self.nodes().get(name, "")
        if self._surge.forget(name) and self._surge.give_back(name, uid):
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
            self._command.note(text)

    def write(self, name: str, stage: Stage, may: Callable[[NodeView, Stage | None], bool]) -> bool:
        """Write a stage; the first one with the cordon, in one write."""
        if stage.phase is ReplacePhase.WAITING:
            return self._surge.give_back(name, stage.uid)
        if stage.phase is not ReplacePhase.EMPTYING:
            return super().write(name, stage, may)
        order = replace_record(self._command.order(), uid=stage.uid)
        entered = enter(self._client, name, stage, may=may, order=order)
        if entered:
            self._surge.note_closed(name)
        return entered

    def drain_of(self, names: Sequence[str]) -> Drain:
        """Return the drain of some of the nodes; their records are kept until their machines are gone."""
        nodes = self.nodes()
        uids = {name: nodes[name] for name in names if name in nodes}
        return Drain(self._command, uids, uncordon_on_failure=False, keeps_record=True)

    def empty(self, names: Sequence[str]) -> Course[str | None]:
        """Empty these nodes, and wait for reasons to delay their end; the result is None, or why they are not empty."""
        for name in names:
            self._take_over(name)
        full = [name for name in names if not self._is_dead(name)]
        if full and (why := (yield from super().empty(full))) is not None:
            return why
        return (yield from self.await_delays(names))

    def _take_over(self, name: str) -> None:
        """Write a node's record and stage as ours, where another process that was killed has begun with it."""
        stage = self.stage(name)
        early = (ReplacePhase.EMPTYING, ReplacePhase.EMPTY)
        if stage is not None and stage.by != self._by and stage.phase in early:
            order = replace_record(self._command.order(), uid=stage.uid)
            ours = replace_record(stage, by=self._by)
            enter(self._client, name, ours, may=lambda _, before: before == stage, order=order)
            self._command.conditions.show(self._client, name)

    def _is_dead(self, name: str) -> bool:
        """Return whether a new node never became useful, and has no pods but those that nothing could end there."""
        if not self._surge.is_surplus(name) or self._surge.is_ready(name):
            return False
        return not describe_remaining(
            self._client,
            name,
            clock=self._command.base.environment.clock.unix,
            version=(0, 0),
            ready=False,
        )

    def remove(self, name: str) -> str | None:
        """Have the machine of a node ended; return why that failed, or None."""
        began = self._command.base.stop.now()
        return self._surge.end(name, lambda: self._why_not_end(name, began))

    def _why_not_end(self, name: str, began: float) -> str | None:
        """Return why the machine of a node must not be ended now; called directly before the request is sent."""
        node = self._read(name)
        if node is None:
            return "its node is gone, or another one has its name"
        stage = stage_of(DRAINS.read(node))
        if stage is None or (stage.phase, stage.by) != (ReplacePhase.REMOVING, self._by):
            return "another process has taken it over"
        if not node.unschedulable:
            return "another client has uncordoned it"
        late = self._command.base.stop.now() - began > _MAX_LAG
        return f"it took more than {_MAX_LAG:.0f} s to ask the provider" if late else None
