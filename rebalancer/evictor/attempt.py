"""One eviction, from reading the pod again to an answer that is final."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rebalancer.errors import ClusterReadError
from rebalancer.kube.evict import Answer, AnswerKind
from rebalancer.kube.podview import PodView
from rebalancer.plan.outcome import Outcome, Status
from rebalancer.plan.plan import Move

Stopped = Callable[[], str | None]
"""Says why the run must end (a signal, a lost Lease), or None."""


class Clock(Protocol):
    """Time as an argument."""

    def now(self) -> float:
        """Return seconds; only differences matter."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class Actor(Protocol):
    """The API server, as far as one eviction needs it."""

    def evict(self, namespace: str, name: str, uid: str) -> Answer:
        """Ask for the eviction, once."""

    def read_pod(self, namespace: str, name: str) -> PodView | None:
        """Return the pod of this name as it is now; raises ClusterReadError."""

    def announce(self, move: Move) -> None:
        """Tell the pod's people that it was evicted, and why."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try, in seconds of the clock."""

    deadline: float
    blocked: float = 20.0
    """For a PodDisruptionBudget to allow the eviction."""
    conflicts: int = 3
    """Answers of 409 or lost replies, each checked by reading, before it is given up."""


class Attempt:
    """Evicts pods one after the other."""

    def __init__(self, actor: Actor, clock: Clock, patience: Patience, stopped: Stopped) -> None:
        self._actor, self._clock, self._patience, self._stopped = actor, clock, patience, stopped

    def evict(self, move: Move) -> Outcome:
        """Return the outcome: evicted, or the final reason why not."""
        started = self._clock.now()
        doubts = 0
        lost = False
        backoff = 0.5
        while True:
            if (why := self._stopped()) is not None:
                return Outcome(move, Status.NOT_ATTEMPTED, why)
            if self._clock.now() >= self._patience.deadline:
                return Outcome(move, Status.NOT_ATTEMPTED, "the run's deadline has passed")
            # Read first: the server spends the PDB before it checks the uid.
            try:
                if (ended := self._changed(move, lost=lost)) is not None:
                    return ended
            except ClusterReadError as error:
                # The client has tried as long as it may: whether a lost request was heard stays open.
                return Outcome(move, Status.LOST if lost else Status.FAILED, str(error))
            answer = self._actor.evict(move.namespace, move.pod, move.uid)
            final = _FINAL.get(answer.kind)
            if final is not None:
                return Outcome(move, final, answer.message)
            if answer.kind in (AnswerKind.CHANGED, AnswerKind.LOST):
                lost = lost or answer.kind is AnswerKind.LOST
                doubts += 1
                if doubts > self._patience.conflicts:
                    status = Status.LOST if lost else Status.FAILED
                    return Outcome(move, status, answer.message)
            elif self._clock.now() - started >= self._patience.blocked:
                # Blocked by a PDB for so long, or throttled.
                blocked = answer.kind is AnswerKind.BLOCKED
                return Outcome(move, Status.BLOCKED if blocked else Status.FAILED, answer.message)
            self._clock.sleep(self._pause(answer, backoff))
            backoff = min(backoff * 2, 5.0)

    def _pause(self, answer: Answer, backoff: float) -> float:
        wanted = answer.retry_after if answer.retry_after is not None else backoff
        left = self._patience.deadline - self._clock.now()
        return max(0.0, min(wanted, left))

    def _changed(self, move: Move, *, lost: bool) -> Outcome | None:
        """Read the pod by name; say how it ended if it is no longer the one that was planned."""
        pod = self._actor.read_pod(move.namespace, move.pod)
        mine = pod is not None and pod.uid == move.uid
        if lost and (not mine or (pod is not None and pod.deleting)):
            return Outcome(move, Status.EVICTED, "the reply was lost; the pod is going")
        if pod is None:
            return Outcome(move, Status.GONE, "the pod is gone")
        if not mine:
            return Outcome(move, Status.CHANGED, "another pod has its name now")
        if pod.deleting:
            return Outcome(move, Status.GONE, "the pod is terminating already")
        if pod.node != move.node:
            return Outcome(move, Status.CHANGED, f"the pod is on {pod.node or 'no node'} now")
        return None


_FINAL = {
    AnswerKind.EVICTED: Status.EVICTED,
    AnswerKind.GONE: Status.GONE,
    AnswerKind.MISCONFIGURED: Status.MISCONFIGURED,
    AnswerKind.FORBIDDEN: Status.REFUSED,
    AnswerKind.FAILED: Status.FAILED,
}
