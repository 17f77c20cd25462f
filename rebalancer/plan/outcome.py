"""The outcome of each planned move; the words are stable: reports, metrics and the memory use them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rebalancer.plan.plan import Move


class Status(enum.StrEnum):
    """How a move ended."""

    EVICTED = "evicted"
    """The pod was evicted."""
    RESTARTED = "restarted"
    """The rollout of the pod's Deployment was restarted."""
    BLOCKED = "blocked"
    """A PodDisruptionBudget allowed no disruption, up to the deadline."""
    CHANGED = "changed"
    """The name belongs to another pod by now, or the pod is on another node."""
    GONE = "gone"
    """The pod was already gone or terminating, for another reason."""
    MISCONFIGURED = "misconfigured"
    """More than one PodDisruptionBudget selects the pod: the API refuses every eviction of it."""
    REFUSED = "refused"
    """The API server forbade it: a right is missing."""
    FAILED = "failed"
    """The API server answered with errors, or asked to wait, up to the deadline."""
    LOST = "lost"
    """The reply was lost, and the pod could not be read afterwards."""
    DROPPED = "dropped"
    """Judged again before its eviction: it gains too little by now, or the pod is protected now."""
    NOT_ATTEMPTED = "not-attempted"
    """The run ended before its turn."""
    OBSERVED = "observed"
    """Its strategy only observes."""
    PLANNED = "planned"
    """A dry run: it would have been tried."""

    @property
    def is_failure(self) -> bool:
        """Whether something planned went wrong for a reason of its own (exit code 4)."""
        return self in _FAILURES

    @property
    def is_carried_out(self) -> bool:
        """Whether the API server has taken the move, by either method."""
        return self in (Status.EVICTED, Status.RESTARTED)

    @property
    def may_have_evicted(self) -> bool:
        """Whether the move was carried out, or nothing rules it out: what budgets over runs count."""
        return self.is_carried_out or self is Status.LOST


_FAILURES = frozenset({Status.MISCONFIGURED, Status.REFUSED, Status.FAILED, Status.LOST})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one move."""

    move: Move
    status: Status
    message: str
    """Why, in one sentence; may be empty."""
    landed: str | None = None
    """Node of the replacement, None while it has none or is not known."""
    predicted: bool | None = None
    """Whether it landed where the move expected it, None while it has not landed."""
    seconds: float = 0.0
    """From the eviction until the replacement had a node, or until the move ended."""
