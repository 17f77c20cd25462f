"""All machines that will go: who hears of them, who attends to them, and what has come of them."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rebalancer.interruption.course import Course
from rebalancer.interruption.world import World
from rebalancer.signals.model import (
    Attended,
    Interruption,
    Outcome,
    Receiver,
    Result,
    SignalError,
)
from rebalancer.signals.nodes import NodeNews
from rebalancer.signals.state import Cause, state_in
from rebalancer.wire.objects import Node

_REMEMBERED = 1000
"""So many ended interruptions are known by their ids, should they be said again."""
_ATTEMPTS = 3
_PAUSE = 2.0
_LOOK = 1.0


@dataclass
class _Entry:
    course: Course
    receivers: dict[str, Receiver] = field(default_factory=dict)
    """Id -> who said it, and waits for its end."""
    said: dict[str, Interruption] = field(default_factory=dict)
    """Id -> what was said last."""
    thread: threading.Thread | None = None


class Courses:
    """Takes what sources say, and runs a course for each machine, so many at once as the policy allows. Thread-safe."""

    def __init__(self, world: World, nodes: NodeNews) -> None:
        self._world, self._nodes = world, nodes
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._entries: dict[str, _Entry] = {}
        """Name of the node, else of the machine -> its course."""
        self._ended: OrderedDict[tuple[str, str], Outcome] = OrderedDict()
        """(source, id) -> what came of it."""
        self._reported: list[Attended] = []
        """Those that have ended since the last report."""
        self.results: Counter[tuple[str, ...]] = Counter()
        """(source, result) -> how many."""
        self.steps: Counter[tuple[str, ...]] = Counter()
        """(step, status) -> how many."""
        self._thread = threading.Thread(target=self._dispatch, name="interruptions", daemon=True)

    def start(self) -> None:
        """Go on with what a process before this one has begun, then take what is said."""
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait until all threads have ended, after the world's stop; so many seconds at most."""
        until = self._world.clock.now() + seconds
        with self._lock:
            threads = [one.thread for one in self._entries.values() if one.thread is not None]
        for thread in filter(threading.Thread.is_alive, (self._thread, *threads)):
            thread.join(max(0.0, until - self._world.clock.now()))

    # -- what sources say --------------------------------------------------------------------------

    def resume(self, nodes: Iterable[Node]) -> None:
        """Go on with the nodes that a process before this one has not brought to an end."""
        for node in nodes:
            state = state_in(node.metadata.annotations or {})
            if state is None or state.ended:
                continue
            for cause in state.causes:
                self.take(_said_again(node, cause), None)

    def take(self, said: Interruption, receiver: Receiver | None) -> None:
        """Take an interruption; ``receiver`` waits for its end."""
        known = (said.source, said.id)
        with self._lock:
            outcome = self._ended.get(known)
        if outcome is not None and not said.cancelled:
            self._done(receiver, said, outcome)
            return
        node = self._nodes.node_of(said.node, said.provider_id, said.instance)
        key = said.machine if node is None else node.metadata.name
        cancelled: Receiver | None = None
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry(self._course(said, node))
                if said.cancelled:
                    self._take_known(entry, node)
            self._ended.pop(known, None)
            entry.said[said.id] = said
            if receiver is not None:
                entry.receivers[said.id] = receiver
            if said.cancelled:
                cancelled = entry.receivers.pop(said.id, None)
            entry.course.take(said)
            self._news.set()
        if cancelled is not None:
            self._done(cancelled, said, Outcome(Result.CANCELLED, {}))

    def _course(self, said: Interruption, node: Node | None) -> Course:
        name = "" if node is None else node.metadata.name
        provider = said.provider_id if node is None else node.spec.provider_id
        return Course(self._world, name, said.instance or provider.rpartition("/")[2])

    def _take_known(self, entry: _Entry, node: Node | None) -> None:
        """Take what else stands on the node: where one is cancelled, others may still hold."""
        state = None if node is None else state_in(node.metadata.annotations or {})
        if node is None or state is None:
            return
        for cause in state.causes:
            one = _said_again(node, cause)
            entry.course.take(one)
            entry.said[one.id] = one

    def attended(self, receiver: Receiver) -> list[Interruption]:
        """Return what a source has said and that has not come to its end: it wants heartbeats."""
        with self._lock:
            return [
                entry.said[id_]
                for entry in self._entries.values()
                for id_, of in entry.receivers.items()
                if of is receiver
            ]

    @property
    def presses(self) -> bool:
        """Whether a step runs whose work is the planner's."""
        with self._lock:
            running = [entry.course.running for entry in self._entries.values()]
        return any(step is not None and step.params.strategy is not None for step in running)

    def report(self) -> list[Attended]:
        """Return the machines that are attended to, and those that came to their end since this was asked last."""
        with self._lock:
            ended, self._reported = self._reported, []
            entries = list(self._entries.values())
        return [
            *ended,
            *(
                _attended(one.course, "waiting" if one.thread is None else "under-way")
                for one in entries
            ),
        ]

    def counts(self) -> Mapping[str, int]:
        """Return how many machines wait for their time or a place, and how many are attended to."""
        with self._lock:
            under_way = sum(one.thread is not None for one in self._entries.values())
            return {"waiting": len(self._entries) - under_way, "under-way": under_way}

    # -- courses -----------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        stop = self._world.stop
        while stop.reason() is None:
            self._news.clear()
            self._begin_due()
            stop.sooner(_LOOK, self._news).wait(_LOOK)

    def _begin_due(self) -> None:
        now = self._world.clock.unix()
        with self._lock:
            room = self._world.policy.at_once
            room -= sum(one.thread is not None for one in self._entries.values())
            waiting = [(k, one) for k, one in self._entries.items() if one.thread is None]
            due = [(k, one) for k, one in waiting if one.course.begins() <= now]
            due.sort(key=lambda item: item[1].course.goes_at)
            for key, entry in due[: max(0, room)]:
                entry.thread = threading.Thread(
                    target=self._attend, args=(key, entry), name=f"interruption-{key}", daemon=True
                )
                entry.thread.start()

    def _attend(self, key: str, entry: _Entry) -> None:
        try:
            self._until_its_end(key, entry)
        except Exception as error:  # noqa: BLE001  # of one machine: the others keep their places
            self._world.say(f"{key}: {type(error).__name__}: {error}; it is tried again")
            self._world.stop.wait(_PAUSE)
            with self._lock:
                entry.thread = None

    def _until_its_end(self, key: str, entry: _Entry) -> None:
        course = entry.course
        while (outcome := course.run()) is not None:
            with self._lock:
                if (outcome.result is Result.CANCELLED) != (course.urgent is None):
                    continue
                del self._entries[key]
                said = dict(entry.said)
                self._keep(course, said, outcome)
            for id_, receiver in entry.receivers.items():
                self._done(receiver, said[id_], outcome)
            self._news.set()
            return

    def _keep(self, course: Course, said: Mapping[str, Interruption], outcome: Outcome) -> None:
        self._reported.append(_attended(course, outcome.result.value))
        del self._reported[:-_REMEMBERED]
        for one in said.values():
            if one.cancelled and outcome.result is not Result.CANCELLED:
                continue
            if not one.cancelled:
                self._ended[one.source, one.id] = outcome
            self.results[one.source, outcome.result.value] += 1
        while len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)
        for name, step in outcome.steps.items():
            self.steps[name, step.status.value] += 1

    def _done(self, receiver: Receiver | None, said: Interruption, outcome: Outcome) -> None:
        """Let the source know; after some attempts it is left: what is not done is said again."""
        if receiver is None:
            return
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                receiver.done(said, outcome)
            except SignalError as error:
                self._world.say(f"{said.source}: {said.machine}: {error}")
            except Exception as error:  # noqa: BLE001  # a plug-in's error must not end what attends to other machines
                self._world.say(f"{said.source}: {type(error).__name__}: {error}")
            else:
                return
            if attempt == _ATTEMPTS or self._world.stop.wait(_PAUSE * attempt) is not None:
                return


def _said_again(node: Node, cause: Cause) -> Interruption:
    return Interruption(
        id=cause.id,
        kind=cause.kind,
        source=cause.source,
        node=node.metadata.name,
        provider_id=node.spec.provider_id,
        deadline=cause.deadline,
        reason=cause.reason,
    )


def _attended(course: Course, result: str) -> Attended:
    urgent, states = course.urgent, course.record.state.causes
    first = Cause.of(urgent) if urgent is not None else states[0] if states else Cause("", "", "")
    return Attended(
        course.node,
        course.instance,
        first.kind,
        first.source,
        first.deadline,
        result,
        course.outcomes(),
    )
