"""The outcome of each planned move. The values are stable: reports, metrics and the memory use them."""

from __future__ import annotations

import enum
import math
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
        """Whether the move failed for a reason of its own (exit code 4)."""
        return self in _FAILURES

    @property
    def is_carried_out(self) -> bool:
        """Whether the API server accepted the move, an eviction or a restart."""
        return self in (Status.EVICTED, Status.RESTARTED)

    @property
    def may_have_evicted(self) -> bool:
        """Whether the move was carried out, or may have been. Budgets over several runs count these."""
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


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast evictions are carried out, in seconds."""

    eviction: float = 0.1
    """For one eviction and what replaces it, of many at once.

    The ReplicaSet controller sends at most 20 requests a second (``--kube-api-qps`` of kube-controller-manager, the
    default), and a replacement takes two or more: the pod, and the status of its ReplicaSet. So ten a second are
    replaced, and more only where that limit is raised. On two loaded processors with it lifted, one took 0.2 to 0.25 s, of
    ours and of the peer's (benchmarks/scale/RESULTS.md, "The pace of a first run"). What a cluster can do more, the run
    after its first one knows.
    """
    wave: float = 2.0
    """For the replacements of a wave to be Ready, once the last one is evicted.

    Hardly any container starts in less: where nothing is remembered, a plan rather holds a few waves too many,
    which the deadline then cuts off, than too few.
    """

    @staticmethod
    def measure(evictions: int, waves: int, seconds: float) -> Pace:
        """Return the pace of an earlier run whose waves took ``seconds``; of its evictions alone if no wave ended."""
        usual = Pace()
        if evictions <= 0 or waves < 0 or not math.isfinite(seconds) or seconds <= 0:
            return usual
        if waves == 0:
            return Pace(eviction=seconds / evictions)
        waiting = seconds - evictions * usual.eviction
        if waiting < 0:
            return Pace(eviction=seconds / evictions, wave=0.0)
        return Pace(wave=waiting / waves)
