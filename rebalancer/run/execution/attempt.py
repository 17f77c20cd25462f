"""Execute one move, by eviction, restart or request, or all moves of a gang or rollout: read the pod again, send, retry until it is final."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.plain_text import count
from rebalancer.base.stop import Backoff, Stop
from rebalancer.kube.client import FINISHING
from rebalancer.kube.evict import AnswerKind, EvictionAnswer, PodView
from rebalancer.plan.plan import Cause, Method, Move, Outcome, Status
from rebalancer.wire.pods import FINISHED

_FIRST_WAIT, _MAX_WAIT = 0.5, 5.0


class Actor(Protocol):
    """The operations of the API server that one move needs."""

    def evict(
        self, namespace: str, name: str, uid: str, *, finishing: bool = False
    ) -> EvictionAnswer:
        """Send the eviction once; ``finishing``: also for some seconds after the run had to end, unless the Lease is lost."""

    def rehearse(self, namespace: str, name: str, uid: str) -> EvictionAnswer:
        """Send the eviction once as a dry run, which changes nothing."""

    def read_disruptions_allowed(self, budget: str) -> int | None:
        """Return how many disruptions the PodDisruptionBudget ``namespace/name`` allows now; None if it is gone."""

    def ask(self, move: Move) -> EvictionAnswer:
        """Ask the responders of the pod to end it; repeated calls cause one request."""

    def find_refusal(self, move: Move) -> str | None:
        """Return why the request for the pod came to nothing, though it was not withdrawn; None while it is open."""

    def withdraw(self, move: Move, *, in_vain: bool) -> str | None:
        """Withdraw the request for the pod; return why that failed, or None. ``in_vain``: it had its time."""

    def restart(self, moves: Sequence[Move]) -> EvictionAnswer:
        """Request the restart of the rollout that replaces the pods of ``moves``; repeated calls cause one restart."""

    def read_pod(
        self, namespace: str, name: str, *, seconds: float, after_stop: bool = False
    ) -> PodView | None:
        """Return the current pod of this name, within ``seconds``; raises ClusterReadError.

        ``after_stop``: also works for a moment after the run had to end.
        """

    def recreates_group(self, namespace: str, name: str) -> bool:
        """Return whether the LeaderWorkerSet starts a whole group again once one pod of it has gone; raises ClusterReadError."""

    def announce(self, move: Move) -> None:
        """Write events about an eviction for the owners of the pod."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Time limits for one eviction, in seconds."""

    seconds: float = 20.0
    """While a PodDisruptionBudget allows none, the API server throttles, or replies are lost."""
    conflicts: int = 3
    """Answers of 409, each checked by reading, before it is given up."""
    read: float = 10.0
    """Seconds for the read before an eviction: a responsive API server needs milliseconds, and other evictions wait."""
    last_read: float = 2.0
    """Seconds for the read that shows the result of a lost request, also after the run had to end."""


class Attempt:
    """Moves pods one after the other."""

    def __init__(
        self,
        actor: Actor,
        stop: Stop,
        *,
        unready_sibling: Callable[[Move], str | None],
        patience: Patience | None = None,
        ordered: bool = False,
        rehearses: bool = False,
        finishing: bool = False,
        fellows: Sequence[Move] = (),
    ) -> None:
        """``unready_sibling`` returns the name of another unready pod of the same controller, or None.

        ``ordered``: a user ordered these pods to leave; protections against rebalancing do not apply. ``rehearses``: evictions
        are dry runs. ``finishing``: others of the same gang have left; requests are sent until ``stop``, although the run has to end.
        ``fellows``: the moves by the same restart.
        """
        self._actor, self._stop, self._ordered = actor, stop, ordered
        self._rehearses, self._finishing = rehearses, finishing
        self._unready_sibling, self._fellows = unready_sibling, fellows
        self._patience = patience or Patience()

    def carry_out(self, move: Move, *, lost: bool = False) -> Outcome:
        """Execute the move; return its outcome: evicted, restarted, requested, or why not.

        ``lost``: an earlier request for this move was sent, and its reply was lost.
        """
        final = _final(move.method)
        started = self._stop.now()
        last: EvictionAnswer | None = None
        conflicts, backoff = 0, Backoff(_FIRST_WAIT, _MAX_WAIT)
        while True:
            # Read first: the server spends the PDB before it checks the uid. Reading may take long.
            ended = (
                self._end_if_stopped(move, last, lost=lost)
                or self._look(move, last, lost=lost)
                or self._end_if_stopped(move, last, lost=lost)
            )
            if ended is not None:
                return ended
            last = self._ask(move)
            lost = lost or last.kind is AnswerKind.LOST
            conflicts += last.kind is AnswerKind.CHANGED
            left = self._patience.seconds - (self._stop.now() - started)
            if last.kind in final or left <= 0 or conflicts > self._patience.conflicts:
                return self._end(move, last, lost=lost)
            pause = backoff.take()
            asked = last.retry_after or pause
            if last.kind is AnswerKind.LOST:
                # What happened to it is to be known soon, whatever a proxy says of when to come back.
                asked = min(asked, _MAX_WAIT)
            self._stop.wait(min(asked, left))

    def is_ending(self, move: Move) -> bool:
        """Return whether the pod of a move is gone or terminating; False if it cannot be read."""
        outcome = self._look(move, None, lost=False)
        return outcome is not None and outcome.status in (Status.GONE, Status.CHANGED)

    def refusal(self, move: Move) -> Outcome | None:
        """Return the outcome of a move that must not be made as the pod is now, or since the run must end; else None."""
        return self._end_if_stopped(move, None, lost=False) or self._look(move, None, lost=False)

    def _ask(self, move: Move) -> EvictionAnswer:
        if self._rehearses:
            return self._rehearse(move)
        if move.method is Method.RESTART:
            return self._actor.restart((move, *self._fellows))
        if move.method is Method.REQUEST:
            # A request spends no PodDisruptionBudget: it is made where an eviction would be let in now.
            said = self._rehearse(move)
            return self._actor.ask(move) if said.kind is AnswerKind.EVICTED else said
        return self._actor.evict(move.namespace, move.pod, move.uid, finishing=self._finishing)

    def _rehearse(self, move: Move) -> EvictionAnswer:
        said = self._actor.rehearse(move.namespace, move.pod, move.uid)
        # A dry run changes nothing: without its reply there is nothing to find out.
        return replace(said, kind=AnswerKind.THROTTLED) if said.kind is AnswerKind.LOST else said

    def _end_if_stopped(
        self, move: Move, last: EvictionAnswer | None, *, lost: bool
    ) -> Outcome | None:
        """Return the outcome if the run must end now, else None."""
        why = self._stop.reason()
        if why is None:
            return None
        if last is None:
            return Outcome(move, Status.LOST if lost else Status.NOT_ATTEMPTED, why)
        return self._end(move, last, lost=lost)

    def _end(self, move: Move, last: EvictionAnswer, *, lost: bool) -> Outcome:
        """Return the outcome for the ``last`` answer; ``lost``: an earlier response was lost."""
        status = _final(move.method).get(last.kind) or _GIVEN_UP[last.kind]
        if not lost or status.is_carried_out:
            return Outcome(move, status, last.message)
        if move.method is not Method.EVICT:
            # The old pod stays for a while either way.
            return Outcome(move, Status.LOST, last.message)
        try:
            pod = self._actor.read_pod(
                move.namespace, move.pod, seconds=self._patience.last_read, after_stop=True
            )
        except ClusterReadError as error:
            return Outcome(move, Status.LOST, f"{last.message}; the pod could not be read: {error}")
        if pod is None or pod.uid != move.uid or pod.deleting:
            return _confirm(move)
        return Outcome(move, status, last.message)

    def _look(self, move: Move, last: EvictionAnswer | None, *, lost: bool) -> Outcome | None:
        """Read the pod by name; return the outcome if it differs from the plan, else None."""
        try:
            pod = self._actor.read_pod(
                move.namespace,
                move.pod,
                seconds=self._patience.read,
                after_stop=self._finishing,
            )
        except ClusterReadError as error:
            # The client has tried as long as it may: whether a lost request was carried out stays open.
            status = Status.LOST if lost else Status.FAILED
            unread = Outcome(move, status, f"the pod could not be read: {error}")
            return self._end_if_stopped(move, last, lost=lost) or unread
        if lost and (pod is None or pod.uid != move.uid or pod.deleting):
            return _confirm(move)
        if pod is None:
            return Outcome(move, Status.GONE, "the pod is gone")
        if pod.uid != move.uid:
            return Outcome(move, Status.CHANGED, "another pod has its name now")
        if pod.deleting:
            return Outcome(move, Status.GONE, "the pod is terminating already")
        if pod.node != move.node:
            return Outcome(move, Status.CHANGED, f"the pod is on {pod.node or 'no node'} now")
        if not self._ordered and (why := self._find_protection(move, pod)) is not None:
            return Outcome(move, Status.LOST if lost else Status.DROPPED, why)
        return None

    def _find_protection(self, move: Move, pod: PodView) -> str | None:
        """Return why the pod must no longer be evicted, given its current state and siblings; else None."""
        if pod.opted_out is not None:
            return f"protected now: {pod.opted_out}"
        if self._finishing:
            # Pods of its gang have left: neither it nor its siblings need be Ready.
            return None
        if move.cause is Cause.ENDED:
            return None if pod.phase in FINISHED else "the pod has not ended"
        if not pod.ready:
            # A pod that goes for its own state takes no Ready one from its owner.
            not_ready = "protected now: the pod is not Ready"
            return None if move.cause is Cause.STATE else not_ready
        if (sibling := self._unready_sibling(move)) is not None:
            return f"protected now: {sibling} of the same controller is not Ready"
        return None


class GangAttempt:
    """Moves the pods of a gang. First all evictions are sent as dry runs; if none is refused, all are sent without a pause.

    Other clients may use up a budget between the two steps. Then as many pods as possible are still evicted: half of
    a gang is of no use, and the remaining pods would be interrupted a second time. After a signal or the deadline,
    FINISHING seconds are left for the remaining evictions.
    """

    def __init__(
        self,
        actor: Actor,
        stop: Stop,
        *,
        unready_sibling: Callable[[Move], str | None],
        ordered: bool,
        seconds: float,
    ) -> None:
        """``seconds``: so long at most it is tried to finish what is begun; the others see Attempt."""
        self._actor, self._stop, self._seconds = actor, stop, seconds
        self._finishing, self._ordered = stop.finishing(FINISHING), ordered
        self._rehearsal = Attempt(
            actor, stop, unready_sibling=unready_sibling, ordered=ordered, rehearses=True
        )

    def carry_out(self, moves: Sequence[Move], *, others_follow: bool = False) -> Iterator[Outcome]:
        """Yield the outcome of each of ``moves`` as soon as it is final.

        ``others_follow``: once the first pod is gone, its controller ends the others. They are evicted only if it does not.
        """
        started = self._stop.now()
        refused = self._rehearse(moves) or self._ends_too_soon(moves[0], started)
        if refused is not None:
            yield refused
            yield from _leave_all(refused, moves)
            return
        left, begun = list(moves), False
        lost: set[str] = set()
        until = self._stop.now() + self._seconds
        for patience in (0.0, self._seconds):
            again: list[Move] = []
            for move in left:
                seconds = min(patience, max(0.0, until - self._stop.now()))
                outcome = self._evict(move, seconds, begun=begun, lost=move.uid in lost)
                begun |= outcome.status.may_have_evicted
                if outcome.status is Status.LOST:
                    lost.add(move.uid)
                if not begun and outcome.status is not Status.GONE:
                    yield outcome
                    yield from _leave_all(outcome, moves)
                    return
                if others_follow and move is moves[0]:
                    self._await_end(moves[1:], until)
                if outcome.status in _AGAIN and not patience:
                    again.append(move)
                else:
                    yield outcome
            left = again

    def _await_end(self, moves: Sequence[Move], until: float) -> None:
        """Wait until the pods of ``moves`` end, until the clock time ``until`` at most, or until the run has to end."""
        backoff = Backoff(_FIRST_WAIT, _MAX_WAIT)
        while self._stop.reason() is None and self._stop.now() < until:
            if all(self._rehearsal.is_ending(move) for move in moves):
                return
            self._stop.wait(backoff.take())

    def _evict(self, move: Move, seconds: float, *, begun: bool, lost: bool) -> Outcome:
        attempt = Attempt(
            self._actor,
            self._finishing if begun else self._stop,
            unready_sibling=lambda _: None,  # looked at in the rehearsal
            patience=Patience(seconds=seconds),
            ordered=self._ordered,
            finishing=begun,
        )
        return attempt.carry_out(move, lost=lost)

    def _ends_too_soon(self, first: Move, started: float) -> Outcome | None:
        """Return an outcome if the run's time may end half way: the evictions take about as long as their rehearsal did."""
        took, left = self._stop.now() - started, self._stop.deadline - self._stop.now()
        if left >= took or self._stop.reason() is not None:
            return None
        why = f"left to the next run: the rehearsal took {took:.1f} s, and {left:.1f} s are left of this one"
        return Outcome(first, Status.DROPPED, why)

    def _rehearse(self, moves: Sequence[Move]) -> Outcome | None:
        """Return the outcome of the first move that would not be carried out; None if all would, and budgets allow all together."""
        for move in moves:
            outcome = self._rehearsal.carry_out(move)
            if not outcome.status.is_carried_out:
                return outcome
        for budget, number in sorted(
            Counter(ref for move in moves for ref in move.budgets).items()
        ):
            first = next(move for move in moves if budget in move.budgets)
            try:
                allowed = self._actor.read_disruptions_allowed(budget)
            except ClusterReadError as error:
                return Outcome(first, Status.FAILED, f"{budget} could not be read: {error}")
            if allowed is not None and allowed < number:
                why = f"{budget} allows {count(allowed, 'disruption')} now; {count(number, 'pod')} would go at once"
                return Outcome(first, Status.BLOCKED, why)
        return None


class RolloutAttempt:
    """Moves all pods of a Deployment by one restart of its rollout: each is looked at first, and one request is sent for all."""

    def __init__(
        self,
        actor: Actor,
        stop: Stop,
        *,
        unready_sibling: Callable[[Move], str | None],
        ordered: bool,
    ) -> None:
        """See Attempt."""
        self._actor, self._stop, self._ordered = actor, stop, ordered
        self._unready_sibling = unready_sibling

    def carry_out(self, moves: Sequence[Move]) -> Iterator[Outcome]:
        """Yield the outcome of each of ``moves``: all are restarted, or none."""
        first, *others = moves
        attempt = Attempt(
            self._actor,
            self._stop,
            unready_sibling=self._unready_sibling,
            ordered=self._ordered,
            fellows=others,
        )
        refused = next(filter(None, map(attempt.refusal, others)), None)
        outcome = refused or attempt.carry_out(first)
        yield outcome
        if outcome.status.may_have_evicted:
            yield from (replace(outcome, move=move) for move in others)
        else:
            yield from _leave_all(outcome, moves, "its rollout is not restarted")


_AGAIN = (Status.BLOCKED, Status.FAILED, Status.LOST)
"""How a move ends that another moment may let succeed."""


def _leave_all(outcome: Outcome, moves: Sequence[Move], what: str = "") -> Iterator[Outcome]:
    """Yield the outcomes of the other ``moves`` of a gang, exchange or rollout of which one has failed."""
    whole = "it changes no place" if moves[0].exchanges else "its gang stays as a whole"
    what = what or whole
    stopped = outcome.status is Status.NOT_ATTEMPTED
    status = Status.NOT_ATTEMPTED if stopped else Status.DROPPED
    why = (
        outcome.message if stopped else f"{what}, since {outcome.move.ref} stays: {outcome.message}"
    )
    for move in moves:
        if move.uid != outcome.move.uid:
            yield Outcome(move, status, why)


def _confirm(move: Move) -> Outcome:
    return Outcome(move, _DONE[move.method], "the reply was lost; the pod is going")


_DONE = {
    Method.EVICT: Status.EVICTED,
    Method.RESTART: Status.RESTARTED,
    Method.REQUEST: Status.REQUESTED,
}
_FINAL = {
    AnswerKind.EVICTED: Status.EVICTED,
    AnswerKind.RESTARTED: Status.RESTARTED,
    AnswerKind.REQUESTED: Status.REQUESTED,
    AnswerKind.DROPPED: Status.DROPPED,
    AnswerKind.GONE: Status.GONE,
    AnswerKind.MISCONFIGURED: Status.MISCONFIGURED,
    AnswerKind.FORBIDDEN: Status.REFUSED,
    AnswerKind.FAILED: Status.FAILED,
}
"""Answers after which another attempt is of no use."""
_FINAL_OF_RESTART = {**_FINAL, AnswerKind.CHANGED: Status.CHANGED}
"""A Deployment that others write at the same moment is left to them."""


def _final(method: Method) -> Mapping[AnswerKind, Status]:
    return _FINAL_OF_RESTART if method is Method.RESTART else _FINAL


_GIVEN_UP = {
    AnswerKind.BLOCKED: Status.BLOCKED,
    AnswerKind.THROTTLED: Status.FAILED,
    AnswerKind.CHANGED: Status.FAILED,
    AnswerKind.LOST: Status.LOST,
}
"""The others: how a move ends that is not tried again."""
