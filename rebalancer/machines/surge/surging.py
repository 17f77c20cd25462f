"""Groups under replacement: each grows before its old machines are ended, and gets its size and processes back.

All data needed to continue is on the group (``rebalancer.machines.surge.note``) and on the nodes. Each step is one write,
after which the process may be killed: the next one reads the note and continues, or undoes everything.

    no note        -> note: the size and the useful nodes of each zone before anything is changed
    note           -> processes that end machines or set sizes by themselves are suspended
    old ones left  -> the group is increased; its new machines are waited for; the loop of ``replace`` ends old ones
    none left, or taken back -> surplus machines are ended, the size is as before, processes resumed, the note removed

One process works on a group: it renews its sign of life in the note. Another process waits, and takes over once that sign
is too old.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from rebalancer.base.durations import format_duration
from rebalancer.base.errors import ProviderError, ProviderRefusalError
from rebalancer.base.plain_text import and_more
from rebalancer.base.stop import Stop
from rebalancer.machines.capacity.groups import Groups, known_nodes
from rebalancer.machines.drain.command import NodeCommand
from rebalancer.machines.drain.cordon import give_back
from rebalancer.machines.drain.replacing import ReplaceOptions
from rebalancer.machines.surge.choice import MachineChoice
from rebalancer.machines.surge.note import STALE, GroupNote, HeldNote, author
from rebalancer.machines.surge.view import CORDONED, GroupView, MachineView, Newcomers, OldGroups
from rebalancer.providers.contract import Guarded, NodeGroup, ReplacingMachines
from rebalancer.run.context import instance

_SETTLED = 60.0
"""Seconds until a size that was requested, or the end of a machine, is known: DescribeAutoScalingGroups may lag behind."""
_POLL_INTERVAL = 5.0


class SurgeRequests:
    """The requests about the group that a process works on, and until when their results are uncertain."""

    def __init__(
        self, machines: ReplacingMachines, stop: Stop, say: Callable[[str, str], None]
    ) -> None:
        """``say`` reports a step: its code, and a text."""
        self._machines, self._stop, self._say = machines, stop, say
        self._settling = stop.now()
        """Monotonic time since when neither a machine nor the end of one was requested."""
        self._seen = 0
        """A size that the last look has shown, and that this process did not request."""
        self._shrunk = 0
        """By how much ended machines have made the group smaller than in its note."""
        self.ended: set[str] = set()
        """Machines whose end was requested."""

    def increase(self, group: str, size: int) -> bool:
        """Request a larger size; return False if the group has it already; raises ProviderError."""
        requested = Guarded(self._machines, ()).increase(group, size)
        if requested:
            self._unsettle()
        return requested

    def decrease_to_existing(self, group: str, least: int, asked: int) -> int | None:
        """Cancel requested machines that do not exist yet; return the size, or None; raises ProviderError.

        ``asked``: the size that was requested last.
        """
        unseen = {} if self.is_known() else {group: asked}
        return Guarded(self._machines, (), asked=unseen).decrease_to_existing(group, least)

    def end(self, group: str, instance: str, may: Callable[[], str | None]) -> str | None:
        """Request the end of a machine, which makes its group smaller by one; return why that failed, or None.

        ``may`` is called last, and returns why the request must not be sent, or None.
        """
        refused: str | None = None

        def may_be_sent() -> bool:
            nonlocal refused
            refused = self._stop.reason() or may()
            return refused is None

        try:
            requested = Guarded(self._machines, ()).terminate(group, instance, may_be_sent)
        except ProviderRefusalError as error:
            return str(error)
        except ProviderError as error:
            return self._await_end(group, instance, str(error))
        if refused is None:
            self._note_end(instance, requested)
            if requested:
                self._say("ended", f"ended    {instance}")
        return refused

    def take_shrunk(self) -> int:
        """Return by how much ended machines have made the group smaller since the last call."""
        # Not twice: it may be written though the answer is lost.
        shrunk, self._shrunk = self._shrunk, 0
        return shrunk

    def is_known(self) -> bool:
        """Return whether all that was requested is known for sure."""
        return self._stop.now() - self._settling > _SETTLED

    def is_seen_twice(self, size: int) -> bool:
        """Return whether the look before has shown the same size, which this process did not request."""
        agreed, self._seen = self._seen == size, size
        return agreed

    def leave(self) -> None:
        """Stop holding the group."""
        self._shrunk = self._seen = 0

    def _await_end(self, group: str, instance: str, lost: str) -> str | None:
        """Return None once a machine has left its group although the answer was lost; else the error ``lost``."""
        until = self._stop.now() + _SETTLED
        while self._stop.now() < until and self._stop.wait(_POLL_INTERVAL) is None:
            try:
                now = self._machines.group_named(group, ())
            except ProviderError:
                continue
            if now is not None and instance not in now.instances:
                self._note_end(instance, shrinks=True)
                return None
        return lost

    def _note_end(self, instance: str, shrinks: bool) -> None:
        self.ended.add(instance)
        self._unsettle()
        self._shrunk += shrinks

    def _unsettle(self) -> None:
        """Wait anew until what was requested is known."""
        self._settling, self._seen = self._stop.now(), 0


_FAILURES = 10
"""Number of looks that may fail in a row."""


@dataclass(frozen=True, slots=True)
class _Look:
    view: GroupView
    note: GroupNote
    now: float
    """Unix seconds, by the API server's clock."""
    outdated: frozenset[str]
    """Instances; empty if the provider is not queried."""

    @property
    def group(self) -> NodeGroup:
        return self.view.group

    @property
    def desired(self) -> int:
        return self.group.desired or 0

    @property
    def target(self) -> int:
        """Size that is to be restored: no smaller than the group may be by now."""
        return max(self.note.desired, self.group.minimum or 0)

    def going(self, nodes: Collection[str], ended: Collection[str]) -> set[str]:
        """Return the machines in the group that are about to leave it: of these nodes, or whose end was requested."""
        return {
            one.instance
            for one in self.view.machines
            if (one.node and one.node in nodes) or one.instance in ended
        }


class Surge:
    """The groups of a replacement, one after the other."""

    def __init__(
        self, command: NodeCommand, choice: MachineChoice, options: ReplaceOptions
    ) -> None:
        self._command, self._machines, self._notes = command, choice.machines, choice.group_notes
        self._outdated, self._startup_taints = choice.outdated, choice.settings.startup_taints
        self._most = options.surge or 1
        """Most machines above the size of a group, except those added for zones: see :meth:`_grow_again`."""
        self._ready_within = timedelta(seconds=options.ready_within)
        """Within which a new machine must be useful."""
        self._by = author(instance(command.base.environment))
        """This process, as its notes name it."""
        self._stop, self._unix = command.base.stop, command.base.environment.clock.unix
        self._groups = OldGroups(choice.old, choice.under_way)
        self._requests = SurgeRequests(self._machines, self._stop, self._say)
        self._more: dict[str, str] = {}
        """Name -> uid of new nodes that are ended, too, since they are more than there were."""
        self._at: _Look | None = None
        """The last look at the group that this process works on."""
        self._busy: frozenset[str] = frozenset()
        """Nodes that were being emptied or whose machines were ending, at that look."""
        self._closed: set[str] = set()
        """Nodes that were closed since that look."""
        self._newcomers = Newcomers(self._ready_within)
        self._ahead = self._unix() - self._stop.now()
        """Unix seconds by the API server's clock, less the monotonic time."""
        self._failures = 0
        self._note = HeldNote(self._machines, self._notes, self._by, self._now, self._stop.now)
        self._is_fresh = False
        """Whether the note was written as ours, and not looked at since."""
        self._seen: dict[tuple[str, str], int] = {}
        """(group, another process that replaces it) -> the first sign of life of that process that was read."""
        self.reason: str | None = None
        """Why everything is taken back."""
        self.trouble: str | None = None
        """What could not be restored."""
        self._kept_since = math.inf
        """Unix seconds since when no surplus machine could be ended."""

    # -- for the loop over nodes -------------------------------------------------------------------

    def in_work(self) -> dict[str, str]:
        """Return name -> uid of the nodes whose machines are to be ended in the group whose turn it is."""
        if self._note.group is None:
            return {}
        return {**self._groups.nodes(self._note.group), **self._more}

    def is_old(self, name: str, provider_id: str) -> bool:
        """Return whether the provider still reports a machine as outdated, if it is queried for that."""
        at = self._at
        if self._outdated is None or at is None or name in self._more:
            return True
        return (provider_id or name) in at.outdated

    def is_surplus(self, name: str) -> bool:
        """Return whether a node is a new one that is ended since the group has more than it had."""
        return name in self._more

    def why_not(self, name: str) -> str | None:
        """Return why an old node must not be closed yet; None if it may be."""
        at = self._at
        if at is None or name not in self.in_work():
            return "another replacement"
        going = at.going(self._busy | self._closed, self._requests.ended)
        if name not in self._more and at.desired - len(going) <= at.target:
            return f"one machine more of {at.group.name}"
        return at.view.why_not(name, at.note, self._closed)

    def note_closed(self, name: str) -> None:
        """Count a node as closed until the next look."""
        self._closed.add(name)

    def is_ready(self, name: str) -> bool:
        """Return whether a node accepts pods now, or would if it were not cordoned."""
        machine = None if self._at is None else self._at.view.machine_of(name)
        return machine is not None and machine.lacks in ("", CORDONED)

    def forget(self, name: str) -> bool:
        """Leave an old node out; return whether it was one."""
        return self._groups.forget(name)

    def leave_rest(self, begun: Collection[str]) -> int:
        """Replace only the nodes ``begun``, of this group and all others; return how many are left."""
        return self._groups.leave_rest(begun)

    def groups_left(self) -> list[str]:
        """Return the groups that are not as before, as far as is known."""
        return sorted(self._groups.noted)

    def groups_not_begun(self) -> dict[str, int]:
        """Return group -> old nodes, of the groups that were to be replaced and are untouched."""
        return self._groups.not_begun()

    def take_back(self, why: str) -> None:
        """Undo the replacement in all groups with a note."""
        self.reason = self.reason or why

    def advance(self, busy: Collection[str]) -> str | None:
        """Do the next step on groups; return what is awaited, None once all is restored.

        ``busy``: nodes that are being emptied or whose machines are ending.

        Raises:
            ClusterReadError: the cluster, or a note, cannot be read.
            ProviderError: the provider refuses, or could not be queried repeatedly.
        """
        try:
            waits = self._step(busy)
        except ProviderRefusalError:
            raise
        except ProviderError as error:
            self._failures += 1
            if self._failures > _FAILURES:
                raise
            return str(error)
        self._failures = 0
        return waits

    def alive(self) -> AbstractContextManager[None]:
        """Return a context in which the note shows that this process lives."""
        return self._note.alive()

    def give_back(self, name: str, uid: str) -> bool:
        """Open a node that the replacement has closed; False if its machine may be ending; raises ClusterReadError."""
        given = give_back(self._command.client, name, uid)
        self._command.conditions.show(self._command.client, name)
        return given

    def _say(self, code: str, text: str) -> None:
        self._command.base.progress.note(code, text)

    # -- steps on a group --------------------------------------------------------------------------

    def _step(self, busy: Collection[str]) -> str | None:
        name = self._groups.first
        if name is None:
            return None
        at = self._look(name)
        if at is None:
            return self._next(name)
        if at.note.by != self._by:
            self._at = None
            self._note.leave(name)
            self._groups.noted.discard(name)
            # A sign of life from the future does not count: no process would take over until then.
            if abs(at.now - at.note.seen) < STALE:
                return self._wait_for_other(name, at.note)
            self._groups.noted.add(name)
            self._write(at, by=self._by)
            self._is_fresh = True
        if self._is_fresh:
            # Tags are written without a condition: of two that write at once, both see at the next look whose note stands.
            self._is_fresh = False
            return f"the note on {name} to stand"
        self._note.group = name
        self._groups.noted.add(name)
        if self.reason and not at.note.back:
            at = self._write(at, back=self.reason)
        at = self._adopt(at)
        self._at = at
        self._busy = frozenset(busy)
        self._closed.clear()
        self._suspend(at)
        if at.note.back:
            self.reason = self.reason or at.note.back
            if self._give_back(name):
                return f"a look at {name} after its nodes were given back"
        old = self._old_machines(at)
        if old and not at.note.back:
            return self._grow(at, old, busy)
        return self._restore(at, busy)

    def _wait_for_other(self, name: str, note: GroupNote) -> str | None:
        """Wait for another process that replaces a group.

        If none of the group's nodes is ours, wait only until that process is known to be alive.
        """
        lives = self._seen.setdefault((name, note.by), note.seen) != note.seen
        if lives and not self._groups.nodes(name):
            self._say("other", f"other    {name}: {note.by} is at work on it")
            return self._next(name)
        return f"another replacement of {name}, by {note.by}"

    def _look(self, name: str) -> _Look | None:
        """Return the group as it is, with its note; None if there is nothing to do on it."""
        snapshot, skew = self._command.look()
        self._ahead = self._unix() + skew - self._stop.now()
        nodes = known_nodes(snapshot)
        group = self._machines.group_named(name, nodes)
        if group is None:
            if self._failures < _FAILURES:
                # One answer without it may be late, or wrong.
                raise ProviderError(f"the provider does not name the group {name}")
            self.reason = self.reason or f"the provider has no group {name} any more"
            return None
        if self._note.is_late(group):
            raise ProviderError(
                f"the provider's answer on {name} is from before its note, which was written since"
            )
        if self._note.was_removed(group):
            # Begun anew it would take the machines that it has added for some that were there before.
            raise ProviderRefusalError(
                f"the note of this replacement on {name} is gone: another client has removed it, or the provider's"
                " answers are old"
            )
        groups = Groups(snapshot, [group], self._startup_taints)
        note = self._notes.parse(name, group.note)
        if note is None and (self.reason or not self._groups.nodes(name) or not group.is_sized):
            self._groups.noted.discard(name)
            if self.reason:
                self._groups.skip(name)
            return None
        launches = self._machines.find_launches(group)
        now = self._now()
        if note is None:
            note = self._begin(GroupView.of(snapshot, groups, group, launches), now)
        outdated: frozenset[str] = frozenset()
        if self._outdated is not None:
            outdated = self._machines.find_outdated(group, self._outdated)
        view = GroupView.of(snapshot, groups, group, launches, note.at)
        self._newcomers.look(view, now)
        self._groups.note_instances(view)
        return _Look(view, note, now, outdated)

    def _begin(self, view: GroupView, now: float) -> GroupNote:
        size = view.group.desired or 0
        if unknown := view.unknown(()):
            text = f"{view.group.name}: the provider does not say when {unknown[0].instance} was launched"
            raise ProviderError(text)
        self._newcomers.begin(view.group)
        note = GroupNote(
            desired=size,
            size=size,
            # By the provider's clock alone, and never below the newest machine that is there.
            at=math.ceil(max((one.launched or 0.0 for one in view.machines), default=0.0)),
            since=int(now),
            zones=view.zones(),
            suspended=view.group.meddling,
            by=self._by,
            seen=int(now),
        )
        self._say("begun", f"begun    {view.group.name}: {size} machines")
        self._is_fresh = True
        # Before it is written: the answer may be lost.
        self._groups.noted.add(view.group.name)
        return self._note.write(view.group, note)

    def _adopt(self, at: _Look) -> _Look:
        """Take over an increase by another client: the size to be restored grows by the same number.

        It is called once the requests of this process are known for sure, and two looks in a row must agree: one answer
        may be late. :meth:`_restore` waits for it.
        """
        if shrunk := self._requests.take_shrunk():
            at = self._write(at, size=at.note.size - shrunk)
        if at.desired == at.note.size or not self._requests.is_known():
            return at
        if not self._requests.is_seen_twice(at.desired):
            return at
        more = max(0, at.desired - at.note.size)
        return self._write(at, desired=at.note.desired + more, size=at.desired)

    def _suspend(self, at: _Look) -> None:
        running = [one for one in at.note.suspended if one in at.group.meddling]
        if running:
            self._say("suspended", f"suspend  {at.group.name}: {', '.join(running)}")
            self._machines.suspend(at.group, running)

    def _give_back(self, name: str) -> bool:
        """Uncordon the old nodes that a replacement has closed, except those whose machines may be terminating.

        Return whether there were any.
        """
        nodes = self._groups.nodes(name)
        given = [node for node, uid in nodes.items() if self.give_back(node, uid)]
        for node in given:
            self._groups.forget(node)
        return bool(given)

    def _old_machines(self, at: _Look) -> list[MachineView]:
        names = self._groups.nodes(at.group.name)
        return [
            one
            for one in at.view.machines
            if one.uid
            and names.get(one.node) == one.uid
            and one.instance not in self._requests.ended
            and (self._outdated is None or one.instance in at.outdated)
        ]

    # -- growing -----------------------------------------------------------------------------------

    def _grow(self, at: _Look, old: list[MachineView], busy: Collection[str]) -> str:
        note, maximum = at.note, at.group.maximum or 0
        want = min(at.target + min(self._most, len(old), at.target), maximum)
        if want <= at.target and not busy:
            return self._fail(
                at, f"{at.group.name} may have {maximum} machines and has {at.target}"
            )
        if at.desired < want:
            return self._increase(at, want)
        waits, failed = self._await_new(at)
        if failed is not None:
            return self._fail(at, failed)
        if waits is not None:
            return waits
        held = [at.view.why_not(one.node, note, ()) for one in old]
        if busy or None in held:
            return "old nodes"
        return self._grow_again(at, held[0] or "")

    def _grow_again(self, at: _Look, held: str) -> str:
        """Grow by one more: the provider chooses zones, and none of the new machines is in that of an old one.

        One in each other zone may be needed until the zone of an old one comes.
        """
        zones = len(set(at.group.zones) | set(at.note.zones))
        most = at.target + min(self._most, at.target) + max(0, zones - 1)
        if at.desired >= min(most, at.group.maximum or 0):
            return self._fail(at, f"no old node may go without {held}")
        return self._increase(at, at.desired + 1)

    def _increase(self, at: _Look, size: int) -> str:
        if not self._requests.is_known():
            # The answer may be older than the last request, and a smaller size would end machines of the provider's choice.
            size = max(size, min(at.note.size, at.group.maximum or size))
        self._say("grown", f"grow     {at.group.name} to {size} machines")
        # Where nothing that was requested may still be unknown, a larger size than was seen is that of others.
        is_sure = at.desired == at.note.size and (
            self._requests.is_known() or at.note.size == at.note.desired
        )
        at = self._write(at, size=size, since=int(at.now))
        if not self._requests.increase(at.group.name, size) and is_sure:
            now = self._machines.group_named(at.group.name, ())
            seen = max(size, 0 if now is None else now.desired or 0)
            self._write(at, size=seen, desired=at.note.desired + seen - at.desired)
        return f"new machines of {at.group.name}"

    def _await_new(self, at: _Look) -> tuple[str | None, str | None]:
        """Return (what is awaited of new machines, why that has failed); None and None once all are useful."""
        within = self._ready_within.total_seconds()
        after = f"after {format_duration(self._ready_within)}"
        missing = at.desired - len(at.group.instances)
        if missing > 0:
            text = f"{missing} of the {at.desired} machines of {at.group.name} are not there yet"
            why = self._machines.launch_failure(at.group, at.note.since)
            if why is None and at.now - at.note.since <= within:
                return text, None
            return text, why or f"{text}, {after}"
        going = frozenset(self._more)
        lacking = self._newcomers.find_missing(at.view, at.note, at.now, going)
        if lacking is None:
            return None, None
        lacks, late = lacking
        return lacks, lacks if late else None

    def _fail(self, at: _Look, why: str) -> str:
        self._say("back", f"back     {at.group.name}: {why}")
        self.reason = why
        self._at = self._write(at, back=why)
        return f"taking {at.group.name} back: {why}"

    # -- restoring ---------------------------------------------------------------------------------

    def _restore(self, at: _Look, busy: Collection[str]) -> str | None:
        name, target = at.group.name, at.target
        if at.desired < min(target, at.group.maximum or 0):
            return self._increase(at, min(target, at.group.maximum or 0))
        if at.desired > at.note.size:
            return f"the size of {name} to settle: it has {at.desired} machines, and {at.note.size} were asked for"
        if at.desired <= target:
            return self._finish(at)
        if any(one in busy for one in self._groups.nodes(name)):
            return f"the end of old machines of {name}"
        if len(at.group.instances) < at.desired:
            size = self._requests.decrease_to_existing(name, target, at.note.size)
            if size is not None:
                self._say("shrunk", f"shrink   {name} to {size} machines")
            return f"launches of {name} to end"
        return self._end_surplus(at, busy)

    def _end_surplus(self, at: _Look, busy: Collection[str]) -> str | None:
        """Choose the new machines to end, as the group is now; those that are already ending count first."""
        name = at.group.name
        self._more = {node: uid for node, uid in self._more.items() if node in busy}
        going = at.going(self._more, self._requests.ended)
        surplus = [
            one
            for one in at.view.surplus(
                at.note, self._newcomers.before, self._groups.nodes(name), at.outdated
            )
            if one.instance not in going and self._newcomers.may_be_surplus(one, at.now)
        ]
        if not surplus and not going:
            self._kept_since = min(self._kept_since, at.now)
            text = f"{name} has {at.desired} machines: none of the new ones can go"
            if at.now - self._kept_since <= self._ready_within.total_seconds():
                return text
            self.trouble = text
            return self._next(name)
        self._kept_since = math.inf
        for one in surplus[: max(0, at.desired - at.target - len(going))]:
            if one.node:
                self._more[one.node] = one.uid
            elif (why_not := self._end(name, one.instance, self._why_joined(one))) is not None:
                return f"the end of {one.instance}: {why_not}"
        return f"surplus machines of {name} to end"

    def _why_joined(self, one: MachineView) -> Callable[[], str | None]:
        """Return a check, to be called directly before the end of a machine without a node is requested: whether it has joined."""

        def why_not() -> str | None:
            snapshot, _ = self._command.look()
            joined = {*snapshot.nodes.provider_id, *snapshot.nodes.names}
            return "it has joined" if one.instance in joined else None

        return why_not

    def _finish(self, at: _Look) -> str | None:
        """Resume what was suspended, and remove the note."""
        name, suspended = at.group.name, at.note.suspended
        for node, uid in self._more.items():
            self.give_back(node, uid)
        self._machines.resume(at.group, suspended)
        self._note_left(at)
        self._note.remove(at.group)
        self._say("restored", f"restored {name}: {at.desired} machines")
        self._groups.noted.discard(name)
        return self._next(name)

    def _note_left(self, at: _Look) -> None:
        """Note the old machines that are left although nothing was taken back: their nodes were not those that were chosen."""
        left = self._groups.find_left(at.group.name, at.group.instances, self._requests.ended)
        if left and not at.note.back:
            self.trouble = (
                f"{and_more(left, 3)} of {at.group.name} were left: their nodes were away, or came back as others;"
                " call this again"
            )

    def _next(self, name: str) -> str | None:
        self._groups.end(name)
        self._note.group = self._at = None
        self._kept_since = math.inf
        self._more.clear()
        self._requests.leave()
        return f"the group {self._groups.first}" if self._groups.first else None

    # -- machines and notes ------------------------------------------------------------------------

    def end(self, name: str, may: Callable[[], str | None]) -> str | None:
        """Terminate the machine of an empty node, and make its group smaller by one; return why that failed, or None.

        ``may`` is called right before the request; it returns why the request must not be sent, or None.
        """
        at = self._at
        if at is None:
            return "another replacement is at work on its group"
        machine = at.view.machine_of(name)
        return None if machine is None else self._end(at.group.name, machine.instance, may)

    def _end(self, group: str, instance: str, may: Callable[[], str | None]) -> str | None:
        return self._requests.end(group, instance, lambda: self._note.why_lost() or may())

    def _write(self, at: _Look, **changes: Any) -> _Look:
        return replace(at, note=self._note.write(at.group, at.note, **changes))

    def _now(self) -> float:
        return self._stop.now() + self._ahead
