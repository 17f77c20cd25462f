"""EvictionRequests (KEP-4563): each requests that the responders of a pod end it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from rebalancer.base.durations import format_duration

REQUESTER = "rebalancer/moves"
"""The name of all runs in EvictionRequests: a later run continues with the requests of an earlier one."""
RESTS_FOR = timedelta(days=1)
"""Time before a new request for a pod whose responders did not end it in time."""
COUNTS_FOR = timedelta(minutes=10)
"""Time for which an open request counts as in flight without a policy: as long as a replacement that starts."""
_PREFIX = "rebalancer-"


def request_name(uid: str) -> str:
    """Return the name of our request for the pod with this uid: asking again changes nothing."""
    return f"{_PREFIX}{uid}"


@dataclass(frozen=True, slots=True)
class EvictionRequest:
    """A request to end one pod."""

    namespace: str
    name: str
    pod: str
    pod_uid: str
    requester: str
    withdrawn: bool
    """Whether its requester no longer wants the pod to end."""
    asked_at: float
    """Unix seconds; 0 for one that a run withdrew because it had to end, and that counts for nothing."""
    failed: str = ""
    """Why the API refuses it, or that no responder is left; empty while neither is so."""
    evicted: bool = False
    has_our_name: bool = False
    """It is of others, and counts for the pod for which a run would make a request of this name."""
    late: bool = False
    """It has been open for longer than responders may take: it is in flight no more, and keeps its pod alone in place."""

    @property
    def ours(self) -> bool:
        """Whether a run made it: only such a one can be withdrawn, by its name."""
        return self.requester == REQUESTER and self.name == request_name(self.pod_uid)

    @property
    def in_place_of(self) -> str:
        """The uid of a pod that we cannot request, since an object of others has the name of our request; empty if there is none."""
        taken = self.name.startswith(_PREFIX) and not self.ours
        return self.name.removeprefix(_PREFIX) if taken else ""

    @property
    def open(self) -> bool:
        """Whether responders may still end the pod for it."""
        return not (self.withdrawn or self.failed or self.evicted)

    def age(self, now: float) -> float:
        """Return the seconds between now and the time of the request; also of one in the future, which anybody can write."""
        return abs(now - self.asked_at)

    def rests(self, now: float) -> bool:
        """Return whether a recent request for the pod was unsuccessful, so that no new one is made now."""
        vain = self.ours and not (self.open or self.evicted)
        return vain and self.age(now) < RESTS_FOR.total_seconds()

    @property
    def text(self) -> str:
        """Why the pod is not moved meanwhile."""
        if self.has_our_name:
            what = f"EvictionRequest {self.name} of {self.requester} has the name of ours for it"
            return f"{what}: delete it, or no run can ask its responders to end it"
        if self.open:
            return f"EvictionRequest {self.name} of {self.requester} asks its responders to end it"
        why = self.failed or "its responders did not end it in time"
        return f"EvictionRequest {self.name}: {why}; no run asks again within {format_duration(RESTS_FOR)}"
