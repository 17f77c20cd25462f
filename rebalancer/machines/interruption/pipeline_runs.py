"""All interrupted machines: one pipeline run for each, and its result."""

from __future__ import annotations

import enum
import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.plain_text import printable
from rebalancer.machines.interruption.pipeline_run import PipelineContext, PipelineRun
from rebalancer.machines.interruption.record import patiently
from rebalancer.plan.machines import InterruptedMachine, PipelineOutcome, Result, StepOutcome
from rebalancer.policy.interruption import TURNED_OFF, InterruptionPolicy
from rebalancer.signals.model import (
    Interruption,
    NodeNews,
    Receiver,
    SignalError,
    is_sole,
    machine_of,
)
from rebalancer.signals.state import STATE, PipelineState, RecordedInterruption, state_in
from rebalancer.wire.objects import Node
from rebalancer.wire.times import unix_seconds

PACE = 60.0
"""Seconds from the begin of a machine's pipeline run to that of its next one: an announcement that flaps costs no more."""
_MAX_BEGUN = 10_000
"""Machines whose last begin is known."""


class Pool(enum.Enum):
    """The kinds of pipeline runs. Each kind has its own limit of runs at once, so that no kind waits for another one."""

    DEADLINE = "deadline"
    """The machine ends at a known time."""
    OPEN = "open"
    """The machine ends, but the time is not known."""
    STAYS = "stays"
    """The interruption is cancelled: what was done is undone."""

    @classmethod
    def of(cls, run: PipelineRun) -> Pool:
        """Return the current pool of a pipeline run."""
        if run.urgent is None:
            return cls.STAYS
        return cls.OPEN if math.isinf(run.goes_at) else cls.DEADLINE


class StartTimes:
    """When the last pipeline run of each machine started. Not thread-safe."""

    def __init__(self) -> None:
        self._begun: OrderedDict[tuple[str, Pool], float] = OrderedDict()

    def begin(self, machine: str, pool: Pool, now: float) -> None:
        """Record that a pipeline run starts; ``now``: monotonic seconds."""
        self._begun[machine, pool] = now
        self._begun.move_to_end((machine, pool))
        while len(self._begun) > _MAX_BEGUN:
            self._begun.popitem(last=False)

    def allows(self, machine: str, pool: Pool, now: float) -> bool:
        """Return whether a pipeline run may start.

        A machine with a deadline does not wait because of an earlier run without one. An undo starts at once: it
        ends a run.
        """
        return pool is Pool.STAYS or now - self._begun.get((machine, pool), -math.inf) >= PACE


class FreePlaces:
    """What may start beside the current pipeline runs: a number of machines, and a number of cordoned nodes."""

    def __init__(
        self,
        policy: InterruptionPolicy,
        nodes: Iterable[Node],
        states: Mapping[str, PipelineState],
        under_way: Iterable[PipelineRun],
    ) -> None:
        """``states``: uid of a Node -> its stored state."""
        every, runs = list(nodes), list(under_way)
        taken = Counter(map(Pool.of, runs))
        self._room = {pool: policy.at_once - taken[pool] for pool in Pool}
        self._closed = {
            *_why_closed_before(every, states),
            *(run.node for run in runs if Pool.of(run) is Pool.OPEN and not run.is_held),
        }
        self.most_closed = policy.closed_without_deadline.of(len(every))
        """Nodes that may be closed at once for announcements without a deadline."""

    def take(self, run: PipelineRun) -> bool:
        """Take a place for a pipeline run if one is free; a node that is cordoned already needs none for nodes."""
        pool = Pool.of(run)
        if self._room[pool] <= 0 or (pool is Pool.OPEN and self.is_limited(run)):
            return False
        self._room[pool] -= 1
        if pool is Pool.OPEN and not run.is_held:
            self._closed.add(run.node)
        return True

    def is_limited(self, run: PipelineRun) -> bool:
        """Return whether the run would cordon more nodes without a deadline than allowed."""
        if run.is_held or not run.node or run.node in self._closed:
            return False
        return len(self._closed) >= self.most_closed


def _why_closed_before(nodes: Iterable[Node], states: Mapping[str, PipelineState]) -> Iterator[str]:
    for node in nodes:
        state = states.get(node.metadata.uid)
        if state is not None and _is_open_ended(state):
            yield node.metadata.name


def _is_open_ended(state: PipelineState) -> bool:
    """Return whether a node was cordoned for announcements without a deadline that do not hold the machine."""
    return bool(state.steps and state.causes) and all(
        cause.deadline is None and not cause.held for cause in state.causes
    )


def nodes_to_withdraw(
    policy: InterruptionPolicy,
    nodes: Iterable[Node],
    states: Mapping[str, PipelineState],
    now: float,
) -> Iterator[tuple[Node, PipelineState]]:
    """Yield (node, state) for nodes whose announced machines have not gone within the policy's waiting time, or are back.

    ``states``: uid of a Node -> its stored state; ``now``: Unix seconds.
    """
    for node in nodes:
        state = states.get(node.metadata.uid)
        if state is None or not (state.ended and state.steps and state.causes):
            continue
        ends = [state.goes_by(cause) + policy.withdrawn_after(cause.kind) for cause in state.causes]
        if now >= max(ends) or _is_back(node, state):
            yield node, state


def _is_back(node: Node, state: PipelineState) -> bool:
    """Return whether a machine that was to be turned off runs again: its node has become Ready since the steps ended."""
    return all(cause.kind in TURNED_OFF for cause in state.causes) and any(
        one.type == "Ready"
        and one.status == "True"
        and unix_seconds(one.last_transition_time) > state.ended
        for one in node.status.conditions or ()
    )


_MAX_ENDED = 1000
"""Number of ended interruptions whose ids are kept, in case they are received again."""
_ATTEMPTS = 3
_PAUSE = 2.0
_READ = 10.0
"""Seconds for which it is tried to read what was kept, when the process begins to lead."""
_POLL_INTERVAL = 1.0
_NODES_INTERVAL = 10.0
"""Seconds between two looks for nodes whose machines have not gone in time."""


@dataclass
class _Entry:
    run: PipelineRun
    receivers: dict[str, Receiver] = field(default_factory=dict)
    """Id -> the source of it, which waits for its end."""
    interruptions: dict[str, Interruption] = field(default_factory=dict)
    """Id -> the interruption as it was received last."""
    thread: threading.Thread | None = None
    limited: bool = False
    """Whether it was reported that it waits for other nodes to be opened."""


class PipelineRuns:
    """Receives interruptions, and runs the pipeline for each machine within the policy's limits. Thread-safe."""

    def __init__(self, pipeline: PipelineContext, nodes: NodeNews) -> None:
        self._pipeline, self._nodes = pipeline, nodes
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._entries: dict[str, _Entry] = {}
        """Uid of the node, else name of the machine -> its run."""
        self._ended: OrderedDict[tuple[str, str], PipelineOutcome] = OrderedDict()
        """(source, id) -> what came of it."""
        self._reported: list[InterruptedMachine] = []
        """Those that have ended since the last report."""
        self.results: Counter[tuple[str, ...]] = Counter()
        """(source, result) -> how many."""
        self.steps: Counter[tuple[str, ...]] = Counter()
        """(step, status) -> how many."""
        self._pace = StartTimes()
        self._thread = threading.Thread(target=self._dispatch, name="interruptions", daemon=True)

    def start(self) -> None:
        """Start the pipeline runs that are due, now and from now on."""
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait until all threads have ended after the stop, ``seconds`` at most."""
        until = self._pipeline.clock.now() + seconds
        with self._lock:
            threads = [one.thread for one in self._entries.values() if one.thread is not None]
        for thread in filter(threading.Thread.is_alive, (self._thread, *threads)):
            thread.join(max(0.0, until - self._pipeline.clock.now()))

    # -- interruptions -----------------------------------------------------------------------------

    def resume(self, nodes: Iterable[Node]) -> None:
        """Continue the nodes that an earlier process has not finished.

        Annotations on nodes say which nodes; the stored data say what announced their machines, and how far the
        steps are. Nothing is done for announcements that were not stored, or whose source the policy does not have:
        a source repeats announcements that are still valid.
        """
        kept = self._read_states()
        for node in nodes:
            state = state_in(node.metadata.annotations, node.metadata.uid)
            if state is None or state.ended:
                continue
            for cause in self._causes_in_force(node, state, kept):
                self.take(_record(node, cause), None)

    def _read_states(self) -> Mapping[str, PipelineState]:
        """Return uid of a Node -> stored state; as last read if it cannot be read now."""
        kept, client = self._pipeline.kept, self._pipeline.client
        try:
            return patiently(
                lambda: kept.states(client), self._pipeline.stop.sooner(_READ, threading.Event())
            )
        except ClusterReadError as error:
            self._pipeline.say(f"what announced machines cannot be read: {error}")
            return kept.known_states()

    def _causes_in_force(
        self, node: Node, shown: PipelineState, states: Mapping[str, PipelineState]
    ) -> list[RecordedInterruption]:
        """Return the stored announcements of a node's machine whose sources the policy has.

        What is ``shown`` on the node does not count.
        """
        state = states.get(node.metadata.uid)
        kept = () if state is None else state.causes
        known = {(one.source, one.id) for one in kept}
        for cause in shown.causes:
            source = printable(cause.source)
            why = f"the source {source}, which this policy does not have"
            if cause.source in self._pipeline.sources:
                why = f"{printable(cause.id)} of {source}, which was not kept: its source announces it again, if it holds"
                if (cause.source, cause.id) in known:
                    continue
            self._pipeline.say(
                f"{node.metadata.name}: the annotation {STATE} names {why}; nothing is done about it"
            )
        return [one for one in kept if one.source in self._pipeline.sources]

    def take(self, interruption: Interruption, receiver: Receiver | None) -> None:
        """Receive an interruption; ``receiver`` waits for its end."""
        known = (interruption.source, interruption.id)
        with self._lock:
            outcome = self._ended.get(known)
        if outcome is not None and not interruption.cancelled:
            self._release(receiver, interruption, outcome)
            return
        node = self._node_of(interruption)
        if (ended := self._is_over(interruption, receiver, node)) is not None:
            self._end_unbegun(interruption, receiver, ended)
            return
        key = interruption.machine if node is None else node.metadata.uid
        cancelled: Receiver | None = None
        known_causes = self._others_of(interruption, node)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry(self._run_of(interruption, node))
                for one in known_causes:
                    entry.run.take(one)
                    entry.interruptions[one.id] = one
            self._ended.pop(known, None)
            entry.interruptions[interruption.id] = interruption
            if receiver is not None:
                entry.receivers[interruption.id] = receiver
            if interruption.cancelled:
                cancelled = entry.receivers.pop(interruption.id, None)
            entry.run.take(interruption)
            self._news.set()
        if cancelled is not None:
            self._release(cancelled, interruption, PipelineOutcome(Result.CANCELLED, {}))

    def _is_late(self, interruption: Interruption, receiver: Receiver | None) -> bool:
        """Return whether the machine should have gone before the interruption was first received.

        Resumed interruptions were received before.
        """
        if receiver is None or not interruption.is_over(self._pipeline.clock.unix()):
            return False
        with self._lock:
            return not any(
                interruption.id in entry.interruptions for entry in self._entries.values()
            )

    def _node_of(self, interruption: Interruption) -> Node | None:
        """Return the announced Node; None if there is none, or another Node has its name."""
        one = interruption
        node = self._nodes.node_of(one.node, one.provider_id, one.instance)
        machine = one.instance or machine_of(one.provider_id)
        if node is None or one.uid not in ("", node.metadata.uid):
            return None
        return node if machine in ("", machine_of(node.spec.provider_id)) else None

    def _is_over(
        self, interruption: Interruption, receiver: Receiver | None, node: Node | None
    ) -> Result | None:
        """Return the result if the interruption ends before anything is started, else None."""
        if self._is_late(interruption, receiver):
            return Result.EXPIRED
        return Result.GONE if node is None and interruption.uid else None

    def _end_unbegun(
        self, interruption: Interruption, receiver: Receiver | None, result: Result
    ) -> None:
        one, outcome = interruption, PipelineOutcome(result, {})
        with self._lock:
            self._ended[one.source, one.id] = outcome
            self.results[one.source, outcome.result.value] += 1
        late = "it was to have gone before this was received"
        why = late if result is Result.EXPIRED else "its node is gone"
        self._pipeline.say(f"{one.machine}: {why} ({one.kind}, by {one.source}); nothing is done")
        self._release(receiver, one, outcome)

    def _run_of(self, interruption: Interruption, node: Node | None) -> PipelineRun:
        if node is None:
            machine = interruption.instance or machine_of(interruption.provider_id)
            return PipelineRun(self._pipeline, "", "", machine)
        return PipelineRun(
            self._pipeline,
            node.metadata.name,
            node.metadata.uid,
            machine_of(node.spec.provider_id),
            is_sole=lambda: is_sole(node, self._nodes.every()),
        )

    def _others_of(self, interruption: Interruption, node: Node | None) -> list[Interruption]:
        """Return the other announcements of a machine whose interruption is cancelled; they may still be in force."""
        state = None if node is None else state_in(node.metadata.annotations, node.metadata.uid)
        if node is None or state is None or not interruption.cancelled:
            return []
        with self._lock:
            if node.metadata.uid in self._entries:
                return []
        kept = self._read_states()
        return [_record(node, cause) for cause in self._causes_in_force(node, state, kept)]

    def open_interruptions(self, receiver: Receiver) -> list[Interruption]:
        """Return the unfinished interruptions of a source, which need heartbeats."""
        with self._lock:
            return [
                entry.interruptions[id_]
                for entry in self._entries.values()
                for id_, of in entry.receivers.items()
                if of is receiver
            ]

    @property
    def needs_planner(self) -> bool:
        """Whether a step is running whose work the planner does."""
        with self._lock:
            running = [entry.run.running for entry in self._entries.values()]
        return any(step is not None and step.params.strategy is not None for step in running)

    def report(self) -> list[InterruptedMachine]:
        """Return the machines with unfinished runs, and those whose runs ended since the last call."""
        with self._lock:
            ended, self._reported = self._reported, []
            entries = list(self._entries.values())
        return [
            *ended,
            *(
                _as_interrupted_machine(
                    one.run, "waiting" if one.thread is None else "under-way", one.run.outcomes()
                )
                for one in entries
            ),
        ]

    def counts(self) -> Mapping[str, int]:
        """Return how many machines wait, and for how many the pipeline runs."""
        with self._lock:
            under_way = sum(one.thread is not None for one in self._entries.values())
            return {"waiting": len(self._entries) - under_way, "under-way": under_way}

    # -- pipeline runs -----------------------------------------------------------------------------

    def _dispatch(self) -> None:
        stop, looked = self._pipeline.stop, -math.inf
        while stop.reason() is None:
            self._news.clear()
            if self._pipeline.clock.now() - looked >= _NODES_INTERVAL:
                looked = self._pipeline.clock.now()
                self._withdraw_due()
            self._end_gone()
            self._begin_due()
            stop.sooner(_POLL_INTERVAL, self._news).wait(_POLL_INTERVAL)

    def _end_gone(self) -> None:
        """End runs that wait for nodes which are gone, or whose names other nodes have now."""
        with self._lock:
            waiting = {key: one for key, one in self._entries.items() if one.thread is None}
        if not waiting:
            return
        there = {node.metadata.uid for node in self._nodes.every()}
        for key, entry in waiting.items():
            if not there or not entry.run.uid or entry.run.uid in there:
                continue
            with self._lock:
                if self._entries.get(key) is not entry or entry.thread is not None:
                    continue
                del self._entries[key]
            for one in entry.interruptions.values():
                self._follow_machine(one, entry.receivers.get(one.id))

    def _follow_machine(self, interruption: Interruption, receiver: Receiver | None) -> None:
        """Continue an announcement whose Node is gone if its machine has joined again as another Node."""
        one = interruption
        node = self._nodes.node_of("", "", one.instance) if one.instance else None
        if node is None:
            self._end_unbegun(one, receiver, Result.GONE)
            return
        name, provider = node.metadata.name, node.spec.provider_id
        self.take(replace(one, node=name, uid=node.metadata.uid, provider_id=provider), receiver)

    def _withdraw_due(self) -> None:
        """Give back nodes whose machines have not gone in time."""
        now = self._pipeline.clock.unix()
        states = self._pipeline.kept.known_states()
        every = list(self._nodes.every())
        for node, state in nodes_to_withdraw(self._pipeline.policy, every, states, now):
            uid = node.metadata.uid
            if not {cause.source for cause in state.causes} <= self._pipeline.sources:
                continue
            with self._lock:
                if uid in self._entries:
                    continue
                last = _record(node, state.causes[0])
                entry = self._entries[uid] = _Entry(self._run_of(last, node))
                entry.run.last, entry.run.withdraws = last, True
        self._forget_gone({node.metadata.uid for node in every}, states)

    def _forget_gone(self, there: Collection[str], states: Mapping[str, PipelineState]) -> None:
        """Drop the stored data of Nodes that are gone; ``there``: uids of existing Nodes."""
        with self._lock:
            gone = [uid for uid in states if uid not in there and uid not in self._entries]
        if not (there and gone):
            return
        try:
            self._pipeline.kept.forget(self._pipeline.client, *gone)
        except ClusterReadError as error:
            self._pipeline.say(f"what was kept of nodes that are gone cannot be removed: {error}")

    def _begin_due(self) -> None:
        clock = self._pipeline.clock
        with self._lock:
            due = [
                (key, entry)
                for key, entry in self._entries.items()
                if entry.thread is None
                and entry.run.begins() <= clock.unix()
                and self._pace.allows(key, Pool.of(entry.run), clock.now())
            ]
            if not due:
                return
            under_way = [one.run for one in self._entries.values() if one.thread is not None]
            states = self._pipeline.kept.known_states()
            places = FreePlaces(self._pipeline.policy, self._nodes.every(), states, under_way)
            for key, entry in sorted(due, key=lambda item: item[1].run.goes_at):
                if places.take(entry.run):
                    self._begin(key, entry)
                elif places.is_limited(entry.run) and not entry.limited:
                    entry.limited = True
                    self._pipeline.say(
                        f"{entry.run.machine}: it waits: no more than {places.most_closed} nodes are closed at once without a deadline"
                        " (interruption.closedWithoutDeadline)"
                    )

    def _begin(self, key: str, entry: _Entry) -> None:
        entry.thread = threading.Thread(
            target=self._run_one, args=(key, entry), name=f"interruption-{key}", daemon=True
        )
        entry.thread.start()

    def _run_one(self, key: str, entry: _Entry) -> None:
        try:
            self._until_its_end(key, entry)
        except Exception as error:  # noqa: BLE001  # of one machine: the others keep their places
            self._pipeline.say(
                f"{entry.run.machine}: {type(error).__name__}: {error}; it is tried again"
            )
            self._pipeline.stop.wait(_PAUSE)
            with self._lock:
                entry.thread = None

    def _until_its_end(self, key: str, entry: _Entry) -> None:
        pipeline_run = entry.run
        clock = self._pipeline.clock
        begins = Pool.of(pipeline_run), clock.now()
        while (outcome := pipeline_run.run()) is not None:
            undone = outcome.result in (Result.CANCELLED, Result.WITHDRAWN)
            with self._lock:
                self._pace.begin(key, *begins)
                if undone and pipeline_run.urgent is not None:
                    # It goes after all: that is another run, in its turn.
                    entry.run, entry.thread = self._again(pipeline_run), None
                    self._news.set()
                    return
                if not undone and pipeline_run.urgent is None:
                    continue
                del self._entries[key]
                interruptions = dict(entry.interruptions)
                self._keep(pipeline_run, interruptions, outcome)
            for id_, receiver in entry.receivers.items():
                self._release(receiver, interruptions[id_], outcome)
            self._news.set()
            return

    def _again(self, before: PipelineRun) -> PipelineRun:
        """Return a run with the valid interruptions, for a machine whose steps were undone."""
        return PipelineRun(
            self._pipeline,
            before.node,
            before.uid,
            before.instance,
            causes={**before.causes},
            is_sole=before.is_sole,
        )

    def _keep(
        self,
        pipeline_run: PipelineRun,
        interruptions: Mapping[str, Interruption],
        outcome: PipelineOutcome,
    ) -> None:
        self._reported.append(
            _as_interrupted_machine(pipeline_run, outcome.result.value, outcome.steps)
        )
        if outcome.result is Result.WITHDRAWN:
            self.results[pipeline_run.last.source, outcome.result.value] += 1
        del self._reported[:-_MAX_ENDED]
        for one in interruptions.values():
            if one.cancelled and outcome.result is not Result.CANCELLED:
                continue
            if not one.cancelled:
                self._ended[one.source, one.id] = outcome
            self.results[one.source, outcome.result.value] += 1
        while len(self._ended) > _MAX_ENDED:
            self._ended.popitem(last=False)
        for name, step in outcome.steps.items():
            self.steps[name, step.status.value] += 1

    def _release(
        self, receiver: Receiver | None, interruption: Interruption, outcome: PipelineOutcome
    ) -> None:
        """Let the source release the interruption; give up after some attempts: it will be received again."""
        if receiver is None:
            return
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                receiver.done(interruption, outcome)
            except SignalError as error:
                self._pipeline.say(f"{interruption.source}: {interruption.machine}: {error}")
            except Exception as error:  # noqa: BLE001  # a plug-in's error must not end the runs of other machines
                self._pipeline.say(f"{interruption.source}: {type(error).__name__}: {error}")
            else:
                return
            if attempt == _ATTEMPTS or self._pipeline.stop.wait(_PAUSE * attempt) is not None:
                return


def _record(node: Node, cause: RecordedInterruption) -> Interruption:
    return Interruption(
        id=cause.id,
        kind=cause.kind,
        source=cause.source,
        node=node.metadata.name,
        uid=node.metadata.uid,
        provider_id=node.spec.provider_id,
        deadline=cause.deadline,
        until=cause.until,
        held=cause.held,
        reason=cause.reason,
    )


def _as_interrupted_machine(
    pipeline_run: PipelineRun, result: str, steps: Mapping[str, StepOutcome]
) -> InterruptedMachine:
    urgent, states = pipeline_run.urgent, pipeline_run.record.state.causes
    if urgent is None and states:
        first = states[0]
    else:
        first = RecordedInterruption.of(urgent or pipeline_run.last)
    return InterruptedMachine(
        pipeline_run.node,
        pipeline_run.instance,
        first.kind,
        first.source,
        first.deadline,
        result,
        steps,
    )
