"""Which machines are attended to now: places, a limit to the nodes that are closed, and one pipeline run a minute for each."""

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
    """What a machine takes a place of: no kind of machines waits for the places of another."""

    DEADLINE = "deadline"
    """It goes at a known time."""
    OPEN = "open"
    """It is not known when it goes."""
    STAYS = "stays"
    """What was done is undone."""

    @classmethod
    def of(cls, run: PipelineRun) -> Pool:
        """Return that of a pipeline run, as it is now."""
        if run.urgent is None:
            return cls.STAYS
        return cls.OPEN if math.isinf(run.goes_at) else cls.DEADLINE


class Pace:
    """When the pipeline run of each machine began last. Not thread-safe."""

    def __init__(self) -> None:
        self._begun: OrderedDict[tuple[str, Pool], float] = OrderedDict()

    def begin(self, machine: str, pool: Pool, now: float) -> None:
        """Remember that a pipeline run begins; ``now``: seconds of a clock that is never set."""
        self._begun[machine, pool] = now
        self._begun.move_to_end((machine, pool))
        while len(self._begun) > _REMEMBERED:
            self._begun.popitem(last=False)

    def allows(self, machine: str, pool: Pool, now: float) -> bool:
        """Return whether a pipeline run may begin.

        A deadline is not kept waiting by a run without one. What was done is undone at once: that ends a run.
        """
        return pool is Pool.STAYS or now - self._begun.get((machine, pool), -math.inf) >= PACE


class Places:
    """What may begin beside the pipeline runs that are under way: so many machines, and so many closed nodes."""

    def __init__(
        self,
        policy: InterruptionPolicy,
        nodes: Iterable[Node],
        states: Mapping[str, State],
        under_way: Iterable[PipelineRun],
    ) -> None:
        """``states``: uid -> what was kept of a Node."""
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
        """Take a place for a pipeline run, if there is one; a node that is closed already needs no room."""
        pool = Pool.of(run)
        if self._room[pool] <= 0 or (pool is Pool.OPEN and self.is_limited(run)):
            return False
        self._room[pool] -= 1
        if pool is Pool.OPEN and not run.is_held:
            self._closed.add(run.node)
        return True

    def is_limited(self, run: PipelineRun) -> bool:
        """Return whether one more node would be closed without a deadline than may be."""
        if run.is_held or not run.node or run.node in self._closed:
            return False
        return len(self._closed) >= self.most_closed


def _closed_before(nodes: Iterable[Node], states: Mapping[str, State]) -> Iterator[str]:
    for node in nodes:
        state = states.get(node.metadata.uid)
        if state is not None and _is_open_ended(state):
            yield node.metadata.name


def _is_open_ended(state: State) -> bool:
    """Return whether the node was closed for announcements of which none has a deadline, nor holds the machine."""
    return bool(state.steps and state.causes) and all(
        cause.deadline is None and not cause.held for cause in state.causes
    )


def nodes_to_withdraw(
    policy: InterruptionPolicy, nodes: Iterable[Node], states: Mapping[str, State], now: float
) -> Iterator[tuple[Node, State]]:
    """Yield the nodes, and what was kept of them, for whose announcements no machine has gone for as long as the policy waits.

    ``states``: uid -> what was kept of a Node; ``now``: Unix seconds.
    """
    for node in nodes:
        state = states.get(node.metadata.uid)
        if state is None or not (state.ended and state.steps and state.causes):
            continue
        ends = [state.goes_by(cause) + policy.withdrawn_after(cause.kind) for cause in state.causes]
        if now >= max(ends):
            yield node, state
