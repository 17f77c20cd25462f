"""Runs the waves of a plan: evict, wait for the replacements, note where they landed, check the rest.

Small waves are evicted in the plan's order. In large ones evictions run in parallel across
PodDisruptionBudgets and one by one within each, since concurrent evictions under one budget only conflict
(kubernetes/kubernetes#102361).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from rebalancer.errors import ClusterReadError
from rebalancer.evictor.attempt import Actor, Attempt, Clock, Patience, Stopped
from rebalancer.evictor.landing import Arrivals, Feed, Replacement
from rebalancer.plan.outcome import Outcome, Status
from rebalancer.plan.plan import Move


class Progress(Protocol):
    """Is told what happens, as it happens."""

    def wave_started(self, wave: int, waves: int, moves: int) -> None:
        """A wave begins."""

    def evicted(self, move: Move) -> None:
        """The server took an eviction."""

    def not_evicted(self, outcome: Outcome) -> None:
        """A move of the wave ended without an eviction."""

    def landed(self, move: Move, node: str, *, predicted: bool, seconds: float) -> None:
        """A replacement has a node."""

    def waiting(self, wave: int, pending: int, unready: int) -> None:
        """Replacements are still without a node, or not ready."""


Recheck = Callable[[Sequence[Move]], Sequence[tuple[Move, str | None]]]
"""Given the moves that are left, returns each as expected now, and why it no longer pays or None."""

GONE_SECONDS = 40.0
"""Longest wait for who made way to be gone; the default grace period is 30."""
_MISSES = 0.05
_LEAST_MISSES = 3
_CHANCE = 0.01
# Probabilities are told with six digits, for up to twenty nodes.
_ROUNDED = 1e-4


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things may take, in seconds."""

    deadline: float
    """Clock time at which the run ends, whatever is left."""
    ready: float = 120.0
    """For all replacements of a wave to be ready."""
    pending: float = 30.0
    """For a replacement to be scheduled; after that the run stops."""
    in_order: int = 50
    """Waves of up to so many moves are evicted in the plan's order, which keeps landings predictable."""
    placed: float = 1.0
    """For one replacement to have a node, before the next eviction of such a wave."""
    gone: float = GONE_SECONDS
    """For who made way to be gone, before the pod whose way it is."""
    parallel: int = 8
    """Evictions at once in larger waves."""


@dataclass(frozen=True, slots=True)
class Execution:
    """What came of a plan."""

    outcomes: tuple[Outcome, ...]
    """One per move, in the plan's order."""
    stopped: str | None
    """Why the run ended before the plan did, if so."""
    failed: bool
    """Something planned failed or was cut off for a reason of its own (exit code 4)."""
    refused: str | None = None
    """The API server refused the first eviction outright (exit code 3)."""


class Executor:
    """Executes one plan."""

    def __init__(
        self,
        actor: Actor,
        feed: Feed,
        clock: Clock,
        pace: Pace,
        progress: Progress,
        *,
        stopped: Stopped,
        domains: Callable[[str], Mapping[str, str]],
    ) -> None:
        """``domains`` returns the labels of a node, for comparing landings by their domains."""
        self._actor, self._clock, self._pace = actor, clock, pace
        self._progress, self._stopped, self._domains = progress, stopped, domains
        self._arrivals = Arrivals(feed)
        self._outcomes: dict[str, Outcome] = {}
        self._why: str | None = None
        self._failed = False
        self._refused: str | None = None

    def run(self, moves: Sequence[Move], recheck: Recheck) -> Execution:
        """Carry out ``moves``; between waves ``recheck`` drops those that no longer pay."""
        left = [move for move in moves if not move.observed]
        for move in moves:
            if move.observed:
                self._note(Outcome(move, Status.OBSERVED, "its strategy only observes"))
        waves = max((move.wave for move in left), default=0)
        first = True
        while left and self._why is None:
            wave = left[0].wave
            if not first:
                self._until_gone(left)
                left = self._rechecked(left, recheck)
            if self._why is not None:
                break
            now = [move for move in left if move.wave == wave]
            left = [move for move in left if move.wave != wave]
            if now:
                first = False
                self._progress.wave_started(wave, waves, len(now))
                self._wave(now, wave)
        if left and self._clock.now() >= self._pace.deadline:
            # Cut off by the clock, not held back by a budget: work that was planned is not done.
            self._failed = True
        for move in left:
            self._note(Outcome(move, Status.NOT_ATTEMPTED, self._why or "the run ended"))
        outcomes = tuple(self._outcomes[move.uid] for move in moves)
        return Execution(outcomes, self._why, self._failed, self._refused)

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What came of the moves so far, also where :meth:`run` was left by an exception."""
        return tuple(self._outcomes.values())

    def _until_gone(self, left: Sequence[Move]) -> None:
        """Wait until those are gone that made way for a move of ``left``.

        The plan counts on their room. As long as they hold it, the way looks shut, and the eviction of who
        made way would have been for nothing.
        """
        before = made_way(self._outcomes.values(), left)
        until = min(self._clock.now() + self._pace.gone, self._pace.deadline)
        while before and self._arrivals.ending(before):
            wait = until - self._clock.now()
            if wait <= 0 or self._stopped() is not None:
                return
            try:
                self._arrivals.wait(min(1.0, wait))
            except ClusterReadError:
                return  # whoever reads the cluster next says so

    def _rechecked(self, left: Sequence[Move], recheck: Recheck) -> list[Move]:
        kept: list[Move] = []
        try:
            judged = recheck(left)
        except ClusterReadError as error:
            self._cut(f"the cluster could not be read between waves: {error}")
            return list(left)
        for move, why in judged:
            if why is None:
                kept.append(move)
            else:
                self._note(Outcome(move, Status.DROPPED, why))
        return kept

    # -- one wave ----------------------------------------------------------------------------------

    def _wave(self, moves: Sequence[Move], wave: int) -> None:
        self._arrivals.begin_wave()
        if len(moves) <= self._pace.in_order:
            done = self._in_order(moves)
        else:
            done = self._in_parallel(moves)
        gone = [outcome.move for outcome in done if outcome.status is Status.EVICTED]
        for outcome in done:
            self._note(outcome)
            if outcome.status is not Status.EVICTED:
                self._progress.not_evicted(outcome)
        self._judge_answers(done)
        if gone:
            self._await(gone, wave)
            self._judge_landings()

    def _in_order(self, moves: Sequence[Move]) -> list[Outcome]:
        """Evict one after the other, each once the replacement before it has a node.

        The plan predicts each landing with those before it in place. Replacements that reach the scheduler
        in another order take each other's places.
        """
        done: list[Outcome] = []
        for move in moves:
            done += self._lane([move])
            if done[-1].status is Status.EVICTED:
                self._until_placed(move)
        return done

    def _until_placed(self, move: Move) -> None:
        """Wait a moment for the replacement of ``move`` to have a node; some come only much later."""
        until = self._clock.now() + self._pace.placed
        while _unplaced(self._arrivals.found([move]).get(move.uid)):
            left = min(until, self._pace.deadline) - self._clock.now()
            if left <= 0 or self._stopped() is not None:
                return
            try:
                self._arrivals.wait(left)
            except ClusterReadError:
                return  # whoever waits for the whole wave says so

    def _in_parallel(self, moves: Sequence[Move]) -> list[Outcome]:
        """Evict in parallel across PodDisruptionBudgets, one by one within each."""
        lanes: dict[str, list[Move]] = {}
        for move in moves:
            lanes.setdefault(move.budgets[0] if move.budgets else move.uid, []).append(move)
        with ThreadPoolExecutor(max_workers=self._pace.parallel) as pool:
            return [outcome for lane in pool.map(self._lane, lanes.values()) for outcome in lane]

    def _lane(self, moves: Sequence[Move]) -> list[Outcome]:
        """Evict the moves of one PodDisruptionBudget one after the other."""
        attempt = Attempt(self._actor, self._clock, Patience(self._pace.deadline), self._stopped)
        outcomes: list[Outcome] = []
        for move in moves:
            outcome = attempt.evict(move)
            if outcome.status is Status.EVICTED:
                self._progress.evicted(move)
                self._actor.announce(move)
            outcomes.append(outcome)
        return outcomes

    def _judge_answers(self, done: Sequence[Outcome]) -> None:
        refused = [o for o in done if o.status is Status.REFUSED]
        if refused:
            evicted = any(o.status is Status.EVICTED for o in self._outcomes.values())
            self._cut(refused[0].message)
            if not evicted:
                self._refused = refused[0].message
        if any(o.status in (Status.FAILED, Status.LOST, Status.MISCONFIGURED) for o in done):
            self._failed = True
        if (why := self._stopped()) is not None:
            self._cut(why)

    def _judge_landings(self) -> None:
        """Stop if replacements landed outside their predictions more often than those may be wrong."""
        landed = [o.predicted for o in self._outcomes.values() if o.predicted is not None]
        elsewhere = landed.count(False)
        if contradicts(elsewhere, len(landed)):
            self._cut(
                f"{elsewhere} of {len(landed)} replacements landed where none was predicted: "
                "does the scheduler run with the version, profile and weights that the policy names?"
            )

    def _cut(self, why: str) -> None:
        self._why = self._why or why
        self._failed = True

    # -- landings ----------------------------------------------------------------------------------

    def _await(self, moves: Sequence[Move], wave: int) -> None:
        """Wait until every replacement of the wave is ready, noting where each landed."""
        started = self._clock.now()
        announced: set[str] = set()
        told: tuple[int, int] | None = None
        while True:
            found = self._arrivals.found(moves)
            now = self._clock.now()
            self._record(moves, found, now - started, announced)
            # Whether its owner is still one to take pods from is judged before the next wave.
            awaited = [m.uid for m in moves if not self._arrivals.withdrawn(m.uid, found)]
            pending = sum(1 for uid in awaited if _unplaced(found.get(uid)))
            unready = sum(1 for uid in awaited if not _is_ready(found.get(uid)))
            if unready == 0:
                return
            if self._over(now - started, pending, unready):
                return
            if (pending, unready) != told:
                told = (pending, unready)
                self._progress.waiting(wave, pending, unready)
            try:
                self._arrivals.wait(min(1.0, max(0.05, self._pace.deadline - now)))
            except ClusterReadError as error:
                self._cut(f"lost sight of the pods: {error}")
                return

    def _over(self, waited: float, pending: int, unready: int) -> bool:
        """Tell whether waiting is over, and note why the run ends if it does."""
        if (why := self._stopped()) is not None:
            self._cut(why)
        elif pending and waited >= self._pace.pending:
            self._cut(f"{pending} replacement(s) still without a node after {waited:.0f} s")
        elif self._clock.now() >= self._pace.deadline or waited >= self._pace.ready:
            # Held back by the budget of what may be in flight: normal life, the next run goes on.
            self._why = self._why or (
                f"{unready} replacement(s) not ready yet after {waited:.0f} s; "
                "what is in flight counts in the next run"
            )
        return self._why is not None

    def _record(
        self,
        moves: Sequence[Move],
        found: dict[str, Replacement],
        seconds: float,
        announced: set[str],
    ) -> None:
        for move in moves:
            replacement = found.get(move.uid)
            if replacement is None or not replacement.node or move.uid in announced:
                continue
            announced.add(move.uid)
            predicted = as_predicted(move, self._domains(replacement.node), replacement.node)
            self._note(
                Outcome(
                    move,
                    Status.EVICTED,
                    f"replaced by {replacement.name}",
                    landed=replacement.node,
                    predicted=predicted,
                    seconds=round(seconds, 3),
                )
            )
            self._progress.landed(move, replacement.node, predicted=predicted, seconds=seconds)

    def _note(self, outcome: Outcome) -> None:
        self._outcomes[outcome.move.uid] = outcome


def made_way(outcomes: Iterable[Outcome], left: Sequence[Move]) -> list[Move]:
    """Return the moves that were carried out to make way for one of ``left``."""
    coming = {move.uid for move in left}
    return [
        outcome.move
        for outcome in outcomes
        if outcome.status is Status.EVICTED and outcome.move.makes_way_for in coming
    ]


def as_predicted(move: Move, domains: Mapping[str, str], node: str) -> bool:
    """Tell whether a replacement on ``node`` is where the move expected it.

    ``domains`` are the node's topology labels. What counts is the domain that the move's terms look at;
    where they look at nodes only, the node.
    """
    if any(landing.node == node for landing in move.landings):
        return True
    listed = sum(landing.probability for landing in move.landings)
    if listed < 1.0 - _ROUNDED and not any(landing.domains for landing in move.landings):
        return True  # one of the nodes that are too many to be listed
    return any(
        landing.domains and all(domains.get(k) == v for k, v in landing.domains.items())
        for landing in move.landings
    )


def contradicts(elsewhere: int, landed: int) -> bool:
    """Tell whether so many landings outside their predictions are more than chance.

    One landing in twenty may miss: ties, an order of arrival that is not ours. What then happens in less
    than one run in a hundred, by the tail of the binomial distribution, is taken for a wrong model.
    """
    fewer = sum(
        math.comb(landed, k) * _MISSES**k * (1 - _MISSES) ** (landed - k) for k in range(elsewhere)
    )
    return elsewhere >= _LEAST_MISSES and 1.0 - fewer < _CHANCE


def _unplaced(replacement: Replacement | None) -> bool:
    return replacement is None or not replacement.node


def _is_ready(replacement: Replacement | None) -> bool:
    return replacement is not None and bool(replacement.node) and replacement.ready


__all__ = ["Execution", "Executor", "Pace", "Progress", "Recheck"]
