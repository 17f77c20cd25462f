"""Which machines are handled now: concurrent places, a limit of cordoned nodes, and one pipeline run a minute each."""

from __future__ import annotations

import enum
import math
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping

from rebalancer.machines.interruption.pipeline_run import PipelineRun
from rebalancer.policy.interruption import InterruptionPolicy
from rebalancer.signals.state import State
from rebalancer.wire.objects import Node

PACE = 60.0
"""Seconds from the begin of a machine's pipeline run to that of its next one: an announcement that flaps costs no more."""
_REMEMBERED = 10_000
"""Machines whose last begin is known."""


class Pool(enum.Enum):
    """The kind of a place: machines of one kind do not wait for places of another kind."""

    DEADLINE = "deadline"
    """It goes at a known time."""
    OPEN = "open"
    """It is not known when it goes."""
    STAYS = "stays"
    """What was done is undone."""

    @classmethod
    def of(cls, run: PipelineRun) -> Pool:
        """Return the current pool of a pipeline run."""
        if run.urgent is None:
            return cls.STAYS
        return cls.OPEN if math.isinf(run.goes_at) else cls.DEADLINE


class Pace:
    """When the last pipeline run of each machine started. Not thread-safe."""

    def __init__(self) -> None:
        self._begun: OrderedDict[tuple[str, Pool], float] = OrderedDict()

    def begin(self, machine: str, pool: Pool, now: float) -> None:
        """Record that a pipeline run starts; ``now``: monotonic seconds."""
        self._begun[machine, pool] = now
        self._begun.move_to_end((machine, pool))
        while len(self._begun) > _REMEMBERED:
            self._begun.popitem(last=False)

    def allows(self, machine: str, pool: Pool, now: float) -> bool:
        """Return whether a pipeline run may start.

        A machine with a deadline does not wait because of an earlier run without one. An undo starts at once: it
        ends a run.
        """
        return pool is Pool.STAYS or now - self._begun.get((machine, pool), -math.inf) >= PACE


class Places:
    """What may start beside the current pipeline runs: a number of machines, and a number of cordoned nodes."""

    def __init__(
        self,
        policy: InterruptionPolicy,
        nodes: Iterable[Node],
        states: Mapping[str, State],
        under_way: Iterable[PipelineRun],
    ) -> None:
        """``states``: uid of a Node -> its stored state."""
        every, runs = list(nodes), list(under_way)
        taken = Counter(map(Pool.of, runs))
        self._room = {pool: policy.at_once - taken[pool] for pool in Pool}
        self._closed = {
            *_closed_before(every, states),
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


def _closed_before(nodes: Iterable[Node], states: Mapping[str, State]) -> Iterator[str]:
    for node in nodes:
        state = states.get(node.metadata.uid)
        if state is not None and _is_open_ended(state):
            yield node.metadata.name


def _is_open_ended(state: State) -> bool:
    """Return whether a node was cordoned for announcements without a deadline that do not hold the machine."""
    return bool(state.steps and state.causes) and all(
        cause.deadline is None and not cause.held for cause in state.causes
    )


def nodes_to_withdraw(
    policy: InterruptionPolicy, nodes: Iterable[Node], states: Mapping[str, State], now: float
) -> Iterator[tuple[Node, State]]:
    """Yield (node, state) for nodes whose announced machines have not gone within the policy's waiting time.

    ``states``: uid of a Node -> its stored state; ``now``: Unix seconds.
    """
    for node in nodes:
        state = states.get(node.metadata.uid)
        if state is None or not (state.ended and state.steps and state.causes):
            continue
        ends = [state.goes_by(cause) + policy.withdrawn_after(cause.kind) for cause in state.causes]
        if now >= max(ends):
            yield node, state
