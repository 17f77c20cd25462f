"""A plan carried out on the cluster: the only thing that a dry run does not do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rebalancer.environment import SystemClock, Timings, collector_paused
from rebalancer.errors import ClusterReadError
from rebalancer.evictor.cluster import ClusterActor, open_feed
from rebalancer.evictor.executor import Execution, Executor, Pace, Progress
from rebalancer.evictor.feed import PodFeed
from rebalancer.evictor.marks import Marker
from rebalancer.evictor.recount import Recount
from rebalancer.kube.client import Client
from rebalancer.kube.follow import Follower
from rebalancer.kube.read import Kept
from rebalancer.plan.outcome import Outcome, Status
from rebalancer.plan.plan import Move
from rebalancer.planner.planning import Planned, Planning
from rebalancer.policy.cluster import Safety
from rebalancer.stop import Stop


class Remember(Protocol):
    """Keeps what came of the moves so far."""

    def __call__(self, outcomes: Iterable[Outcome], *, cut: bool = False) -> str | None:
        """Return why it could not, or None. ``cut``: the last wave was not waited for to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acting:
    """Carries out the plan of one run."""

    client: Client
    planning: Planning
    clock: SystemClock
    timings: Timings
    safety: Safety
    instance: str
    """What acts, in the events that are written."""
    progress: Progress
    stop: Stop
    warn: Callable[[str], None]
    remember: Remember
    marker: Marker | None = None
    """None where the policy does not steer."""
    ordered: bool = False
    """People have ordered that these pods go: see Attempt."""
    grace_seconds: int | None = None
    """Of the evicted pods; None leaves each its own."""

    def execute(self, planned: Planned, kept: Kept, clock_skew: float) -> Execution | None:
        """Carry the plan out, from what was read on; None if there is nothing to do."""
        moves = [move for move in planned.left if not move.observed]
        if not moves:
            self.remember(())
            return None
        actor = ClusterActor(
            self.client,
            planned.snapshot,
            clock=self.clock.unix,
            instance=self.instance,
            warn=self.warn,
            grace_seconds=self.grace_seconds,
        )
        feed = open_feed(planned.snapshot, moves)
        follower = self._follower(kept, feed, moves)
        feed.read_all = follower.list_pods
        with self.timings.phase("act"), follower:
            executor = Executor(
                actor,
                feed,
                self.stop,
                Pace.of(self.safety),
                self.progress,
                domains=planned.snapshot.nodes.labels_of,
                marks=self.marker,
                ordered=self.ordered,
            )

            recount = Recount(
                lambda: follower.snapshot(_evicted(executor.outcomes)),
                lambda: follower.exhausted(_evicted(executor.outcomes)),
                self.stop,
            )

            def checked(moves: Sequence[Move]) -> Sequence[tuple[Move, str | None]]:
                # A run that is killed in a later wave has used up its part of the hour all the same.
                why = self.remember(executor.outcomes)
                if why is not None and self.planning.counts_the_hour:
                    raise ClusterReadError(why)
                with collector_paused():
                    return self.planning.rechecked(recount.snapshot(moves), moves, clock_skew)

            forgotten: str | None = None
            left: list[str] = []
            whole = False
            try:
                execution = executor.run(planned.left, checked)
                whole = execution.stopped is None
            finally:
                if self.marker is not None:
                    left = self.marker.clear()
                # Also after a signal, and when the cluster is lost from sight: what was done was done.
                forgotten = self.remember(executor.outcomes, cut=not whole)
                actor.close()
                for note in (*follower.notes, *left):
                    self.warn(note)
            unknown = forgotten is not None and any(
                o.status.may_have_evicted for o in execution.outcomes
            )
            return replace(execution, failed=execution.failed or unknown or bool(left))

    def _follower(self, kept: Kept, feed: PodFeed, moves: Sequence[Move]) -> Follower:
        """Return what follows the cluster; where all ends with one wave, that is the victims' pods."""
        namespaces = {move.namespace for move in moves}
        waves = {move.wave for move in moves}
        return Follower(
            self.client,
            kept,
            feed,
            seconds=max(1.0, self.stop.left()),
            everything=len(waves) > 1,
            namespace=namespaces.pop() if len(waves) == len(namespaces) == 1 else "",
        )


def _evicted(outcomes: Iterable[Outcome]) -> set[str]:
    return {done.move.uid for done in outcomes if done.status is Status.EVICTED}
