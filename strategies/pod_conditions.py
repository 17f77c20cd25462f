"""Pod conditions as options of strategies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field, model_validator

from rebalancer.api import Duration, Params, PodState

_OF_ALL = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled")


class ConditionParams(Params):
    """A pod condition to match; all given fields must match the same condition."""

    type: str = Field(default="", description="Its type, like Ready; empty: any.")
    status: Literal["", "True", "False", "Unknown"] = Field(
        default="", description="True, False or Unknown; empty: any."
    )
    reason: str = Field(default="", description="Its reason; empty: any.")
    min_time_since_last_transition: Duration | None = Field(
        default=None, description="It has been so for at least this time."
    )

    @model_validator(mode="after")
    def _says_something(self) -> ConditionParams:
        if not (self.type or self.status or self.reason):
            raise ValueError("a condition needs type, status or reason")
        if self.status == "True" and self.type in _OF_ALL and not self.reason:
            raise ValueError(f"every healthy pod has {self.type} True; leave this condition out")
        return self

    def matches(self, kind: str, status: str, reason: str) -> bool:
        """Return whether a condition has this type, status and reason; its duration is not checked."""
        wanted = ((self.type, kind), (self.status, status), (self.reason, reason))
        return all(one in ("", other) for one, other in wanted)

    def least(self) -> float:
        """Return the minimum duration of the condition in seconds."""
        least = self.min_time_since_last_transition
        return 0.0 if least is None else max(0.0, least.total_seconds())


def matching(asked: Sequence[ConditionParams], state: PodState, now: float) -> Iterator[str]:
    """Yield the conditions of a pod that match one of the configured ``asked`` at ``now`` (Unix seconds)."""
    for wanted in asked:
        for kind, status, reason, since in state.conditions:
            timed = wanted.min_time_since_last_transition is not None
            lasted = not timed or (since > 0 and now - since >= wanted.least())
            if lasted and wanted.matches(kind, status, reason):
                yield " ".join(filter(None, (kind, status, reason)))
