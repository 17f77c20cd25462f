"""The phases of a component's work on a node: one table, two writes that take a node and give it back, and one loop.

Drain, replacement (with and without new machines) and scale-in declare a :class:`Process` each; an interruption has
steps of its own (``rebalancer.machines.interruption``), and shares the phases and their conditions. Each change is one
write, guarded by the version that was read: the process may be killed after each, and the next one reads the record and
continues.

What is done in the phases are *courses*: generators that do what can be done now, then yield the seconds until there may be
more. A drain, a replacement with or without new machines, the acts of scale-in and scale-out in a run, and the steps before an
interruption and their undoing are courses. So courses are made of courses, and :func:`carry_out` pauses between what they do.

Some functions that a course calls wait themselves, for a limited time: the hook that removes a machine, and the check whether
a machine ends although the answer was lost (``rebalancer.machines.surge.surging``). A step before an interruption runs in a thread
of its own and pauses by its own stop; the record of an interruption is written again until the API server answers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import msgspec

from rebalancer.base.stop import Stop
from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeChange, NodeView, TaintJson
from rebalancer.node_record.protocol import (
    EXCLUDE,
    Claims,
    Form,
    NodeTask,
    TaskPhase,
    Write,
    change_record,
)
from rebalancer.node_record.records import C, claiming, is_nobodys, let_go
from rebalancer.wire.marks import Lifecycle


@dataclass(frozen=True, slots=True)
class PhaseRules:
    """The rules of one phase."""

    next: frozenset[TaskPhase]
    """The phases that may follow, beside the same one."""
    shows: tuple[Lifecycle, ...] = ()
    """The conditions of the node meanwhile."""
    closes: bool = False
    """Whether the node is cordoned with the write that enters it, and excluded and tainted where the process does that."""
    gives_back: bool = True
    """Whether the node may be uncordoned; False: its machine may be ending, and only the requester can know that it is not."""


_WAITING, _EMPTYING, _EMPTY = TaskPhase.WAITING, TaskPhase.EMPTYING, TaskPhase.EMPTY
_ENDING, _DONE, _OVER = TaskPhase.ENDING, TaskPhase.DONE, TaskPhase.OVER

TABLE: Mapping[TaskPhase, PhaseRules] = {
    _WAITING: PhaseRules(
        next=frozenset({_EMPTYING, _EMPTY, _OVER}), shows=(Lifecycle.PLANNED,), closes=True
    ),
    _EMPTYING: PhaseRules(
        next=frozenset({_WAITING, _EMPTY, _ENDING, _OVER}),
        shows=(Lifecycle.PLANNED, Lifecycle.DRAINING),
        closes=True,
    ),
    _EMPTY: PhaseRules(
        next=frozenset({_WAITING, _EMPTYING, _ENDING, _OVER}),
        shows=(Lifecycle.PLANNED, Lifecycle.DRAINED),
    ),
    _ENDING: PhaseRules(
        next=frozenset({_EMPTYING, _EMPTY, _DONE, _OVER}),
        shows=(Lifecycle.MAINTAINED, Lifecycle.DRAINED),
        gives_back=False,
    ),
    _DONE: PhaseRules(next=frozenset(), shows=(Lifecycle.MAINTAINED, Lifecycle.DRAINED)),
    _OVER: PhaseRules(next=frozenset({_WAITING, _EMPTYING, _EMPTY, _ENDING})),
}


def conditions_of(task: NodeTask) -> tuple[Lifecycle, ...]:
    """Return the conditions of a node by its task; MaintenancePlanned only if its machine will end."""
    shows = () if task.phase is None else TABLE[task.phase].shows
    return tuple(one for one in shows if task.ends or one is not Lifecycle.PLANNED)


def _carry_nothing(_node: NodeView, _before: C, record: C) -> C:
    return record


@dataclass(frozen=True, slots=True)
class Process(Generic[C]):
    """What one component declares: the format of its record, and its checks before it enters a phase."""

    form: Form[C]
    read: Callable[[NodeView], C | None]
    """Returns the record on a node; raises ClusterReadError if it must not be overwritten."""
    guards: Mapping[TaskPhase, Callable[[NodeView, C | None], str | None]] = field(
        default_factory=dict
    )
    """Phase -> check that returns, by the node and its record before, why the node must not enter it; None if it may."""
    carry: Callable[[NodeView, C, C], C] = _carry_nothing
    """Returns the new record with the data that it inherits from the one before."""
    kept: Callable[[C], C] | None = None
    """Returns the record to keep as long as others want the node cordoned; None: the node is not given back until then."""
    taint: TaintJson | None = None
    """The taint of nodes that are cordoned."""

    def reopen(self, node: NodeView, claims: Claims) -> NodeChange:
        """Return the change that gives a node back: each claim undone, or left to who else wants it, and no taint."""
        change = let_go(node, self.form.key, claims)
        return change if self.taint is None else replace(change, taints=self._without_taint(node))

    def close(self, node: NodeView, before: C | None, record: C) -> Write[C]:
        """Return the write that enters the phase of ``record``, which is settled."""
        by = None if before is None else self.form.task(before).by
        task = self.form.task(record)
        is_closed = node.unschedulable and by == task.by
        if is_closed or task.phase is None or not TABLE[task.phase].closes:
            return Write(record)
        labels = {EXCLUDE: "true"} if task.wants.exclude and EXCLUDE not in node.labels else {}
        taints = None if self.taint is None else (*self._without_taint(node), self.taint)
        cordon = None if node.unschedulable else True
        return Write(record, NodeChange(unschedulable=cordon, labels=labels, taints=taints))

    def settle(self, node: NodeView, before: C | None, record: C) -> C:
        """Return ``record`` as it is to be written: it keeps the cordon and label that the record before owns and that still exist."""
        if before is None:
            return msgspec.structs.replace(claiming(record, Claims()), uid=record.uid or node.uid)
        owns = self.form.task(before).owns
        owns = Claims(owns.cordon and node.unschedulable, owns.exclude and EXCLUDE in node.labels)
        return self.carry(node, before, claiming(record, owns))

    def _without_taint(self, node: NodeView) -> tuple[TaintJson, ...]:
        return tuple(taint for taint in node.taints if taint.get("key") != self.form.key)


@dataclass(frozen=True, slots=True)
class Entered(Generic[C]):
    """The result of a change of a node's task."""

    node: NodeView | None = None
    """The node as it is now; None: it is gone, or another node has its name."""
    record: C | None = None
    """The record on the node now; None: there is none."""
    why_not: str | None = None
    """Why nothing was changed; None: the node was changed, or had this record before."""


May = Callable[[NodeView, C | None], str | None]
"""Returns, by the newest version of a node and its record, why it must not be changed; None if it may be."""


def enter(
    client: Client,
    name: str,
    process: Process[C],
    make: Callable[[C | None], C],
    may: May[C],
    *,
    uid: str = "",
) -> Entered[C]:
    """Enter the phase of the record that ``make`` returns for the present one; cordon the node in the same write.

    ``may``, the table and the guards of the process check the newest version of the node. ``uid``: of the Node that is
    meant; empty: any.

    Raises:
        ClusterReadError: the node could not be read or written, or its record must not be overwritten.
    """

    def decide(node: NodeView, before: C | None) -> Write[C] | str | None:
        record = process.settle(node, before, make(before))
        if node.unschedulable and before == record:
            return None  # a reply to us was lost
        why = may(node, before) or _why_not(process, node, before, record)
        return why or process.close(node, before, record)

    return _change(client, name, process, decide, uid)


def give_back(
    client: Client,
    name: str,
    process: Process[C],
    may: May[C],
    *,
    uid: str = "",
    left: Callable[[C], C | None] = lambda _: None,
    stays: bool = False,
    opens: bool = False,
) -> Entered[C]:
    """Remove a record, and uncordon the node unless another owner needs it cordoned; the owner of a cordon is never lost.

    While its machine may be ending nothing is changed. ``stays``: the caller knows that the machine does not end.
    ``left``: returns the record to keep on a cordoned node, if another process has taken the node over; else None.
    ``opens``: people request it: the node is uncordoned although others have cordoned it.

    Raises:
        ClusterReadError: the node could not be read or written, or its record must not be removed.
    """

    def decide(node: NodeView, before: C | None) -> Write[C] | str | None:
        if (why := may(node, before)) is not None:
            return why
        if before is not None and not stays and (why := _why_held(process, before)) is not None:
            return why
        if before is not None and (of_another := left(before)) is not None:
            return Write(of_another)
        owns = Claims() if before is None else process.form.task(before).owns
        owns = replace(owns, cordon=owns.cordon or opens)
        if owns.cordon and is_nobodys(node, process.form.key):
            if before is None or opens or process.kept is None:
                return WANTED
            return Write(process.kept(before))
        return Write(None, process.reopen(node, owns))

    return _change(client, name, process, decide, uid)


WANTED = "something else on it wants it closed"
GONE = "the node is gone"
OPENED = "another client has uncordoned it"


def is_opened(node: NodeView, _before: object) -> str | None:
    """Return that a node was opened by others, if so: pods may have come to it."""
    return None if node.unschedulable else OPENED


def _why_held(process: Process[C], before: C) -> str | None:
    task = process.form.task(before)
    held = task.phase is not None and not TABLE[task.phase].gives_back
    return f"{task.by} is ending its machine" if held else None


def _why_not(process: Process[C], node: NodeView, before: C | None, record: C) -> str | None:
    then = process.form.task(record).phase
    if then is None:
        return None
    now = then if before is None else process.form.task(before).phase or then
    # Where others have opened the node, what stands there counts no more.
    if node.unschedulable and now is not then and then not in TABLE[now].next:
        return f"it is {now}, and cannot be {then} next"
    guard = process.guards.get(then)
    return None if guard is None else guard(node, before)


def _change(
    client: Client,
    name: str,
    process: Process[C],
    decide: Callable[[NodeView, C | None], Write[C] | str | None],
    uid: str,
) -> Entered[C]:
    """Change a record by the result of ``decide``; a text is the reason why nothing is changed."""
    why: str | None = None

    def write(node: NodeView, _: C | None) -> Write[C] | None:
        nonlocal why
        decided = decide(node, process.read(node))
        why = decided if isinstance(decided, str) else None
        return decided if isinstance(decided, Write) else None

    node = change_record(client, name, process.form, write, uid=uid)
    if node is None:
        return Entered(why_not=GONE)
    return Entered(node, process.read(node), why)


T = TypeVar("T")

Course = Generator[float, str | None, T]
"""Yields seconds; each ``yield`` evaluates to why the process must end, or None; returns the result."""


def carry_out(course: Course[T], stop: Stop) -> T:
    """Execute a course to its end; return its result. Once ``stop`` comes, the course decides what is still to be done."""
    with closing(course):
        try:
            pause = next(course)
            while True:
                pause = course.send(stop.wait(pause))
        except StopIteration as end:
            result: T = end.value
            return result
