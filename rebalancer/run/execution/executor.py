"""Execute the waves of a plan: evict, wait for replacements, record landings, judge the remaining moves again.

Small waves are evicted in the plan's order. In large ones evictions run in parallel across PodDisruptionBudgets and
one by one within each, since concurrent evictions under one budget only conflict (kubernetes/kubernetes#102361).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType
from typing import Protocol

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.plain_text import count
from rebalancer.base.stop import Stop
from rebalancer.plan.plan import IN_ORDER, REPLACED_BY, Cause, Method, Move, Outcome, Status
from rebalancer.planner.planning import ClusterNow
from rebalancer.policy.cluster import Safety
from rebalancer.run.execution.attempt import Actor, Attempt, GangAttempt, RolloutAttempt
from rebalancer.run.execution.landing import Arrivals, Feed, Replacement
from rebalancer.run.execution.marks import Marks


class WaveProgress(Protocol):
    """Receives the events of a wave as they happen."""

    def wave_started(self, wave: int, waves: int, moves: int) -> None:
        """A wave with ``moves`` moves starts."""

    def evicted(self, move: Move) -> None:
        """The API server accepted an eviction."""

    def not_evicted(self, outcome: Outcome) -> None:
        """A move of the wave ended without an eviction."""

    def landed(self, move: Move, node: str, *, predicted: bool, seconds: float) -> None:
        """A replacement was bound to a node."""

    def waiting(self, wave: int, pending: int, unready: int) -> None:
        """Replacements are still pending, or not Ready."""


Recheck = Callable[[Sequence[Move]], Sequence[tuple[Move, str | None]]]
"""Given the moves that are left, returns each as expected now, and why it no longer pays or None."""

_POLL_INTERVAL = 0.25
"""Seconds: the longest wait for changes of pods before the stop condition is checked again."""
_LOOK_INTERVAL = 5.0
"""Seconds between two looks at the EvictionRequests of a wave that are open."""
_MISSES = 0.05
_LEAST_MISSES = 3
_CHANCE = 0.01
# Probabilities are written with six digits, for up to twenty nodes.
_ROUNDED = 1e-4


@dataclass(frozen=True, slots=True)
class WavePace:
    """Time limits of a wave, in seconds."""

    ready: float = 120.0
    """How long a run waits until all replacements of a wave are Ready."""
    pending: float = 30.0
    """How long a replacement may take to be scheduled; after that the run stops."""
    in_order: int = IN_ORDER
    """Waves of up to this number of moves are evicted in the plan's order."""
    placed: float = 1.0
    """Pause after each eviction of such a wave, unless its replacement is bound to a node before."""
    gone: float = 40.0
    """How long the pods that a chain evicts first may take to be gone; the default grace period is 30."""
    parallel: int = 8
    """Evictions at once in larger waves."""

    @classmethod
    def of(cls, safety: Safety) -> WavePace:
        """Return the time limits that a policy sets."""
        return cls(
            pending=safety.max_pending_time.total_seconds(),
            ready=safety.max_ready_time.total_seconds(),
        )


@dataclass(frozen=True, slots=True)
class Execution:
    """The outcome of a plan."""

    outcomes: tuple[Outcome, ...]
    """One per move, in the plan's order."""
    stopped: str | None
    """Why the run ended before the plan did, if so."""
    failed: bool
    """Something planned failed or was cut off for a reason of its own (exit code 4)."""
    refused: str | None = None
    """The API server refused the first eviction outright (exit code 3)."""
    marks_left: bool = False
    """Marks of this run could not be removed from nodes."""
    marks_changed: bool = False
    """Marks that outlast the run were set, renewed or removed, or may have been."""
    now: ClusterNow | None = None
    """The cluster as the run has left it; None where it could not be read again, or need not be."""


class Executor:
    """Executes one plan."""

    def __init__(
        self,
        actor: Actor,
        feed: Feed,
        stop: Stop,
        pace: WavePace,
        progress: WaveProgress,
        *,
        domains: Callable[[str], Mapping[str, str]],
        ordered: bool = False,
        marks: Marks | None = None,
        leaders: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """``domains`` returns the labels of a node, to compare landings by domain; ``ordered``: see Attempt.

        ``marks``: None if no move needs any. ``leaders``: uids of the pods that lead their groups -> the names of their LeaderWorkerSets.
        """
        self._marks, self._leaders = marks, leaders
        self._actor, self._stop, self._pace = actor, stop, pace
        self._ordered = ordered
        self._progress, self._domains = progress, domains
        self._arrivals = Arrivals(feed, self._fits)
        self._outcomes: dict[str, Outcome] = {}
        self._why: str | None = None
        self._left: Sequence[Move] = ()
        """The moves of later waves."""
        self._failed = False
        self._refusal: str | None = None
        """The API server's message when it forbade an eviction."""
        self._look_at = math.inf
        """When the open EvictionRequests are looked at next."""

    def run(self, moves: Sequence[Move], recheck: Recheck) -> Execution:
        """Execute ``moves``; between waves ``recheck`` drops those that no longer pay."""
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
                left = self._recheck(left, recheck)
            if self._why is not None or self._cut_by_stop():
                break
            now = [move for move in left if move.wave == wave]
            left = self._left = [move for move in left if move.wave != wave]
            if now:
                first = False
                self._progress.wave_started(wave, waves, len(now))
                self._wave(now, wave)
        if left:
            # Moves that the deadline or a signal leaves undone were cut, whatever ended the last wave.
            self._cut_by_stop()
        for move in left:
            self._note(Outcome(move, Status.NOT_ATTEMPTED, self._why or "the run ended"))
        if self._stop.is_signalled and self._stop.final_reason() is None:
            self._withdraw_open()
        outcomes = tuple(self._outcomes[move.uid] for move in moves)
        evicted = any(outcome.status.may_have_evicted for outcome in outcomes)
        return Execution(outcomes, self._why, self._failed, None if evicted else self._refusal)

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcomes of the moves so far, also after :meth:`run` raised an exception."""
        return tuple(self._outcomes.values())

    def _withdraw_open(self) -> None:
        """Withdraw the EvictionRequests of pods that do not terminate yet, so that nothing continues after a signal."""
        for outcome in list(self._outcomes.values()):
            if outcome.may_be_asked_for and not self._is_ending(outcome.move):
                self._note(self._withdraw(outcome, self._stop.reason() or "", in_vain=False))

    def _withdraw(self, outcome: Outcome, why: str, *, in_vain: bool) -> Outcome:
        """Withdraw a request; return the outcome of its move then. ``in_vain``: its responders had their time."""
        if (failed := self._actor.withdraw(outcome.move, in_vain=in_vain)) is None:
            return Outcome(outcome.move, Status.DROPPED, f"its request was withdrawn: {why}")
        self._failed = True
        return replace(outcome, message=f"its request could not be withdrawn: {failed}")

    def _is_ending(self, move: Move) -> bool:
        """Return whether the pod of a move terminates, or is gone."""
        return bool(self._arrivals.is_gone(move.uid) or self._arrivals.ending([move]))

    def _until_gone(self, left: Sequence[Move]) -> None:
        """Wait until the pods are gone that were evicted to make room for a move of ``left``.

        The plan needs their room. While they occupy it, that move cannot land as planned, and the evictions before
        it would be useless.
        """
        before = frees_room(self._outcomes.values(), left)
        until = self._stop.now() + self._pace.gone
        while before and self._arrivals.ending(before):
            if self._stop.now() >= until or not self._wait(until):
                return

    def _wait(self, until: float) -> bool:
        """Wait for changes of pods, until the clock time ``until`` at most; return False to give up.

        A lost view of pods is an error if the whole wave is awaited, or if the cluster is read.
        """
        if self._stop.reason() is not None:
            return False
        try:
            self._arrivals.wait(max(0.0, min(_POLL_INTERVAL, until - self._stop.now())))
        except ClusterReadError:
            return False
        return True

    def _recheck(self, left: Sequence[Move], recheck: Recheck) -> list[Move]:
        if self._cut_by_stop():
            return list(left)
        kept: list[Move] = []
        try:
            judged = recheck(left)
        except ClusterReadError as error:
            if not self._cut_by_stop():
                self._cut(f"the run could not go on to its next wave: {error}")
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
        done: list[Outcome] = []
        for gang, of_gang in groupby(moves, key=lambda move: move.gang):
            some = list(of_gang)
            if self._why is not None:
                for move in some:
                    self._note(Outcome(move, Status.NOT_ATTEMPTED, self._why))
            elif gang:
                done += self._together(some)
            elif len(some) <= self._pace.in_order or any(move.marks for move in some):
                done += self._in_order(some)
            else:
                done += self._in_parallel(some)
        self._judge_answers(done)
        evicted = [outcome.move for outcome in done if outcome.status.is_carried_out]
        evicted += self._list_ended_with(evicted, done)
        if evicted := [move for move in evicted if move.landings]:
            self._await(evicted, wave)
            self._judge_landings()

    def _list_ended_with(self, evicted: Sequence[Move], done: Sequence[Outcome]) -> list[Move]:
        """Return the moves of pods that their controllers have ended with others of their gang, before these were evicted."""
        gangs = {move.gang for move in evicted if move.gang}
        return [one.move for one in done if one.status is Status.GONE and one.move.gang in gangs]

    def _in_order(self, moves: Sequence[Move]) -> list[Outcome]:
        """Evict one by one, each after the previous replacement has a node.

        The plan predicts each landing with the earlier ones in place. Replacements that reach the scheduler in
        another order would take each other's places. Each eviction has the marks of its prediction.
        """
        done: list[Outcome] = []
        for move in moves:
            outcome = self._in_vain(move) or self._not_marked(move)
            if outcome is not None:
                self._note(outcome)
                self._progress.not_evicted(outcome)
                done.append(outcome)
                continue
            done += self._lane([move])
            if done[-1].status.is_carried_out and move.landings:
                self._until_placed(move)
        self._until_let_in([one.move for one in done if one.status.is_carried_out])
        self._unmark()
        return done

    def _together(self, moves: Sequence[Move]) -> list[Outcome]:
        """Evict the pods of a gang together; a gang of which only a part has left ends the run.

        Where they make room, the nodes that are being made free are marked until it is taken, as for other moves. Of an exchange
        each pod leaves once the one before is gone, with the marks of all.
        """
        first = moves[0]
        in_turn = first.room is not None or first.exchanges
        if in_turn:
            outcome = self._in_vain(first) or self._not_marked(first)
            if outcome is not None:
                return self._all_stay(moves, outcome)
        done: list[Outcome] = []
        for outcome in self._outcomes_of(moves):
            done.append(outcome)
            self._take(outcome)
            if first.exchanges and outcome.status.is_carried_out:
                self._until_ended(outcome.move)
        gone = (Status.GONE, Status.CHANGED)
        stayed = [one for one in done if not (one.status.is_carried_out or one.status in gone)]
        if stayed and any(one.status.may_have_evicted for one in done):
            one = stayed[0]
            how = "may have stayed" if one.status is Status.LOST else "stayed"
            self._cut(
                f"{first.gang}: {len(done) - len(stayed)} of its {len(done)} pods have left, "
                f"and {one.move.ref} {how}: {one.message}"
            )
        if in_turn:
            left = [one.move for one in done if one.status.is_carried_out]
            for move in left:
                self._until_placed(move)
            if not stayed:
                self._until_let_in(left)
            self._unmark()
        return done

    def _until_ended(self, move: Move) -> None:
        """Wait until the pod of an exchange no longer occupies its room, as long as a wave may take: another pod lands there."""
        until = self._stop.now() + self._pace.ready
        while not self._arrivals.is_gone(move.uid):
            if self._stop.now() >= until or not self._wait(until):
                return

    def _outcomes_of(self, moves: Sequence[Move]) -> Iterator[Outcome]:
        """Move the pods of a gang in the order in which each of them starts once, or all pods of a Deployment by a restart.

        A leader is evicted last: once other pods of its group are gone its controller restarts the whole group. If the controller does
        so only once the leader is gone, the leader is evicted first.
        """
        attempt = self._attempt(moves)
        if isinstance(attempt, RolloutAttempt):
            yield from attempt.carry_out(moves)
            return
        first = next((move for move in moves if self._goes_first(move)), None)
        last = [move for move in moves if move is not first and move.uid in self._leaders]
        others = [move for move in moves if move is not first and move not in last]
        in_order = [*([first] if first is not None else ()), *others, *last]
        yield from attempt.carry_out(in_order, others_follow=first is not None)

    def _goes_first(self, move: Move) -> bool:
        """Return whether a pod leads a group that is started again only with it; it does not where that cannot be read."""
        name = self._leaders.get(move.uid)
        with suppress(ClusterReadError):
            return bool(name) and not self._actor.recreates_group(move.namespace, str(name))
        return False

    def _attempt(self, moves: Sequence[Move]) -> GangAttempt | RolloutAttempt:
        """Return what moves the pods of a gang, or all pods of a Deployment by a restart."""

        def unready(move: Move) -> str | None:
            return self._arrivals.unready_sibling(move.uid)

        actor, stop = self._actor, self._stop
        if all(move.method is Method.RESTART for move in moves):
            return RolloutAttempt(actor, stop, unready_sibling=unready, ordered=self._ordered)
        return GangAttempt(
            actor,
            stop,
            unready_sibling=unready,
            ordered=self._ordered,
            seconds=self._pace.ready,
        )

    def _all_stay(self, moves: Sequence[Move], outcome: Outcome) -> list[Outcome]:
        """Note that none of ``moves`` is made, and why."""
        done = [replace(outcome, move=move) for move in moves]
        for one in done:
            self._note(one)
            self._progress.not_evicted(one)
        return done

    def _in_vain(self, move: Move) -> Outcome | None:
        """Return the outcome of a move whose unit has another move that failed."""
        if not move.unit:
            return None
        for outcome in self._outcomes.values():
            left = outcome.status.may_have_evicted or outcome.status is Status.GONE
            if outcome.move.unit == move.unit and not left:
                why = f"it would be in vain: {outcome.move.ref} did not leave"
                return Outcome(move, Status.DROPPED, why)
        return None

    def _until_let_in(self, made: Sequence[Move]) -> None:
        """Wait until the pods for which the moves of a wave have made room have their nodes; its marks are kept meanwhile.

        The room is available once the victims are gone. If a pod is not placed then, the run ends without it.
        """
        coming = {move.makes_way_for for move in self._left}
        rooms = [
            move
            for move in made
            if move.room and move.makes_way_for and move.makes_way_for not in coming
        ]
        until, gone = self._stop.now() + self._pace.ready, False
        while waiting := self._waiting(rooms):
            if not gone and not self._arrivals.ending(rooms):
                gone, until = True, min(until, self._stop.now() + self._pace.pending)
            if self._stop.now() >= until:
                self._cut(f"{', '.join(waiting)}: still without a node, though room was made")
                return
            if not self._hold(rooms) or not self._wait(until):
                return

    def _waiting(self, rooms: Sequence[Move]) -> list[str]:
        """Return the names of the pods for which room is made, as far as they have no node."""
        refs = {self._arrivals.still_waits(move.makes_way_for) for move in rooms}
        return sorted(ref for ref in refs if ref is not None)

    def _hold(self, rooms: Sequence[Move]) -> bool:
        """Have the nodes marked that are kept free for pods that have none yet; return whether they are."""
        held = {
            node
            for move in rooms
            if self._arrivals.still_waits(move.makes_way_for) is not None
            for node in move.room or ()
        }
        try:
            why = self._marks.stand_on(held) if self._marks is not None else None
        except ClusterReadError as error:
            why = str(error)
        if why is not None:
            self._cut(f"the room that was made cannot be kept: {why}")
        return why is None

    def _not_marked(self, move: Move) -> Outcome | None:
        """Mark exactly the nodes that ``move`` needs; return the outcome if that fails, else None."""
        if self._marks is None or self._stop.reason() is not None:
            return None
        try:
            why = self._marks.stand_on(move.marks)
        except ClusterReadError as error:
            return (
                None
                if self._stop.reason() is not None
                else Outcome(move, Status.FAILED, str(error))
            )
        return None if why is None else Outcome(move, Status.DROPPED, why)

    def _unmark(self) -> None:
        """Remove the marks of a wave whose replacements have landed, except on nodes where room is still being made."""
        coming = {move.unit for move in self._left if move.room is not None}
        newest = {
            outcome.move.unit: outcome.move.room or ()
            for outcome in self._outcomes.values()
            if outcome.status.is_carried_out and outcome.move.unit in coming
        }
        try:
            if self._marks is not None:
                self._marks.stand_on({node for room in newest.values() for node in room})
        except ClusterReadError as error:
            self._cut(f"marks could not be removed: {error}")

    def _until_placed(self, move: Move) -> None:
        """Wait briefly until the replacement of ``move`` has a node; some come much later.

        A replacement that needs marks is awaited while the marks exist.
        """
        until = self._stop.now() + (self._pace.gone if move.marks else self._pace.placed)
        while _is_unplaced(self._arrivals.replacements([move]).get(move.uid)):
            if self._stop.now() >= until or not self._wait(until):
                return

    def _in_parallel(self, moves: Sequence[Move]) -> list[Outcome]:
        """Evict in parallel across PodDisruptionBudgets, one by one within each."""
        lanes: dict[str, list[Move]] = {}
        for move in moves:
            lanes.setdefault(move.budgets[0] if move.budgets else move.uid, []).append(move)
        with ThreadPoolExecutor(max_workers=self._pace.parallel) as pool:
            return [outcome for lane in pool.map(self._lane, lanes.values()) for outcome in lane]

    def _lane(self, moves: Sequence[Move]) -> list[Outcome]:
        """Evict the moves of one PodDisruptionBudget one by one; each outcome is recorded at once."""
        attempt = Attempt(
            self._actor,
            self._stop,
            unready_sibling=lambda move: self._arrivals.unready_sibling(move.uid),
            ordered=self._ordered,
        )
        outcomes: list[Outcome] = []
        for move in moves:
            if self._refusal is not None:
                outcome = Outcome(move, Status.NOT_ATTEMPTED, self._refusal)
            else:
                outcome = self._until_responded(attempt.carry_out(move))
            outcomes.append(outcome)
            self._take(outcome)
        return outcomes

    def _until_responded(self, outcome: Outcome) -> Outcome:
        """Wait until responders end a pod whose room or marks are used in this run; withdraw a request that takes longer than a wave.

        Other pods are awaited with their wave, and may be in flight when the run ends.
        """
        move, until = outcome.move, self._stop.now() + self._pace.ready
        if outcome.status is not Status.REQUESTED or not (move.marks or move.makes_way_for):
            return outcome
        while not self._is_ending(move):
            if self._stop.now() >= until or not self._wait(until):
                why = self._stop.reason()
                late = "its responders take longer than safety.maxReadyTime, and others wait for it"
                return self._withdraw(outcome, why or late, in_vain=why is None)
        return outcome

    def _take(self, outcome: Outcome) -> None:
        if outcome.status is Status.REFUSED:
            # No other eviction will be allowed either: none is asked for any more, in no lane.
            self._refusal = outcome.message
        self._note(outcome)
        if outcome.status.is_carried_out:
            self._progress.evicted(outcome.move)
            self._actor.announce(outcome.move)
        else:
            self._progress.not_evicted(outcome)

    def _judge_answers(self, done: Sequence[Outcome]) -> None:
        if self._refusal is not None:
            self._cut(self._refusal)
        self._failed |= any(outcome.status.is_failure for outcome in done)
        if any(outcome.status is Status.NOT_ATTEMPTED for outcome in done):
            self._cut_by_stop()

    def _judge_landings(self) -> None:
        """Stop if replacements landed outside their predictions too often.

        Where those of a rollout land depends on which old pods have gone then, which is not the scheduler's choice.
        """
        landed = [
            bool(o.predicted) or any(one.node == o.landed for one in o.move.landings)
            for o in self._outcomes.values()
            if o.predicted is not None and not _is_of_rollout(o.move)
        ]
        elsewhere = landed.count(False)
        if contradicts(elsewhere, len(landed)):
            self._cut(
                f"{elsewhere} of {len(landed)} replacements landed where none was predicted: "
                "does the scheduler run with the version, profile and weights that the policy names?"
            )

    def _cut(self, why: str) -> None:
        self._why = self._why or why
        self._failed = True

    def _cut_by_stop(self) -> bool:
        """Return whether the run must end with moves undone, and record it."""
        why = self._stop.reason()
        if why is not None:
            self._cut(why)
        return why is not None

    # -- landings ----------------------------------------------------------------------------------

    def _await(self, moves: Sequence[Move], wave: int) -> None:
        """Wait until every replacement of the wave is Ready, and record where each landed.

        A restarted rollout ends when the old pod is gone, too. A rollout whose new pod does not become Ready has
        failed, until a person acts.
        """
        started = self._stop.now()
        # A request that was made again still shows what became of it before, until its controller has looked.
        self._look_at = started + _LOOK_INTERVAL
        self._await_until(moves, wave, started)
        waited = self._stop.now() - started
        replacements = self._arrivals.replacements(moves)
        for move in moves:
            if move.method is Method.RESTART and not self._arrivals.is_gone(move.uid):
                outcome = self._outcomes[move.uid]
                why = f"{outcome.message}; the rollout is not at its end after {waited:.0f} s"
                self._note(replace(outcome, message=why))
                self._failed |= not _is_ready(replacements.get(move.uid))
            elif self._is_asked_for(move):
                why = "its responders have not ended it yet; the next run goes on with the request"
                self._note(replace(self._outcomes[move.uid], message=why))

    def _is_asked_for(self, move: Move) -> bool:
        """Return whether the pod has an open EvictionRequest, and does not end yet."""
        asked = self._outcomes[move.uid].status is Status.REQUESTED
        return asked and not self._is_ending(move)

    def _end_refused(self, asked: Sequence[Move]) -> None:
        """Look at the requests that are open, once in a while: note those that came to nothing, and withdraw them."""
        if self._stop.now() < self._look_at:
            return
        self._look_at = self._stop.now() + _LOOK_INTERVAL
        for move in asked:
            if (why := self._actor.find_refusal(move)) is not None:
                self._actor.withdraw(move, in_vain=True)
                outcome = Outcome(move, Status.FAILED, f"its request came to nothing: {why}")
                self._note(outcome)
                self._progress.not_evicted(outcome)
                self._failed = True

    def _await_until(self, moves: Sequence[Move], wave: int, started: float) -> None:
        announced: set[str] = set()
        counted: tuple[int, int] | None = None
        listed, in_turn = False, any(map(_is_of_rollout, moves))
        since = started
        while True:
            replacements = self._arrivals.replacements(moves)
            waited = self._stop.now() - started
            self._record(moves, replacements, waited, announced)
            # Whether its owner is still one to take pods from is judged before the next wave.
            awaited = [m for m in moves if self._is_awaited(m, replacements)]
            asked = {m.uid for m in awaited if self._is_asked_for(m)}
            self._end_refused([m for m in awaited if m.uid in asked])
            pending = count_pending([m for m in awaited if m.uid not in asked], replacements)
            unready = sum(1 for m in awaited if not self._is_settled(m, replacements.get(m.uid)))
            if unready == 0 or self._must_end_waiting(waited, unready):
                return
            if (pending, unready) != counted:
                counted = (pending, unready)
                self._progress.waiting(wave, pending, unready)
                if in_turn:
                    # As for a Deployment's progressDeadlineSeconds, each pod has its time: they come one after the other.
                    since, listed = self._stop.now(), False
            quiet = self._stop.now() - since - self._arrivals.pause_before(awaited, replacements)
            late = quiet >= self._pace.ready or (pending and quiet >= self._pace.pending)
            if late and listed:
                self._give_up(waited, pending, unready)
                return
            try:
                if late:
                    # A watch may have gone silent: what it did not say, a list does.
                    listed = True
                    self._arrivals.list_again()
                else:
                    self._arrivals.wait(_POLL_INTERVAL)
            except ClusterReadError as error:
                self._cut(f"lost sight of the pods: {error}")
                return

    def _is_awaited(self, move: Move, replacements: Mapping[str, Replacement]) -> bool:
        failed = self._outcomes[move.uid].status is Status.FAILED
        return not (failed or self._arrivals.withdrawn(move.uid, replacements))

    def _is_settled(self, move: Move, replacement: Replacement | None) -> bool:
        if move.method is Method.RESTART and not self._arrivals.is_gone(move.uid):
            return False
        # What its controller has made meanwhile, as for a scale-out, replaces nothing while it stands.
        return not self._is_asked_for(move) and _is_ready(replacement)

    def _must_end_waiting(self, waited: float, unready: int) -> bool:
        """Return whether the run must end while replacements are awaited, and record why."""
        why = self._stop.reason()
        if why is None:
            return False
        if self._stop.since == self._stop.deadline:
            self._leave_in_flight(waited, unready)
        else:
            self._cut(why)
        return True

    def _give_up(self, waited: float, pending: int, unready: int) -> None:
        if pending:
            self._cut(f"{count(pending, 'replacement')} still without a node after {waited:.0f} s")
        else:
            self._leave_in_flight(waited, unready)

    def _leave_in_flight(self, waited: float, unready: int) -> None:
        """Record that the run ends at the in-flight budget; the next run continues."""
        self._why = self._why or (
            f"{count(unready, 'replacement')} not ready yet after {waited:.0f} s; "
            "what is in flight counts in the next run"
        )

    def _record(
        self,
        moves: Sequence[Move],
        replacements: dict[str, Replacement],
        seconds: float,
        announced: set[str],
    ) -> None:
        for move in moves:
            replacement = replacements.get(move.uid)
            if replacement is None or not replacement.node or self._is_asked_for(move):
                continue
            if move.uid in announced and self._outcomes[move.uid].landed == replacement.node:
                continue
            predicted = self._fits(move, replacement.node)
            self._note(
                Outcome(
                    move,
                    self._outcomes[move.uid].status,
                    f"{REPLACED_BY}{replacement.name}",
                    landed=replacement.node,
                    predicted=predicted,
                    seconds=round(seconds, 3),
                )
            )
            if move.uid not in announced:
                announced.add(move.uid)
                self._progress.landed(move, replacement.node, predicted=predicted, seconds=seconds)

    def _fits(self, move: Move, node: str) -> bool:
        return as_predicted(move, self._domains(node), node)

    def _note(self, outcome: Outcome) -> None:
        self._outcomes[outcome.move.uid] = outcome


def count_pending(moves: Iterable[Move], replacements: Mapping[str, Replacement]) -> int:
    """Return how many replacements lack a node. Those that a rollout has not started yet lack none, once it has started one."""
    moves = list(moves)
    begun = {move.gang for move in moves if _is_of_rollout(move) and move.uid in replacements}
    return sum(
        1
        for move in moves
        if _is_unplaced(replacements.get(move.uid))
        and (move.uid in replacements or move.gang not in begun)
    )


def _is_of_rollout(move: Move) -> bool:
    """Return whether a move is one of several by the same restart."""
    return move.of_gang and move.method is Method.RESTART


def frees_room(outcomes: Iterable[Outcome], left: Sequence[Move]) -> list[Move]:
    """Return the executed moves that make room for one of ``left``."""
    coming = {move.uid for move in left}
    return [
        outcome.move
        for outcome in outcomes
        if outcome.status.is_carried_out and outcome.move.makes_way_for in coming
    ]


def as_predicted(move: Move, domains: Mapping[str, str], node: str) -> bool:
    """Return whether a replacement on ``node`` landed where the move expected it.

    ``domains``: the node's topology labels. The topology key of the move's terms decides; without one, the node. A pod that
    is moved for its place, and whose replacement is on its own node, has not moved, however likely that was.
    """
    if node == move.node and move.cause is Cause.PLACE:
        return False
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
    """Return whether this number of landings outside their predictions is more than chance.

    One landing in twenty may miss: ties, another order of arrival. A number of misses that has a probability of less
    than one percent, by the tail of the binomial distribution, indicates a wrong model.
    """
    fewer = sum(
        math.comb(landed, k) * _MISSES**k * (1 - _MISSES) ** (landed - k) for k in range(elsewhere)
    )
    return elsewhere >= _LEAST_MISSES and 1.0 - fewer < _CHANCE


def _is_unplaced(replacement: Replacement | None) -> bool:
    return replacement is None or not replacement.node


def _is_ready(replacement: Replacement | None) -> bool:
    return replacement is not None and bool(replacement.node) and replacement.ready


__all__ = ["Execution", "Executor", "Recheck", "WavePace", "WaveProgress"]
