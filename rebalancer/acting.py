"""A plan carried out on the cluster: the only thing that a dry run does not do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rebalancer.environment import SystemClock, Timings
from rebalancer.evictor.cluster import ClusterActor, open_feed
from rebalancer.evictor.executor import Execution, Executor, Pace, Progress
from rebalancer.evictor.outcomes import Outcome
from rebalancer.kube.client import Client
from rebalancer.kube.read import read_cluster
from rebalancer.planner.plan import Move
from rebalancer.planner.recheck import recheck
from rebalancer.planning import Planned, Planning
from rebalancer.policy.cluster import Safety


@dataclass(frozen=True, slots=True, kw_only=True)
class Acting:
    """Carries out the plan of one run."""

    client: Client
    planning: Planning
    clock: SystemClock
    timings: Timings
    safety: Safety
    deadline: float
    """Of the clock."""
    instance: str
    """Who acts, in the events that are written."""
    progress: Progress
    stopped: Callable[[], str | None]
    """Says why the run must end, or None."""
    warn: Callable[[str], None]
    remember: Callable[[Iterable[Outcome]], None]
    """Keeps what came of the moves so far."""

    def execute(self, planned: Planned) -> Execution | None:
        """Carry the plan out; None if there is nothing to do."""
        moves = [move for move in planned.plan.moves if not move.observed]
        if not moves:
            self.remember(())
            return None
        actor = ClusterActor(
            self.client,
            planned.snapshot,
            clock=self.clock.unix,
            instance=self.instance,
            warn=self.warn,
        )
        left = self.deadline - self.clock.now()
        feed = open_feed(self.client, planned.snapshot, moves, seconds=max(1.0, left))
        with self.timings.phase("act"), feed:
            executor = Executor(
                actor,
                feed,
                self.clock,
                self._pace(),
                self.progress,
                stopped=self.stopped,
                domains=planned.snapshot.nodes.labels_of,
            )
            try:
                return executor.run(
                    planned.plan.moves, lambda rest: self._recheck(rest, executor.outcomes)
                )
            finally:
                # Also after a signal, and when the cluster is lost from sight: what was done was done.
                self.remember(executor.outcomes)

    def _recheck(
        self, rest: Sequence[Move], outcomes: Iterable[Outcome]
    ) -> Sequence[tuple[Move, str | None]]:
        """Judge what is left of the plan on the cluster as it is now, with what was done remembered."""
        # A run that is killed in a later wave has used up its part of the hour all the same.
        self.remember(outcomes)
        reading = read_cluster(self.client, clock=self.clock.unix)
        snapshot, skew = reading.snapshot, reading.readings.clock_skew or 0.0
        if reasons := self.planning.standstill(snapshot, skew):
            return [(move, f"standing still: {reasons[0]}") for move in rest]
        return recheck(self.planning.planner(snapshot), rest)

    def _pace(self) -> Pace:
        return Pace(
            deadline=self.deadline,
            pending=self.safety.max_pending_time.total_seconds(),
            ready=self.safety.max_ready_time.total_seconds(),
        )
